"""The estimator's error on published steps and on one's own, as a plan tells it.

One grouping, whatever is stored: a line for each table of published steps and for whether its rows
are of a program that the estimator has the constants of. Errors are those of view
`estimator_accuracy`: of the rate, positive where the estimate is too fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.accelerators import product_of
from estimators.contract import Array, RefusedError
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    published_reference,
    published_steps,
    published_tables,
)
from warehouse.database.sql_text import literal
from warehouse.evaluate.inputs import input_names, read_columns

if TYPE_CHECKING:
    from estimators.contract import Catalog
    from warehouse.plan.question import Run

EVALUATED = "training_step"
"""The estimator that takes published rows as they stand; others compare what is stored."""

OWN, OTHER = "its own programs", "other programs, by the nearest one"
"""Groups of a table's rows."""

STUDIES = {"roofline": ("roofline_published", "megatron")}
"""Studies that store what an estimator can represent of the published steps."""

RATE = "published_flops_per_second_per_gpu"

Line = Mapping[str, Any]


def stored_query(run: Run) -> str:
    """Return the query of the errors on published steps, as far as they are stored."""
    return f"""\
select
    reference,
    case when is_own_framework then {literal(OWN)} else {literal(OTHER)} end as published_group,
    count(*) as num_rows,
    avg(absolute_relative_error) as mean_absolute_relative_error,
    max(absolute_relative_error) as max_absolute_relative_error,
    avg(relative_error) as bias,
    avg(abs(time_relative_error)) as time_mean_absolute_relative_error,
    max(abs(time_relative_error)) as time_max_absolute_relative_error,
    avg(time_relative_error) as time_bias
from megatron_comparison
where estimator = {literal(run.estimator.name)} and variant = {literal(run.variant)}
group by reference, is_own_framework
order by reference, published_group"""


def memory_query(run: Run) -> str:
    """Return the query of the errors of the memory on one's own runs."""
    return f"""\
select
    reference,
    count(*) as num_rows,
    avg(abs(memory_relative_error)) as memory_mean_absolute_relative_error,
    max(abs(memory_relative_error)) as memory_max_absolute_relative_error,
    avg(memory_relative_error) as memory_bias
from measurement_comparison
where
    estimator = {literal(run.estimator.name)} and variant = {literal(run.variant)}
    and coalesce(profile, 'default') = 'default'
    and memory_relative_error is not null
group by reference
order by reference"""


def errors_of(
    run: Run, stored: Sequence[Line], catalog: Catalog
) -> tuple[list[dict[str, Any]], bool, str]:
    """Return the errors, whether any is the stored one, and what is missing or partial.

    A sweep may happen to hold a few rows of a table. Their error is not the table's: where the
    estimator takes published rows as they stand, a table that is not stored whole is evaluated
    now, all of it. Of others the lines are what is stored, and partial ones are named.
    """
    published = {name: published_reference(name).frame.height for name in published_tables()}
    covered: dict[str, int] = {}
    for line in stored:
        covered[line["reference"]] = covered.get(line["reference"], 0) + line["num_rows"]
    is_evaluated = run.estimator.name == EVALUATED
    # a table that is not a published one is a team's own measurements
    total = {name: published.get(name, number) for name, number in covered.items()}
    taken = [n for n, number in covered.items() if not is_evaluated or number >= total[n]]
    errors = [
        {**line, "num_published": total[line["reference"]], "is_stored": True}
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


def _missing(run: Run, covered: Mapping[str, int], published: Mapping[str, int]) -> str:
    """Return which tables are compared in part or not at all, and how to get what there is."""
    partial = [
        f"{name} ({covered[name]} of {published[name]} rows)"
        for name in sorted(published)
        if 0 < covered.get(name, 0) < published[name]
    ]
    absent = [name for name in sorted(published) if name not in covered]
    told = [f"in part only: {', '.join(partial)}"] if partial else []
    if absent:
        studies = STUDIES.get(run.estimator.name, ())
        sweeps = " and ".join(f"`warehouse sweep {study}`" for study in studies)
        can = f"; {sweeps} store what {run.estimator.name} can represent" if sweeps else ""
        told.append(f"not compared with {', '.join(absent)}{can}")
    return "\n".join(told)


def published_errors(run: Run, catalog: Catalog, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the errors on tables of published steps, evaluated now; nothing is stored.

    Rows of a program that is none of the estimator's, evaluated by the constants of the nearest
    one, have a line of their own: they are further off, and leaving them out would flatter.
    """
    found = []
    for name in names:
        frame = published_reference(name).frame
        for is_own in (True, False):
            rows, seconds = _predicted(run, frame.filter(pl.col(IS_OWN) == is_own), catalog)
            if len(seconds) == 0:
                continue
            rates = rows["step_flops"].to_numpy() / (seconds * rows["num_gpus"].to_numpy())
            errors = rates / rows[RATE].to_numpy() - 1
            times = seconds / rows[MEASURED].to_numpy() - 1
            found.append(
                {
                    "reference": name,
                    "published_group": OWN if is_own else OTHER,
                    "num_rows": len(errors),
                    **_moments("", errors),
                    **_moments("time_", times),
                    "num_published": frame.height,
                    "is_stored": False,
                }
            )
    return found


def _moments(prefix: str, errors: Array) -> dict[str, float]:
    return {
        f"{prefix}mean_absolute_relative_error": float(np.abs(errors).mean()),
        f"{prefix}max_absolute_relative_error": float(np.abs(errors).max()),
        f"{prefix}bias": float(errors.mean()),
    }


def _predicted(run: Run, frame: pl.DataFrame, catalog: Catalog) -> tuple[pl.DataFrame, Array]:
    """Return the rows that the estimator admits, and its seconds of each."""
    estimator, relation = run.estimator, run.estimator.relations[0]
    if frame.height == 0:
        return frame, np.empty(0)
    columns, refusals = read_columns(frame, input_names(estimator, relation), relation)
    try:
        resolved, refused = estimator.resolve(relation, columns, catalog, run.mends)
    except RefusedError:
        return frame.clear(), np.empty(0)
    good = np.ones(frame.height, dtype=bool)
    for refusal in (*refusals, *refused):
        good[slice(None) if refusal.row is None else refusal.row] = False
    good &= frame[MEASURED].is_not_null().to_numpy()
    own = {name: values[good] for name, values in resolved.items()}
    layouts = {name: own.pop(name) for name in relation.keys}
    out: dict[str, Array] = {"step_seconds": np.empty(int(good.sum()))}
    if good.any():
        estimator.estimate(relation, own, layouts, run.mends, out)
    return frame.filter(pl.Series(good)), out["step_seconds"]


def unlike_published(run: Run, catalog: Catalog) -> list[str]:
    """Return in which ways no published step is like the run: there its error says little."""
    steps, values = published_steps(), run.facts.problem
    told = []
    if int(values.get("num_experts") or 1) > 1:  # the view has dense models only
        told.append("no published step is of a mixture of experts")
    accelerators = sorted(steps["accelerator"].unique().to_list())
    if product_of(catalog, values["accelerator"]) not in accelerators:
        told.append(
            f"no published step is on {values['accelerator']}: all are on "
            f"{' or '.join(accelerators)}"
        )
    programs = sorted(steps.filter(pl.col(IS_OWN))["framework"].unique().to_list())
    framework = values.get("framework")
    if framework is not None and framework not in programs:
        told.append(f"no published step is by {framework}: its own programs are {_all(programs)}")
    if values.get("precision") == "fp8":
        told.append("no published step is in fp8")
    return told


def _all(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
