"""Work, memory and seconds of a transformer layer, or of some of its operations.

Work and memory depend on a shard alone, not on the system.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.collectives import Line, Network, ring
from estimators.contract import Array, Columns, Mends
from estimators.factored import take
from estimators.roofline.operations import Direction, Operation, Shard, Traffic
from estimators.roofline.strategies import LAYER_INPUT, Sizes, operations_of

if TYPE_CHECKING:
    from estimators.values import Flag, Real


@dataclass(frozen=True)
class System(Network):
    """A GPU: its rates, and its networks."""

    matrix_flops_per_second: Real
    vector_flops_per_second: Real
    hbm_bytes_per_second: Real
    flops_efficiency: Real
    launch_seconds: Real


class Work(NamedTuple):
    """The work of one direction of a layer: arrays of operations x rows of the shard table."""

    matrix_flops: Array
    vector_flops: Array
    hbm_bytes: Array
    fused_vector_flops: Array
    """Vector work inside matrix kernels, summed over operations."""

    transfers: dict[tuple[str, str], tuple[Real, Real]]
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


def counts_of(kind: tuple[str, str], sizes: Sizes, shards: Columns, mends: Mends) -> Counts:
    """Return work and memory of a layer for each row of the shard table.

    `kind` is strategy and attention. Mends R1, R5 and R8 act here, see `strategies`.
    """
    shard = Shard.of(shards)
    return count(operations_of(*kind, sizes, shard, mends), shard)


def count(operations: list[Operation], shard: Shard) -> Counts:
    """Return the sum over `operations`: those of a layer, or some of them."""
    size = np.size(shard.microbatch_size)
    layer_input = [o.activations_bytes for o in operations if o.name == LAYER_INPUT]

    def total(parts: list[Real]) -> Array:
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

    def stacked(values: list[Real]) -> Array:
        return np.stack([np.broadcast_to(value, size) for value in values])

    transfers: dict[tuple[str, str], tuple[Real, Real]] = {}
    panelled = {}
    for place, (operation, part) in enumerate(zip(operations, parts, strict=True)):
        if operation.in_panels:
            panelled[place] = part.traffic
            continue
        for traffic in part.traffic:
            key = (traffic.kind, traffic.group)
            number, volume = transfers.get(key, (0.0, 0.0))
            transfers[key] = (
                number + np.where(traffic.volume > 0, 1.0, 0.0),
                volume + traffic.volume,
            )
    fused = [p.vector_flops * o.uses_matrix_units for o, p in zip(operations, parts, strict=True)]
    return Work(
        stacked([part.matrix_flops for part in parts]),
        stacked([part.vector_flops for part in parts]),
        stacked([part.hbm_bytes for part in parts]),
        np.array(np.broadcast_to(sum(fused), size)),
        transfers,
        panelled,
    )


def flops_of(counts: Counts, system: System, repeats: Flag, mends: Mends) -> tuple[Array, Array]:
    """Return the FLOPs of the forward and of the backward pass per shard.

    The backward pass includes its repetitions: the whole forward pass with
    `activation_recompute` = full, and recomputed attention under mend R10.
    """
    inflation: Real = 0.0
    if "R6" not in mends:
        inflation = system.matrix_flops_per_second / system.vector_flops_per_second - 1
    forward, backward = (
        work.matrix_flops.sum(axis=0)
        + work.vector_flops.sum(axis=0)
        + inflation * work.fused_vector_flops
        for work in (counts.forward, counts.backward)
    )
    backward = backward + repeats * forward
    if "R10" in mends and counts.recomputed.any():
        rows = counts.recomputed
        work = counts.forward
        backward += work.matrix_flops[rows].sum(axis=0) + work.vector_flops[rows].sum(axis=0)
    return forward, backward


def bytes_of(counts: Counts, repeats: Flag, mends: Mends) -> tuple[Array, Array]:
    """Return the HBM traffic of the forward and of the backward pass per shard.

    The backward pass includes its repetitions, as in `flops_of`.
    """
    forward, backward = (w.hbm_bytes.sum(axis=0) for w in (counts.forward, counts.backward))
    backward = backward + repeats * forward
    if "R10" in mends:
        backward += counts.forward.hbm_bytes[counts.recomputed].sum(axis=0)
    return forward, backward


def kept_bytes(counts: Counts, repeats: Flag) -> Array:
    """Return the activations that are kept for the backward pass."""
    return np.where(repeats, counts.input_bytes, counts.activations_bytes)


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


def layer_of(counts: Counts, system: System, repeats: Flag, layers: Columns, mends: Mends) -> Layer:
    """Return the seconds of a layer on a system, and the memory it keeps.

    Parameters
    ----------
    repeats
        Whether the forward pass runs once more in the backward pass.
    layers
        The layer table: degrees and placements of both axes, and ``shard``, the row of the
        shard table (missing where the two are the same).
    mends
        R3 (all-reduce), R6 (count vector work inside attention once; the source counts it as
        the matrix work that would take as long), R7 (overlap of panels) and R10 (recomputed
        operations are part of the parts) act here.
    """
    passes = passes_of(counts, system, repeats, layers, mends)
    return Layer(
        seconds=np.concatenate(
            (
                [passes.forward_seconds, passes.backward_seconds],
                passes.forward + passes.backward,
            )
        ),
        flops=np.add(*flops_of(counts, system, repeats, mends)),
        weights_bytes=counts.weights_bytes,
        activations_bytes=kept_bytes(counts, repeats),
        input_bytes=counts.input_bytes,
    )


class Passes(NamedTuple):
    """Seconds of both passes through operations, over the layer table.

    Three rows of parts: arithmetic, exposed memory traffic, and communication. The backward pass
    includes its repetitions of the forward pass.
    """

    forward: Array
    backward: Array
    forward_seconds: Array
    backward_seconds: Array
    """All parts, and recomputed operations also where they are not among the parts (R10)."""


def passes_of(
    counts: Counts, system: System, repeats: Flag, layers: Columns, mends: Mends
) -> Passes:
    """Return the seconds of operations on a system; parameters as in `layer_of`.

    Notes
    -----
    One direction of an operation takes ``max(launch_seconds + matrix FLOPs / (flops_efficiency x
    matrix rate) + vector FLOPs / (flops_efficiency x vector rate), bytes / memory rate)``, then the
    seconds of its collectives (arXiv 2410.00273: 20 us a launch, efficiency 0.8).
    `activation_recompute` = full runs the forward pass again in the backward pass, with its
    collectives, and keeps only the layer's input.
    """
    lines = _Lines(system, layers, double_all_reduce="R3" in mends)
    forward, again = _direction(counts, counts.forward, system, lines, mends)
    backward, _ = _direction(counts, counts.backward, system, lines, mends)
    if np.any(repeats):
        backward += repeats * forward
    seconds = (forward.sum(axis=0), backward.sum(axis=0) + again.sum(axis=0))
    return Passes(forward, backward + again if "R10" in mends else backward, *seconds)


class _Lines:
    """Lines of cost of collectives, one element a layer, computed at the first use."""

    def __init__(self, network: Network, layers: Columns, *, double_all_reduce: bool) -> None:
        self._network = network
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
    counts: Counts, work: Work, system: System, lines: _Lines, mends: Mends
) -> tuple[Array, Array]:
    """Return arithmetic, exposed memory traffic and communication of a direction per layer.

    The second array has the same of the recomputed operations alone.
    """
    efficiency = system.flops_efficiency
    compute = work.matrix_flops / (efficiency * system.matrix_flops_per_second)
    compute += work.vector_flops / (efficiency * system.vector_flops_per_second)
    compute += system.launch_seconds
    if "R7" in mends:
        for place in work.panelled:
            compute[place] += (counts.panels - 1) * system.launch_seconds
    memory = work.hbm_bytes / system.hbm_bytes_per_second
    memory -= compute
    np.maximum(memory, 0.0, out=memory)

    comm: Real = 0.0
    for (kind, group), (number, volume) in work.transfers.items():
        line = lines.of(kind, group)
        comm = comm + take(number, lines.shard) * line.latency
        comm = comm + take(volume, lines.shard) * line.seconds_per_byte
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


def _panelled_comm(
    traffic: tuple[Traffic, ...], busy: Real, panels: Real, lines: _Lines, mends: Mends
) -> Real:
    """Return the communication that a product in panels cannot hide.

    Notes
    -----
    A panel's transfers tau hide behind the product of the panel before; those of the first panel
    are exposed. For n panels and a product of b seconds that is ``tau + (n - 1) max(tau - b/n, 0)``
    under mend R7. The source has ``tau + max(n tau - b, 0)``, a panel too many if transfers are
    slower.
    """
    tau: Real = 0.0
    for part in traffic:
        line = lines.of(part.kind, part.group)
        tau = tau + line.seconds(take(part.volume, lines.shard) / panels)
    if "R7" in mends:
        return tau + (panels - 1) * np.maximum(tau - busy / panels, 0.0)
    return tau + np.maximum(panels * tau - busy, 0.0)
