"""The operations of one layer under each strategy, in the order of the source.

Local sizes are floored, as in the source; mend R4 keeps splits that do not divide out of the
space. ``a // b`` is floor division of float64.

Attention is fused in one kernel, or separate operations, or SUMMA products. It covers the whole
square of scores: it has no causal mask.

Source: arXiv 2410.00273; operation order and shapes as its program has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Columns, Mends, Values
from estimators.roofline.operations import (
    MASK_BYTES,
    Direction,
    Operation,
    Traffic,
    activation,
    bias,
    dropout,
    layer_norm,
    linear,
    matrix_work,
    summa,
    vector_work,
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


class AttentionSizes(NamedTuple):
    """Sizes on one GPU: whole sequence, its local part, local heads, width of a head."""

    batch: Any
    seq_len: Any
    local_seq_len: Any
    local_heads: Any
    head_size: Any
    is_gathered: Any
    """Whether keys and values come from the GPUs of the second axis."""

    element: Any

    @property
    def query_rows(self) -> Any:
        """Rows of queries."""
        return self.batch * self.local_heads * self.local_seq_len

    @property
    def scores(self) -> Any:
        """Elements of the score matrix."""
        return self.query_rows * self.seq_len

    @property
    def query(self) -> Any:
        """Elements of Q."""
        return self.query_rows * self.head_size

    @property
    def gathered(self) -> Any:
        """Elements of K or of V over the whole sequence."""
        return self.batch * self.local_heads * self.seq_len * self.head_size


def fused(sizes: AttentionSizes) -> list[Operation]:
    """Return attention in one kernel (FlashAttention-like).

    The kernel does vector work between its products: softmax and dropout. Backward it recomputes
    the scores, then softmax and dropout again, then their gradients.
    """
    seq_len, local, q, s = sizes.seq_len, sizes.local_seq_len, sizes.head_size, sizes.element
    rows, scores, query, gathered = sizes.query_rows, sizes.scores, sizes.query, sizes.gathered
    volume = 2 * s * gathered * sizes.is_gathered
    gather = Traffic("all_gather", volume, "second")
    scatter = Traffic("reduce_scatter", volume, "second")
    attention = Operation(
        "attention",
        True,
        Direction(
            scores * (2 * q - 1) + query * (2 * seq_len - 1),
            3 * scores + rows * (seq_len - 1),
            s * (2 * query + 2 * gathered + rows),
            (gather,),
        ),
        Direction(
            query * (2 * seq_len - 1) + 2 * gathered * (2 * local - 1) + 2 * scores * (2 * q - 1),
            7 * scores + 2 * rows * (seq_len - 1),
            s * (2 * gathered + 6 * query + 2 * rows),
            (gather, scatter),
        ),
        activations_bytes=s * (4 * query + 2 * rows),
    )
    return [attention]


def unfused(sizes: AttentionSizes, *, recomputes: bool) -> list[Operation]:
    """Return attention as separate operations, which write and read the score matrix.

    Parameters
    ----------
    recomputes
        Keep no score matrix: run the operations again in the backward pass.
    """
    seq_len, local, q, s = sizes.seq_len, sizes.local_seq_len, sizes.head_size, sizes.element
    scores, query, gathered = sizes.scores, sizes.query, sizes.gathered
    kept = 0.0 if recomputes else 1.0
    volume = s * gathered * sizes.is_gathered
    gather = Traffic("all_gather", volume, "second")
    scatter = Traffic("reduce_scatter", volume, "second")
    logits = Operation(
        "logits",
        True,
        matrix_work(scores * (2 * q - 1), s * (query + gathered + scores), gather),
        matrix_work(
            query * (2 * seq_len - 1) + gathered * (2 * local - 1),
            s * (3 * query + gathered + 2 * scores),
            gather,
            scatter,
        ),
        activations_bytes=2 * s * query,
        is_recomputed=recomputes,
    )
    attend = Operation(
        "attend",
        True,
        matrix_work(query * (2 * seq_len - 1), s * (scores + gathered + query), gather),
        matrix_work(
            scores * (2 * q - 1) + gathered * (2 * local - 1),
            s * (3 * query + 2 * scores + gathered),
            gather,
            scatter,
        ),
        activations_bytes=s * (query + kept * scores),
    )
    masked = _dropout(scores, kept, recomputes, s)
    return [logits, _softmax(sizes.query_rows, seq_len, kept, recomputes, s), masked, attend]


def summa_attention(
    sizes: AttentionSizes, heads: Any, degrees: tuple[Any, Any], panels: Any
) -> list[Operation]:
    """Return attention as SUMMA products over all heads, scores split over both axes.

    The source defines it, but searches with fused attention.
    """
    first, second = degrees
    s, seq_len, q = sizes.element, sizes.seq_len, sizes.head_size
    local, columns, width = seq_len // second, seq_len // first, q // first
    rows = sizes.batch * heads * local
    whole = sizes.batch * heads * seq_len * width
    scores_volume = s * rows * seq_len * (first > 1)
    values_volume = s * whole * (second > 1)
    touched = s * sizes.batch * heads * (local * seq_len + seq_len * width + local * width * panels)
    broadcast_scores = Traffic("broadcast", scores_volume, "tensor")
    reduce_scores = Traffic("reduce", scores_volume, "tensor")
    broadcast_values = Traffic("broadcast", values_volume, "second")
    reduce_values = Traffic("reduce", values_volume, "second")
    logits = Operation(
        "logits",
        True,
        matrix_work(rows * seq_len * (2 * width - 1), touched, broadcast_values, reduce_scores),
        matrix_work(
            rows * width * (2 * seq_len - 1) + whole * (2 * local - 1),
            2 * touched,
            broadcast_scores,
            broadcast_values,
            broadcast_scores,
            reduce_values,
        ),
        activations_bytes=2 * s * rows * width,
        in_panels=True,
    )
    reduction = Traffic("all_reduce", s * rows * (first > 1), "tensor")
    softmax = _softmax(rows, columns, 1.0, False, s, reduction)
    attend = Operation(
        "attend",
        True,
        matrix_work(2 * rows * width * seq_len, touched, broadcast_scores, broadcast_values),
        matrix_work(
            rows * seq_len * (2 * width - 1) + whole * (2 * local - 1),
            2 * touched,
            broadcast_values,
            reduce_scores,
            broadcast_scores,
            reduce_values,
        ),
        activations_bytes=s * (rows * columns + rows * width),
        in_panels=True,
    )
    return [logits, softmax, dropout("attention_dropout", rows * columns, s), attend]


def _softmax(
    rows: Any, columns: Any, kept: float, recomputes: bool, s: Any, *traffic: Traffic
) -> Operation:
    """Return the softmax over `rows` of `columns` scores."""
    scores = rows * columns
    return Operation(
        "softmax",
        False,
        vector_work(2 * scores + rows * (columns - 1), 2 * s * scores, *traffic),
        vector_work(3 * scores + rows * (columns - 1), 3 * s * scores, *traffic),
        activations_bytes=kept * s * scores,
        is_recomputed=recomputes,
    )


def _dropout(scores: Any, kept: float, recomputes: bool, s: Any) -> Operation:
    """Return the dropout of scores, whose mask may be recomputed."""
    mask = dropout("attention_dropout", scores, s)
    return Operation(
        mask.name,
        False,
        mask.forward,
        mask.backward,
        activations_bytes=kept * MASK_BYTES * scores,
        is_recomputed=recomputes,
    )


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
