"""One training step: what a layout makes of its layer's figures.

Everything that depends on a row (split and microbatch) or on a placement alone is computed
there; per candidate remain a few gathers and sums.

Source: arXiv 2410.00273 and its program (totals of an iteration); interleaved schedule:
arXiv 2104.04473, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.collectives import Network, collective, point_to_point
from estimators.contract import Array, Columns, Mends, Values
from estimators.factored import take
from estimators.roofline.layer import Layer
from estimators.roofline.layouts import Layouts

OPTIMIZER_BYTES_PER_WEIGHT_BYTE = 6
"""Adam in mixed precision: two moments and a master copy of 4 bytes for a weight of 2."""


@dataclass(frozen=True)
class _Schedule:
    """Per row: how often layers run, and how the pipeline is filled."""

    passes: Any
    sends: Any
    bubble_share: Any
    later_layers: Any


def _schedule(rows: Columns, values: Values) -> tuple[_Schedule, Any, Any]:
    stages = rows["pipeline_parallel"]
    chunks = np.asarray(values["virtual_pipeline"])
    microbatches = values["global_batch_size"] // rows["data_parallel"] // rows["microbatch_size"]
    layers = values["num_layers"] // stages
    schedule = _Schedule(
        passes=(microbatches * layers).astype(np.float64),
        sends=(2.0 * microbatches) * chunks,
        bubble_share=(stages - 1) / (microbatches * chunks),
        later_layers=layers - 1.0,
    )
    return schedule, microbatches, layers


def memory_parts(
    rows: Columns, row_layer: Array | None, layer: Layer, values: Values
) -> dict[str, Any]:
    """Return per row the FLOPs and the parts of memory of one GPU.

    Notes
    -----
    1F1B keeps the activations of at most `pipeline_parallel` microbatches. The optimizer's
    state is sharded over data-parallel replicas (ZeRO 1); weights and gradients are not.
    """
    schedule, microbatches, layers = _schedule(rows, values)
    weights = take(layer.weights_bytes, row_layer) * layers
    optimizer = OPTIMIZER_BYTES_PER_WEIGHT_BYTE * weights / rows["data_parallel"]
    in_flight = np.minimum(rows["pipeline_parallel"], microbatches)
    activations = take(layer.activations_bytes, row_layer) * layers * in_flight
    memory = 2 * weights + optimizer + activations
    return {
        "flops_per_gpu": take(layer.flops, row_layer) * schedule.passes,
        "weights_bytes": weights,
        "gradients_bytes": weights,
        "optimizer_bytes": optimizer,
        "activations_bytes": activations,
        "memory_bytes": memory,
        "fits_memory": memory <= values["hbm_bytes"],
    }


def _stage_transfer(stages: Any, in_domain: Any, network: Network, mends: Mends) -> tuple[Any, Any]:
    """Return latency and seconds per byte of one transfer between pipeline stages.

    Notes
    -----
    The mean over the pipeline's links; the source forgets those between domains where some
    stages share one (mend R2).
    """
    fast, slow = point_to_point(2, network), point_to_point(1, network)
    links = np.maximum(stages - 1, 1)
    slow_links = np.maximum(stages // in_domain - 1, 0)
    slow_share = np.where(in_domain > 1, slow_links / links, 1.0)
    fast_share = 1.0 - slow_share
    if "R2" not in mends:
        slow_share = np.where(in_domain > 1, 0.0, slow_share)
    several = stages > 1
    return (
        several * (fast_share * fast.latency + slow_share * slow.latency),
        several * (fast_share * fast.seconds_per_byte + slow_share * slow.seconds_per_byte),
    )


def times(layouts: Layouts, layer: Layer, values: Values, mends: Mends) -> dict[str, Any]:
    """Return per candidate the step's seconds and its parts.

    Notes
    -----
    Weights are gathered before and gradients scattered after the pass (ZeRO 1); the transfers
    of a layer hide behind the next layer's pass, the first is exposed. Transfers between
    stages are not hidden. The bubble is that of 1F1B, divided by the interleaved chunks,
    which multiply the transfers.
    """
    rows, places = layouts.tables["row"], layouts.tables["placement"]
    row, place = layouts.index["row"], layouts.index["placement"]
    network = Network.of(values)
    schedule, _, _ = _schedule(rows, values)

    # Per placement: the data-parallel and pipeline groups, whose sizes are those of its split.
    replicas = take(rows["data_parallel"], layouts.placement_row)
    stages = take(rows["pipeline_parallel"], layouts.placement_row)
    weights = take(layer.weights_bytes, layouts.placement_layer)
    gather, scatter = (
        collective(kind, replicas, places["nvlink_data_parallel"], network).seconds(weights)
        for kind in ("all_gather", "reduce_scatter")
    )
    latency, per_byte = _stage_transfer(stages, places["nvlink_pipeline_parallel"], network, mends)

    # Per row.
    fixed, sent = schedule.sends, schedule.sends * take(layer.input_bytes, layouts.row_layer)

    # Per candidate.
    which = layouts.candidate_layer
    passes, later = take(schedule.passes, row), take(schedule.later_layers, row)
    forward, backward = take(layer.forward_seconds, which), take(layer.backward_seconds, which)
    pipeline_comm = take(fixed, row) * take(latency, place) + take(sent, row) * take(
        per_byte, place
    )
    gather, scatter = take(gather, place), take(scatter, place)
    data_comm = (
        gather
        + np.maximum(gather - forward, 0.0) * later
        + scatter
        + np.maximum(scatter - backward, 0.0) * later
    )
    busy = (forward + backward) * passes + pipeline_comm
    bubble = take(schedule.bubble_share, row) * busy
    return {
        "step_seconds": busy + bubble + data_comm,
        "compute_seconds": take(layer.compute_seconds, which) * passes,
        "memory_seconds": take(layer.memory_seconds, which) * passes,
        "tensor_comm_seconds": take(layer.comm_seconds, which) * passes,
        "pipeline_comm_seconds": pipeline_comm,
        "bubble_seconds": bubble,
        "data_comm_seconds": data_comm,
    }


TIMES = (
    "step_seconds",
    "compute_seconds",
    "memory_seconds",
    "tensor_comm_seconds",
    "pipeline_comm_seconds",
    "bubble_seconds",
    "data_comm_seconds",
)
