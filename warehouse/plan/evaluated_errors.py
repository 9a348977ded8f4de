"""Errors on published steps and on measurements, evaluated with the package's own estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.accelerators import product_of
from estimators.kernels.products import kernels_of
from warehouse.calibrate import MEASUREMENTS, OTHER, OWN
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    published_reference,
    published_steps,
    published_tables,
)
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.measure.kinds import MEMORY_OF_KIND, memory_of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from estimators.contract import Array, Catalog
    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]

RATE = "published_flops_per_second_per_gpu"


def errors_of_steps(
    run: TrainingRun, stored: Sequence[Line], catalog: Catalog
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
    is_evaluated = run.estimator.takes_published_steps
    taken = [n for n, number in covered.items() if not is_evaluated or number >= published[n]]
    errors = [
        {**line, "num_published": published[line["reference"]], "is_stored": True}
        for line in stored
        if line["reference"] in taken
    ]
    note = ""
    if is_evaluated:
        errors += published_errors(run, catalog, [n for n in published if n not in taken])
    else:
        note = _missing(run, covered, published)
    errors.sort(key=lambda line: (line["reference"], line["published_group"]))
    return errors, bool(taken), note


def _missing(run: TrainingRun, covered: Mapping[str, int], published: Mapping[str, int]) -> str:
    """Return a note on the tables that are compared in part or not at all."""
    partial = [
        f"{name} ({covered[name]} of {published[name]} rows)"
        for name in sorted(published)
        if 0 < covered.get(name, 0) < published[name]
    ]
    absent = [name for name in sorted(published) if name not in covered]
    lines = [f"compared in part only: {', '.join(partial)}"] if partial else []
    if absent:
        studies = run.estimator.published_studies
        sweeps = " and ".join(f"`warehouse sweep {study}`" for study in studies)
        can = f"; {sweeps} store the rows that {run.estimator.name} can represent" if sweeps else ""
        lines.append(f"not compared with {', '.join(absent)}{can}")
    return "\n".join(lines)


def published_errors(
    run: TrainingRun, catalog: Catalog, names: Iterable[str]
) -> list[dict[str, Any]]:
    """Return the errors on tables of published steps, evaluated now; stores nothing.

    Rows of a program that the estimator does not model take the constants of the nearest program.
    They have a separate line: their errors are larger, and leaving them out would hide that.
    """
    timed = published_steps().filter(
        pl.col("reference").is_in(list(names)) & pl.col(MEASURED).is_not_null()
    )
    rows, seconds = _predicted(run, timed, catalog)
    rates = rows["step_flops"].to_numpy() / (seconds * rows["num_gpus"].to_numpy())
    errors = rates / rows[RATE].to_numpy() - 1
    times = seconds / rows[MEASURED].to_numpy() - 1
    found = []
    for name, is_own in rows.select("reference", IS_OWN).unique(maintain_order=True).rows():
        group = ((rows["reference"] == name) & (rows[IS_OWN] == is_own)).to_numpy()
        found.append(
            {
                "reference": name,
                "published_group": OWN if is_own else OTHER,
                "num_rows": int(group.sum()),
                **_moments("", errors[group]),
                **_moments("time_", times[group]),
                "num_published": timed.filter(pl.col("reference") == name).height,
                "is_stored": False,
            }
        )
    return found


def measured_errors(
    run: TrainingRun, catalog: Catalog
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the errors on measurements of the run's accelerator, of time and of memory, by group.

    The rows are those of table `published_measurement`, evaluated now; refused rows do not count.
    If the accelerator has no rows, those of the accelerator with its kernels are used. For a
    mixture of experts only rows of mixtures are used, if there are any.
    """
    accelerator = run.problem["accelerator"]
    measured = published_steps().filter(pl.col("reference") == MEASUREMENTS)
    frame = measured.filter(pl.col("accelerator") == product_of(catalog, accelerator))
    if frame.height == 0:
        frame = measured.filter(pl.col("accelerator") == kernels_of(catalog, accelerator))
    if int(run.problem.get("num_experts") or 1) > 1:
        mixtures = frame.filter(pl.col("num_experts") > 1)
        frame = mixtures if mixtures.height else frame
    if frame.height == 0:
        return [], []
    relation = run.estimator.relations[0]
    resolved = resolve_rows(run.estimator, relation, frame, catalog, run.mends)
    names = [name for name in ("step_seconds", *MEMORY_OF_KIND) if name in relation.outputs]
    found = evaluate_rows(resolved, names)
    rows = frame.filter(pl.Series(resolved.is_good))
    errors, memory = [], []
    for group in rows["published_group"].unique().sort():
        own = (rows["published_group"] == group).to_numpy()
        published = rows[MEASURED].cast(pl.Float64).to_numpy()
        timed = own & np.isfinite(published)
        common = {"reference": MEASUREMENTS, "published_group": group}
        if timed.any():
            ratios = published[timed] / found["step_seconds"][timed]
            errors.append(
                {
                    **common,
                    "num_rows": int(timed.sum()),
                    **_moments("", ratios - 1),
                    **_moments("time_", 1 / ratios - 1),
                    "num_published": frame.filter(
                        (pl.col("published_group") == group) & pl.col(MEASURED).is_not_null()
                    ).height,
                    "is_stored": False,
                }
            )
        published = rows["published_memory_bytes"].cast(pl.Float64).to_numpy()
        weighed = own & np.isfinite(published)
        if weighed.any() and "memory_bytes" in found:
            estimated = memory_of_kind(rows["measured_memory_kind"].to_list(), found)
            sizes = estimated[weighed] / published[weighed] - 1
            memory.append(
                {
                    "reference": f"published {group}",
                    "num_rows": int(weighed.sum()),
                    **_moments("memory_", sizes),
                }
            )
    return errors, memory


def _moments(prefix: str, errors: Array) -> dict[str, float]:
    return {
        f"{prefix}mean_absolute_relative_error": float(np.abs(errors).mean()),
        f"{prefix}max_absolute_relative_error": float(np.abs(errors).max()),
        f"{prefix}bias": float(errors.mean()),
    }


def _predicted(
    run: TrainingRun, frame: pl.DataFrame, catalog: Catalog
) -> tuple[pl.DataFrame, Array]:
    """Return the rows that the estimator admits, and its seconds for each."""
    if frame.height == 0:
        return frame, np.empty(0)
    relation = run.estimator.relations[0]
    resolved = resolve_rows(run.estimator, relation, frame, catalog, run.mends)
    seconds = evaluate_rows(resolved, ["step_seconds"])["step_seconds"]
    return frame.filter(pl.Series(resolved.is_good)), seconds
