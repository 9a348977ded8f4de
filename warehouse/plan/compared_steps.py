"""Published steps with the errors of an estimator: evaluated now, or joined to stored ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from estimators.interval import ENDS
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    ROW,
    published_intervals,
    published_steps,
)
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.question import TrainingRun


def evaluated_steps(run: TrainingRun) -> list[dict[str, Any]]:
    """Return every published step that the estimator admits, with its error; stores nothing."""
    steps = published_steps()
    relation = run.estimator.relations[0]
    resolved = resolve_rows(run.estimator, relation, steps, packaged_catalog(), run.mends)
    frame = steps.filter(pl.Series(resolved.is_good))
    measured = frame[MEASURED].cast(pl.Float64).to_numpy()
    seconds = evaluate_rows(resolved, ["step_seconds"])["step_seconds"]
    ends = published_intervals(resolved)
    inside = pl.Series([None] * frame.height, dtype=pl.Boolean)
    if ends:
        low, high = (ends[name] for name in ENDS)
        inside = pl.Series((low <= measured) & (measured <= high))
    is_timed = frame[MEASURED].is_not_null()
    errors = pl.Series(seconds / measured - 1)
    return _lines(frame.filter(is_timed), errors.filter(is_timed), inside.filter(is_timed))


def _lines(frame: pl.DataFrame, errors: pl.Series, inside: pl.Series) -> list[dict[str, Any]]:
    kept = frame.select(
        *("reference", "published_group", IS_OWN, "framework", "num_experts", "precision"),
        "accelerator",
    ).with_columns(errors.alias("time_relative_error"), inside.alias("is_inside_interval"))
    return kept.to_dicts()


def with_kinds(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return stored errors with what their published steps are of."""
    stored = pl.DataFrame(
        [dict(line) for line in found],
        schema={
            "reference": pl.String,
            ROW: pl.String,
            "time_relative_error": pl.Float64,
            "is_inside_interval": pl.Boolean,
        },
    )
    frame = published_steps().join(stored, on=["reference", ROW])
    return _lines(frame, frame["time_relative_error"], frame["is_inside_interval"])
