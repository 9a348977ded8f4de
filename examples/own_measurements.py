"""Own measurements: measured steps next to their estimates and the intervals of these.

Reads measured_steps.csv next to this script, stores the runs with their estimates, and prints both.
Put your own runs in the file: a row each, with the layout and the measured step_seconds.

    python examples/own_measurements.py [DATABASE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from warehouse import Warehouse

STEPS = Path(__file__).with_name("measured_steps.csv")


def compared(warehouse: Warehouse, runs: pl.DataFrame) -> pl.DataFrame:
    """Return each run with its measured step, its estimate and the interval of the estimate."""
    stored = warehouse.measure(runs, name="own steps", replace=True)
    estimator = stored["estimator"][0]
    layouts = runs.drop("step_seconds", "source")
    interval = warehouse.evaluate(estimator, layouts)
    ends = interval.select("run", "low_step_seconds", "high_step_seconds")
    return (
        stored.filter(estimator=estimator)
        .join(ends, left_on="measured_row", right_on="run")
        .sort("num_gpus")
        .select(
            *("measured_row", "num_gpus", "measured_step_seconds", "step_seconds"),
            *("low_step_seconds", "high_step_seconds", "time_relative_error"),
            is_inside=pl.col("measured_step_seconds").is_between(
                "low_step_seconds", "high_step_seconds"
            ),
        )
    )


def main(warehouse: Warehouse) -> None:
    """Print a line for each run, and the mean error."""
    found = compared(warehouse, pl.read_csv(STEPS))
    print(f"{'run':20}{'measured s':>11}{'estimate s':>11}{'nine in ten':>16}{'error':>8}")
    for row in found.iter_rows(named=True):
        ends = f"{row['low_step_seconds']:.2f} to {row['high_step_seconds']:.2f}"
        mark = "" if row["is_inside"] else "  outside"
        print(
            f"{row['measured_row']:20}{row['measured_step_seconds']:11.3f}"
            f"{row['step_seconds']:11.3f}{ends:>16}{row['time_relative_error']:+8.1%}{mark}"
        )
    error = found.select(pl.col("time_relative_error").abs().mean()).item()
    print(f"mean error {error:.1%}, {found['is_inside'].sum()} of {found.height} inside")


if __name__ == "__main__":
    main(Warehouse(*sys.argv[1:2], writable=True))
