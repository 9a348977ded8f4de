"""Measured GEMMs: a surface of efficiencies for each accelerator and number format.

Table ``matrix_product_rate`` has the rates, without casts of operands to 8 and 4 bits, on a grid of
sizes. Between its nodes the logarithm of the efficiency is linear in the logarithm of each size.
Beyond the grid the efficiency of its edge holds. The efficiency is the time at the roof over the
measured time; the roof is that of arithmetic and memory (Williams et al. 2009). A system with other
rates has another roof, and takes the measured efficiency at the same shape.

A GEMM of M x K by K x N is cut into tiles of its result, and the tiles into waves of one tile a
multiprocessor. It loses time to a last wave that is not full and to tiles that hang over the edge
(NVIDIA, Matrix Multiplication Background User's Guide, tile and wave quantisation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from estimators.catalog import product_behind
from estimators.contract import Array, Catalog, Record
from estimators.factored import distinct
from estimators.values import Place, Real, Text

TABLE = "matrix_product_rate"
FORMULA = "formula"
"""The value of ``kernels`` that reads no measured kernel."""

BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}
"""Bytes of an element of an operand by number format; results have 2."""

FORMATS = tuple(BYTES)
"""Number formats of GEMMs. `low_format` is a place in this tuple."""


def peak_of(number_format: str, accelerator: Record) -> float:
    """Return the peak FLOP/s of an accelerator in a number format; NaN where it has none."""
    width = {"bf16": "bf16", "nvfp4": "fp4"}.get(number_format, "fp8")
    return float(accelerator.get(f"{width}_flops_per_second") or np.nan)


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


TILES = ((256, 128), (128, 256))
"""Tiles of a result, rows x columns: the largest of cuBLAS, either way up."""

SMALL_TILE = (128, 128)
"""A smaller tile fills waves better and reads its operands more often."""


def tile_share(
    rows: Real, columns: Real, batch: Real, num_sms: Real, small_tile_efficiency: Real
) -> Real:
    """Return the share of a GEMM's rate that its best tiling keeps: 0 to 1.

    Parameters
    ----------
    rows, columns, batch
        Size of the result, and how many such GEMMs run as one kernel.
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


@dataclass(frozen=True)
class GemmSurface:
    """The GEMMs of one accelerator in one number format.

    Attributes
    ----------
    surface
        Efficiency over rows, columns and inner size.
    follows_waves
        Whether the efficiency is that of full waves of tiles; the time then grows with whole waves.
    least_seconds
        Seconds of the shortest measured GEMM: no GEMM takes less.
    """

    surface: Surface
    follows_waves: bool
    least_seconds: float


def roof_seconds(
    rows: Real, columns: Real, depth: Real, operand_bytes: Real, peak: Real, bandwidth: Real
) -> Real:
    """Return the seconds of a GEMM at its roof.

    ``max(2 M N K / peak, (width (M + N) K + 2 M N) / bandwidth)``.
    """
    moved = operand_bytes * (rows + columns) * depth + 2.0 * rows * columns
    roof: Real = np.maximum(2.0 * rows * columns * depth / peak, moved / bandwidth)
    return roof


def measured_accelerators(catalog: Catalog) -> tuple[str, ...]:
    """Return the accelerators whose GEMMs were measured."""
    if TABLE not in catalog.measured:
        return ()
    return catalog.measured.made(
        (TABLE, "accelerators"),
        lambda: tuple(sorted(set(catalog.measured[TABLE]["accelerator"].tolist()))),
    )


def surfaces(catalog: Catalog, accelerator: str) -> Mapping[str, GemmSurface]:
    """Return the surfaces of an accelerator by number format."""
    return catalog.measured.made((TABLE, accelerator), lambda: _surfaces(catalog, accelerator))


def _surfaces(catalog: Catalog, accelerator: str) -> dict[str, GemmSurface]:
    """Return number format -> surface, from the measured rates of an accelerator."""
    table = catalog.measured[TABLE]
    of_accelerator = np.equal(table["accelerator"], accelerator)
    record = catalog.tables["accelerator"][accelerator]
    by_format = {}
    for number_format in dict.fromkeys(table["number_format"][of_accelerator].tolist()):
        nodes = of_accelerator & np.equal(table["number_format"], number_format)
        rows, columns, depth, rate = (
            table[name][nodes].astype(np.float64)
            for name in (
                "product_rows",
                "product_columns",
                "product_depth",
                "product_flops_per_second",
            )
        )
        peak = peak_of(number_format, record)
        bandwidth = float(record["hbm_bytes_per_second"] or np.nan)
        roof = roof_seconds(rows, columns, depth, BYTES[number_format], peak, bandwidth)
        seconds = 2.0 * rows * columns * depth / rate
        follows = bool(table["follows_waves"][nodes].all())
        share = tile_share(rows, columns, 1.0, *chip_of(catalog, record)) if follows else 1.0
        surface = surface_of((rows, columns, depth), roof / seconds / share)
        by_format[number_format] = GemmSurface(surface, follows, float(seconds.min()))
    return by_format


def chip_of(catalog: Catalog, record: Record) -> tuple[float, float]:
    """Return the multiprocessors and the `small_tile_efficiency` of an accelerator."""
    row = catalog.tables.get("step_constant", {}).get("small_tile_efficiency", {})
    return float(record["num_sms"] or np.nan), float(row.get("constant_value") or 1.0)


class Chip(NamedTuple):
    """The rates of the system that runs a GEMM.

    Attributes
    ----------
    peaks
        FLOP/s in each of `FORMATS`.
    """

    peaks: tuple[Real, ...]
    hbm_bytes_per_second: Real
    num_sms: Real
    small_tile_efficiency: Real


class MeasuredGemms:
    """The surfaces that the rows of a problem read.

    Parameters
    ----------
    catalog
        Has the measured rates.
    kernels
        The accelerator whose GEMMs are read, or `FORMULA`; one for all rows, or one a row.
    """

    def __init__(self, catalog: Catalog, kernels: Text) -> None:
        self.kernels = np.asarray(kernels, dtype=object)
        names = dict.fromkeys(self.kernels.ravel().tolist())
        measured = [str(name) for name in names if name != FORMULA]
        self._surfaces = {name: surfaces(catalog, name) for name in measured}
        self._rows: dict[int, tuple[Place, list[tuple[str, int, Array]]]] = {}

    def __bool__(self) -> bool:
        """Return whether any row reads measured GEMMs."""
        return bool(self._surfaces)

    def seconds(self, sizes: Sequence[Real], number_format: Place, chip: Chip) -> Real:
        """Return the seconds of GEMMs, NaN where none of their format was measured.

        ``batch`` GEMMs run as one kernel. They have the efficiency of one GEMM with the rows
        of all, and the operands of each. Measured grouped GEMMs of experts take 0.75 to 1.1
        times as long with 2,048 rows an expert and more, in 16 and 8 bits (on weights that were
        never filled), and 0.9 to 1.2 times with 256 to 1,024 rows (ai-dynamo/aiconfigurator
        @095f58a51, tables of experts on one GPU: balanced, the fastest program, less the time to
        stream copies, activation and sums; medians over the widths).

        Parameters
        ----------
        sizes
            Rows, columns, inner size and batch of the GEMMs.
        number_format
            Place in `FORMATS`: one for all rows, or one a row.
        """
        if self.kernels.ndim == 0 and np.ndim(number_format) == 0:
            return self._seconds(str(self.kernels), int(number_format), sizes, chip)
        rows_of = np.broadcast_shapes(self.kernels.shape, *(np.shape(size) for size in sizes))
        seconds = np.full(rows_of, np.nan)
        for name, place, rows in self._rows_of(number_format):
            part = [_taken(size, rows) for size in sizes]
            peaks = tuple(_taken(peak, rows) for peak in chip.peaks)
            of_rows = Chip(peaks, *(_taken(rate, rows) for rate in chip[1:]))
            seconds[..., rows] = self._seconds(name, place, part, of_rows)
        return seconds

    def _rows_of(self, number_format: Place) -> list[tuple[str, int, Array]]:
        """Return accelerator, number format and row numbers of each surface that any row reads.

        They are cached for the next GEMM of the same rows, because comparing names takes longer
        than looking up a GEMM.
        """
        is_one = np.ndim(number_format) == 0
        key = int(number_format) if is_one else -1
        if (cached := self._rows.get(key)) and (is_one or cached[0] is number_format):
            return cached[1]
        surfaces_of_rows = []
        for name in self._surfaces:
            of_name = np.equal(self.kernels, name)
            for place in distinct(number_format).tolist():
                rows = np.flatnonzero(of_name & np.equal(place, number_format))
                if len(rows):
                    surfaces_of_rows.append((name, place, rows))
        self._rows[key] = number_format, surfaces_of_rows
        return surfaces_of_rows

    def _seconds(self, name: str, place: int, sizes: Sequence[Real], chip: Chip) -> Real:
        """Return the seconds of GEMMs by one surface."""
        number_format = FORMATS[place]
        gemm = self._surfaces.get(name, {}).get(number_format)
        if gemm is None:
            return np.nan
        rows, columns, depth, batch = sizes
        if gemm.follows_waves:
            # a smaller GEMM than any measured one takes as long: its tiles are partly empty
            least_rows, least_columns, _ = gemm.surface.least
            rows, columns = np.maximum(rows, least_rows), np.maximum(columns, least_columns)
        roof = roof_seconds(
            *(rows, columns, depth),
            *(BYTES[number_format], chip.peaks[place], chip.hbm_bytes_per_second),
        )
        seconds = batch * roof / gemm.surface.efficiency(rows * batch, columns, depth)
        if gemm.follows_waves:
            tiling = chip.num_sms, chip.small_tile_efficiency
            seconds = seconds / tile_share(rows, columns, batch, *tiling)
        longest: Real = np.maximum(seconds, gemm.least_seconds)
        return longest


def _taken(value: Real, rows: Array) -> Real:
    return value if isinstance(value, float) or np.ndim(value) == 0 else value[..., rows]


def kernels_of(catalog: Catalog, accelerator: object) -> str:
    """Return the accelerator whose measured kernels one has by default, or `FORMULA`.

    Table ``accelerator`` says it; a system has those of the product that it is, or of the system
    that it is based on.
    """
    product = product_behind(catalog, None if accelerator is None else str(accelerator))
    kernels = catalog.tables.get("accelerator", {}).get(str(product), {}).get("kernels")
    return str(kernels) if kernels in measured_accelerators(catalog) else FORMULA
