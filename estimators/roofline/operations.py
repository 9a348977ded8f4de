"""What one operation of a layer computes, reads, writes, sends and keeps, forward and backward.

Each function is one building block; the layers of a strategy are lists of them. Sizes are
local to one GPU and one microbatch, float64 arrays or scalars of one shape: products of sizes
overflow int64 in large models.

Symbols: ``rows`` tokens of the local activation, ``s`` bytes of an element.

Source: arXiv 2410.00273 and its program; counts term by term, multiplications and additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MASK_BYTES = 1.0
"""Bytes of one element of a dropout mask."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective of an operation: its kind, its bytes and the group it runs over."""

    kind: str
    volume: Any
    group: str


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of an operation.

    Attributes
    ----------
    matrix_flops, vector_flops
        Work of the matrix and of the vector units, one after the other.
    hbm_bytes
        Bytes read and written.
    traffic
        Collectives, all exposed.
    """

    matrix_flops: Any
    vector_flops: Any
    hbm_bytes: Any
    traffic: tuple[Traffic, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a layer, both directions, and the memory it holds."""

    name: str
    uses_matrix_units: bool
    forward: Direction
    backward: Direction
    activations_bytes: Any = 0.0
    weights_bytes: Any = 0.0


def _matrix(flops: Any, hbm_bytes: Any, *traffic: Traffic) -> Direction:
    return Direction(flops, 0.0, hbm_bytes, traffic)


def _vector(flops: Any, hbm_bytes: Any, *traffic: Traffic) -> Direction:
    return Direction(0.0, flops, hbm_bytes, traffic)


def linear(
    name: str, rows: Any, inputs: Any, outputs: Any, over_inputs: Any, over_outputs: Any, s: Any
) -> Operation:
    """Matrix product of `rows` x `inputs` with a weight split over inputs or over outputs.

    Parameters
    ----------
    inputs, outputs
        Full sizes; the weight is split `over_inputs` x `over_outputs`, one of which is 1.

    Notes
    -----
    A split over inputs leaves partial sums, reduce-scattered forward; one over outputs leaves
    them in the gradient of the input, reduce-scattered backward. Both move the full size.
    """
    k, n = inputs // over_inputs, outputs // over_outputs
    touched = s * (rows * k + rows * n + k * n)
    return Operation(
        name,
        True,
        _matrix(
            rows * n * (2 * k - 1),
            touched,
            Traffic("reduce_scatter", s * rows * outputs * (over_inputs > 1), "tensor_parallel"),
        ),
        _matrix(
            rows * k * (2 * n - 1) + k * n * (2 * rows - 1),
            2 * touched,
            Traffic("reduce_scatter", s * rows * inputs * (over_outputs > 1), "tensor_parallel"),
        ),
        activations_bytes=s * rows * k,
        weights_bytes=s * k * n,
    )


def bias(name: str, rows: Any, width: Any, s: Any) -> Operation:
    """Addition of a vector of `width` to every row."""
    both = _vector(rows * width, s * (rows * width + width))
    return Operation(name, False, both, both, weights_bytes=s * width)


def activation(name: str, elements: Any, s: Any) -> Operation:
    """Elementwise nonlinearity: 8 operations forward, 13 backward."""
    return Operation(
        name,
        False,
        _vector(8 * elements, 2 * s * elements),
        _vector(13 * elements, 3 * s * elements),
        activations_bytes=s * elements,
    )


def dropout(name: str, elements: Any, s: Any) -> Operation:
    """Elementwise mask, kept as one byte an element."""
    both = _vector(elements, (2 * s + MASK_BYTES) * elements)
    return Operation(name, False, both, both, activations_bytes=MASK_BYTES * elements)


def layer_norm(name: str, rows: Any, width: Any, gathered_bytes: Any, s: Any) -> Operation:
    """Normalise `rows` of `width`; `gathered_bytes` are collected from the group afterwards."""
    size = rows * width
    return Operation(
        name,
        False,
        _vector(
            9 * size,
            s * (2 * size + 2 * rows + 2 * width),
            Traffic("all_gather", gathered_bytes, "tensor_parallel"),
        ),
        _vector(
            12 * size - 4 * rows,
            s * (5 * size + 2 * width),
            Traffic("reduce_scatter", gathered_bytes, "tensor_parallel"),
        ),
        activations_bytes=s * size,
        weights_bytes=2 * s * width,
    )


def fused_attention(
    name: str,
    batch: Any,
    seq_len: Any,
    local_seq_len: Any,
    local_heads: Any,
    head_size: Any,
    s: Any,
) -> Operation:
    """Attention in one kernel (FlashAttention-like), without its communication.

    The kernel does vector work between its products: softmax, dropout and, backward, both
    again from recomputed scores.
    """
    query_rows = batch * local_heads * local_seq_len
    scores = query_rows * seq_len
    query = query_rows * head_size
    gathered = batch * local_heads * seq_len * head_size

    forward_matrix = scores * (2 * head_size - 1) + query * (2 * seq_len - 1)
    forward_vector = 3 * scores + query_rows * (seq_len - 1)
    backward_matrix = (
        query * (2 * seq_len - 1)
        + 2 * gathered * (2 * local_seq_len - 1)
        + 2 * scores * (2 * head_size - 1)
    )
    backward_vector = 7 * scores + 2 * query_rows * (seq_len - 1)
    return Operation(
        name,
        True,
        Direction(
            forward_matrix,
            forward_vector,
            s * (2 * query + 2 * gathered + query_rows),
        ),
        Direction(
            backward_matrix,
            backward_vector,
            s * (2 * gathered + 6 * query + 2 * query_rows),
        ),
        activations_bytes=s * (4 * query + 2 * query_rows),
    )
