"""Seconds of matrix products and of streaming kernels on one GPU.

Products of an accelerator with measured kernels take the time of `estimators.kernels`. Others
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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.kernels.products import BYTES, PEAKS
from estimators.kernels.tiles import tile_share
from estimators.training_step import formats

PASSES = ("forward", "input_gradient", "weight_gradient")
"""Products of a matrix: forward, and of either gradient."""

SMALL = 1024
"""A product of at most as many rows or columns is narrow; one of at most that inner size short."""

FACTORS = (
    "product_rate_factor",
    "fp8_product_rate_factor",
    "fp8_product_rate_factor",
    "fp4_product_rate_factor",
)
"""Constants: rate over that of the measured kernels, one for each of `kernels.products.FORMATS`."""

_EFFICIENCIES = (
    *("gemm_efficiency", "fp8_gemm_efficiency", "fp8_gemm_efficiency", "fp4_gemm_efficiency"),
)
_WIDTHS = np.array(list(BYTES.values()))
_OF_SHAPE = ("narrow_product_rate_factor", "short_product_rate_factor")


class Product(NamedTuple):
    """``batch`` products (rows x depth) by (depth x columns), in one of `PASSES`."""

    rows: Any
    columns: Any
    depth: Any
    batch: Any = 1.0
    way: str = PASSES[0]
    low: bool = True
    """Whether it may run in the format that `low_format` names."""


def seconds_of(products: Sequence[Product], values: Values, *, low: bool = True) -> Sequence[Any]:
    """Return the seconds of each product in its pass, of an average layer; see `product_seconds`.

    Parameters
    ----------
    low
        Whether products may run in the format that `low_format` names. Layers at the ends of the
        model may keep theirs in 16 bits.
    """
    if not (low and np.any(values["low_format"])):
        return timed(products, values, low=False)
    share = formats.low_share(values)
    found = timed(products, values, low=True)
    if all(each.low for each in products) and np.all(share == 1.0):
        return found
    high = timed(products, values, low=False)
    return [
        share * one + (1.0 - share) * other if each.low else other
        for each, one, other in zip(products, found, high, strict=True)
    ]


def timed(products: Sequence[Product], values: Values, *, low: bool) -> Sequence[Any]:
    """Return the seconds of each product in one format.

    The products of a cell are computed in one call: their tables are small, and a call costs more
    than its arithmetic. The tables of a batch are long, so they are computed one by one in less
    memory.
    """
    if np.ndim(values["hidden_size"]):
        found = [product_seconds(*each[:3], values, each.batch, low=low) for each in products]
    else:
        shape = np.broadcast_shapes(*(np.shape(size) for each in products for size in each[:4]))
        rows, columns, depth, batch = table = np.empty((4, len(products), *shape))
        for place, each in enumerate(products):
            for size, column in zip(each[:4], table[:, place], strict=True):
                column[...] = size
        found = list(product_seconds(rows, columns, depth, values, batch, low=low))
    return [
        seconds if each.way == PASSES[0] else seconds / values[f"{each.way}_rate_factor"]
        for each, seconds in zip(products, found, strict=True)
    ]


def product_seconds(
    rows: Any, columns: Any, depth: Any, values: Values, batch: Any = 1.0, *, low: bool = True
) -> Any:
    """Return the seconds of ``batch`` products (rows x depth) by (depth x columns), forward.

    Parameters
    ----------
    values
        `products` are the measured kernels (`kernels.products.MeasuredProducts`). Where they have
        no time, the formula of the module holds.
    low
        Whether the product may run in the format that `low_format` names; the core of
        attention and the output layer stay in 16 bits.
    """
    factor = rate_factor(rows * batch, columns, depth, values, low=low)
    measured = np.nan
    if values["products"]:
        measured = values["products"].seconds(rows, columns, depth, batch, values, low=low)
        if not np.any(np.isnan(measured)):
            return measured / factor
    computed = _computed(rows, columns, depth, values, batch, low=low)
    return np.where(np.isnan(measured), computed, measured) / factor


def rate_factor(rows: Any, columns: Any, depth: Any, values: Values, *, low: bool) -> Any:
    """Return the rate of products over that of the measured kernels, or of the formula.

    It is the constant of their format times the constant of their shape. Both are 1 unless a
    profile has the timings of a machine.
    """
    factor = of_format(FACTORS, values, low=low)
    if all(np.all(np.equal(values[name], 1.0)) for name in _OF_SHAPE):
        return factor
    is_narrow, is_short = shapes_of(rows, columns, depth)
    narrow, short = (values[name] for name in _OF_SHAPE)
    return factor * np.where(is_short, short, np.where(is_narrow, narrow, 1.0))


def of_format(names: Sequence[str], values: Values, *, low: bool = True) -> Any:
    """Return the one of four values that belongs to the format of the products.

    Parameters
    ----------
    names
        A value for each of `kernels.products.FORMATS`.
    low
        Whether the product may run in the format that `low_format` names, or in 16 bits.
    """
    place = values["low_format"] if low else np.int64(0)
    if np.ndim(place) == 0:
        return values[names[int(place)]]
    return np.choose(place, [values[name] for name in names])


def shapes_of(rows: Any, columns: Any, depth: Any) -> tuple[Any, Any]:
    """Return which products are narrow, and which are short; short ones do not count as narrow."""
    is_short = np.less_equal(depth, SMALL)
    is_narrow = ~is_short & (np.minimum(rows, columns) <= SMALL)
    return is_narrow, is_short


def _computed(rows: Any, columns: Any, depth: Any, values: Values, batch: Any, *, low: bool) -> Any:
    """Return the seconds by the formula."""
    share = tile_share(rows, columns, batch, values) * depth / (depth + values["gemm_half_depth"])
    peak = of_format(PEAKS, values, low=low) * of_format(_EFFICIENCIES, values, low=low)
    arithmetic = 2.0 * rows * columns * depth * batch / (peak * share)
    width = np.take(_WIDTHS, values["low_format"] if low else 0)
    operands = width * (rows + columns) * depth + 2.0 * rows * columns
    return (
        np.maximum(arithmetic, stream_seconds(operands * batch, values)) + values["launch_seconds"]
    )


def stream_seconds(volume: Any, values: Values, kernels: Any = 0.0) -> Any:
    """Return the seconds to read and write `volume` bytes of memory in a number of kernels."""
    rate = values["hbm_bytes_per_second"] * values["hbm_efficiency"]
    return volume / rate + kernels * values["launch_seconds"]
