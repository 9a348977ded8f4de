"""Attention: fused in one kernel, as separate operations, or as SUMMA products.

Attention covers the whole square of scores: it has no causal mask.

Symbols: ``query_rows`` rows of queries over all local heads, ``scores`` elements of the score
matrix, ``gathered`` elements of K or V over the whole sequence, ``q`` width of a head, ``s`` bytes
of an element.

Source: arXiv 2410.00273 and its program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from estimators.roofline.operations import (
    MASK_BYTES,
    Direction,
    Operation,
    Traffic,
    dropout,
    matrix_work,
    vector_work,
)


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
