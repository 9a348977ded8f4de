"""A run: steps, GPUs, time and cost, exchanges between its sites, their distance, electricity.

Source: xrsrke/hf-notebooks diloco/utils.py and 03_diloco.ipynb @dfaef07 (exchange: cell 18;
electricity: cell 27); 6 FLOPs a parameter and token as in arXiv 2001.08361 section 2.1; DiLoCo:
arXiv 2311.08105.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Columns, Mends, Values
from estimators.transformer import activations, number

STATE_BYTES = 16
"""Bytes of a parameter's weight, gradient and Adam state in mixed precision (2 + 2 + 12)."""

EARTH_RADIUS_KM = 6371.009
"""Mean radius: (2 a + b) / 3 of the WGS-84 ellipsoid."""

LIGHT_METRES_PER_SECOND = 299_792_458
FIBRE_SPEED = 2 / 3
"""Speed of light in fibre over that in vacuum: a refractive index of 1.5."""

JOULES_PER_KWH = 3.6e6


def budget(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return steps, FLOPs, GPUs, time and cost.

    A step of 6 FLOPs a parameter and token takes the GPUs that finish it in `target_step_seconds`
    at ``peak x mfu``; under C12 also those that hold the training state. If `available_gpus` gives
    their number, the time of a step follows from it. The run takes ``steps x step / goodput``.
    """
    size, active = number(values, "parameters"), number(values, "active_parameters")
    tokens, batch = number(values, "dataset_tokens"), number(layouts, "global_batch_tokens")
    accumulation = number({"gradient_accumulation": 1, **layouts}, "gradient_accumulation")
    reached = number(values, "peak_flops_per_second") * number(layouts, "mfu")
    step_flops = 6 * active * batch
    in_time = reached * number(values, "target_step_seconds")

    for_flops = _gpus_for_flops(step_flops, in_time, accumulation, mends)
    for_memory = _gpus_for_memory(values, batch / accumulation, mends)
    needed = np.maximum(for_flops, for_memory) if "C12" in mends else for_flops
    at_hand = number(values, "available_gpus")
    gpus = np.where(np.isnan(at_hand), needed, at_hand)
    # As published, accumulation makes the run longer and not the step.
    at_once = gpus if "C11" in mends else np.where(np.isnan(at_hand), gpus * accumulation, gpus)
    num_steps = ceil_divide(tokens, batch) if "C15" in mends else np.floor_divide(tokens, batch)
    seconds = num_steps * _over(step_flops, gpus * reached) / number(values, "goodput")
    hours = gpus * seconds / 3600
    return {
        "critical_batch_tokens": critical_batch(size, active, tokens, mends),
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
        "cost_usd": hours * number(values, "usd_per_gpu_hour"),
    }


def critical_batch(size: Any, active: Any, tokens: Any, mends: Mends) -> Any:
    """Return the critical batch in tokens: 0.2920 C^0.3271 (arXiv 2401.02954 section 3.1).

    C is the compute of the run, 6 FLOPs a parameter and token. The source puts the number of
    parameters in place of C, and takes the result for sequences of 4,096 tokens (C9).
    """
    if "C9" in mends:
        return 0.2920 * (6 * active * tokens) ** 0.3271
    return 4096 * 0.2920 * size**0.3271


def ceil_divide(number: Any, by: Any) -> Any:
    """Return a quotient rounded up."""
    return -np.floor_divide(-number, by)


def _gpus_for_flops(step_flops: Any, in_time: Any, accumulation: Any, mends: Mends) -> Any:
    """Return the GPUs that finish a step in time; accumulation divides their number."""
    if "C11" in mends:
        return np.maximum(ceil_divide(step_flops, in_time * accumulation), 1)
    return np.floor_divide(step_flops, in_time) / accumulation


def _gpus_for_memory(values: Values, tokens: Any, mends: Mends) -> Any:
    """Return the GPUs that hold one copy of the state, and the activations if the shape is known.

    The source takes the tokens of a batch for its sequences (C13).
    """
    sequences = tokens / number(values, "seq_len") if "C13" in mends else tokens
    kept = activations(
        activation_shape(values, mends), sequences, values.get("activation_recompute")
    )
    state = STATE_BYTES * number(values, "parameters")
    return ceil_divide(state + np.nan_to_num(kept), number(values, "hbm_bytes"))


def activation_shape(values: Values, mends: Mends) -> Values:
    """Return the shape for the activations: as published, that of a plain GPT (C18)."""
    if "C18" in mends:
        return values
    plain = {"num_kv_heads": values.get("num_heads"), "uses_glu": False}
    return {**values, **plain, "ffn_hidden_size": 4 * number(values, "hidden_size")}


def _over(work: Any, rate: Any) -> Any:
    """Return work over rate in seconds; zero where no GPU works, as in the source."""
    with np.errstate(all="ignore"):
        return np.where(np.equal(rate, 0), 0.0, work / rate)


def exchange(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return bytes and seconds of the exchange of gradients, of one interval and of the run.

    With `overlaps_exchange` an exchange hides behind the steps of its interval, and the run waits
    for the excess: ``max(exchange - interval x step, 0)`` each time.
    """
    run = budget(values, layouts, mends)
    interval = number(layouts, "sync_interval_steps")
    volume = gradient_volume(values, layouts, mends)
    busiest = volume * link_copies(
        number(layouts, "num_sites"), values.get("site_links"), values.get("exchange")
    )
    one = busiest / number(layouts, "site_bytes_per_second")
    exchanges = _num_exchanges(run, layouts, mends)
    overlaps = np.equal(np.asarray(values.get("overlaps_exchange"), dtype=object), True)
    waiting = np.where(overlaps, np.maximum(one - interval * run["step_seconds"], 0), one)
    waited = waiting * exchanges
    with np.errstate(all="ignore"):
        share = np.where(waited > 0, waited / (run["training_seconds"] + waited), 0.0)
        steps = np.where(run["step_seconds"] > 0, run["step_seconds"], np.nan)
        hiding = np.ceil(one / steps)
    return {
        **run,
        "gradient_bytes": volume,
        "exchange_bytes": busiest,
        "num_exchanges": exchanges,
        "exchange_seconds": one,
        "sync_seconds": waited,
        "sync_fraction": share,
        "hiding_interval_steps": np.maximum(hiding, 1),
        **idle(waited, run["num_gpus"], values, by_price="C2" in mends),
    }


def _num_exchanges(run: Values, layouts: Columns, mends: Mends) -> Any:
    """Return how often sites exchange gradients; as published, not a whole number (C15)."""
    interval = number(layouts, "sync_interval_steps")
    if "C15" in mends:
        return ceil_divide(run["num_steps"], interval)
    return run["num_steps"] / interval


def gradient_volume(values: Values, layouts: Columns, mends: Mends) -> Any:
    """Return the bytes of one copy of the gradients.

    As published, bf16 gradients count as fp8 gradients if exchanges are rarer than steps (C1).
    """
    width = number(layouts, "gradient_bytes_per_parameter")
    if "C1" not in mends:
        halved = np.greater(layouts["sync_interval_steps"], 1) & np.equal(width, 2)
        width = np.where(halved, 1.0, width)
    return width * number(values, "parameters")


def link_copies(sites: Any, links: Any, way: Any) -> Any:
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
    shared = np.equal(np.asarray(links, dtype=object), "shared")
    way = np.asarray(way, dtype=object)
    others = sites - 1
    gather = np.where(shared, sites, others)
    ring = np.where(shared, 2 * others, 2 * others / sites)
    return np.where(
        np.equal(way, "gather"), gather, np.where(np.equal(way, "ring"), ring, 2 * others)
    )


def idle(seconds: Any, gpus: Any, values: Values, *, by_price: bool = True) -> dict[str, Any]:
    """Return the GPU-seconds of waiting and their rent, GPU-hours x price.

    As published the rent is GPU-hours / price (C2). `idle_num_gpus` GPUs wait; without it, those of
    the run (C3).
    """
    given = number(values, "idle_num_gpus")
    waited = seconds * np.where(np.isnan(given), gpus, given)
    price = number(values, "usd_per_gpu_hour")
    with np.errstate(all="ignore"):
        cost = waited / 3600 * price if by_price else waited / 3600 / price
    return {"idle_gpu_seconds": waited, "idle_cost_usd": cost}


def latency(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return distance in km, latency in seconds, and the waiting of a run with its rent.

    Latency is distance over the speed of light in the medium, one way, once an exchange.
    """
    run = budget(values, layouts, mends)
    exchanges = _num_exchanges(run, layouts, mends)
    distance = great_circle_km(
        *(number(values, f"{place}_{end}") for end in "ab" for place in ("latitude", "longitude"))
    )
    fibre = np.equal(np.asarray(values.get("medium"), dtype=object), "fibre")
    metres = distance * (1000 if "C5" in mends else 1)  # as published, kilometres over metres
    one_way = metres / (LIGHT_METRES_PER_SECOND * np.where(fibre, FIBRE_SPEED, 1.0))
    total = one_way * exchanges
    return {
        **run,
        "num_exchanges": exchanges,
        "distance_km": distance,
        "latency_seconds": one_way,
        "total_latency_seconds": total,
        **idle(total, run["num_gpus"], values),
    }


def great_circle_km(latitude_a: Any, longitude_a: Any, latitude_b: Any, longitude_b: Any) -> Any:
    """Return the distance on a sphere; the arc tangent form is exact for all distances."""
    a, b = np.radians(latitude_a), np.radians(latitude_b)
    turn = np.radians(longitude_b) - np.radians(longitude_a)
    across = np.cos(b) * np.sin(turn)
    along = np.cos(a) * np.sin(b) - np.sin(a) * np.cos(b) * np.cos(turn)
    towards = np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(turn)
    return EARTH_RADIUS_KM * np.arctan2(np.hypot(across, along), towards)


def electricity(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return power in watts, energy in joules and kWh, its price in USD and its carbon in kg.

    The facility takes `pue` times the energy of the GPUs with their servers; price and carbon are
    those of the facility.
    """
    run = budget(values, layouts, mends)
    power = number(values, "watts_per_gpu") * run["num_gpus"]
    energy = power * run["training_seconds"]
    facility = energy / JOULES_PER_KWH * number(values, "pue")
    return {
        **run,
        "power_watts": power,
        "energy_joules": energy,
        "energy_kwh": energy / JOULES_PER_KWH,
        "step_energy_kwh": power * run["step_seconds"] / JOULES_PER_KWH,
        "facility_energy_kwh": facility,
        "electricity_usd": facility * number(values, "usd_per_kwh"),
        "kg_co2e": facility * number(values, "kg_co2e_per_kwh"),
    }
