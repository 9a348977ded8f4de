"""Condense measured kernels to the surfaces of db/reference.

Usage: python -m benchmarks.condense_kernels FOLDER. The folder has the tables of
ai-dynamo/aiconfigurator @095f58a51 (Apache-2.0), one row a kernel and program, in base units:
matrix_product.parquet has accelerator, measured_with, kernel_source, number_format, num_rows,
num_columns, inner_size and seconds.

The time of a shape is the median over the programs in BF16, and that of the fastest program in
formats of 8 and 4 bits. All three programs call cuBLAS in BF16. The rows of vLLM are left out there
and in FP8: its collector (collector/vllm/collect_gemm.py) multiplies by weights that it never
fills, and memory of zeros draws too little power to lower the clock. So it is 3 % faster than the
others at 10 GFLOP and 20 % at 100 TFLOP, and reaches 294 of 312 TFLOP/s on A100, where random
numbers reach 258 (Horace He, thonking.ai, 2024). In FP8 each program has its own kernel and its own
cast. Training calls cuBLASLt through Transformer Engine, which none of them does: a library that
has chosen among many kernels is nearest to the best of them.

In 8 and 4 bits the programs cast the first operand as they multiply (collector/sglang and
collector/trtllm, collect_gemm.py). A step counts its casts apart, so the time to stream that
operand through memory is subtracted.

The surface is the smoothest one through the shapes measured: the values at its nodes minimise the
squared error of the logarithm of the efficiency over all shapes, plus a small weight on the second
differences between neighbouring nodes. Where it reproduces shapes that it has not seen better with
whole waves of tiles taken out, they are: on A100, whose kernels know nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from estimators.contract import Array, Catalog, Record
from estimators.kernels.gemms import (
    BYTES,
    TABLE,
    Surface,
    chip_of,
    peak_of,
    roof_seconds,
    tile_share,
)
from warehouse.database.catalog import packaged_catalog
from warehouse.database.resources import reference_directory

COMMIT = "ai-dynamo/aiconfigurator @095f58a51 (Apache-2.0) systems/data"

ROWS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SIDES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
PRODUCT_AXES = (ROWS, SIDES, SIDES)
"""Rows, columns and inner size of the nodes. Finer grids reproduce other shapes no better."""

CAST_BYTES = {"fp8": 3.0, "fp8_block": 3.0, "nvfp4": 2.5}
"""Bytes that the cast of an element of the first operand reads and writes: 16 bits in."""

UNFILLED = ("bf16", "fp8")
"""Formats in which vLLM's collector multiplies by weights that it never fills."""

SMOOTHNESS = 0.02
"""Weight of a squared second difference, in shapes. It moves no node by more than its spread."""


def main(folder: Path) -> None:
    """Write every surface of `folder`."""
    catalog = packaged_catalog()
    products = pl.concat(product_surfaces(folder / "matrix_product.parquet", catalog))
    _write(products, TABLE)


def product_surfaces(path: Path, catalog: Catalog) -> Iterator[pl.DataFrame]:
    """Yield the surface of products of each accelerator and number format."""
    pair, shape = ["accelerator", "number_format"], ["num_rows", "num_columns", "inner_size"]
    is_unfilled = pl.col("measured_with").str.starts_with("vllm") & pl.col("number_format").is_in(
        UNFILLED
    )
    by_program = (
        pl.read_parquet(path)
        .filter(~is_unfilled)
        .group_by(*pair, *shape, "measured_with")
        .agg(pl.col("seconds").min())
        .sort(*pair, *shape, "measured_with")
    )
    for (accelerator, number_format), own in by_program.group_by(pair, maintain_order=True):
        is_median = number_format == "bf16"
        shapes = own.group_by(shape, maintain_order=True).agg(
            seconds=pl.col("seconds").median() if is_median else pl.col("seconds").min(),
            spread=(pl.col("seconds").max() - pl.col("seconds").min())
            / (2 * pl.col("seconds").median()),
            programs=pl.len(),
        )
        record = catalog.tables["accelerator"][str(accelerator)]
        sizes = [shapes[name].to_numpy().astype(np.float64) for name in shape]
        chip = chip_of(catalog, record)
        ideal = product_roof(sizes, str(number_format), record)
        cast = CAST_BYTES.get(str(number_format), 0.0) * sizes[0] * sizes[2]
        cast = cast / streaming_rate(catalog, record)
        logs = np.log(ideal / np.maximum(shapes["seconds"].to_numpy() - cast, ideal))
        share = tile_share(sizes[0], sizes[1], 1.0, *chip)
        errors = [
            held_out_error(sizes, each, PRODUCT_AXES) for each in (logs, logs - np.log(share))
        ]
        follows = errors[1] < errors[0]
        print(f"{accelerator}, {number_format}: error {errors[0]:.3f}, of waves {errors[1]:.3f}")
        nodes = np.array(list(product(*PRODUCT_AXES)), dtype=np.float64).T
        found = smoothed(sizes, logs - np.log(share) * follows, PRODUCT_AXES)
        efficiency = np.exp(found) * tile_share(nodes[0], nodes[1], 1.0, *chip) ** float(follows)
        seconds = product_roof(list(nodes), str(number_format), record) / efficiency
        near = nearest(sizes, PRODUCT_AXES)
        programs = ", ".join(sorted(own["measured_with"].unique()))
        rule = "median of the programs" if is_median else "the fastest program"
        yield pl.DataFrame(
            {
                "accelerator": pl.Series([accelerator] * len(seconds), dtype=pl.String),
                "number_format": pl.Series([number_format] * len(seconds), dtype=pl.String),
                "product_rows": nodes[0].astype(np.int32),
                "product_columns": nodes[1].astype(np.int32),
                "product_depth": nodes[2].astype(np.int32),
                "product_flops_per_second": _digits(2 * nodes.prod(axis=0) / seconds),
                "follows_waves": pl.Series([bool(follows)] * len(seconds)),
                "rate_spread": _digits(_of_nodes(near, shapes["spread"].to_numpy(), np.median)),
                "num_programs": _of_nodes(near, shapes["programs"].to_numpy(), np.max).astype(
                    np.int32
                ),
                "source": f"{COMMIT}: {rule}, {programs}; smoothed",
            }
        )


def streaming_rate(catalog: Catalog, record: Record) -> float:
    """Return the bytes a second at which kernels stream through an accelerator's memory."""
    table = catalog.tables["step_constant"]
    name = f"hbm_efficiency@{record['accelerator']}"
    row = table.get(name, table["hbm_efficiency"])
    return float(record["hbm_bytes_per_second"] or 0) * float(row["constant_value"] or 1)


def product_roof(sizes: Sequence[Array], number_format: str, record: Record) -> Array:
    """Return the seconds at the roof of an accelerator."""
    bandwidth = float(record["hbm_bytes_per_second"] or np.nan)
    peak = peak_of(number_format, record)
    rows, columns, depth = sizes
    return np.asarray(roof_seconds(rows, columns, depth, BYTES[number_format], peak, bandwidth))


def smoothed(sizes: Sequence[Array], values: Array, axes: Sequence[Sequence[int]]) -> Array:
    """Return the values at the nodes of a grid that measured values admit best.

    Parameters
    ----------
    sizes
        Sizes of the shapes measured, one array for each axis.
    values
        One element a shape.
    axes
        Sizes of the nodes. Interpolation is linear in the logarithm of each size.

    Returns
    -------
    Array
        One element a node, the last axis fastest.
    """
    dims = [len(axis) for axis in axes]
    low, share = [], []
    for axis, size in zip(axes, sizes, strict=True):
        place = np.interp(np.log(size), np.log(axis), np.arange(len(axis)))
        below = np.minimum(place.astype(np.int64), len(axis) - 2)
        low.append(below)
        share.append(place - below)
    nodes, weights = [], []
    for corner in product((0, 1), repeat=len(dims)):
        parts = [s if end else 1 - s for s, end in zip(share, corner, strict=True)]
        weights.append(np.prod(parts, axis=0))
        nodes.append(np.ravel_multi_index([b + e for b, e in zip(low, corner, strict=True)], dims))
    count = int(np.prod(dims))
    square, right = np.zeros((count, count)), np.zeros(count)
    for node, weight in zip(nodes, weights, strict=True):
        np.add.at(right, node, weight * values)
        for other, its in zip(nodes, weights, strict=True):
            np.add.at(square, (node, other), weight * its)
    grid = np.arange(count).reshape(dims)
    for direction in range(len(dims)):
        along = np.moveaxis(grid, direction, 0)
        three = [along[:-2].ravel(), along[1:-1].ravel(), along[2:].ravel()]
        for (one, a), (two, b) in product(zip(three, (1, -2, 1), strict=True), repeat=2):
            np.add.at(square, (one, two), SMOOTHNESS * a * b)
    return np.linalg.solve(square, right)


def held_out_error(
    sizes: Sequence[Array], values: Array, axes: Sequence[Sequence[int]], share: float = 0.2
) -> float:
    """Return the median error of a surface through the other shapes on a share of them."""
    is_out = np.random.default_rng(0).random(len(values)) < share
    kept = [size[~is_out] for size in sizes]
    logs = smoothed(kept, values[~is_out], axes).reshape([len(axis) for axis in axes])
    surface = Surface(tuple(np.log(np.array(axis, dtype=np.float64)) for axis in axes), logs)
    found = np.log(surface.efficiency(*(size[is_out] for size in sizes)))
    return float(np.median(np.abs(found - values[is_out])))


def nearest(sizes: Sequence[Array], axes: Sequence[Sequence[int]]) -> Array:
    """Return the node next to each shape, in logarithms."""
    place = [
        np.abs(np.log(size)[:, None] - np.log(axis)[None, :]).argmin(axis=1)
        for size, axis in zip(sizes, axes, strict=True)
    ]
    return np.asarray(np.ravel_multi_index(place, [len(axis) for axis in axes]))


def _of_nodes(near: Array, values: Array, summary: Any) -> Array:
    """Return a summary of the shapes around each node; of all shapes where it has none."""
    found = {node: summary(values[near == node]) for node in np.unique(near).tolist()}
    size = int(np.prod([len(axis) for axis in PRODUCT_AXES]))
    return np.array([found.get(node, summary(values)) for node in range(size)])


def _digits(values: Array) -> Array:
    """Return values with four digits, which compress."""
    power = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(values), 1e-300))) - 3)
    return np.asarray(np.where(values == 0, 0.0, np.round(values / power) * power))


def _write(frame: pl.DataFrame, table: str) -> None:
    path = reference_directory() / f"{table}.parquet"
    frame.write_parquet(path, compression="zstd", compression_level=19, statistics=False)
    print(f"{path}: {frame.height:,} rows, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
