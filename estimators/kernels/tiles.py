"""Tiles and waves: the share of its rate that a product keeps on a number of multiprocessors.

A product of M x K by K x N is cut into tiles of its result, and the tiles into waves of one tile a
multiprocessor. It loses time to a last wave that is not full and to tiles that hang over the edge.

Source: NVIDIA, Matrix Multiplication Background User's Guide (tile and wave quantisation).
"""

from __future__ import annotations

import numpy as np

from estimators.values import Real

TILES = ((256, 128), (128, 256))
"""Tiles of a result, rows x columns: the largest of cuBLAS, either way up."""

SMALL_TILE = (128, 128)
"""A smaller tile fills waves better and reads its operands more often."""


def tile_share(
    rows: Real, columns: Real, batch: Real, num_sms: Real, small_tile_efficiency: Real
) -> Real:
    """Return the share of a product's rate that its best tiling keeps: 0 to 1.

    Parameters
    ----------
    rows, columns, batch
        Size of the result, and how many such products run as one kernel.
    """
    upright, lying = (_share(rows, columns, batch, tile, num_sms) for tile in TILES)
    small = _share(rows, columns, batch, SMALL_TILE, num_sms)
    best: Real = np.maximum(np.maximum(upright, lying), small * small_tile_efficiency)
    return best


def _share(rows: Real, columns: Real, batch: Real, tile: tuple[int, int], num_sms: Real) -> Real:
    tiles = np.ceil(rows / tile[0]) * np.ceil(columns / tile[1]) * batch
    waves = tiles / num_sms
    in_tiles = rows * columns * batch / (tiles * tile[0] * tile[1])
    share: Real = in_tiles * waves / np.ceil(waves)
    return share
