"""Condense measured kernels of experts to load ratios: `python -m benchmarks.condense_routing DIR`.

DIR has `expert_products.parquet`, the products of one layer's experts on one GPU that
ai-dynamo/aiconfigurator @095f58a51 (Apache-2.0) publishes: ``accelerator, measured_with,
kernel_source, number_format, num_tokens, hidden_size, expert_ffn_hidden_size, num_experts,
experts_per_token, expert_tensor_parallel, expert_parallel, routing, seconds``. The result is
reference table `expert_load`.

A ratio is the time of a kernel on the fullest rank of experts, if tokens choose experts by a power
law, over the time of the same kernel with balanced loads. The table has the median over programs,
accelerators, number formats and widths. Time is taken as proportional to tokens. So kernels count
whose experts have 512 rows each, on average: with fewer, a kernel takes as long to read weights.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import polars as pl

TABLE = Path(__file__).parents[1] / "db" / "reference" / "expert_load.csv"

SOURCE = (
    "ai-dynamo/aiconfigurator @095f58a51 aic-core/src/aiconfigurator_core/systems/data "
    "(Apache-2.0): python -m benchmarks.condense_routing"
)
SHAPE = (
    *("accelerator", "measured_with", "kernel_source", "number_format", "num_tokens"),
    *("hidden_size", "expert_ffn_hidden_size", "num_experts", "experts_per_token"),
    *("expert_tensor_parallel", "expert_parallel"),
)
LAW = ("expert_routing", "num_experts")
CASE = (*LAW, "experts_per_token", "expert_parallel")
COLUMNS = (
    *("expert_load", *CASE, "expert_load_ratio", "lowest_load_ratio", "highest_load_ratio"),
    *("num_kernels", "source"),
)
LEAST_ROWS = 512
"""Rows of an expert from which on a kernel counts."""


def condensed(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the load ratios by routing, number of experts and of ranks.

    Of each number of experts only the experts a token with most kernels count. Numbers of experts
    are left out if they were not measured on half as many ranks. A rank of fewer experts is not
    less uneven: where its median is lower, it has that of fewer ranks.

    Parameters
    ----------
    kernels
        As above.

    Returns
    -------
    pl.DataFrame
        `COLUMNS` but for `source`. The lowest and highest ratio are those of the outer tenths.
    """
    balanced = kernels.filter(pl.col("routing") == "balanced").select(
        *SHAPE, pl.col("seconds").alias("balanced_seconds")
    )
    ratio = pl.col("seconds") / pl.col("balanced_seconds")
    rows = pl.col("num_tokens") * pl.col("experts_per_token") / pl.col("num_experts")
    ratios = (
        kernels.filter(pl.col("routing") != "balanced", rows >= LEAST_ROWS)
        .join(balanced, on=SHAPE)
        .select(pl.col("routing").alias("expert_routing"), *CASE[1:], ratio.alias("ratio"))
    )
    measured = ratios.filter(pl.col("expert_parallel") > 1).group_by(CASE)
    found = measured.agg(
        pl.col("ratio").median().alias("expert_load_ratio"),
        pl.col("ratio").quantile(0.1).alias("lowest_load_ratio"),
        pl.col("ratio").quantile(0.9).alias("highest_load_ratio"),
        pl.len().cast(pl.Int64).alias("num_kernels"),
    )
    of_token = pl.col("num_kernels").sum().over(*LAW, "experts_per_token")
    found = (
        found.with_columns(of_token.alias("of_token"))
        .filter(pl.col("of_token") == pl.col("of_token").max().over(LAW))
        .filter(2 * pl.col("expert_parallel").max().over(LAW) >= pl.col("num_experts"))
        .sort(CASE)
        .with_columns(pl.col("expert_load_ratio").cum_max().over(LAW))
    )
    key = pl.concat_str("expert_routing", "num_experts", "expert_parallel", separator="@")
    return found.select(key.alias("expert_load"), *COLUMNS[1:-1])


def main(directory: Path) -> None:
    """Write the reference table anew."""
    kernels = pl.read_parquet(directory / "expert_products.parquet")
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in condensed(kernels).iter_rows(named=True):
            figures = {n: f"{v:.4g}" if isinstance(v, float) else v for n, v in row.items()}
            writer.writerow({**figures, "source": SOURCE})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
