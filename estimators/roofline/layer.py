"""One transformer layer: its operations under each strategy, and their sums.

Source: arXiv 2410.00273; operation order and shapes as its program has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from estimators.collectives import Line, Network, ring
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
    matrix_per_vector: Any

    @classmethod
    def of(cls, values: Values) -> Sizes:
        """Build them from a problem's values."""

        def size(name: str) -> Any:
            return np.asarray(values[name], dtype=np.float64)

        return cls(
            seq_len=size("seq_len"),
            hidden=size("hidden_size"),
            ffn=size("ffn_hidden_size"),
            heads=size("num_heads"),
            element=size("bytes_per_element"),
            matrix_per_vector=values["matrix_flops_per_second"] / values["vector_flops_per_second"],
        )


def tensor_1d(sizes: Sizes, layout: Columns, mends: Mends) -> list[Operation]:
    """Return the operations of a layer split over one tensor axis, with sequence parallelism.

    Notes
    -----
    Local sizes are floored, as in the source; mend R4 keeps splits that do not divide out of
    the space. Mend R5 puts the bias of both reducing products on the rows that their
    reduce-scatter leaves; the source puts it on all of them.
    """
    seq_len, hidden, ffn, heads, s, ratio = sizes
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
        fused_attention(
            "attention", batch, seq_len, seq_len, heads // tensor, hidden // heads, ratio, s
        ),
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


@dataclass(frozen=True)
class Layer:
    """Sums over one layer and one microbatch, one element a row of the layer table.

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


class _Sums:
    """Running sums of one direction."""

    def __init__(self) -> None:
        self.compute: Any = 0.0
        self.memory: Any = 0.0
        self.comm: Any = 0.0
        self.flops: Any = 0.0

    @property
    def seconds(self) -> Any:
        return self.compute + self.memory + self.comm

    def add(
        self, part: Direction, rate: Any, values: Values, lines: dict[str, Line], counted: bool
    ) -> None:
        compute = values["launch_seconds"] + part.flops / rate
        memory = part.hbm_bytes / values["hbm_bytes_per_second"]
        self.compute = self.compute + compute
        self.memory = self.memory + np.maximum(memory - compute, 0.0)
        for traffic in part.traffic:
            self.comm = self.comm + lines[traffic.kind].seconds(traffic.volume)
        self.flops = self.flops + (part.counted_flops if counted else part.flops)


def layer_of(strategy: str, values: Values, layout: Columns, mends: Mends) -> Layer:
    """Evaluate one layer.

    Parameters
    ----------
    strategy
        A key of `STRATEGIES`.
    values
        Problem values and choices, scalars or one element a row.
    layout
        The columns that a layer depends on: ``microbatch_size``, ``tensor_parallel``,
        ``nvlink_tensor_parallel``.
    mends
        R5 (bias rows) and R6 (count vector work of attention once) act here.

    Notes
    -----
    Time of an operation and direction is the larger of arithmetic, ``launch + FLOP / (0.8
    rate)``, and memory traffic, plus its collectives. `activation_recompute` = full runs the
    forward pass, collectives and all, once more in the backward pass and keeps only the
    layer's input.
    """
    operations = STRATEGIES[strategy](Sizes.of(values), layout, mends)
    network = Network.of(values)
    lines = {
        kind: ring(kind, layout["tensor_parallel"], layout["nvlink_tensor_parallel"]).line(network)
        for kind in ("all_gather", "reduce_scatter")
    }
    matrix_rate = values["flops_efficiency"] * values["matrix_flops_per_second"]
    vector_rate = values["flops_efficiency"] * values["vector_flops_per_second"]
    counted = "R6" in mends
    forward, backward = _Sums(), _Sums()
    for operation in operations:
        rate = matrix_rate if operation.uses_matrix_units else vector_rate
        forward.add(operation.forward, rate, values, lines, counted)
        backward.add(operation.backward, rate, values, lines, counted)

    recomputes = np.equal(values["activation_recompute"], "full")
    passes = 1.0 + recomputes
    kept = sum(operation.activations_bytes for operation in operations)
    layer_input = next(o.activations_bytes for o in operations if o.name == LAYER_INPUT)
    seconds = (
        forward.seconds,
        backward.seconds + recomputes * forward.seconds,
        passes * forward.compute + backward.compute,
        passes * forward.memory + backward.memory,
        passes * forward.comm + backward.comm,
    )
    return Layer(
        seconds=np.stack(np.broadcast_arrays(*seconds)),
        flops=passes * forward.flops + backward.flops,
        weights_bytes=sum(operation.weights_bytes for operation in operations),
        activations_bytes=np.where(recomputes, layer_input, kept),
        input_bytes=layer_input,
    )
