"""A measured rate over a grid, interpolated.

Kernels are measured on a grid of sizes. Between its nodes the logarithm of the efficiency is
linear in the logarithm of each size. Beyond the grid the efficiency of its edge holds.

The efficiency is the time at the roof over the measured time; the roof is that of arithmetic and
memory (Williams et al. 2009). A system with other rates has another roof, and takes the measured
efficiency at the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from estimators.values import Array, Place, Real


@dataclass(frozen=True)
class Surface:
    """Logarithms of efficiencies over a grid.

    Attributes
    ----------
    axes
        Logarithms of the sizes of each axis, increasing.
    logs
        Logarithms of the efficiencies, one axis for each of `axes`.
    """

    axes: tuple[Array, ...]
    logs: Array

    def efficiency(self, *sizes: Real) -> Real:
        """Return the efficiency at sizes, given axis by axis; scalars or arrays alike in shape."""
        base: Place = np.int64(0)
        shares = []
        for axis, size in zip(self.axes, sizes, strict=True):
            place = np.interp(np.log(size), axis, np.arange(len(axis)))
            below = np.minimum(place.astype(np.int64), len(axis) - 2)
            shares.append(place - below)
            base = base * len(axis) + below
        corners = [self.logs.take(base + offset) for offset in self.offsets]
        for share in reversed(shares):
            pairs = zip(corners[::2], corners[1::2], strict=True)
            corners = [low + share * (high - low) for low, high in pairs]
        efficiency: Real = np.exp(corners[0])
        return efficiency

    @cached_property
    def least(self) -> tuple[float, ...]:
        """Smallest size of each axis: whole numbers."""
        return tuple(float(np.rint(np.exp(axis[0]))) for axis in self.axes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Distance of each corner of a box from its lowest, in elements; the last axis fastest."""
        strides = np.cumprod([1, *reversed(self.logs.shape[1:])])[::-1]
        ends = product((0, 1), repeat=len(self.axes))
        return tuple(int(np.dot(end, strides)) for end in ends)


def surface_of(sizes: tuple[Array, ...], efficiencies: Array) -> Surface:
    """Return the surface through measured nodes.

    Parameters
    ----------
    sizes
        Sizes of the nodes, one array for each axis; together they fill a grid.
    efficiencies
        One element a node.

    Raises
    ------
    ValueError
        If the nodes do not fill a grid.
    """
    nodes = [np.unique(size, return_inverse=True) for size in sizes]
    logs = np.full([len(axis) for axis, _ in nodes], np.nan)
    logs[tuple(place for _, place in nodes)] = np.log(efficiencies)
    if np.isnan(logs).any():
        raise ValueError(f"{int(np.isnan(logs).sum())} nodes of the grid are missing")
    axes = tuple(np.log(axis.astype(np.float64)) for axis, _ in nodes)
    return Surface(axes, logs)
