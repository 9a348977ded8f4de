"""Errors on whole files of measured steps: ``python -m benchmarks.measured FOLDER``.

FOLDER has CSV files with the inputs of training_step by column name, and the measured
``measured_step_seconds``, ``measured_memory_gib`` (2^30 bytes) or both. Of two large sweeps the
project holds a part: this evaluates all of their rows. It stores nothing.

Options: ``--rows GROUP`` lists the rows of groups that begin so, with the parts of each step in
percent of the measured one; ``--set COLUMN=VALUE`` changes an input of every row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from estimators.contract import PUBLISHED, Array
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.step import TIMES
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import evaluate_intervals, evaluate_rows, resolve_rows
from warehouse.measure.read import KIND
from warehouse.plan.evaluated_steps import DEVICE, OF_KIND

GIB = 2.0**30
SECONDS, MEMORY = "measured_step_seconds", "measured_memory_gib"
KINDS = {"simumax_b200": "allocated", "torchtitan": "reserved", "playbook": "reserved"}
"""File -> what its memory counts, as table `published_measurement` says."""
LAYOUT = (
    *("num_gpus", "global_batch_size", "tensor_parallel", "context_parallel", "expert_parallel"),
    "expert_tensor_parallel",
    *("pipeline_parallel", "virtual_pipeline", "data_parallel", "microbatch_size"),
)

CORE = {
    "playbook": (pl.col("pipeline_parallel") == 1)
    & (pl.col("tensor_parallel") <= 8)
    & (pl.col("num_gpus") <= 256)
}
"""File -> the rows that form a group of their own: those of table `published_measurement`."""


def read(path: Path) -> pl.DataFrame:
    """Return the rows of a file, with the group of each."""
    frame = pl.read_csv(path, infer_schema_length=None)
    parts = [pl.lit(path.stem)]
    if path.stem in CORE:
        parts.append(pl.when(CORE[path.stem]).then(pl.lit("core")).otherwise(pl.lit("rest")))
    if "precision" in frame.columns and frame["precision"].n_unique() > 1:
        parts.append(pl.col("precision"))
    if "measured_group" in frame.columns and path.stem == "bridge":
        parts[1:] = [pl.col("measured_group")]
    missing = [pl.lit(None).alias(name) for name in (SECONDS, MEMORY) if name not in frame.columns]
    group = pl.concat_str(parts, separator=" ").alias("group")
    if KIND not in frame.columns:
        missing.append(pl.lit(KINDS.get(path.stem, "unknown")).alias(KIND))
    return frame.with_columns(group, *missing).with_columns(
        pl.col(SECONDS, MEMORY).cast(pl.Float64, strict=False)
    )


def estimated(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with their estimates, NULL where they are refused, and the reasons."""
    resolved = resolve_rows(TRAINING_STEP, RELATION, frame, packaged_catalog(), PUBLISHED)
    found = {**evaluate_rows(resolved), **evaluate_intervals(resolved)}
    reasons: list[str | None] = [None] * frame.height
    for refusal in reversed(resolved.refusals):
        for row in range(frame.height) if refusal.row is None else (refusal.row,):
            reasons[row] = f"{refusal.column} {refusal.value} {refusal.reason}"
    good = np.flatnonzero(resolved.is_good)
    columns = [pl.Series("refusal", reasons, dtype=pl.String)]
    for name, values in found.items():
        whole = np.full(frame.height, np.nan)
        whole[good] = values
        columns.append(pl.Series(name, whole, nan_to_null=True))
    return (
        frame.drop([column.name for column in columns], strict=False)
        .with_columns(*columns)
        .with_columns(
            error=pl.col("step_seconds") / pl.col(SECONDS) - 1,
            memory_error=_of_kind() / (pl.col(MEMORY) * GIB) - 1,
            inside=pl.col(SECONDS).is_between("low_step_seconds", "high_step_seconds"),
            measured_mfu=pl.col("mfu") * pl.col("step_seconds") / pl.col(SECONDS),
        )
    )


def _of_kind() -> pl.Expr:
    """Return the estimated memory that counts what the measured one does."""
    memory = pl.col(DEVICE)
    for kind, name in OF_KIND.items():
        memory = pl.when(pl.col(KIND) == kind).then(pl.col(name)).otherwise(memory)
    return memory


def constant_error(utilizations: Array) -> float:
    """Return the mean error of the time at the one utilization with the least.

    A row of utilization u has the error u / c - 1 at the constant c. The mean of its size is convex
    in 1 / c and bends where c is one of the u.
    """
    known = utilizations[np.isfinite(utilizations)]
    if not len(known):
        return float("nan")
    return float(min(np.abs(known / constant - 1).mean() for constant in np.unique(known)))


def by_group(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the errors of each group in percent."""

    def percent(column: pl.Expr) -> pl.Expr:
        return (100 * column).round(1)

    lines = rows.group_by("group").agg(
        pl.len().alias("rows"),
        pl.col("refusal").is_not_null().sum().alias("refused"),
        pl.col("error").is_not_null().sum().alias("timed"),
        percent(pl.col("error").abs().mean()).alias("mean"),
        percent(pl.col("error").abs().median()).alias("median"),
        percent(pl.col("error").mean()).alias("bias"),
        percent(pl.col("error").abs().max()).alias("worst"),
        percent(pl.col("inside").filter(pl.col("error").is_not_null()).mean()).alias("inside"),
        pl.corr(
            pl.col("step_seconds").filter(pl.col("error").is_not_null()),
            pl.col(SECONDS).filter(pl.col("error").is_not_null()),
            method="spearman",
        )
        .round(3)
        .alias("rank"),
        percent(pl.col("memory_error").abs().mean()).alias("memory"),
        percent(pl.col("memory_error").mean()).alias("memory bias"),
    )
    constants = pl.DataFrame(
        {
            "group": lines["group"],
            "constant": [
                round(
                    100
                    * constant_error(
                        rows.filter(pl.col("group") == group)["measured_mfu"].to_numpy()
                    ),
                    1,
                )
                for group in lines["group"]
            ],
        }
    )
    return lines.join(constants, on="group").sort("group")


def listed(rows: pl.DataFrame, prefix: str) -> pl.DataFrame:
    """Return the rows of the groups that begin with `prefix`, parts in percent of the measured."""
    chosen = rows.filter(pl.col("group").str.starts_with(prefix))
    return chosen.select(
        "group",
        *(name for name in LAYOUT if name in chosen.columns),
        pl.col(SECONDS).round(4),
        pl.col("step_seconds").round(4),
        (100 * pl.col("error")).round(1).alias("error"),
        *(
            (100 * pl.col(name) / pl.col(SECONDS)).round(1).alias(name.removesuffix("_seconds"))
            for name in TIMES
        ),
        "refusal",
    )


def main() -> None:
    """Print the errors by group, and rows on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", default="")
    parser.add_argument("--set", action="append", default=[], metavar="COLUMN=VALUE")
    given = parser.parse_args()
    files = sorted(given.folder.glob("*.csv"))
    if not files:
        raise SystemExit(f"error: {given.folder} has no CSV file\nhint: name a folder of them")
    changes = [pl.lit(text).alias(name) for name, _, text in (s.partition("=") for s in given.set)]
    rows = pl.concat(
        [estimated(read(path).with_columns(changes)) for path in files], how="diagonal_relaxed"
    )
    with pl.Config(
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=250,
        fmt_str_lengths=60,
        tbl_hide_dataframe_shape=True,
    ):
        print(by_group(rows))
        if given.rows:
            print(listed(rows, given.rows))


if __name__ == "__main__":
    main()
