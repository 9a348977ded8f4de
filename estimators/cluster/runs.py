"""A run: steps, GPUs, time and cost, exchanges between its sites, their distance, electricity.

Source: xrsrke/hf-notebooks diloco/utils.py and 03_diloco.ipynb @dfaef07 (exchange: cell 18;
electricity: cell 27); 6 FLOPs a parameter and token as in arXiv 2001.08361 section 2.1; DiLoCo:
arXiv 2311.08105.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.cluster.memory import Shape, activations
from estimators.structure import Structure, equals, number

if TYPE_CHECKING:
    from estimators.contract import Mends
    from estimators.values import Flag, Real, Text

STATE_BYTES = 16
"""Bytes of a parameter's weight, gradient and Adam state in mixed precision (2 + 2 + 12)."""

EARTH_RADIUS_KM = 6371.009
"""Mean radius: (2 a + b) / 3 of the WGS-84 ellipsoid."""

LIGHT_METRES_PER_SECOND = 299_792_458
FIBRE_SPEED = 2 / 3
"""Speed of light in fibre over that in vacuum: a refractive index of 1.5."""

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Run(Structure):
    """The training of a model on GPUs of one kind, at one site or several."""

    parameters: Real
    active_parameters: Real
    dataset_tokens: Real
    shape: Shape
    activation_recompute: Text
    peak_flops_per_second: Real
    hbm_bytes: Real
    usd_per_gpu_hour: Real
    target_step_seconds: Real
    available_gpus: Real
    goodput: Real
    idle_num_gpus: Real
    site_links: Text
    exchange: Text
    overlaps_exchange: Flag
    latitude_a: Real
    longitude_a: Real
    latitude_b: Real
    longitude_b: Real
    medium: Text
    watts_per_gpu: Real
    pue: Real
    usd_per_kwh: Real
    kg_co2e_per_kwh: Real


@dataclass(frozen=True)
class Steps(Structure):
    """The batch of a run, the share of the peak that it reaches, and its exchanges."""

    global_batch_tokens: Real
    mfu: Real
    gradient_accumulation: Real
    num_sites: Real
    site_bytes_per_second: Real
    gradient_bytes_per_parameter: Real
    sync_interval_steps: Real


def budget(run: Run, steps: Steps, mends: Mends) -> dict[str, Real]:
    """Return steps, FLOPs, GPUs, time and cost.

    A step of 6 FLOPs a parameter and token takes the GPUs that finish it in `target_step_seconds`
    at ``peak x mfu``; under C12 also those that hold the training state. If `available_gpus` gives
    their number, the time of a step follows from it. The run takes ``steps x step / goodput``.
    """
    active, tokens, batch = run.active_parameters, run.dataset_tokens, steps.global_batch_tokens
    accumulation = number(steps.gradient_accumulation, missing=1.0)
    reached = run.peak_flops_per_second * steps.mfu
    step_flops = 6 * active * batch
    in_time = reached * run.target_step_seconds

    for_flops = _gpus_for_flops(step_flops, in_time, accumulation, mends)
    for_memory = _gpus_for_memory(run, batch / accumulation, mends)
    needed = np.maximum(for_flops, for_memory) if "C12" in mends else for_flops
    is_given = ~np.isnan(run.available_gpus)
    gpus = np.where(is_given, run.available_gpus, needed)
    # As published, accumulation makes the run longer and not the step.
    at_once = gpus if "C11" in mends else np.where(is_given, gpus, gpus * accumulation)
    num_steps = ceil_divide(tokens, batch) if "C15" in mends else np.floor_divide(tokens, batch)
    seconds = num_steps * _over(step_flops, gpus * reached) / run.goodput
    hours = gpus * seconds / 3600
    return {
        "critical_batch_tokens": critical_batch(run.parameters, active, tokens, mends),
        "num_steps": num_steps,
        "total_flops": 6 * active * tokens,
        "step_flops": step_flops,
        "num_gpus_unrounded": step_flops / in_time,
        "num_gpus_for_flops": for_flops,
        "num_gpus_for_memory": for_memory,
        "num_gpus": gpus,
        "step_seconds": _over(step_flops, at_once * reached),
        "training_seconds": seconds,
        "gpu_hours": hours,
        "cost_usd": hours * run.usd_per_gpu_hour,
    }


def critical_batch(size: Real, active: Real, tokens: Real, mends: Mends) -> Real:
    """Return the critical batch in tokens: 0.2920 C^0.3271 (arXiv 2401.02954 section 3.1).

    C is the compute of the run, 6 FLOPs a parameter and token. The source puts the number of
    parameters in place of C, and takes the result for sequences of 4,096 tokens (C9).
    """
    if "C9" in mends:
        return 0.2920 * (6 * active * tokens) ** 0.3271
    return 4096 * 0.2920 * size**0.3271


def ceil_divide(number: Real, by: Real) -> Real:
    """Return a quotient rounded up."""
    return -np.floor_divide(-number, by)


def _gpus_for_flops(step_flops: Real, in_time: Real, accumulation: Real, mends: Mends) -> Real:
    """Return the GPUs that finish a step in time; accumulation divides their number."""
    if "C11" in mends:
        return np.maximum(ceil_divide(step_flops, in_time * accumulation), 1)
    return np.floor_divide(step_flops, in_time) / accumulation


def _gpus_for_memory(run: Run, tokens: Real, mends: Mends) -> Real:
    """Return the GPUs that hold one copy of the state, and the activations if the shape is known.

    The source takes the tokens of a batch for its sequences (C13).
    """
    sequences = tokens / run.shape.seq_len if "C13" in mends else tokens
    kept = activations(run.shape.as_published(mends), sequences, run.activation_recompute)
    return ceil_divide(STATE_BYTES * run.parameters + np.nan_to_num(kept), run.hbm_bytes)


def _over(work: Real, rate: Real) -> Real:
    """Return work over rate in seconds; zero where no GPU works, as in the source."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(rate, 0), 0.0, work / rate)


def exchange(run: Run, steps: Steps, mends: Mends) -> dict[str, Real]:
    """Return bytes and seconds of the exchange of gradients, of one interval and of the run.

    With `overlaps_exchange` an exchange hides behind the steps of its interval, and the run waits
    for the excess: ``max(exchange - interval x step, 0)`` each time.
    """
    figures = budget(run, steps, mends)
    interval, step = steps.sync_interval_steps, figures["step_seconds"]
    volume = gradient_volume(run, steps, mends)
    busiest = volume * link_copies(steps.num_sites, run.site_links, run.exchange)
    seconds = busiest / steps.site_bytes_per_second
    exchanges = _num_exchanges(figures["num_steps"], interval, mends)
    exposed = np.where(run.overlaps_exchange, np.maximum(seconds - interval * step, 0), seconds)
    waited = exposed * exchanges
    with np.errstate(all="ignore"):
        share = np.where(waited > 0, waited / (figures["training_seconds"] + waited), 0.0)
        hiding = np.ceil(seconds / np.where(step > 0, step, np.nan))
    return {
        **figures,
        "gradient_bytes": volume,
        "exchange_bytes": busiest,
        "num_exchanges": exchanges,
        "exchange_seconds": seconds,
        "sync_seconds": waited,
        "sync_fraction": share,
        "hiding_interval_steps": np.maximum(hiding, 1),
        **idle(waited, figures["num_gpus"], run, by_price="C2" in mends),
    }


def _num_exchanges(num_steps: Real, interval: Real, mends: Mends) -> Real:
    """Return how often sites exchange gradients; as published, not a whole number (C15)."""
    return ceil_divide(num_steps, interval) if "C15" in mends else num_steps / interval


def gradient_volume(run: Run, steps: Steps, mends: Mends) -> Real:
    """Return the bytes of one copy of the gradients.

    As published, bf16 gradients count as fp8 gradients if exchanges are rarer than steps (C1).
    """
    width = steps.gradient_bytes_per_parameter
    if "C1" not in mends:
        halved = np.greater(steps.sync_interval_steps, 1) & np.equal(width, 2)
        width = np.where(halved, 1.0, width)
    return width * run.parameters


def link_copies(sites: Real, links: Text, way: Text) -> Real:
    """Return how many copies of the gradients pass the busiest link, one way.

    ================  ==================  =====================
    exchange          one shared link     a link for each site
    ================  ==================  =====================
    gather            W (as published)    W - 1
    ring              2 (W - 1)           2 (W - 1) / W
    parameter_server  2 (W - 1)           2 (W - 1)
    ================  ==================  =====================

    W is the number of sites. In a gather each site sends its copy to all others. A ring all-reduce
    moves 2 (W - 1) / W copies out of each site (Patarasuk and Yuan, 2009). A parameter server at
    one of the sites receives the copies of all others, then sends them the sum.
    """
    shared, others = equals(links, "shared"), sites - 1
    gather = np.where(shared, sites, others)
    ring = np.where(shared, 2 * others, 2 * others / sites)
    by_server = np.where(equals(way, "ring"), ring, 2 * others)
    return np.where(equals(way, "gather"), gather, by_server)


def idle(seconds: Real, gpus: Real, run: Run, *, by_price: bool = True) -> dict[str, Real]:
    """Return the GPU-seconds of waiting and their rent, GPU-hours x price.

    As published the rent is GPU-hours / price (C2). `idle_num_gpus` GPUs wait; without it, those of
    the run (C3).
    """
    waited = seconds * np.where(np.isnan(run.idle_num_gpus), gpus, run.idle_num_gpus)
    price = run.usd_per_gpu_hour
    with np.errstate(all="ignore"):
        cost = waited / 3600 * price if by_price else waited / 3600 / price
    return {"idle_gpu_seconds": waited, "idle_cost_usd": cost}


def latency(run: Run, steps: Steps, mends: Mends) -> dict[str, Real]:
    """Return distance in km, latency in seconds, and the waiting of a run with its rent.

    Latency is distance over the speed of light in the medium, one way, once an exchange.
    """
    figures = budget(run, steps, mends)
    exchanges = _num_exchanges(figures["num_steps"], steps.sync_interval_steps, mends)
    distance = great_circle_km(run.latitude_a, run.longitude_a, run.latitude_b, run.longitude_b)
    metres = distance * (1000 if "C5" in mends else 1)  # as published, kilometres over metres
    speed = LIGHT_METRES_PER_SECOND * np.where(equals(run.medium, "fibre"), FIBRE_SPEED, 1.0)
    seconds = metres / speed
    total = seconds * exchanges
    return {
        **figures,
        "num_exchanges": exchanges,
        "distance_km": distance,
        "latency_seconds": seconds,
        "total_latency_seconds": total,
        **idle(total, figures["num_gpus"], run),
    }


def great_circle_km(
    latitude_a: Real, longitude_a: Real, latitude_b: Real, longitude_b: Real
) -> Real:
    """Return the distance on a sphere; the arc tangent form is exact for all distances."""
    a, b = np.radians(latitude_a), np.radians(latitude_b)
    turn = np.radians(longitude_b) - np.radians(longitude_a)
    across = np.cos(b) * np.sin(turn)
    along = np.cos(a) * np.sin(b) - np.sin(a) * np.cos(b) * np.cos(turn)
    towards = np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(turn)
    angle: Real = np.arctan2(np.hypot(across, along), towards)
    return EARTH_RADIUS_KM * angle


def electricity(run: Run, steps: Steps, mends: Mends) -> dict[str, Real]:
    """Return power in watts, energy in joules and kWh, its price in USD and its carbon in kg.

    The facility takes `pue` times the energy of the GPUs with their servers; price and carbon are
    those of the facility.
    """
    figures = budget(run, steps, mends)
    power = run.watts_per_gpu * figures["num_gpus"]
    energy = power * figures["training_seconds"]
    facility = energy / JOULES_PER_KWH * run.pue
    return {
        **figures,
        "power_watts": power,
        "energy_joules": energy,
        "energy_kwh": energy / JOULES_PER_KWH,
        "step_energy_kwh": power * figures["step_seconds"] / JOULES_PER_KWH,
        "facility_energy_kwh": facility,
        "electricity_usd": facility * run.usd_per_kwh,
        "kg_co2e": facility * run.kg_co2e_per_kwh,
    }
