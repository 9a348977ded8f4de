"""Seconds of matrix products and of streaming kernels on one GPU.

A product of M x K by K x N is cut into tiles of its result, and the tiles into waves of one
tile a multiprocessor. It loses time to a last wave that is not full, to tiles that hang over
the edge, and to the prologue and epilogue of every tile, which a deep K outweighs.

Source: NVIDIA, Matrix Multiplication Background User's Guide (tile and wave quantisation,
arithmetic intensity); the roofline is that of Williams et al. 2009.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values

TILES = ((256, 128), (128, 256))
"""Tiles of a result, rows x columns: the largest of cuBLAS, either way up."""

SMALL_TILE = (128, 128)
"""A smaller tile fills waves better and reads its operands more often."""


def tile_share(rows: Any, columns: Any, batch: Any, values: Values) -> Any:
    """Return the share of a product's rate that its best tiling keeps: 0 to 1.

    Parameters
    ----------
    rows, columns, batch
        Size of the result, and how many such products run as one kernel.
    values
        `num_sms` and `small_tile_efficiency`.
    """
    shares = [_share(rows, columns, batch, tile, values["num_sms"]) for tile in TILES]
    small = _share(rows, columns, batch, SMALL_TILE, values["num_sms"])
    return np.maximum(np.maximum(*shares), small * values["small_tile_efficiency"])


def _share(rows: Any, columns: Any, batch: Any, tile: tuple[int, int], num_sms: Any) -> Any:
    tiles = np.ceil(rows / tile[0]) * np.ceil(columns / tile[1]) * batch
    waves = tiles / num_sms
    in_tiles = rows * columns * batch / (tiles * tile[0] * tile[1])
    return in_tiles * waves / np.ceil(waves)


def product_seconds(
    rows: Any, columns: Any, depth: Any, values: Values, batch: Any = 1.0, *, low: bool = True
) -> Any:
    """Return the seconds of ``batch`` products (rows x depth) by (depth x columns).

    Parameters
    ----------
    low
        Whether the product may run in the format that `precision` names; the core of
        attention and the output layer stay in 16 bits.
    """
    share = tile_share(rows, columns, batch, values) * depth / (depth + values["gemm_half_depth"])
    is_fp8 = values["is_fp8"] if low else np.False_
    peak = np.where(
        is_fp8,
        values["fp8_peak"] * values["fp8_gemm_efficiency"],
        values["matrix_flops_per_second"] * values["gemm_efficiency"],
    )
    arithmetic = 2.0 * rows * columns * depth * batch / (peak * share)
    operands = np.where(is_fp8, 1.0, 2.0) * (rows + columns) * depth + 2.0 * rows * columns
    return (
        np.maximum(arithmetic, stream_seconds(operands * batch, values)) + values["launch_seconds"]
    )


def stream_seconds(volume: Any, values: Values, kernels: Any = 0.0) -> Any:
    """Return the seconds to read and write `volume` bytes of memory in a number of kernels."""
    rate = values["hbm_bytes_per_second"] * values["hbm_efficiency"]
    return volume / rate + kernels * values["launch_seconds"]
