"""One transformer layer: what its operations do, which no system changes, and how long it takes.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from estimators.collectives import Line, Network, ring
from estimators.contract import Array, Columns, Mends, Values
from estimators.factored import take
from estimators.roofline.operations import Direction, Operation, Traffic
from estimators.roofline.strategies import LAYER_INPUT, Shard, Sizes, operations_of


class Work(NamedTuple):
    """What one direction of a layer does: arrays of operations x rows of the shard table."""

    matrix_flops: Array
    vector_flops: Array
    hbm_bytes: Array
    fused_vector_flops: Array
    """Vector work inside matrix kernels, summed over operations."""

    transfers: dict[tuple[str, str], tuple[Any, Any]]
    """Kind and group -> how many exposed collectives move anything, and the bytes of all."""

    panelled: dict[int, tuple[Traffic, ...]]
    """Operation that runs in panels -> its collectives."""


class Counts(NamedTuple):
    """What a layer does and keeps, whatever the system: one element a row of the shard table."""

    forward: Work
    backward: Work
    recomputed: Array
    """Operations whose forward pass runs again in the backward pass."""

    panels: Array
    weights_bytes: Array
    activations_bytes: Array
    input_bytes: Array


def counts_of(kind: tuple[str, str], values: Values, shards: Columns, mends: Mends) -> Counts:
    """Return what a layer does for each row of the shard table.

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
    operations = operations_of(*kind, Sizes.of(values), shard, mends)
    size = len(shard.batch)
    [layer_input] = [o.activations_bytes for o in operations if o.name == LAYER_INPUT]

    def total(parts: list[Any]) -> Array:
        return np.array(np.broadcast_to(sum(parts), size))

    return Counts(
        forward=_work(operations, [o.forward for o in operations], size),
        backward=_work(operations, [o.backward for o in operations], size),
        recomputed=np.array([o.is_recomputed for o in operations]),
        panels=np.maximum(shard.panels, 1.0),
        weights_bytes=total([o.weights_bytes for o in operations]),
        activations_bytes=total([o.activations_bytes for o in operations]),
        input_bytes=total([layer_input]),
    )


def _work(operations: list[Operation], parts: list[Direction], size: int) -> Work:
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


@dataclass(frozen=True)
class Layer:
    """One layer and one microbatch on a system.

    Attributes
    ----------
    seconds
        Five rows over the layer table: all of the forward pass; all of the backward pass; then
        of both together arithmetic, exposed memory traffic, and communication.
    flops, weights_bytes, activations_bytes
        Over the shard table.
    input_bytes
        Over the shard table: the layer's input, which passes between pipeline stages.
    """

    seconds: Array
    flops: Array
    weights_bytes: Array
    activations_bytes: Array
    input_bytes: Array


def layer_of(counts: Counts, values: Values, layers: Columns, mends: Mends) -> Layer:
    """Return how long a layer takes on a system, and what it keeps.

    Parameters
    ----------
    values
        Problem values and choices, scalars or one element a row.
    layers
        The layer table: degrees and placements of both axes, and ``shard``, the row of the
        shard table (missing where the two are the same).
    mends
        R3 (all-reduce), R6 (count vector work inside attention once; the source counts it as
        the matrix work that would take as long), R7 (overlap of panels) and R10 (recomputed
        operations are part of the parts) act here.

    Notes
    -----
    An operation and direction takes the larger of arithmetic, ``launch + FLOP / (0.8 rate)``
    with matrix and vector work one after the other, and of memory traffic; then come its
    collectives. `activation_recompute` = full runs the forward pass, collectives and all, once
    more in the backward pass and keeps only the layer's input.
    """
    lines = _Lines(values, layers, double_all_reduce="R3" in mends)
    forward, again = _direction(counts, counts.forward, values, lines, mends)
    backward, _ = _direction(counts, counts.backward, values, lines, mends)
    every = forward.sum(axis=0)
    recomputed = again.sum(axis=0)

    repeats = np.equal(values["activation_recompute"], "full")
    passes = 1.0 + repeats
    parts = passes * forward + backward
    if "R10" in mends:
        parts += again
    return Layer(
        seconds=np.concatenate(
            ([every, backward.sum(axis=0) + recomputed + repeats * every], parts)
        ),
        flops=_flops(counts, values, passes, mends),
        weights_bytes=counts.weights_bytes,
        activations_bytes=np.where(repeats, counts.input_bytes, counts.activations_bytes),
        input_bytes=counts.input_bytes,
    )


class _Lines:
    """Costs of collectives per layer, made when they are first asked for."""

    def __init__(self, values: Values, layers: Columns, *, double_all_reduce: bool) -> None:
        self._network = Network.of(values)
        self._layers = layers
        self._double = double_all_reduce
        self._known: dict[tuple[str, str], Line] = {}
        self.shard: Array | None = layers.get("shard")

    def of(self, kind: str, group: str) -> Line:
        if (kind, group) not in self._known:
            degree = "tensor_parallel" if group == "tensor" else "second_parallel"
            members = "nvlink_tensor_parallel" if group == "tensor" else "nvlink_second_parallel"
            geometry = ring(
                kind, self._layers[degree], self._layers[members], double_all_reduce=self._double
            )
            self._known[kind, group] = geometry.line(self._network)
        return self._known[kind, group]


def _direction(
    counts: Counts, work: Work, values: Values, lines: _Lines, mends: Mends
) -> tuple[Array, Array]:
    """Return arithmetic, exposed memory traffic and communication of a direction per layer.

    The second array has the same of the recomputed operations alone.
    """
    efficiency = values["flops_efficiency"]
    compute = work.matrix_flops / (efficiency * values["matrix_flops_per_second"])
    compute += work.vector_flops / (efficiency * values["vector_flops_per_second"])
    compute += values["launch_seconds"]
    if "R7" in mends:
        for place in work.panelled:
            compute[place] += (counts.panels - 1) * values["launch_seconds"]
    memory = work.hbm_bytes / values["hbm_bytes_per_second"]
    memory -= compute
    np.maximum(memory, 0.0, out=memory)

    comm: Any = 0.0
    for (kind, group), (number, volume) in work.transfers.items():
        line = lines.of(kind, group)
        comm = comm + take(np.asarray(number), _index(number, lines.shard)) * line.latency
        comm = comm + take(np.asarray(volume), _index(volume, lines.shard)) * line.seconds_per_byte
    for place, traffic in work.panelled.items():
        busy = take(compute[place] + memory[place], lines.shard)
        panels = take(counts.panels, lines.shard)
        comm = comm + _panelled_comm(traffic, busy, panels, lines, mends)
    at_shards = np.stack([compute.sum(axis=0), memory.sum(axis=0)])
    at_layers = take(at_shards, lines.shard)
    comm = np.broadcast_to(comm, at_layers.shape[1])

    again = np.zeros_like(at_layers, shape=(3, at_layers.shape[1]))
    if counts.recomputed.any():
        rows = counts.recomputed
        again[:2] = take(
            np.stack([compute[rows].sum(axis=0), memory[rows].sum(axis=0)]), lines.shard
        )
    return np.concatenate([at_layers, comm[np.newaxis]]), again


def _index(column: Any, shard: Array | None) -> Array | None:
    return shard if np.ndim(column) else None


def _panelled_comm(
    traffic: tuple[Traffic, ...], busy: Any, panels: Any, lines: _Lines, mends: Mends
) -> Any:
    """Return the communication beside a product in panels that it cannot hide.

    Notes
    -----
    A panel's transfers run beside the product of the panel before; the first has nothing to
    run beside. The source charges one panel more when transfers are the slower (mend R7).
    """
    tau: Any = 0.0
    for part in traffic:
        volume = np.asarray(part.volume)
        line = lines.of(part.kind, part.group)
        tau = tau + line.seconds(take(volume, _index(volume, lines.shard)) / panels)
    if "R7" in mends:
        return tau + (panels - 1) * np.maximum(tau - busy / panels, 0.0)
    return tau + np.maximum(panels * tau - busy, 0.0)


def _flops(counts: Counts, values: Values, passes: Any, mends: Mends) -> Any:
    """Return the FLOPs of both directions per shard, repeated passes among them."""
    inflation = 0.0
    if "R6" not in mends:
        inflation = values["matrix_flops_per_second"] / values["vector_flops_per_second"] - 1
    total: dict[str, Any] = defaultdict(float)
    for name, work in (("forward", counts.forward), ("backward", counts.backward)):
        every = work.matrix_flops.sum(axis=0) + work.vector_flops.sum(axis=0)
        total[name] = every + inflation * work.fused_vector_flops
    flops = passes * total["forward"] + total["backward"]
    if "R10" in mends and counts.recomputed.any():
        rows = counts.recomputed
        work = counts.forward
        flops = flops + work.matrix_flops[rows].sum(axis=0) + work.vector_flops[rows].sum(axis=0)
    return flops
