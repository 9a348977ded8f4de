"""Seconds of a transformer layer, or of some of its operations, on a system.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from estimators.collectives import Line, Network, ring
from estimators.contract import Array, Columns, Mends, Values
from estimators.factored import take
from estimators.roofline.counts import Counts, Work, flops_of, kept_bytes, repeats_forward
from estimators.roofline.operations import Traffic


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
    """Return the seconds of a layer on a system, and the memory it keeps.

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
    """
    passes = passes_of(counts, values, layers, mends)
    return Layer(
        seconds=np.concatenate(
            (
                [passes.forward_seconds, passes.backward_seconds],
                passes.forward + passes.backward,
            )
        ),
        flops=np.add(*flops_of(counts, values, mends)),
        weights_bytes=counts.weights_bytes,
        activations_bytes=kept_bytes(counts, values),
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


def passes_of(counts: Counts, values: Values, layers: Columns, mends: Mends) -> Passes:
    """Return the seconds of operations on a system; parameters as in `layer_of`.

    Notes
    -----
    One direction of an operation takes ``max(launch_seconds + matrix FLOPs / (flops_efficiency x
    matrix rate) + vector FLOPs / (flops_efficiency x vector rate), bytes / memory rate)``, then the
    seconds of its collectives (arXiv 2410.00273: 20 us a launch, efficiency 0.8).
    `activation_recompute` = full runs the forward pass again in the backward pass, with its
    collectives, and keeps only the layer's input.
    """
    lines = _Lines(values, layers, double_all_reduce="R3" in mends)
    forward, again = _direction(counts, counts.forward, values, lines, mends)
    backward, _ = _direction(counts, counts.backward, values, lines, mends)
    repeats = repeats_forward(values)
    if np.any(repeats):
        backward += repeats * forward
    seconds = (forward.sum(axis=0), backward.sum(axis=0) + again.sum(axis=0))
    return Passes(forward, backward + again if "R10" in mends else backward, *seconds)


class _Lines:
    """Lines of cost of collectives, one element a layer, computed at the first use."""

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
    """Return the communication that a product in panels cannot hide.

    Notes
    -----
    A panel's transfers tau hide behind the product of the panel before; those of the first panel
    are exposed. For n panels and a product of b seconds that is ``tau + (n - 1) max(tau - b/n, 0)``
    under mend R7. The source has ``tau + max(n tau - b, 0)``, a panel too many if transfers are
    slower.
    """
    tau: Any = 0.0
    for part in traffic:
        volume = np.asarray(part.volume)
        line = lines.of(part.kind, part.group)
        tau = tau + line.seconds(take(volume, _index(volume, lines.shard)) / panels)
    if "R7" in mends:
        return tau + (panels - 1) * np.maximum(tau - busy / panels, 0.0)
    return tau + np.maximum(panels * tau - busy, 0.0)
