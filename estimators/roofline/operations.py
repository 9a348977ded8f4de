"""Work, traffic and memory of one operation of a layer, forward and backward.

Each function is one building block; the layers of a strategy are lists of them. Sizes are
local to one GPU and one microbatch, float64 arrays or scalars of one shape: products of sizes
overflow int64 in large models.

Symbols: ``rows`` tokens of the local activation, ``s`` bytes of an element.

Source: arXiv 2410.00273 and its program; counts term by term, multiplications and additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from estimators.structure import real

if TYPE_CHECKING:
    from estimators.contract import Columns
    from estimators.values import Real

Group = Literal["tensor", "second"]
"""The tensor axis, or the second one: that of SUMMA or of context parallelism."""

MASK_BYTES = 1.0
"""Bytes of one element of a dropout mask."""


class Shard(NamedTuple):
    """The degrees that cut one GPU's part of a layer: columns of a shard table."""

    microbatch_size: Real
    tensor_parallel: Real
    second_parallel: Real
    """Degree of the second axis: SUMMA's other one, or context; 1 in one dimension."""

    panels: Real

    @classmethod
    def of(cls, columns: Columns) -> Shard:
        """Build it from the columns of a shard table."""
        return cls(*(real(columns[name]) for name in cls._fields))


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective of an operation: its kind, its bytes and the group it runs over."""

    kind: str
    volume: Real
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

    matrix_flops: Real
    vector_flops: Real
    hbm_bytes: Real
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
    activations_bytes: Real = 0.0
    weights_bytes: Real = 0.0
    in_panels: bool = False
    is_recomputed: bool = False


def exchanged(volume: Real, ranks: Real) -> Real:
    """Return the bytes of a collective over `ranks`: none in a group of one."""
    return np.where(np.greater(ranks, 1), volume, 0.0)


def matrix_work(flops: Real, hbm_bytes: Real, *traffic: Traffic) -> Direction:
    """Return a direction that only matrix units work in."""
    return Direction(flops, 0.0, hbm_bytes, traffic)


def vector_work(flops: Real, hbm_bytes: Real, *traffic: Traffic) -> Direction:
    """Return a direction that only vector units work in."""
    return Direction(0.0, flops, hbm_bytes, traffic)


def linear(
    name: str,
    rows: Real,
    inputs: Real,
    outputs: Real,
    s: Real,
    *,
    over_inputs: Real = 1.0,
    over_outputs: Real = 1.0,
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
            Traffic("reduce_scatter", exchanged(s * rows * outputs, over_inputs)),
        ),
        matrix_work(
            rows * k * (2 * n - 1) + k * n * (2 * rows - 1),
            2 * touched,
            Traffic("reduce_scatter", exchanged(s * rows * inputs, over_outputs)),
        ),
        activations_bytes=s * rows * k,
        weights_bytes=s * k * n,
    )


def bias(name: str, rows: Real, width: Real, s: Real) -> Operation:
    """Addition of a vector of `width` to every row."""
    both = vector_work(rows * width, s * (rows * width + width))
    return Operation(name, False, both, both, weights_bytes=s * width)


def activation(name: str, elements: Real, s: Real) -> Operation:
    """Elementwise nonlinearity: 8 operations forward, 13 backward."""
    return Operation(
        name,
        False,
        vector_work(8 * elements, 2 * s * elements),
        vector_work(13 * elements, 3 * s * elements),
        activations_bytes=s * elements,
    )


def dropout(name: str, elements: Real, s: Real, *, recomputes: bool = False) -> Operation:
    """Elementwise mask, one byte an element: kept, or computed again in the backward pass."""
    both = vector_work(elements, (2 * s + MASK_BYTES) * elements)
    mask = 0.0 if recomputes else MASK_BYTES * elements
    return Operation(name, False, both, both, activations_bytes=mask, is_recomputed=recomputes)


def layer_norm(
    name: str,
    rows: Real,
    width: Real,
    s: Real,
    forward: tuple[Traffic, ...],
    backward: tuple[Traffic, ...],
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
    rows: Real,
    inputs: Real,
    outputs: Real,
    shard: Shard,
    s: Real,
) -> Operation:
    """Matrix product split over two axes, its operands broadcast panel by panel.

    Parameters
    ----------
    inputs, outputs
        Full sizes; activations are split over both axes, so are weights.
    shard
        Outputs are split over the tensor axis. Each panel re-reads and re-writes the output.
    """
    first, second = shard.tensor_parallel, shard.second_parallel
    n = outputs // first
    touched = s * (rows * inputs + inputs * n + shard.panels * rows * n)
    x = exchanged(s * rows * inputs, first)
    w = exchanged(s * inputs * n, second)
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
