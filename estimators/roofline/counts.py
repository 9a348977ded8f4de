"""Work, traffic and memory of operations on each shard; no figure depends on the system.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Columns, Mends, Values
from estimators.roofline.operations import Direction, Operation, Traffic
from estimators.roofline.strategies import LAYER_INPUT, Shard, Sizes, operations_of


class Work(NamedTuple):
    """The work of one direction of a layer: arrays of operations x rows of the shard table."""

    matrix_flops: Array
    vector_flops: Array
    hbm_bytes: Array
    fused_vector_flops: Array
    """Vector work inside matrix kernels, summed over operations."""

    transfers: dict[tuple[str, str], tuple[Any, Any]]
    """Kind and group -> the number of exposed collectives with bytes, and the bytes of all."""

    panelled: dict[int, tuple[Traffic, ...]]
    """Operation that runs in panels -> its collectives."""


class Counts(NamedTuple):
    """Work and memory of a layer, one element a row of the shard table."""

    forward: Work
    backward: Work
    recomputed: Array
    """Operations whose forward pass runs again in the backward pass."""

    panels: Array
    weights_bytes: Array
    activations_bytes: Array
    input_bytes: Array
    """The layer's input, which passes between stages: a part of `activations_bytes`."""


def counts_of(kind: tuple[str, str], values: Values, shards: Columns, mends: Mends) -> Counts:
    """Return work and memory of a layer for each row of the shard table.

    Parameters
    ----------
    kind
        Strategy and attention.
    values
        `strategies.SIZES`, scalars or one element a row.
    shards
        `strategies.SHARD_COLUMNS`.
    mends
        R1, R5 and R8 act here, see `strategies`.
    """
    shard = Shard.of(shards)
    return count(operations_of(*kind, Sizes.of(values), shard, mends), shard)


def count(operations: list[Operation], shard: Shard) -> Counts:
    """Return the sum over `operations`: those of a layer, or some of them."""
    size = len(shard.batch)
    layer_input = [o.activations_bytes for o in operations if o.name == LAYER_INPUT]

    def total(parts: list[Any]) -> Array:
        return np.array(np.broadcast_to(sum(parts), size), dtype=np.float64)

    return Counts(
        forward=_work(operations, [o.forward for o in operations], size),
        backward=_work(operations, [o.backward for o in operations], size),
        recomputed=np.array([o.is_recomputed for o in operations]),
        panels=np.maximum(shard.panels, 1.0),
        weights_bytes=total([o.weights_bytes for o in operations]),
        activations_bytes=total([o.activations_bytes for o in operations]),
        input_bytes=total(layer_input),
    )


def _work(operations: list[Operation], parts: list[Direction], size: int) -> Work:
    """Return the work of one direction of all operations, stacked."""

    def stacked(values: list[Any]) -> Array:
        return np.stack([np.broadcast_to(value, size) for value in values])

    transfers: dict[tuple[str, str], tuple[Any, Any]] = {}
    panelled = {}
    for place, (operation, part) in enumerate(zip(operations, parts, strict=True)):
        if operation.in_panels:
            panelled[place] = part.traffic
            continue
        for traffic in part.traffic:
            key = (traffic.kind, traffic.group)
            number, volume = transfers.get(key, (0.0, 0.0))
            transfers[key] = (number + (traffic.volume > 0), volume + traffic.volume)
    fused = [p.vector_flops * o.uses_matrix_units for o, p in zip(operations, parts, strict=True)]
    return Work(
        stacked([part.matrix_flops for part in parts]),
        stacked([part.vector_flops for part in parts]),
        stacked([part.hbm_bytes for part in parts]),
        np.array(np.broadcast_to(sum(fused), size)),
        transfers,
        panelled,
    )


def flops_of(counts: Counts, values: Values, mends: Mends) -> tuple[Array, Array]:
    """Return the FLOPs of the forward and of the backward pass per shard.

    The backward pass includes its repetitions: the whole forward pass with
    `activation_recompute` = full, and recomputed attention under mend R10.
    """
    inflation = 0.0
    if "R6" not in mends:
        inflation = values["matrix_flops_per_second"] / values["vector_flops_per_second"] - 1
    forward, backward = (
        work.matrix_flops.sum(axis=0)
        + work.vector_flops.sum(axis=0)
        + inflation * work.fused_vector_flops
        for work in (counts.forward, counts.backward)
    )
    backward = backward + repeats_forward(values) * forward
    if "R10" in mends and counts.recomputed.any():
        rows = counts.recomputed
        work = counts.forward
        backward += work.matrix_flops[rows].sum(axis=0) + work.vector_flops[rows].sum(axis=0)
    return forward, backward


def bytes_of(counts: Counts, values: Values, mends: Mends) -> tuple[Array, Array]:
    """Return the HBM traffic of the forward and of the backward pass per shard.

    The backward pass includes its repetitions, as in `flops_of`.
    """
    forward, backward = (w.hbm_bytes.sum(axis=0) for w in (counts.forward, counts.backward))
    backward = backward + repeats_forward(values) * forward
    if "R10" in mends:
        backward += counts.forward.hbm_bytes[counts.recomputed].sum(axis=0)
    return forward, backward


def kept_bytes(counts: Counts, values: Values) -> Array:
    """Return the activations that are kept for the backward pass."""
    return np.where(repeats_forward(values), counts.input_bytes, counts.activations_bytes)


def repeats_forward(values: Values) -> Any:
    """Return whether the forward pass runs once more in the backward pass."""
    return np.equal(values["activation_recompute"], "full")
