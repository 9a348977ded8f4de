"""Condense long runs of products to rate and power: ``python -m benchmarks.sustained_power DIR``.

DIR has two tables of the products that ai-dynamo/aiconfigurator @095f58a5 publishes (Apache-2.0):
`sustained_product.parquet`, runs of about a second with the board's power, and
`matrix_product.parquet`, runs of milliseconds. Their columns are ``accelerator, measured_with,
number_format, num_rows, num_columns, inner_size, seconds``, and of the first ``board_watts,
power_limit_watts``. The result is reference table `sustained_product`, which the constants of
power in `step_constant` are derived from.

Products count whose power is the limit (at least 95 % of it: the mean over a second of others has
time in which nothing runs), whose sides are 1,024 and more, and which have 50 GFLOP to 1 TFLOP:
larger ones run for milliseconds, so that a part of their slowing is in the short run, too. The
programs of the two tables have different versions; the time of products of less than 50 GFLOP,
which no limit slows, shows what the version alone changes.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import polars as pl

TABLE = Path(__file__).parents[1] / "db" / "reference" / "sustained_product.csv"

SHAPE = ("accelerator", "software", "number_format", "num_rows", "num_columns", "inner_size")
GROUP = ("accelerator", "number_format", "software")
SOURCE = (
    "ai-dynamo/aiconfigurator @095f58a5 aic-core/src/aiconfigurator_core/systems/data "
    "(Apache-2.0): python -m benchmarks.sustained_power"
)
LEAST_FLOPS, MOST_FLOPS = 5e10, 1e12
LEAST_SIDE = 1024
AT_LIMIT = 0.95
"""Share of the power limit from which on a product counts as limited."""

FILLED, UNFILLED = "trtllm", "vllm"
"""The program that multiplies by random weights (collector/trtllm/collect_gemm.py), and the one
that never fills them (collector/vllm/collect_gemm.py), in 16 bits."""

BY_HAND = {
    "accelerator": "A100 SXM 80GB",
    "number_format": "bf16",
    "software": "cuBLAS, 8192 x 8192 x 8192",
    "num_products": 1,
    "power_limit_watts": 400.0,
    "board_watts": 400.0,
    "lowest_board_watts": 88.0,
    "sustained_flops_per_second": 257e12,
    "short_flops_per_second": 295e12,
    "version_ratio": 1.0,
    "source": "Horace He, Strangely Matrix Multiplications on GPUs Run Faster When Given "
    "Predictable Data (thonking.ai, 2024): random data, and zeros, which do not reach the limit, "
    "as the short run",
}
"""A row that no table has: its source gives single figures."""


def condensed(long_runs: pl.DataFrame, short_runs: pl.DataFrame) -> pl.DataFrame:
    """Return rate and power of limited products by accelerator, number format and program.

    Parameters
    ----------
    long_runs
        Products with ``board_watts`` and ``power_limit_watts``, in watts.
    short_runs
        The same products, timed briefly; programs may have other versions.

    Returns
    -------
    pl.DataFrame
        Medians, in FLOP/s and watts. `version_ratio` is the time of a long over that of a short
        run of products that no limit slows.
    """
    software = pl.col("measured_with").str.split(" ").list.first().alias("software")
    short = (
        short_runs.with_columns(software)
        .group_by(SHAPE)
        .agg(pl.col("seconds").median().alias("short_seconds"))
    )
    flops = 2.0 * pl.col("num_rows") * pl.col("num_columns") * pl.col("inner_size")
    both = (
        long_runs.with_columns(software)
        .join(short, on=SHAPE)
        .with_columns(flops.alias("flops"))
        .with_columns(
            (pl.col("seconds") / pl.col("short_seconds")).alias("ratio"),
            (pl.col("flops") / pl.col("seconds")).alias("sustained_flops_per_second"),
            (pl.col("flops") / pl.col("short_seconds")).alias("short_flops_per_second"),
        )
    )
    sides = pl.min_horizontal("num_rows", "num_columns", "inner_size")
    limited = both.filter(
        pl.col("flops").is_between(LEAST_FLOPS, MOST_FLOPS),
        sides >= LEAST_SIDE,
        pl.col("board_watts") >= AT_LIMIT * pl.col("power_limit_watts"),
    )
    small = both.filter(pl.col("flops") < LEAST_FLOPS)
    figures = limited.group_by(GROUP).agg(
        pl.len().alias("num_products"),
        pl.col("power_limit_watts").median(),
        pl.col("board_watts").median(),
        pl.col("sustained_flops_per_second").median(),
        pl.col("short_flops_per_second").median(),
    )
    lowest = pl.col("board_watts").quantile(0.001).alias("lowest_board_watts")
    versions = small.group_by(GROUP).agg(pl.col("ratio").median().alias("version_ratio"))
    idle = both.group_by(GROUP).agg(lowest)
    return figures.join(versions, on=GROUP).join(idle, on=GROUP).sort(GROUP)


def weight_ratios(long_runs: pl.DataFrame) -> pl.DataFrame:
    """Return how much longer limited products in 16 bits take with random than unfilled weights.

    Operands that change fewer bits draw less power, so that the limit leaves a higher clock. Both
    programs multiply the same shapes on the same GPU; only products count that meet its limit in
    both.

    Returns
    -------
    pl.DataFrame
        By accelerator, and of all together (null): `num_products`, and the quarters and the median
        of the ratios.
    """
    limited = long_runs.with_columns(
        pl.col("measured_with").str.split(" ").list.first().alias("software"),
        (2.0 * pl.col("num_rows") * pl.col("num_columns") * pl.col("inner_size")).alias("flops"),
    ).filter(
        pl.col("number_format") == "bf16",
        pl.col("flops").is_between(LEAST_FLOPS, MOST_FLOPS),
        pl.min_horizontal("num_rows", "num_columns", "inner_size") >= LEAST_SIDE,
        pl.col("board_watts") >= AT_LIMIT * pl.col("power_limit_watts"),
    )
    shape = [name for name in SHAPE if name != "software"]
    filled, unfilled = (
        limited.filter(pl.col("software") == name)
        .group_by(shape)
        .agg(pl.col("seconds").median().alias(name))
        for name in (FILLED, UNFILLED)
    )
    both = filled.join(unfilled, on=shape)
    ratio = pl.col(FILLED) / pl.col(UNFILLED)
    figures = (
        pl.len().alias("num_products"),
        ratio.quantile(0.25).alias("lower_quarter"),
        ratio.median().alias("median"),
        ratio.quantile(0.75).alias("upper_quarter"),
    )
    every = both.select(pl.lit(None, pl.String).alias("accelerator"), *figures)
    return pl.concat([both.group_by("accelerator").agg(*figures).sort("accelerator"), every])


def main(directory: Path) -> None:
    """Write the reference table anew, and print the ratios of weights."""
    long_runs, short_runs = (
        pl.read_parquet(directory / f"{name}_product.parquet") for name in ("sustained", "matrix")
    )
    rows = [BY_HAND, *condensed(long_runs, short_runs).iter_rows(named=True)]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, tuple(BY_HAND), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            figures = {n: f"{v:.4g}" if isinstance(v, float) else v for n, v in row.items()}
            writer.writerow({"source": SOURCE, **figures})
    for ratios in weight_ratios(long_runs).iter_rows(named=True):
        sys.stdout.write(f"{ratios}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
