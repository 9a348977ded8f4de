"""Published steps with the errors of an estimator: evaluated now, or joined to stored ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.divisors import divisors
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

    from estimators.contract import Array
    from warehouse.plan.question import TrainingRun

UNPUBLISHED = ("microbatch_size", "virtual_pipeline")
"""Columns of a layout that a publication may leave out: every value is possible."""

_FASTEST, _SLOWEST, _NUMBER = "fastest_choice", "slowest_choice", "number_of_step"


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
        fastest, slowest = _ends_of_choices(run, frame, seconds)
        low = ends[ENDS[0]] * np.fmin(fastest / seconds, 1)
        high = ends[ENDS[1]] * np.fmax(slowest / seconds, 1)
        inside = pl.Series((low <= measured) & (measured <= high))
    is_timed = frame[MEASURED].is_not_null()
    errors = pl.Series(seconds / measured - 1)
    return _lines(frame.filter(is_timed), errors.filter(is_timed), inside.filter(is_timed))


def _ends_of_choices(run: TrainingRun, frame: pl.DataFrame, seconds: Array) -> tuple[Array, Array]:
    """Return the times of the fastest and the slowest choice of each step that fit in memory.

    Nobody knows which of the unpublished choices were run. View published_comparison widens the
    intervals of such steps by the same two times.

    Parameters
    ----------
    frame
        Steps that the estimator admits.
    seconds
        Their times with the default choices. A step without other choices has these.
    """
    choices = [
        {_NUMBER: number, "microbatch_size": size, "virtual_pipeline": chunks}
        for number, step in enumerate(frame.iter_rows(named=True))
        if any(step[name] is None for name in UNPUBLISHED)
        for size, chunks in _choices_of(step)
    ]
    fastest, slowest = seconds.copy(), seconds.copy()
    if not choices:
        return fastest, slowest
    wide = pl.DataFrame(choices).join(
        frame.drop(*UNPUBLISHED).with_row_index(_NUMBER).cast({_NUMBER: pl.Int64}), on=_NUMBER
    )
    relation = run.estimator.relations[0]
    resolved = resolve_rows(run.estimator, relation, wide, packaged_catalog(), run.mends)
    found = evaluate_rows(resolved, ["step_seconds", "fits_memory"])
    times = (
        wide.filter(pl.Series(resolved.is_good))
        .select(_NUMBER, step_seconds=pl.Series(found["step_seconds"]))
        .filter(pl.Series(found["fits_memory"]).cast(pl.Boolean))
        .group_by(_NUMBER)
        .agg(
            pl.col("step_seconds").min().alias(_FASTEST),
            pl.col("step_seconds").max().alias(_SLOWEST),
        )
    )
    rows = times[_NUMBER].to_numpy()
    fastest[rows], slowest[rows] = times[_FASTEST].to_numpy(), times[_SLOWEST].to_numpy()
    return fastest, slowest


def _choices_of(step: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return every microbatch with every interleaving; the estimator refuses impossible ones."""
    size, chunks = (step[name] for name in UNPUBLISHED)
    sequences = step["global_batch_size"] // (step["data_parallel"] or 1)
    stages = step["pipeline_parallel"] or 1
    layers = step["num_layers"] // stages if stages > 1 else 1
    sizes = divisors(sequences).tolist() if size is None else [size]
    interleaved = divisors(layers).tolist() if chunks is None else [chunks]
    return [(each, other) for each in sizes for other in interleaved]


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
