"""Published steps with the errors of an estimator: evaluated now, or joined to stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.catalog import product_of
from estimators.divisors import divisors
from estimators.interval import ENDS
from estimators.kernels.gemms import kernels_of
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    ROW,
    published_intervals,
    published_steps,
)
from warehouse.database.catalog import packaged_catalog
from warehouse.database.tables import MEASUREMENTS
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

if TYPE_CHECKING:
    from estimators.contract import Array, Catalog
    from warehouse.evaluate.inputs import Resolved
    from warehouse.plan.question import TrainingRun

Line = Mapping[str, Any]

UNPUBLISHED = ("microbatch_size", "virtual_pipeline")
"""Columns of a layout that a publication may leave out: every value is possible."""

DEVICE = "memory_bytes"
OF_KIND = {"allocated": "allocated_bytes", "reserved": "reserved_bytes"}
"""Kind of measured memory -> the estimate that counts the same; other kinds: device memory."""

MEMORY_OF_KIND = (DEVICE, *OF_KIND.values())

_NUMBER = "number_of_step"


def _resolved(
    run: TrainingRun, frame: pl.DataFrame, catalog: Catalog
) -> tuple[pl.DataFrame, Resolved]:
    """Return the rows that the estimator admits, and their inputs."""
    resolved = resolve_rows(run.estimator, run.estimator.relations[0], frame, catalog, run.mends)
    return frame.filter(pl.Series(resolved.is_good)), resolved


# ---- errors of the memory ----


def measured_memory(run: TrainingRun) -> list[dict[str, Any]]:
    """Return the errors of the memory on published runs with the run's accelerator, by group.

    The rows are those of view `published_measurement`, evaluated now; refused rows do not count.
    If the accelerator has no rows, those of the accelerator with its kernels are used. For a
    mixture of experts only rows of mixtures are used, if there are any.
    """
    accelerator, catalog = run.problem["accelerator"], run.catalog
    measured = published_steps().filter(
        (pl.col("reference") == MEASUREMENTS) & pl.col("published_memory_bytes").is_not_null()
    )
    frame = measured.filter(pl.col("accelerator") == product_of(catalog, accelerator))
    if frame.height == 0:
        frame = measured.filter(pl.col("accelerator") == kernels_of(catalog, accelerator))
    if int(run.problem.get("num_experts") or 1) > 1:
        mixtures = frame.filter(pl.col("num_experts") > 1)
        frame = mixtures if mixtures.height else frame
    outputs = run.estimator.relations[0].outputs
    if frame.height == 0 or DEVICE not in outputs:
        return []
    rows, resolved = _resolved(run, frame, catalog)
    results = evaluate_rows(resolved, [name for name in MEMORY_OF_KIND if name in outputs])
    estimated = memory_of_kind(rows["measured_memory_kind"].to_list(), results)
    errors = estimated / rows["published_memory_bytes"].cast(pl.Float64).to_numpy() - 1
    lines = []
    for group in rows["published_group"].unique().sort():
        of_group = errors[(rows["published_group"] == group).to_numpy()]
        lines.append(
            {
                "reference": f"published {group}",
                "num_rows": len(of_group),
                "memory_mean_absolute_relative_error": float(np.abs(of_group).mean()),
                "memory_max_absolute_relative_error": float(np.abs(of_group).max()),
                "memory_bias": float(of_group.mean()),
            }
        )
    return lines


def memory_of_kind(kinds: Sequence[str | None], estimates: Mapping[str, Array]) -> Array:
    """Return for each measurement the estimated memory of its kind, from estimates by column.

    If an estimator lacks these parts, every kind gets the estimate of the device's memory.
    """
    memory = estimates[DEVICE]
    for kind, name in OF_KIND.items():
        if name in estimates:
            memory = np.where([each == kind for each in kinds], estimates[name], memory)
    return memory


# ---- steps one by one ----


def evaluated_steps(run: TrainingRun) -> list[dict[str, Any]]:
    """Return every published step that the estimator admits, with its error; stores nothing."""
    frame, resolved = _resolved(run, published_steps(), packaged_catalog())
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
    intervals of such steps by the same two times. A step without other choices has its `seconds`.
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
    steps = frame.drop(*UNPUBLISHED).with_row_index(_NUMBER).cast({_NUMBER: pl.Int64})
    wide, resolved = _resolved(
        run, pl.DataFrame(choices).join(steps, on=_NUMBER), packaged_catalog()
    )
    results = evaluate_rows(resolved, ["step_seconds", "fits_memory"])
    times = (
        wide.select(_NUMBER, step_seconds=pl.Series(results["step_seconds"]))
        .filter(pl.Series(results["fits_memory"]).cast(pl.Boolean))
        .group_by(_NUMBER)
        .agg(fastest=pl.col("step_seconds").min(), slowest=pl.col("step_seconds").max())
    )
    numbers = times[_NUMBER].to_numpy()
    fastest[numbers], slowest[numbers] = times["fastest"].to_numpy(), times["slowest"].to_numpy()
    return fastest, slowest


def _choices_of(step: Line) -> list[tuple[int, int]]:
    """Return every microbatch with every interleaving; the estimator refuses impossible ones."""
    size, chunks = (step[name] for name in UNPUBLISHED)
    sequences = step["global_batch_size"] // (step["data_parallel"] or 1)
    stages = step["pipeline_parallel"] or 1
    layers = step["num_layers"] // stages if stages > 1 else 1
    sizes = divisors(sequences).tolist() if size is None else [size]
    interleaved = divisors(layers).tolist() if chunks is None else [chunks]
    return [(size, chunks) for size in sizes for chunks in interleaved]


def _lines(frame: pl.DataFrame, errors: pl.Series, inside: pl.Series) -> list[dict[str, Any]]:
    columns = ("reference", "published_group", IS_OWN, "framework", "num_experts", "precision")
    named = (errors.alias("time_relative_error"), inside.alias("is_inside_interval"))
    return frame.select(*columns, "accelerator").with_columns(*named).to_dicts()


def with_kinds(errors: Sequence[Line]) -> list[dict[str, Any]]:
    """Return stored errors with what their published steps are of."""
    stored = pl.DataFrame(
        list(map(dict, errors)),
        schema={
            "reference": pl.String,
            ROW: pl.String,
            "time_relative_error": pl.Float64,
            "is_inside_interval": pl.Boolean,
        },
    )
    frame = published_steps().join(stored, on=["reference", ROW])
    return _lines(frame, frame["time_relative_error"], frame["is_inside_interval"])


def covered_by_published_steps() -> dict[str, Any]:
    """Return what published steps cover: accelerators, programs, mixtures of experts."""
    steps = published_steps()
    return {
        "has_experts": bool(steps.filter(pl.col("num_experts").fill_null(1) > 1).height),
        "accelerators": sorted(steps["accelerator"].unique().to_list()),
        "programs": sorted(steps.filter(pl.col(IS_OWN))["framework"].unique().to_list()),
    }
