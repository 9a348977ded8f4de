"""One transformer layer: what its operations do, which no system changes, and how long that takes.

Source: arXiv 2410.00273; operation order and shapes as its program has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from estimators.collectives import Network, ring
from estimators.contract import Array, Columns, Mends, Values
from estimators.roofline.operations import (
    Direction,
    Operation,
    activation,
    bias,
    dropout,
    fused_attention,
    layer_norm,
    linear,
)


class Sizes(NamedTuple):
    """Full sizes of the model, float64."""

    seq_len: Any
    hidden: Any
    ffn: Any
    heads: Any
    element: Any

    @classmethod
    def of(cls, values: Values) -> Sizes:
        """Build them from a problem's values."""
        return cls(*(np.asarray(values[name], dtype=np.float64) for name in SIZES))


SIZES = ("seq_len", "hidden_size", "ffn_hidden_size", "num_heads", "bytes_per_element")
"""Problem values that what a layer does depends on."""


def tensor_1d(sizes: Sizes, layout: Columns, mends: Mends) -> list[Operation]:
    """Return the operations of a layer split over one tensor axis, with sequence parallelism.

    Notes
    -----
    Local sizes are floored, as in the source; mend R4 keeps splits that do not divide out of
    the space. Mend R5 puts the bias of both reducing products on the rows that their
    reduce-scatter leaves; the source puts it on all of them.
    """
    seq_len, hidden, ffn, heads, s = sizes
    batch = np.asarray(layout["microbatch_size"], dtype=np.float64)
    tensor = np.asarray(layout["tensor_parallel"], dtype=np.float64)
    rows = batch * seq_len
    scattered_rows = batch * (seq_len // tensor)
    reduced_rows = scattered_rows if "R5" in mends else rows
    gathered_bytes = s * rows * hidden * (tensor > 1)
    one = 1.0
    return [
        linear("fc1", rows, hidden, ffn, one, tensor, s),
        bias("fc1_bias", rows, ffn // tensor, s),
        activation("activation", rows * (ffn // tensor), s),
        dropout("ffn_dropout", rows * (ffn // tensor), s),
        linear("fc2", rows, ffn, hidden, tensor, one, s),
        bias("fc2_bias", reduced_rows, hidden, s),
        dropout("ffn_output_dropout", scattered_rows * hidden, s),
        layer_norm("layer_norm_1", scattered_rows, hidden, gathered_bytes, s),
        linear("qkv", rows, hidden, 3 * hidden, one, tensor, s),
        fused_attention("attention", batch, seq_len, seq_len, heads // tensor, hidden // heads, s),
        linear("projection", rows, hidden, hidden, tensor, one, s),
        bias("projection_bias", reduced_rows, hidden, s),
        dropout("attention_output_dropout", scattered_rows * hidden, s),
        layer_norm("layer_norm_2", scattered_rows, hidden, gathered_bytes, s),
    ]


LAYER_INPUT = "layer_norm_1"
"""The operation whose kept input is what passes between pipeline stages."""

STRATEGIES: dict[str, Callable[[Sizes, Columns, Mends], list[Operation]]] = {
    "tensor_1d": tensor_1d,
}


class Work(NamedTuple):
    """What one direction of a layer does: arrays of operations x rows of the layer table."""

    matrix_flops: Array
    vector_flops: Array
    hbm_bytes: Array
    fused_vector_flops: Array
    """Vector work inside matrix kernels, summed over operations."""

    transfers: dict[str, tuple[Any, Any]]
    """Kind of collective -> how many move anything, and the bytes of all."""


@dataclass(frozen=True)
class Counts:
    """What a layer does and keeps, whatever the system."""

    forward: Work
    backward: Work
    weights_bytes: Array
    activations_bytes: Array
    input_bytes: Array


def counts_of(strategy: str, values: Values, layout: Columns, mends: Mends) -> Counts:
    """Return what a layer does for each row of the layer table.

    Parameters
    ----------
    strategy
        A key of `STRATEGIES`.
    values
        `SIZES`, scalars or one element a row.
    layout
        ``microbatch_size`` and ``tensor_parallel``.
    mends
        R5 (bias rows) acts here.
    """
    operations = STRATEGIES[strategy](Sizes.of(values), layout, mends)
    size = len(layout["microbatch_size"])
    [layer_input] = [o.activations_bytes for o in operations if o.name == LAYER_INPUT]

    def total(parts: list[Any]) -> Array:
        return np.broadcast_to(sum(parts), size)

    return Counts(
        forward=_work([(o.forward, o.uses_matrix_units) for o in operations], size),
        backward=_work([(o.backward, o.uses_matrix_units) for o in operations], size),
        weights_bytes=total([o.weights_bytes for o in operations]),
        activations_bytes=total([o.activations_bytes for o in operations]),
        input_bytes=total([layer_input]),
    )


def _work(parts: list[tuple[Direction, bool]], size: int) -> Work:
    def stacked(values: list[Any]) -> Array:
        return np.stack([np.broadcast_to(value, size) for value in values])

    transfers: dict[str, tuple[Any, Any]] = {}
    for part, _ in parts:
        for traffic in part.traffic:
            number, volume = transfers.get(traffic.kind, (0.0, 0.0))
            transfers[traffic.kind] = (number + (traffic.volume > 0), volume + traffic.volume)
    return Work(
        stacked([part.matrix_flops for part, _ in parts]),
        stacked([part.vector_flops for part, _ in parts]),
        stacked([part.hbm_bytes for part, _ in parts]),
        np.broadcast_to(sum(part.vector_flops * matrix for part, matrix in parts), size),
        transfers,
    )


@dataclass(frozen=True)
class Layer:
    """One layer and one microbatch on a system, one element a row of the layer table.

    Attributes
    ----------
    seconds
        Five rows: all of the forward pass; all of the backward pass; then of both together
        arithmetic, exposed memory traffic, and communication.
    input_bytes
        The layer's input, which passes between pipeline stages.
    """

    seconds: Array
    flops: Any
    weights_bytes: Any
    activations_bytes: Any
    input_bytes: Any


def layer_of(counts: Counts, values: Values, layout: Columns, mends: Mends) -> Layer:
    """Return how long a layer takes on a system, and what it keeps.

    Parameters
    ----------
    values
        Problem values and choices, scalars or one element a row.
    layout
        ``tensor_parallel`` and ``nvlink_tensor_parallel``.
    mends
        R6 acts here: the source counts the vector work inside attention as the matrix work
        that would take as long.

    Notes
    -----
    An operation and direction takes the larger of arithmetic, ``launch + FLOP / (0.8 rate)``
    with matrix and vector work one after the other, and of memory traffic; then come its
    collectives. `activation_recompute` = full runs the forward pass, collectives and all, once
    more in the backward pass and keeps only the layer's input.
    """
    forward = _seconds(counts.forward, values, layout)
    backward = _seconds(counts.backward, values, layout)
    recomputes = np.equal(values["activation_recompute"], "full")
    passes = 1.0 + recomputes
    inflation = 0.0
    if "R6" not in mends:
        inflation = values["matrix_flops_per_second"] / values["vector_flops_per_second"] - 1
    flops = passes * _flops(counts.forward, inflation) + _flops(counts.backward, inflation)
    every = forward.sum(axis=0)
    seconds = np.concatenate(
        ([every, backward.sum(axis=0) + recomputes * every], passes * forward + backward)
    )
    return Layer(
        seconds=seconds,
        flops=flops,
        weights_bytes=counts.weights_bytes,
        activations_bytes=np.where(recomputes, counts.input_bytes, counts.activations_bytes),
        input_bytes=counts.input_bytes,
    )


def _seconds(work: Work, values: Values, layout: Columns) -> Array:
    """Return arithmetic, exposed memory traffic and communication of one direction: 3 rows."""
    efficiency = values["flops_efficiency"]
    compute = work.matrix_flops / (efficiency * values["matrix_flops_per_second"])
    compute += work.vector_flops / (efficiency * values["vector_flops_per_second"])
    compute += values["launch_seconds"]
    memory = work.hbm_bytes / values["hbm_bytes_per_second"]
    memory -= compute
    np.maximum(memory, 0.0, out=memory)
    network = Network.of(values)
    comm: Any = np.zeros(compute.shape[1])
    for kind, (number, volume) in work.transfers.items():
        line = ring(kind, layout["tensor_parallel"], layout["nvlink_tensor_parallel"]).line(network)
        comm = comm + number * line.latency + volume * line.seconds_per_byte
    return np.stack([compute.sum(axis=0), memory.sum(axis=0), comm])


def _flops(work: Work, inflation: Any) -> Any:
    flops = work.matrix_flops.sum(axis=0) + work.vector_flops.sum(axis=0)
    return flops + inflation * work.fused_vector_flops
