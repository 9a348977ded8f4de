"""The operations of one layer under each strategy, in the order of the source.

Local sizes are floored, as in the source; mend R4 keeps splits that do not divide out of the
space. ``a // b`` is floor division of float64.

Attention is fused in one kernel, or separate operations, or SUMMA products. It covers the whole
square of scores: it has no causal mask.

Source: arXiv 2410.00273; operation order and shapes as its program has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from estimators.contract import Mends
from estimators.roofline.operations import (
    Direction,
    Operation,
    Shard,
    Traffic,
    activation,
    bias,
    dropout,
    exchanged,
    layer_norm,
    linear,
    matrix_work,
    summa,
    vector_work,
)
from estimators.structure import Structure

if TYPE_CHECKING:
    from estimators.values import Real


@dataclass(frozen=True)
class Sizes(Structure):
    """Full sizes of the model."""

    seq_len: Real
    hidden_size: Real
    ffn_hidden_size: Real
    num_heads: Real
    bytes_per_element: Real


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

    batch: Real
    seq_len: Real
    local_seq_len: Real
    local_heads: Real
    head_size: Real
    second_parallel: Real
    """GPUs of the second axis, from which keys and values come."""

    element: Real

    @property
    def query_rows(self) -> Real:
        """Rows of queries."""
        return self.batch * self.local_heads * self.local_seq_len

    @property
    def scores(self) -> Real:
        """Elements of the score matrix."""
        return self.query_rows * self.seq_len

    @property
    def query(self) -> Real:
        """Elements of Q."""
        return self.query_rows * self.head_size

    @property
    def gathered(self) -> Real:
        """Elements of K or of V over the whole sequence."""
        return self.batch * self.local_heads * self.seq_len * self.head_size


def fused(sizes: AttentionSizes) -> list[Operation]:
    """Return attention in one kernel (FlashAttention-like).

    The kernel does vector work between its products: softmax and dropout. Backward it recomputes
    the scores, then softmax and dropout again, then their gradients.
    """
    seq_len, local, q, s = sizes.seq_len, sizes.local_seq_len, sizes.head_size, sizes.element
    rows, scores, query, gathered = sizes.query_rows, sizes.scores, sizes.query, sizes.gathered
    volume = exchanged(2 * s * gathered, sizes.second_parallel)
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
    volume = exchanged(s * gathered, sizes.second_parallel)
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
    softmax = _softmax(sizes.query_rows, seq_len, s, recomputes=recomputes)
    masked = dropout("attention_dropout", scores, s, recomputes=recomputes)
    return [logits, softmax, masked, attend]


def summa_attention(sizes: AttentionSizes, heads: Real, shard: Shard) -> list[Operation]:
    """Return attention as SUMMA products over all heads, scores split over both axes.

    The source defines it, but searches with fused attention.
    """
    first, second = shard.tensor_parallel, shard.second_parallel
    s, seq_len, q = sizes.element, sizes.seq_len, sizes.head_size
    local, columns, width = seq_len // second, seq_len // first, q // first
    rows = sizes.batch * heads * local
    whole = sizes.batch * heads * seq_len * width
    scores_volume = exchanged(s * rows * seq_len, first)
    values_volume = exchanged(s * whole, second)
    touched = (
        s * sizes.batch * heads * (local * seq_len + seq_len * width + local * width * shard.panels)
    )
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
    reduction = Traffic("all_reduce", exchanged(s * rows, first), "tensor")
    softmax = _softmax(rows, columns, s, reduction)
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
    rows: Real, columns: Real, s: Real, *traffic: Traffic, recomputes: bool = False
) -> Operation:
    """Return the softmax over `rows` of `columns` scores."""
    scores = rows * columns
    return Operation(
        "softmax",
        False,
        vector_work(2 * scores + rows * (columns - 1), 2 * s * scores, *traffic),
        vector_work(3 * scores + rows * (columns - 1), 3 * s * scores, *traffic),
        activations_bytes=0.0 if recomputes else s * scores,
        is_recomputed=recomputes,
    )


def _attention(attention: str, sizes: Sizes, shard: Shard, local_seq_len: Real) -> list[Operation]:
    """Return the operations of attention on one GPU."""
    local = AttentionSizes(
        batch=shard.microbatch_size,
        seq_len=sizes.seq_len,
        local_seq_len=local_seq_len,
        local_heads=sizes.num_heads // shard.tensor_parallel,
        head_size=sizes.hidden_size // sizes.num_heads,
        second_parallel=shard.second_parallel,
        element=sizes.bytes_per_element,
    )
    if attention == "flash":
        return fused(local)
    if attention == "summa":
        return summa_attention(local, sizes.num_heads, shard)
    return unfused(local, recomputes=attention == "unfused_recompute")


def _tensor_1d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split over one tensor axis, with sequence parallelism.

    Mend R5 adds the biases of fc2 and of the projection to the rows that the reduce-scatter before
    them leaves; the source adds them to all rows.
    """
    scattered = sizes.seq_len // shard.tensor_parallel if "R5" in mends else sizes.seq_len
    rows, width, s = shard.microbatch_size * scattered, sizes.hidden_size, sizes.bytes_per_element
    return _layer_over_tensor_axis(
        attention,
        sizes,
        shard,
        local_seq_len=sizes.seq_len,
        ffn_bias=bias("fc2_bias", rows, width, s),
        projection_bias=bias("projection_bias", rows, width, s),
    )


def _context_2d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split the sequence over the context axis, then do as in one dimension.

    The source adds the two biases to different splits of the output. Mend R5 adds both to the rows
    that the reduce-scatter before them leaves.
    """
    batch, width, s = shard.microbatch_size, sizes.hidden_size, sizes.bytes_per_element
    local = sizes.seq_len // shard.second_parallel
    scattered = batch * (local // shard.tensor_parallel)
    projection = bias("projection_bias", batch * local, width // shard.tensor_parallel, s)
    if "R5" in mends:
        projection = bias("projection_bias", scattered, width, s)
    return _layer_over_tensor_axis(
        attention,
        sizes,
        shard,
        local_seq_len=local,
        ffn_bias=bias("fc2_bias", scattered, width, s),
        projection_bias=projection,
    )


def _layer_over_tensor_axis(
    attention: str,
    sizes: Sizes,
    shard: Shard,
    *,
    local_seq_len: Real,
    ffn_bias: Operation,
    projection_bias: Operation,
) -> list[Operation]:
    """Return a layer whose products are split over the tensor axis alone."""
    hidden, ffn, s = sizes.hidden_size, sizes.ffn_hidden_size, sizes.bytes_per_element
    ranks = shard.tensor_parallel
    rows = shard.microbatch_size * local_seq_len
    scattered = shard.microbatch_size * (local_seq_len // ranks)
    volume = exchanged(s * rows * hidden, ranks)
    gather = (Traffic("all_gather", volume),)
    scatter = (Traffic("reduce_scatter", volume),)
    return [
        linear("fc1", rows, hidden, ffn, s, over_outputs=ranks),
        bias("fc1_bias", rows, ffn // ranks, s),
        activation("activation", rows * (ffn // ranks), s),
        dropout("ffn_dropout", rows * (ffn // ranks), s),
        linear("fc2", rows, ffn, hidden, s, over_inputs=ranks),
        ffn_bias,
        dropout("ffn_output_dropout", scattered * hidden, s),
        layer_norm("layer_norm_1", scattered, hidden, s, gather, scatter),
        linear("qkv", rows, hidden, 3 * hidden, s, over_outputs=ranks),
        *_attention(attention, sizes, shard, local_seq_len),
        linear("projection", rows, hidden, hidden, s, over_inputs=ranks),
        projection_bias,
        dropout("attention_output_dropout", scattered * hidden, s),
        layer_norm("layer_norm_2", scattered, hidden, s, gather, scatter),
    ]


def _summa_2d(attention: str, sizes: Sizes, shard: Shard, mends: Mends) -> list[Operation]:
    """Split activations and weights over two axes, products panel by panel.

    As the columns of a layer norm the source takes a part of the sequence length, mend R1 a part of
    the width. The source reduces the gradients of scale and shift over the tensor axis, mend R8
    over the second axis.
    """
    hidden, ffn, s = sizes.hidden_size, sizes.ffn_hidden_size, sizes.bytes_per_element
    first, second = shard.tensor_parallel, shard.second_parallel
    local = sizes.seq_len // second
    rows = shard.microbatch_size * local
    width = hidden // first
    norm_width = width if "R1" in mends else sizes.seq_len // first
    statistics = exchanged(s * 2 * rows, first)
    forward = (Traffic("all_reduce", statistics),)
    backward: tuple[Traffic, ...]
    if "R8" in mends:
        scale_and_shift = exchanged(s * (2 * hidden // first), second)
        backward = (*forward, Traffic("all_reduce", scale_and_shift, "second"))
    else:
        tokens = 2 * shard.microbatch_size * sizes.seq_len // second
        published = exchanged(s * (2 * hidden // first + tokens), first)
        backward = (Traffic("all_reduce", published),)

    return [
        summa("fc1", rows, hidden, ffn, shard, s),
        bias("fc1_bias", rows, ffn // first, s),
        activation("activation", rows * (ffn // first), s),
        dropout("ffn_dropout", rows * (ffn // first), s),
        summa("fc2", rows, ffn, hidden, shard, s),
        bias("fc2_bias", rows, width, s),
        dropout("ffn_output_dropout", rows * width, s),
        layer_norm("layer_norm_1", rows, norm_width, s, forward, backward),
        summa("qkv", rows, hidden, 3 * hidden, shard, s),
        *_attention(attention, sizes, shard, local),
        summa("projection", rows, hidden, hidden, shard, s),
        bias("projection_bias", rows, width, s),
        dropout("attention_output_dropout", rows * width, s),
        layer_norm("layer_norm_2", rows, norm_width, s, forward, backward),
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
