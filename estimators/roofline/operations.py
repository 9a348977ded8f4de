"""Work, traffic and memory of one operation of a layer, forward and backward.

Each function is one building block; the layers of a strategy are lists of them. Sizes are
local to one GPU and one microbatch, float64 arrays or scalars of one shape: products of sizes
overflow int64 in large models.

Symbols: ``rows`` tokens of the local activation, ``s`` bytes of an element.

Source: arXiv 2410.00273 and its program; counts term by term, multiplications and additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Group = Literal["tensor", "second"]
"""The tensor axis, or the second one: that of SUMMA or of context parallelism."""

MASK_BYTES = 1.0
"""Bytes of one element of a dropout mask."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective of an operation: its kind, its bytes and the group it runs over."""

    kind: str
    volume: Any
    group: Group = "tensor"


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
    """One operation of a layer, both directions, and the memory it holds.

    Attributes
    ----------
    in_panels
        Whether it runs panel by panel: transfers of one panel hide behind the product of another.
    is_recomputed
        Whether its forward pass runs again in the backward pass.
    """

    name: str
    uses_matrix_units: bool
    forward: Direction
    backward: Direction
    activations_bytes: Any = 0.0
    weights_bytes: Any = 0.0
    in_panels: bool = False
    is_recomputed: bool = False


def matrix_work(flops: Any, hbm_bytes: Any, *traffic: Traffic) -> Direction:
    """Return a direction that only matrix units work in."""
    return Direction(flops, 0.0, hbm_bytes, traffic)


def vector_work(flops: Any, hbm_bytes: Any, *traffic: Traffic) -> Direction:
    """Return a direction that only vector units work in."""
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
    A split over inputs leaves partial sums of the result, reduce-scattered forward. A split over
    outputs leaves partial sums of the input's gradient, reduce-scattered backward. Both move the
    full, unsplit tensor.
    """
    k, n = inputs // over_inputs, outputs // over_outputs
    touched = s * (rows * k + rows * n + k * n)
    return Operation(
        name,
        True,
        matrix_work(
            rows * n * (2 * k - 1),
            touched,
            Traffic("reduce_scatter", s * rows * outputs * (over_inputs > 1)),
        ),
        matrix_work(
            rows * k * (2 * n - 1) + k * n * (2 * rows - 1),
            2 * touched,
            Traffic("reduce_scatter", s * rows * inputs * (over_outputs > 1)),
        ),
        activations_bytes=s * rows * k,
        weights_bytes=s * k * n,
    )


def bias(name: str, rows: Any, width: Any, s: Any) -> Operation:
    """Addition of a vector of `width` to every row."""
    both = vector_work(rows * width, s * (rows * width + width))
    return Operation(name, False, both, both, weights_bytes=s * width)


def activation(name: str, elements: Any, s: Any) -> Operation:
    """Elementwise nonlinearity: 8 operations forward, 13 backward."""
    return Operation(
        name,
        False,
        vector_work(8 * elements, 2 * s * elements),
        vector_work(13 * elements, 3 * s * elements),
        activations_bytes=s * elements,
    )


def dropout(name: str, elements: Any, s: Any) -> Operation:
    """Elementwise mask, kept as one byte an element."""
    both = vector_work(elements, (2 * s + MASK_BYTES) * elements)
    return Operation(name, False, both, both, activations_bytes=MASK_BYTES * elements)


def layer_norm(
    name: str,
    rows: Any,
    width: Any,
    forward: tuple[Traffic, ...],
    backward: tuple[Traffic, ...],
    s: Any,
) -> Operation:
    """Layer norm over `rows` of `width`, with the collectives of either direction."""
    size = rows * width
    return Operation(
        name,
        False,
        vector_work(9 * size, s * (2 * size + 2 * rows + 2 * width), *forward),
        vector_work(12 * size - 4 * rows, s * (5 * size + 2 * width), *backward),
        activations_bytes=s * size,
        weights_bytes=2 * s * width,
    )


def summa(
    name: str,
    rows: Any,
    inputs: Any,
    outputs: Any,
    degrees: tuple[Any, Any],
    panels: Any,
    s: Any,
) -> Operation:
    """Matrix product split over two axes, its operands broadcast panel by panel.

    Parameters
    ----------
    inputs, outputs
        Full sizes; activations are split over both axes, so are weights.
    degrees
        The tensor axis, over which outputs are split, and the second one.
    panels
        Number of panels; each re-reads and re-writes the output.
    """
    first, second = degrees
    n = outputs // first
    touched = s * (rows * inputs + inputs * n + panels * rows * n)
    x = s * rows * inputs * (first > 1)
    w = s * inputs * n * (second > 1)
    return Operation(
        name,
        True,
        matrix_work(
            2 * rows * n * inputs,
            touched,
            Traffic("broadcast", x, "tensor"),
            Traffic("broadcast", w, "second"),
        ),
        matrix_work(
            rows * inputs * (2 * n - 1) + inputs * n * (2 * rows - 1),
            2 * touched,
            Traffic("broadcast", w, "second"),
            Traffic("reduce", x, "tensor"),
            Traffic("broadcast", x, "tensor"),
            Traffic("reduce", w, "second"),
        ),
        activations_bytes=s * rows * (inputs // first),
        weights_bytes=s * (inputs // second) * n,
        in_panels=True,
    )
