"""Measured matrix products: a surface of efficiencies for each accelerator and number format.

Table ``matrix_product_rate`` has the rates, without casts of operands to 8 and 4 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.accelerators import product_behind
from estimators.contract import Array, Catalog, Record, Values
from estimators.distinct import distinct
from estimators.kernels.surface import Surface, surface_of
from estimators.kernels.tiles import tile_share

TABLE = "matrix_product_rate"
FORMULA = "formula"
"""The value of ``kernels`` that reads no measured kernel."""

BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}
"""Bytes of an element of an operand by number format; results have 2."""

FORMATS = tuple(BYTES)
"""Number formats of products. The value `low_format` is a place in this tuple."""

PEAKS = ("matrix_flops_per_second", "fp8_peak", "fp8_peak", "fp4_peak")
"""Value that is the peak in each of `FORMATS`."""


def peak_of(number_format: str, accelerator: Record) -> float:
    """Return the peak FLOP/s of an accelerator in a number format; NaN where it has none."""
    width = {"bf16": "bf16", "nvfp4": "fp4"}.get(number_format, "fp8")
    return float(accelerator.get(f"{width}_flops_per_second") or np.nan)


@dataclass(frozen=True)
class ProductSurface:
    """The products of one accelerator in one number format.

    Attributes
    ----------
    surface
        Efficiency over rows, columns and inner size.
    follows_waves
        Whether the efficiency is that of full waves of tiles; the time then grows with whole waves.
    least_seconds
        Seconds of the shortest measured product: no product takes less.
    """

    surface: Surface
    follows_waves: bool
    least_seconds: float


def roof_seconds(
    rows: Any, columns: Any, depth: Any, operand_bytes: Any, peak: Any, bandwidth: Any
) -> Any:
    """Return the seconds of a product at its roof.

    ``max(2 M N K / peak, (width (M + N) K + 2 M N) / bandwidth)``.
    """
    moved = operand_bytes * (rows + columns) * depth + 2.0 * rows * columns
    return np.maximum(2.0 * rows * columns * depth / peak, moved / bandwidth)


def measured_accelerators(catalog: Catalog) -> tuple[str, ...]:
    """Return the accelerators whose products were measured."""
    if TABLE not in catalog.measured:
        return ()
    return catalog.measured.made(
        (TABLE, "accelerators"),
        lambda: tuple(sorted(set(catalog.measured[TABLE]["accelerator"].tolist()))),
    )


def surfaces(catalog: Catalog, accelerator: str) -> Mapping[str, ProductSurface]:
    """Return the surfaces of an accelerator by number format."""
    return catalog.measured.made((TABLE, accelerator), lambda: _surfaces(catalog, accelerator))


def _surfaces(catalog: Catalog, accelerator: str) -> dict[str, ProductSurface]:
    """Return number format -> surface, from the measured rates of an accelerator."""
    table = catalog.measured[TABLE]
    own = np.equal(table["accelerator"], accelerator)
    record = catalog.tables["accelerator"][accelerator]
    found = {}
    for number_format in dict.fromkeys(table["number_format"][own].tolist()):
        kept = own & np.equal(table["number_format"], number_format)
        rows, columns, depth, rate = (
            table[name][kept].astype(np.float64)
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
        follows = bool(table["follows_waves"][kept].all())
        share = tile_share(rows, columns, 1.0, chip_of(catalog, record)) if follows else 1.0
        surface = surface_of((rows, columns, depth), roof / seconds / share)
        found[number_format] = ProductSurface(surface, follows, float(seconds.min()))
    return found


def chip_of(catalog: Catalog, record: Record) -> dict[str, Any]:
    """Return the values of an accelerator that `tile_share` needs."""
    row = catalog.tables.get("step_constant", {}).get("small_tile_efficiency", {})
    return {"num_sms": record["num_sms"], "small_tile_efficiency": row.get("constant_value", 1.0)}


class MeasuredProducts:
    """The surfaces that the rows of a problem read.

    Parameters
    ----------
    catalog
        Has the measured rates.
    kernels
        The accelerator whose products are read, or `FORMULA`; one for all rows, or one a row.
    """

    def __init__(self, catalog: Catalog, kernels: Any) -> None:
        self.kernels = kernels
        names = dict.fromkeys(np.atleast_1d(np.asarray(kernels, dtype=object)).tolist())
        measured = [str(name) for name in names if name != FORMULA]
        self._surfaces = {name: surfaces(catalog, name) for name in measured}
        self._rows: dict[bool, tuple[Any, list[tuple[str, int, Array]]]] = {}

    def __bool__(self) -> bool:
        """Return whether any row reads measured products."""
        return bool(self._surfaces)

    def seconds(
        self, rows: Any, columns: Any, depth: Any, batch: Any, values: Values, *, low: bool
    ) -> Any:
        """Return the seconds of products, NaN where none of their format was measured.

        ``batch`` products run as one kernel. They have the efficiency of one product with the rows
        of all, and the operands of each. Measured grouped products of experts take 0.75 to 1.1
        times as long with 2,048 rows an expert and more, in 16 and 8 bits (on weights that were
        never filled), and 0.9 to 1.2 times with 256 to 1,024 rows (ai-dynamo/aiconfigurator
        @095f58a51, tables of experts on one GPU: balanced, the fastest program, less the time to
        stream copies, activation and sums; medians over the widths).

        Parameters
        ----------
        values
            `low_format`, and the peaks and the memory bandwidth of the system.
        low
            Whether the product runs in the format that `precision` names; otherwise in 16 bits.
        """
        place = values["low_format"] if low else np.int64(0)
        if np.ndim(self.kernels) == 0 and np.ndim(place) == 0:
            sizes = (rows, columns, depth, batch)
            return self._seconds(str(self.kernels), int(place), sizes, values, None)
        found = np.full(np.shape(self.kernels), np.nan)
        sizes = (rows, columns, depth, batch)
        for name, each, own in self._rows_of(place, low=low):
            found[own] = self._seconds(name, each, sizes, values, own)
        return found

    def _rows_of(self, place: Any, *, low: bool) -> list[tuple[str, int, Array]]:
        """Return accelerator, number format and row numbers of each surface that any row reads.

        They are cached for the next product of the same rows, because comparing names takes longer
        than looking up a product.
        """
        kept = self._rows.get(low)
        if kept is not None and (kept[0] is place or not low):
            return kept[1]
        found = []
        for name in self._surfaces:
            of_name = np.equal(self.kernels, name)
            for each in distinct(place).tolist():
                rows = np.flatnonzero(of_name & np.equal(place, each))
                if len(rows):
                    found.append((name, each, rows))
        self._rows[low] = place, found
        return found

    def _seconds(
        self, name: str, place: int, sizes: tuple[Any, ...], values: Values, own: Array | None
    ) -> Any:
        """Return the seconds of products by one surface; `own` are the rows that read it."""
        number_format = FORMATS[place]
        product = self._surfaces.get(name, {}).get(number_format)
        if product is None:
            return np.nan
        rows, columns, depth, batch = (_taken(size, own) for size in sizes)
        if product.follows_waves:
            # a smaller product than any measured one takes as long: its tiles are partly empty
            least_rows, least_columns, _ = product.surface.least
            rows, columns = np.maximum(rows, least_rows), np.maximum(columns, least_columns)
        peak = _taken(values[PEAKS[place]], own)
        bandwidth = _taken(values["hbm_bytes_per_second"], own)
        roof = roof_seconds(rows, columns, depth, BYTES[number_format], peak, bandwidth)
        seconds = batch * roof / product.surface.efficiency(rows * batch, columns, depth)
        if product.follows_waves:
            names = ("num_sms", "small_tile_efficiency")
            chip = {name: _taken(values[name], own) for name in names}
            seconds = seconds / tile_share(rows, columns, batch, chip)
        return np.maximum(seconds, product.least_seconds)


def _taken(value: Any, rows: Array | None) -> Any:
    return value if rows is None or np.ndim(value) == 0 else value[rows]


def kernels_of(catalog: Catalog, accelerator: object) -> str:
    """Return the accelerator whose measured kernels one has by default, or `FORMULA`.

    Table ``accelerator`` says it; a system has those of the product that it is, or of the system
    that it is based on.
    """
    product = product_behind(catalog, None if accelerator is None else str(accelerator))
    kernels = catalog.tables.get("accelerator", {}).get(str(product), {}).get("kernels")
    return str(kernels) if kernels in measured_accelerators(catalog) else FORMULA
