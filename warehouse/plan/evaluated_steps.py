"""Published steps with the errors of an estimator: evaluated now, or joined to stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.catalog import product_of
from estimators.divisors import divisors
from estimators.interval import ENDS
from estimators.kernels.gemms import kernels_of
from warehouse.calibrate import OTHER, OWN
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    ROW,
    published_intervals,
    published_reference,
    published_steps,
    published_tables,
)
from warehouse.database.catalog import packaged_catalog
from warehouse.database.tables import MEASUREMENTS
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

if TYPE_CHECKING:
    from estimators.contract import Array, Catalog
    from warehouse.evaluate.inputs import Resolved
    from warehouse.plan.question import TrainingRun

Line = Mapping[str, Any]

_RATE = "published_flops_per_second_per_gpu"

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


# ---- errors by table and group ----


def errors_of_steps(
    run: TrainingRun, stored: Sequence[Line]
) -> tuple[list[dict[str, Any]], bool, str]:
    """Return the errors, whether any comes from stored rows, and a note on missing tables.

    The error of a few rows is not the error of their table. If the estimator can evaluate published
    rows, every table that is not stored completely is evaluated; otherwise the note names it.
    """
    published = {
        name: published_reference(name).height
        for name in published_tables()
        if name != MEASUREMENTS
    }
    covered: dict[str, int] = {}
    for line in stored:
        covered[line["reference"]] = covered.get(line["reference"], 0) + line["num_rows"]
    is_evaluated, note = run.estimator.source.takes_published_steps, ""
    taken = [n for n, number in covered.items() if not is_evaluated or number >= published[n]]
    errors = [
        {**line, "num_published": published[line["reference"]], "is_stored": True}
        for line in stored
        if line["reference"] in taken
    ]
    if is_evaluated:
        errors += _published_errors(run, [name for name in published if name not in taken])
    else:
        note = _missing(run, covered, published)
    errors.sort(key=lambda line: (line["reference"], line["published_group"]))
    return errors, bool(taken), note


def _missing(run: TrainingRun, covered: Mapping[str, int], published: Mapping[str, int]) -> str:
    partial = [
        f"{name} ({covered[name]} of {published[name]} rows)"
        for name in sorted(published)
        if 0 < covered.get(name, 0) < published[name]
    ]
    absent = [name for name in sorted(published) if name not in covered]
    lines = [f"compared in part only: {', '.join(partial)}"] if partial else []
    if absent:
        studies = run.estimator.source.published_studies
        sweeps = " and ".join(f"`warehouse sweep {study}`" for study in studies)
        can = f"; {sweeps} store the rows that {run.estimator.name} can represent" if sweeps else ""
        lines.append(f"not compared with {', '.join(absent)}{can}")
    return "\n".join(lines)


def _published_errors(run: TrainingRun, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the errors on tables of published steps.

    Rows of a program that the estimator does not model take the constants of the nearest program.
    They have a separate line: their errors are larger, and leaving them out would hide that.
    """
    timed = published_steps().filter(
        pl.col("reference").is_in(list(names)) & pl.col(MEASURED).is_not_null()
    )
    if timed.height == 0:
        return []
    rows, resolved = _resolved(run, timed, run.catalog)
    seconds = evaluate_rows(resolved, ["step_seconds"])["step_seconds"]
    rates = rows["step_flops"].to_numpy() / (seconds * rows["num_gpus"].to_numpy())
    errors = rates / rows[_RATE].to_numpy() - 1
    times = seconds / rows[MEASURED].to_numpy() - 1
    lines = []
    for name, is_own in rows.select("reference", IS_OWN).unique(maintain_order=True).rows():
        group = ((rows["reference"] == name) & (rows[IS_OWN] == is_own)).to_numpy()
        num_published = timed.filter(pl.col("reference") == name).height
        label = OWN if is_own else OTHER
        lines.append(_error_line(name, label, errors[group], times[group], num_published))
    return lines


def measured_errors(run: TrainingRun) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the errors on measurements of the run's accelerator, of time and of memory, by group.

    The rows are those of view `published_measurement`, evaluated now; refused rows do not count.
    If the accelerator has no rows, those of the accelerator with its kernels are used. For a
    mixture of experts only rows of mixtures are used, if there are any.
    """
    accelerator, catalog = run.problem["accelerator"], run.catalog
    measured = published_steps().filter(pl.col("reference") == MEASUREMENTS)
    frame = measured.filter(pl.col("accelerator") == product_of(catalog, accelerator))
    if frame.height == 0:
        frame = measured.filter(pl.col("accelerator") == kernels_of(catalog, accelerator))
    if int(run.problem.get("num_experts") or 1) > 1:
        mixtures = frame.filter(pl.col("num_experts") > 1)
        frame = mixtures if mixtures.height else frame
    if frame.height == 0:
        return [], []
    rows, resolved = _resolved(run, frame, catalog)
    outputs = run.estimator.relations[0].outputs
    names = [name for name in ("step_seconds", *MEMORY_OF_KIND) if name in outputs]
    results = evaluate_rows(resolved, names)
    seconds = rows[MEASURED].cast(pl.Float64).to_numpy()
    sizes = rows["published_memory_bytes"].cast(pl.Float64).to_numpy()
    errors, memory = [], []
    for group in rows["published_group"].unique().sort():
        of_group = (rows["published_group"] == group).to_numpy()
        timed = of_group & np.isfinite(seconds)
        if timed.any():
            ratios = seconds[timed] / results["step_seconds"][timed]
            num_published = frame.filter(
                (pl.col("published_group") == group) & pl.col(MEASURED).is_not_null()
            ).height
            errors.append(
                _error_line(MEASUREMENTS, group, ratios - 1, 1 / ratios - 1, num_published)
            )
        weighed = of_group & np.isfinite(sizes)
        if weighed.any() and "memory_bytes" in results:
            estimated = memory_of_kind(rows["measured_memory_kind"].to_list(), results)
            memory.append(
                {
                    "reference": f"published {group}",
                    "num_rows": int(weighed.sum()),
                    **_moments("memory_", estimated[weighed] / sizes[weighed] - 1),
                }
            )
    return errors, memory


def memory_of_kind(kinds: Sequence[str | None], estimates: Mapping[str, Array]) -> Array:
    """Return for each measurement the estimated memory of its kind, from estimates by column.

    If an estimator lacks these parts, every kind gets the estimate of the device's memory.
    """
    memory = estimates[DEVICE]
    for kind, name in OF_KIND.items():
        if name in estimates:
            memory = np.where([each == kind for each in kinds], estimates[name], memory)
    return memory


def _error_line(
    reference: str, group: str, rates: Array, times: Array, num_published: int
) -> dict[str, Any]:
    return {
        "reference": reference,
        "published_group": group,
        "num_rows": len(times),
        **_moments("", rates),
        **_moments("time_", times),
        "num_published": num_published,
        "is_stored": False,
    }


def _moments(prefix: str, errors: Array) -> dict[str, float]:
    return {
        f"{prefix}mean_absolute_relative_error": float(np.abs(errors).mean()),
        f"{prefix}max_absolute_relative_error": float(np.abs(errors).max()),
        f"{prefix}bias": float(errors.mean()),
    }


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
