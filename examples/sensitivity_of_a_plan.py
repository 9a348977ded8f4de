"""Sensitivity of a plan: the constants that its time rests on.

Plans a run, explains its best layout, and prints the days at both ends of the range of each
constant, the widest range first. Layouts that are not stored yet are evaluated and stored.

    python examples/sensitivity_of_a_plan.py [DATABASE]
"""

from __future__ import annotations

import sys
from typing import Any

import polars as pl

from warehouse import Warehouse

RUN: dict[str, Any] = {
    "model": "llama3_8B",
    "accelerator": "H100 SXM 80GB",
    "num_gpus": 64,
    "global_batch_size": 512,
    "framework": "megatron_core",
}
DAY = 86_400


def sensitivity(warehouse: Warehouse, run: dict[str, Any], days: float) -> pl.DataFrame:
    """Return the days of a stored run at both ends of the range of each constant."""
    step = warehouse.explain(best=True, **run)
    fast = pl.min_horizontal("at_lowest", "at_highest") / step.step_seconds * days
    slow = pl.max_horizontal("at_lowest", "at_highest") / step.step_seconds * days
    return (
        step.constants.with_columns(fast.alias("fast_days"), slow.alias("slow_days"))
        .filter(pl.col("slow_days") > pl.col("fast_days"))
        .sort(pl.col("slow_days") - pl.col("fast_days"), descending=True)
        .select("name", "value", "lowest", "highest", "elasticity", "fast_days", "slow_days")
    )


def main(warehouse: Warehouse, run: dict[str, Any] = RUN, tokens: float | str = "15T") -> None:
    """Print the plan, its interval, and the ten constants that move it most."""
    planned = warehouse.plan(**run, tokens=tokens)
    days = planned.training_seconds / DAY
    print(f"{run['model']} on {planned.num_gpus} GPUs: {days:.1f} days")
    if planned.likely_training_seconds:
        low, high = (end / DAY for end in planned.likely_training_seconds)
        print(f"nine times in ten {low:.1f} to {high:.1f} days")
    print(f"{'constant':32}{'value':>10}{'elasticity':>12}{'fast':>8}{'slow':>8}")
    for name, value, *_, elasticity, fast, slow in (
        sensitivity(warehouse, run, days).head(10).iter_rows()
    ):
        changes = "" if elasticity is None else f"{elasticity:+.3f}"
        print(f"{name:32}{value:10.4g}{changes:>12}{fast:8.1f}{slow:8.1f}")


if __name__ == "__main__":
    main(Warehouse(*sys.argv[1:2], writable=True))
