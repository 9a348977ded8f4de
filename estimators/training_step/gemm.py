"""Seconds of matrix products (GEMMs) and of streaming kernels on one GPU.

GEMMs of an accelerator with measured kernels take the time of `estimators.kernels`. Others
follow a formula. The product M x K by K x N is cut into tiles of its result, and the tiles into
waves of one tile a multiprocessor:

``max(2 M N K / (peak x gemm_efficiency x tile share x K / (K + gemm_half_depth)),
(width (M + N) K + 2 M N) / (hbm_bytes_per_second x hbm_efficiency)) + launch_seconds``

`width` is the bytes of an operand's element. The tile share falls with a last wave that is not full
and with tiles that hang over the edge. The factor of K is the prologue and epilogue of every tile,
which a deep K outweighs.

Source: NVIDIA, Matrix Multiplication Background User's Guide (tile and wave quantisation,
arithmetic intensity); the maximum is the roofline of Williams et al. 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.kernels.gemms import BYTES, Chip, tile_share
from estimators.training_step import formats

if TYPE_CHECKING:
    from estimators.training_step.problem import Kernels, Problem, System
    from estimators.values import Flag, Place, Real

PASSES = FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = ("forward", "input_gradient", "weight_gradient")
"""Passes that multiply by a weight, or make its gradient."""

SMALL = 1024
"""A GEMM of at most as many rows or columns is narrow; one of at most that inner size short."""

IN_16_BITS = np.int64(0)
"""Place of 16 bits in `kernels.gemms.FORMATS`."""

_ELEMENTS_AT_ONCE = 2**14
"""GEMMs x rows whose seconds are computed in one call."""

_WIDTHS = np.array(list(BYTES.values()))


class Gemm(NamedTuple):
    """``batch`` products (rows x depth) by (depth x columns), in one of `PASSES`."""

    rows: Real
    columns: Real
    depth: Real
    batch: Real = 1.0
    in_pass: str = FORWARD
    low: bool = True
    """Whether it may run in the format that `low_format` names."""


def seconds_of(gemms: Sequence[Gemm], problem: Problem) -> Sequence[Real]:
    """Return the seconds of each GEMM in its pass, of an average layer; see `gemm_seconds`.

    Layers at the ends of the model may keep theirs in 16 bits.
    """
    low_format = problem.formats.low_format
    if not np.any(low_format):
        return timed(gemms, problem, IN_16_BITS)
    share = formats.low_share(problem)
    low = timed(gemms, problem, low_format)
    if all(gemm.low for gemm in gemms) and np.all(share == 1.0):
        return low
    high = timed(gemms, problem, IN_16_BITS)
    return [
        share * in_few + (1.0 - share) * in_16 if gemm.low else in_16
        for gemm, in_few, in_16 in zip(gemms, low, high, strict=True)
    ]


def timed(gemms: Sequence[Gemm], problem: Problem, number_format: Place) -> Sequence[Real]:
    """Return the seconds of each GEMM in one format.

    As many are computed in one call as a cache holds: a call costs more than the arithmetic of a
    small table.
    """
    sizes = [np.shape(size) for gemm in gemms for size in gemm[:4]]
    shape = np.broadcast_shapes(np.shape(problem.shape.hidden_size), *sizes)
    at_once = max(_ELEMENTS_AT_ONCE // max(math.prod(shape), 1), 1)
    factors = problem.kernels.pass_factors
    seconds: list[Real] = []
    for start in range(0, len(gemms), at_once):
        some = gemms[start : start + at_once]
        table = np.empty((4, len(some), *shape))
        for place, gemm in enumerate(some):
            for size, column in zip(gemm[:4], table[:, place], strict=True):
                column[...] = size
        forward = np.asarray(gemm_seconds(Gemm(*table), problem, number_format))
        for gemm, of_gemm in zip(some, forward, strict=True):
            seconds.append(of_gemm / factors[gemm.in_pass])
    return seconds


def gemm_seconds(gemm: Gemm, problem: Problem, number_format: Place) -> Real:
    """Return the seconds of a GEMM as a forward pass has it.

    Where measured kernels (`kernels.gemms.MeasuredGemms`) have no time, the formula of the
    module holds.

    Parameters
    ----------
    number_format
        Place in `kernels.gemms.FORMATS`; the core of attention is in 16 bits.
    """
    system, kernels = problem.system, problem.kernels
    factor = rate_factor(gemm, kernels, number_format)
    if kernels.measured is None or not kernels.measured.gemms:
        return _by_formula(gemm, system, kernels, number_format) / factor
    chip = Chip(
        *(system.peaks, system.hbm_bytes_per_second),
        *(system.num_sms, kernels.small_tile_efficiency),
    )
    measured = kernels.measured.gemms.seconds(gemm[:4], number_format, chip)
    is_missing = np.isnan(measured)
    if not np.any(is_missing):
        return measured / factor
    return (
        np.where(is_missing, _by_formula(gemm, system, kernels, number_format), measured) / factor
    )


def rate_factor(gemm: Gemm, kernels: Kernels, number_format: Place) -> Real:
    """Return the rate of GEMMs over that of the measured kernels, or of the formula.

    It is the constant of their format times the constant of their shape. Both are 1 unless a
    profile has the timings of a machine.
    """
    factor = of_format(kernels.rate_factors, number_format)
    narrow, short = kernels.narrow_product_rate_factor, kernels.short_product_rate_factor
    if np.all(np.equal(narrow, 1.0)) and np.all(np.equal(short, 1.0)):
        return factor
    is_narrow, is_short = shapes_of(gemm)
    return factor * np.where(is_short, short, np.where(is_narrow, narrow, 1.0))


def of_format(figures: Sequence[Real], number_format: Place) -> Real:
    """Return the figure of a number format, from one for each of `kernels.gemms.FORMATS`."""
    if np.ndim(number_format) == 0:
        return figures[int(number_format)]
    columns = [np.asarray(figure) for figure in figures]
    chosen: Real = np.choose(np.asarray(number_format), columns)
    return chosen


def shapes_of(gemm: Gemm) -> tuple[Flag, Flag]:
    """Return whether a GEMM is narrow, and whether it is short; a short one is not narrow."""
    is_short = np.less_equal(gemm.depth, SMALL)
    is_narrow = ~is_short & (np.minimum(gemm.rows * gemm.batch, gemm.columns) <= SMALL)
    return is_narrow, is_short


def _by_formula(gemm: Gemm, system: System, kernels: Kernels, number_format: Place) -> Real:
    """Return the seconds by the formula of the module."""
    rows, columns, depth, batch = gemm[:4]
    tiles = tile_share(rows, columns, batch, system.num_sms, kernels.small_tile_efficiency)
    share = tiles * depth / (depth + kernels.gemm_half_depth)
    peak = of_format(system.peaks, number_format) * of_format(kernels.efficiencies, number_format)
    arithmetic = 2.0 * rows * columns * depth * batch / (peak * share)
    operands = np.take(_WIDTHS, number_format) * (rows + columns) * depth + 2.0 * rows * columns
    streamed = stream_seconds(operands * batch, system)
    seconds: Real = np.maximum(arithmetic, streamed) + system.launch_seconds
    return seconds


def stream_seconds(volume: Real, system: System, kernels: Real = 0.0) -> Real:
    """Return the seconds to read and write `volume` bytes of memory in a number of kernels."""
    return volume / system.memory_rate + kernels * system.launch_seconds
