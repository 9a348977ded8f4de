"""The operations of one layer under each strategy, in the order of the source.

Local sizes are floored, as in the source; mend R4 keeps splits that do not divide out of the
space. ``a // b`` is floor division of float64.

Source: arXiv 2410.00273; operation order and shapes as its program has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Columns, Mends, Values
from estimators.roofline.attention import AttentionSizes, fused, summa_attention, unfused
from estimators.roofline.operations import (
    Operation,
    Traffic,
    activation,
    bias,
    dropout,
    layer_norm,
    linear,
    summa,
)

SIZES = ("seq_len", "hidden_size", "ffn_hidden_size", "num_heads", "bytes_per_element")
"""Problem values that decide the work of a layer."""


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


class Shard(NamedTuple):
    """The degrees that cut one GPU's part of a layer: columns, float64."""

    batch: Any
    """Sequences of a microbatch."""

    first: Any
    """Tensor degree."""

    second: Any
    """Degree of the second axis: SUMMA's other one, or context; 1 in one dimension."""

    panels: Any

    @classmethod
    def of(cls, columns: Columns) -> Shard:
        """Build it from the columns of a shard table."""
        return cls(*(np.asarray(columns[name], dtype=np.float64) for name in SHARD_COLUMNS))


SHARD_COLUMNS = ("microbatch_size", "tensor_parallel", "second_parallel", "panels")

ATTENTIONS = {
    "tensor_1d": ("flash", "unfused", "unfused_recompute"),
    "summa_2d": ("flash", "unfused", "summa"),
    "context_2d": ("flash", "unfused"),
}
"""Strategy -> attentions it can have."""


def operations_of(
    strategy: str, attention: str, sizes: Sizes, shard: Shard, mends: Mends
) -> list[Operation]:
    """Return the operations of a layer, feed-forward part first."""
    return STRATEGIES[strategy](attention, sizes, shard, mends)


def _attention(attention: str, sizes: Sizes, shard: Shard, local_seq_len: Any) -> list[Operation]:
    """Return the operations of attention on one GPU."""
    local = AttentionSizes(
        shard.batch,
        sizes.seq_len,
        local_seq_len,
        sizes.heads // shard.first,
        sizes.hidden // sizes.heads,
        shard.second > 1,
        sizes.element,
    )
    if attention == "flash":
        return fused(local)
    if attention == "summa":
        return summa_attention(local, sizes.heads, (shard.first, shard.second), shard.panels)
    return unfused(local, recomputes=attention == "unfused_recompute")


def _tensor_1d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split over one tensor axis, with sequence parallelism.

    Mend R5 adds the biases of fc2 and of the projection to the rows that the reduce-scatter before
    them leaves; the source adds them to all rows.
    """
    seq_len, hidden, _, _, s = sizes
    batch, first, _, _ = shard
    rows = batch * seq_len
    scattered = batch * (seq_len // first)
    reduced = scattered if "R5" in mends else rows
    return _layer_over_tensor_axis(
        attention,
        sizes,
        shard,
        local_seq_len=seq_len,
        ffn_bias=bias("fc2_bias", reduced, hidden, s),
        projection_bias=bias("projection_bias", reduced, hidden, s),
        scattered=scattered,
    )


def _context_2d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split the sequence over the context axis, then do as in one dimension.

    The source adds the two biases to different splits of the output. Mend R5 adds both to the rows
    that the reduce-scatter before them leaves.
    """
    seq_len, hidden, _, _, s = sizes
    batch, first, second, _ = shard
    local = seq_len // second
    scattered = batch * (local // first)
    projection = bias("projection_bias", batch * local, hidden // first, s)
    if "R5" in mends:
        projection = bias("projection_bias", scattered, hidden, s)
    return _layer_over_tensor_axis(
        attention,
        sizes,
        shard,
        local_seq_len=local,
        ffn_bias=bias("fc2_bias", scattered, hidden, s),
        projection_bias=projection,
        scattered=scattered,
    )


def _layer_over_tensor_axis(
    attention: str,
    sizes: Sizes,
    shard: Shard,
    *,
    local_seq_len: Any,
    ffn_bias: Operation,
    projection_bias: Operation,
    scattered: Any,
) -> list[Operation]:
    """Return a layer whose products are split over the tensor axis alone."""
    _, hidden, ffn, _, s = sizes
    first = shard.first
    rows = shard.batch * local_seq_len
    volume = s * rows * hidden * (first > 1)
    gather = (Traffic("all_gather", volume),)
    scatter = (Traffic("reduce_scatter", volume),)
    one = 1.0
    return [
        linear("fc1", rows, hidden, ffn, one, first, s),
        bias("fc1_bias", rows, ffn // first, s),
        activation("activation", rows * (ffn // first), s),
        dropout("ffn_dropout", rows * (ffn // first), s),
        linear("fc2", rows, ffn, hidden, first, one, s),
        ffn_bias,
        dropout("ffn_output_dropout", scattered * hidden, s),
        layer_norm("layer_norm_1", scattered, hidden, gather, scatter, s),
        linear("qkv", rows, hidden, 3 * hidden, one, first, s),
        *_attention(attention, sizes, shard, local_seq_len),
        linear("projection", rows, hidden, hidden, first, one, s),
        projection_bias,
        dropout("attention_output_dropout", scattered * hidden, s),
        layer_norm("layer_norm_2", scattered, hidden, gather, scatter, s),
    ]


def _summa_2d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split activations and weights over two axes, products panel by panel.

    As the columns of a layer norm the source takes a part of the sequence length, mend R1 a part of
    the width. The source reduces the gradients of scale and shift over the tensor axis, mend R8
    over the second axis.
    """
    seq_len, hidden, ffn, _, s = sizes
    batch, first, second, panels = shard
    local = seq_len // second
    rows = batch * local
    width = hidden // first
    degrees = (first, second)
    norm_width = width if "R1" in mends else seq_len // first
    statistics = s * 2 * rows * (first > 1)
    scale_and_shift = s * (2 * hidden // first)
    published = s * (2 * hidden // first + 2 * batch * seq_len // second) * (first > 1)
    backward: tuple[Traffic, ...] = (Traffic("all_reduce", published),)
    if "R8" in mends:
        over_second = Traffic("all_reduce", scale_and_shift * (second > 1), "second")
        backward = (Traffic("all_reduce", statistics), over_second)

    def norm(name: str) -> Operation:
        forward = (Traffic("all_reduce", statistics),)
        return layer_norm(name, rows, norm_width, forward, backward, s)

    return [
        summa("fc1", rows, hidden, ffn, degrees, panels, s),
        bias("fc1_bias", rows, ffn // first, s),
        activation("activation", rows * (ffn // first), s),
        dropout("ffn_dropout", rows * (ffn // first), s),
        summa("fc2", rows, ffn, hidden, degrees, panels, s),
        bias("fc2_bias", rows, width, s),
        dropout("ffn_output_dropout", rows * width, s),
        norm("layer_norm_1"),
        summa("qkv", rows, hidden, 3 * hidden, degrees, panels, s),
        *_attention(attention, sizes, shard, local),
        summa("projection", rows, hidden, hidden, degrees, panels, s),
        bias("projection_bias", rows, width, s),
        dropout("attention_output_dropout", rows * width, s),
        norm("layer_norm_2"),
    ]


LAYER_INPUT = "layer_norm_1"
"""The operation whose kept input passes between pipeline stages."""

STRATEGIES: dict[str, Callable[[str, Sizes, Shard, Mends], list[Operation]]] = {
    "tensor_1d": _tensor_1d,
    "summa_2d": _summa_2d,
    "context_2d": _context_2d,
}

SECOND_AXIS = {"summa_2d": "tensor_parallel_2", "context_2d": "context_parallel"}
"""Strategy -> the degree of its second axis."""
