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

from typing import Any, NamedTuple

import numpy as np

from estimators.collectives import Network, Ring, ring
from estimators.contract import Array, Mends, Values
from estimators.factored import take
from estimators.roofline.layer import Layer
from estimators.roofline.layouts import Layouts

OPTIMIZER_BYTES_PER_WEIGHT_BYTE = 6
"""Adam in mixed precision: two moments and a master copy of 4 bytes for a weight of 2."""

PARTS = (
    *("compute_seconds", "memory_seconds", "tensor_comm_seconds", "pipeline_comm_seconds"),
    *("bubble_seconds", "data_comm_seconds"),
)
"""Parts of a step: they add up to it."""


class _Schedule(NamedTuple):
    """Counts of a pipeline, one element a row; those of a candidate, one element a candidate."""

    passes: Any
    """Layers of a stage times microbatches."""

    sends: Any
    """Transfers between stages in a step, both directions."""

    layers: Any
    """Layers of a stage."""

    kept_microbatches: Any
    """Microbatches whose activations 1F1B keeps at once."""

    optimizer_shards: Any
    """GPUs that share the optimizer's state: replicas, and context ranks."""

    candidate_sends: Any
    candidate_passes: Any
    candidate_later_layers: Any
    candidate_bubble_share: Any


def _schedule(layouts: Layouts, values: Values) -> _Schedule:
    """Return the counts of every layout's pipeline."""
    rows, row = layouts.tables["row"], layouts.index["row"]
    stages, replicas = rows["pipeline_parallel"], rows["data_parallel"]
    chunks = np.asarray(values["virtual_pipeline"])
    microbatches = values["global_batch_size"] // replicas // rows["microbatch_size"]
    layers = values["num_layers"] // stages
    passes = (microbatches * layers).astype(np.float64)
    sends = (2.0 * microbatches) * chunks
    return _Schedule(
        passes=passes,
        sends=sends,
        layers=layers.astype(np.float64),
        kept_microbatches=np.minimum(stages, microbatches).astype(np.float64),
        optimizer_shards=(replicas * rows["context_parallel"]).astype(np.float64),
        candidate_sends=take(sends, row),
        candidate_passes=take(passes, row),
        candidate_later_layers=take(layers - 1.0, row),
        candidate_bubble_share=take((stages - 1) / (microbatches * chunks), row),
    )


class _Transfer(NamedTuple):
    """Shares of a pipeline's links inside and between domains, one element a placement."""

    fast_share: Any
    slow_share: Any


def _transfer(layouts: Layouts, mends: Mends) -> _Transfer:
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
    if "R2" not in mends:
        slow_share = np.where(in_domain > 1, 0.0, slow_share)
    several = stages > 1
    return _Transfer(several * fast_share, several * slow_share)


def _replica_ring(layouts: Layouts) -> Ring:
    """Return the group that shares weights: replicas, and context ranks, which hold them too."""
    rows, places = layouts.tables["row"], layouts.tables["placement"]
    holders = take(rows["data_parallel"] * rows["context_parallel"], layouts.placement_row)
    in_domain = places["nvlink_data_parallel"] * places["nvlink_context_parallel"]
    # The gather of weights and the scatter of gradients move the same share of the same bytes.
    return ring("all_gather", holders, in_domain)


def memory_parts(layouts: Layouts, layer: Layer, values: Values) -> dict[str, Any]:
    """Return per row the FLOPs and the parts of memory of one GPU.

    Notes
    -----
    1F1B keeps the activations of at most `pipeline_parallel` microbatches. The optimizer's
    state is sharded over data-parallel replicas and context ranks (ZeRO 1); weights and
    gradients are not.
    """
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, values))
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


def memory_sum(parts: dict[str, Any], values: Values) -> dict[str, Any]:
    """Return per row the memory that the parts add up to, and whether it fits."""
    memory = (
        parts["weights_bytes"]
        + parts["gradients_bytes"]
        + parts["optimizer_bytes"]
        + parts["activations_bytes"]
    )
    return {"memory_bytes": memory, "fits_memory": memory <= values["hbm_bytes"]}


def fill_times(
    layouts: Layouts, layer: Layer, values: Values, mends: Mends, out: dict[str, Array]
) -> None:
    """Fill the step's seconds and those `PARTS` that are in `out`, per candidate.

    Notes
    -----
    Weights are gathered before the forward pass and gradients scattered after the backward pass
    (ZeRO 1). A layer's transfer hides behind the pass of its neighbour; the first one is exposed:
    ``t + (D - 1) max(t - pass, 0)`` for D layers, each way. Transfers between stages are not
    hidden. The bubble is that of 1F1B divided by the interleaved chunks, which multiply the
    transfers (arXiv 2104.04473 section 2.2).
    """
    network = Network.of(values)
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, values))

    exchange = take(_exchange(layouts, layer, network), layouts.index["placement"])
    transfers = _stage_transfers(layouts, layer, schedule, network, mends)
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
    layouts: Layouts, layer: Layer, values: Values, mends: Mends
) -> dict[str, tuple[Any, Any]]:
    """Return the seconds of `fill_times` that both transfers take, forward and backward.

    Returns
    -------
    dict
        ``exchange`` between replicas and ``stages`` of the pipeline, of the whole step, for a
        batch of independent layouts.
    """
    network = Network.of(values)
    schedule: _Schedule = layouts.once("schedule", lambda: _schedule(layouts, values))
    exchange = _exchange(layouts, layer, network)
    forward, backward = layer.seconds[:2]
    later = schedule.candidate_later_layers
    both = np.add(*_stage_transfers(layouts, layer, schedule, network, mends))
    return {
        "exchange": (
            exchange + later * _late(exchange, forward),
            exchange + later * _late(exchange, backward),
        ),
        "stages": (both / 2, both / 2),
    }


def _exchange(layouts: Layouts, layer: Layer, network: Network) -> Any:
    """Return per placement the seconds in which one layer's weights, or gradients, pass."""
    replicas: Ring = layouts.once("replicas", lambda: _replica_ring(layouts))
    return replicas.line(network).seconds(take(layer.weights_bytes, layouts.placement_shard))


def _late(exchange: Any, pass_seconds: Any) -> Any:
    """Return the part of a layer's exchange that its neighbour's pass does not hide."""
    return np.maximum(exchange - pass_seconds, 0.0)


def _stage_transfers(
    layouts: Layouts, layer: Layer, schedule: _Schedule, network: Network, mends: Mends
) -> tuple[Any, Any]:
    """Return per candidate the seconds of latency and of bytes between stages."""
    row, place = layouts.index["row"], layouts.index["placement"]
    link = "R2" if "R2" in mends else "published link"
    share: _Transfer = layouts.once(link, lambda: _transfer(layouts, mends))
    latency = share.fast_share * network.fast_latency + share.slow_share * network.slow_latency
    per_byte = share.fast_share / network.fast_bandwidth + share.slow_share / network.slow_bandwidth
    sent_bytes = take(schedule.sends * take(layer.input_bytes, layouts.row_shard), row)
    return schedule.candidate_sends * take(latency, place), sent_bytes * take(per_byte, place)
