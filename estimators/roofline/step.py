"""One training step, from the figures of a layer and its layout.

``step = (forward + backward) M D + stages + bubble + exchange`` for M microbatches and D layers of
a stage, with ``bubble = (p - 1)/(M v) x ((forward + backward) M D + stages)`` for p stages and v
chunks.

Figures of a row (split and microbatch) or of a placement are computed once for each; those that
do not depend on the system are kept with the layouts. A candidate takes a few gathers and sums.

Source: arXiv 2410.00273 and its program (totals of an iteration); interleaved schedule:
arXiv 2104.04473, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.collectives import Ring, ring
from estimators.contract import Array, Mends, Values
from estimators.factored import take
from estimators.roofline.layer import Layer, System
from estimators.roofline.layouts import Layouts
from estimators.roofline.strategies import Sizes
from estimators.structure import Structure, equals

if TYPE_CHECKING:
    from estimators.values import Flag, Real, Text

OPTIMIZER_BYTES_PER_WEIGHT_BYTE = 6
"""Adam in mixed precision: two moments and a master copy of 4 bytes for a weight of 2."""

PARTS = (
    *("compute_seconds", "memory_seconds", "tensor_comm_seconds", "pipeline_comm_seconds"),
    *("bubble_seconds", "data_comm_seconds"),
)
"""Parts of a step: they add up to it."""


@dataclass(frozen=True)
class Run(Structure):
    """Layers, batch and schedule of a step, and the memory of a GPU."""

    num_layers: Real
    global_batch_size: Real
    activation_recompute: Text
    virtual_pipeline: Real
    hbm_bytes: Real

    @property
    def repeats_forward(self) -> Flag:
        """Whether the forward pass runs once more in the backward pass."""
        return equals(self.activation_recompute, "full")


class Problem(NamedTuple):
    """Everything but the layout: the layer and its kind, the system, the run, the mends."""

    kind: tuple[str, str]
    """Strategy and attention, which decide the operations of a layer."""

    sizes: Sizes
    system: System
    run: Run
    mends: Mends

    @classmethod
    def of(cls, values: Values, mends: Mends) -> Problem:
        """Build it from the values of a cell, or from those of a batch of one kind."""
        kind = values["strategy"], values["attention"]
        return cls(kind, Sizes.of(values), System.of(values), Run.of(values), mends)


class _Schedule(NamedTuple):
    """Counts of a pipeline, one element a row; those of a candidate, one element a candidate."""

    passes: Real
    """Layers of a stage times microbatches."""

    sends: Real
    """Transfers between stages in a step, both directions."""

    layers: Real
    """Layers of a stage."""

    kept_microbatches: Real
    """Microbatches whose activations 1F1B keeps at once."""

    optimizer_shards: Real
    """GPUs that share the optimizer's state: replicas, and context ranks."""

    candidate_sends: Real
    candidate_passes: Real
    candidate_later_layers: Real
    candidate_bubble_share: Real


def _schedule(layouts: Layouts, run: Run) -> _Schedule:
    """Return the counts of every layout's pipeline."""
    rows, row = layouts.tables["row"], layouts.index["row"]
    stages, replicas = rows["pipeline_parallel"], rows["data_parallel"]
    microbatches = run.global_batch_size // replicas // rows["microbatch_size"]
    layers = run.num_layers // stages
    passes = microbatches * layers
    sends = 2 * microbatches * run.virtual_pipeline
    return _Schedule(
        passes=passes,
        sends=sends,
        layers=layers,
        kept_microbatches=np.minimum(stages, microbatches),
        optimizer_shards=(replicas * rows["context_parallel"]).astype(np.float64),
        candidate_sends=take(sends, row),
        candidate_passes=take(passes, row),
        candidate_later_layers=take(layers - 1.0, row),
        candidate_bubble_share=take((stages - 1) / (microbatches * run.virtual_pipeline), row),
    )


class _Transfer(NamedTuple):
    """Shares of a pipeline's links inside and between domains, one element a placement."""

    fast_share: Real
    slow_share: Real


def _transfer(layouts: Layouts, *, is_mended: bool) -> _Transfer:
    """Return the shares of links inside and between domains: a transfer takes their mean.

    Notes
    -----
    With several stages in a domain, the source counts transfers between domains as free (mend R2).
    """
    stages = take(layouts.tables["row"]["pipeline_parallel"], layouts.placement_row)
    in_domain = layouts.tables["placement"]["nvlink_pipeline_parallel"]
    slow_links = np.maximum(stages // in_domain - 1, 0)
    slow_share = np.where(in_domain > 1, slow_links / np.maximum(stages - 1, 1), 1.0)
    fast_share = 1.0 - slow_share
    if not is_mended:
        slow_share = np.where(in_domain > 1, 0.0, slow_share)
    several: Array = stages > 1
    return _Transfer(several * fast_share, several * slow_share)


def _replica_ring(layouts: Layouts) -> Ring:
    """Return the group that shares weights: replicas, and context ranks, which hold them too."""
    rows, places = layouts.tables["row"], layouts.tables["placement"]
    holders = take(rows["data_parallel"] * rows["context_parallel"], layouts.placement_row)
    in_domain = places["nvlink_data_parallel"] * places["nvlink_context_parallel"]
    # The gather of weights and the scatter of gradients move the same share of the same bytes.
    return ring("all_gather", holders, in_domain)


def memory_parts(layouts: Layouts, layer: Layer, run: Run) -> dict[str, Real]:
    """Return per row the FLOPs and the parts of memory of one GPU.

    Notes
    -----
    1F1B keeps the activations of at most `pipeline_parallel` microbatches. The optimizer's
    state is sharded over data-parallel replicas and context ranks (ZeRO 1); weights and
    gradients are not.
    """
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, run))
    row_shard = layouts.row_shard
    weights = take(layer.weights_bytes, row_shard) * schedule.layers
    optimizer = OPTIMIZER_BYTES_PER_WEIGHT_BYTE * weights / schedule.optimizer_shards
    activations = (
        take(layer.activations_bytes, row_shard) * schedule.layers * schedule.kept_microbatches
    )
    return {
        "flops_per_gpu": take(layer.flops, row_shard) * schedule.passes,
        "weights_bytes": weights,
        "gradients_bytes": weights,
        "optimizer_bytes": optimizer,
        "activations_bytes": activations,
    }


def memory_sum(parts: dict[str, Real], run: Run) -> dict[str, Real | Flag]:
    """Return per row the memory that the parts add up to, and whether it fits."""
    memory = (
        parts["weights_bytes"]
        + parts["gradients_bytes"]
        + parts["optimizer_bytes"]
        + parts["activations_bytes"]
    )
    return {"memory_bytes": memory, "fits_memory": memory <= run.hbm_bytes}


def fill_times(layouts: Layouts, layer: Layer, problem: Problem, out: dict[str, Array]) -> None:
    """Fill the step's seconds and those `PARTS` that are in `out`, per candidate.

    Notes
    -----
    Weights are gathered before the forward pass and gradients scattered after the backward pass
    (ZeRO 1). A layer's transfer hides behind the pass of its neighbour; the first one is exposed:
    ``t + (D - 1) max(t - pass, 0)`` for D layers, each way. Transfers between stages are not
    hidden. The bubble is that of 1F1B divided by the interleaved chunks, which multiply the
    transfers (arXiv 2104.04473 section 2.2).
    """
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, problem.run))

    exchange = take(_exchange(layouts, layer, problem.system), layouts.index["placement"])
    transfers = _stage_transfers(layouts, layer, schedule, problem)
    pipeline_comm = np.add(*transfers, out=out.get("pipeline_comm_seconds"))

    forward, backward, compute, memory, tensor_comm = take(layer.seconds, layouts.candidate_layer)
    passes = schedule.candidate_passes
    for name, part in (
        ("compute_seconds", compute),
        ("memory_seconds", memory),
        ("tensor_comm_seconds", tensor_comm),
    ):
        if name in out:
            np.multiply(part, passes, out=out[name])

    late = _late(exchange, forward)
    late += _late(exchange, backward)
    late *= schedule.candidate_later_layers
    exchange *= 2
    data_comm = np.add(exchange, late, out=out.get("data_comm_seconds"))

    busy = forward + backward
    busy *= passes
    busy += pipeline_comm
    bubble = np.multiply(schedule.candidate_bubble_share, busy, out=out.get("bubble_seconds"))
    if "step_seconds" in out:
        busy += bubble
        np.add(busy, data_comm, out=out["step_seconds"])


def transfer_seconds(
    layouts: Layouts, layer: Layer, problem: Problem
) -> dict[str, tuple[Real, Real]]:
    """Return the seconds of `fill_times` that both transfers take, forward and backward.

    Returns
    -------
    dict
        ``exchange`` between replicas and ``stages`` of the pipeline, of the whole step, for a
        batch of independent layouts.
    """
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, problem.run))
    exchange = _exchange(layouts, layer, problem.system)
    forward, backward = layer.seconds[:2]
    later = schedule.candidate_later_layers
    both = np.add(*_stage_transfers(layouts, layer, schedule, problem))
    return {
        "exchange": (
            exchange + later * _late(exchange, forward),
            exchange + later * _late(exchange, backward),
        ),
        "stages": (both / 2, both / 2),
    }


def _exchange(layouts: Layouts, layer: Layer, system: System) -> Real:
    """Return per placement the seconds in which one layer's weights, or gradients, pass."""
    replicas: Ring = layouts.once("replicas", lambda: _replica_ring(layouts))
    return replicas.line(system).seconds(take(layer.weights_bytes, layouts.placement_shard))


def _late(exchange: Real, pass_seconds: Real) -> Real:
    """Return the part of a layer's exchange that its neighbour's pass does not hide."""
    return np.maximum(exchange - pass_seconds, 0.0)


def _stage_transfers(
    layouts: Layouts, layer: Layer, schedule: _Schedule, problem: Problem
) -> tuple[Real, Real]:
    """Return per candidate the seconds of latency and of bytes between stages."""
    row, place = layouts.index["row"], layouts.index["placement"]
    is_mended, system = "R2" in problem.mends, problem.system
    share: _Transfer = layouts.once(
        ("links", is_mended), lambda: _transfer(layouts, is_mended=is_mended)
    )
    fast, slow = share.fast_share, share.slow_share
    latency = fast * system.nvlink_latency_seconds + slow * system.network_latency_seconds
    per_byte = fast / system.fast_bandwidth + slow / system.slow_bandwidth
    sent_bytes = take(schedule.sends * take(layer.input_bytes, layouts.row_shard), row)
    return schedule.candidate_sends * take(latency, place), sent_bytes * take(per_byte, place)
