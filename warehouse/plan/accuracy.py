"""The accuracy of a plan: the interval of its time, and the estimator's errors on measured steps.

Errors on published steps have one line for each table and for whether the estimator has the
constants of the program that was measured, whatever the database holds. They are those of view
``estimator_accuracy``: of the rate, positive where the estimate is too fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.accelerators import product_of
from estimators.contract import Array
from estimators.interval import ENDS, STEP, fit_probability, has_interval
from warehouse.ask.explain import explain
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    MEASUREMENTS,
    published_reference,
    published_steps,
    published_tables,
)
from warehouse.database.sql_text import literal
from warehouse.evaluate.inputs import evaluate_intervals, evaluate_rows, resolve_rows
from warehouse.evaluate.one import show_configuration
from warehouse.measure.kinds import MEMORY_OF_KIND, memory_of_kind

if TYPE_CHECKING:
    from estimators.contract import Catalog
    from warehouse.plan.queries import QueryCache
    from warehouse.plan.question import TrainingRun

OWN, OTHER = "its own programs", "other programs, by the nearest one"
"""Groups of a table's rows: the estimator has the constants of the program, or not."""

RATE = "published_flops_per_second_per_gpu"

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Uncertainty:
    """How far a plan may be off.

    Attributes
    ----------
    room
        Probability that a GPU has room for what the layout needs; None where errors of the memory
        are not known.
    likely, extreme
        Interval of the step's seconds, and the step with all constants at their fast and at their
        slow end; None for an estimator without ranges of constants.
    explain_command
        The command that shows how the interval is made; empty where there is none.
    errors
        Errors of the rate and of the time, by table of published steps and group of its rows, with
        the number of rows compared and published.
    memory
        Errors of the memory, by table of measured runs.
    unlike
        Properties of the run that no published step has.
    queries
        The queries of the memory's errors and of those errors that are stored.
    note
        Tables that are compared in part or not at all, and how to compare them.
    """

    room: float | None
    likely: tuple[float, float] | None
    extreme: tuple[float, float] | None
    explain_command: str
    errors: Sequence[Line]
    memory: Sequence[Line]
    unlike: Sequence[str]
    queries: Mapping[str, str]
    note: str


def uncertainty(run: TrainingRun, ask: QueryCache, layout: Line, num_gpus: int) -> Uncertainty:
    """Return how far the estimate of a layout may be off."""
    catalog = run.catalog
    likely = extreme = None
    command = ""
    if run.estimator.formulas and run.estimator.constants:
        given = _explain_pairs(run, layout, num_gpus)
        command = "warehouse explain " + " ".join(_shell(k, v) for k, v in given.items())
        relation = run.estimator.relations[0]
        shown = show_configuration(run.estimator, relation, given, run.mends, catalog)
        # a tie may hide the layout behind one with other columns: its interval would be another
        if np.isclose(float(shown.results["step_seconds"] or 0), layout["step_seconds"]):
            found = explain(shown, catalog)
            likely, extreme = found.likely, found.extreme
    asked = {"accuracy": stored_errors(run), "memory_accuracy": memory_errors(run)}
    # without a cell that may have a measured configuration neither query finds a row
    is_measured = bool(ask(measured_cells(run)))
    stored, memory = (ask(query) if is_measured else [] for query in asked.values())
    errors, is_stored, note = _errors(run, stored, catalog)
    if not is_stored:
        del asked["accuracy"]
    if run.estimator.takes_published_steps:
        measured, measured_memory = measured_errors(run, catalog)
        errors += measured
        memory = [*memory, *measured_memory]
    room = None
    if "fit_probability" in run.estimator.relations[0].outputs:
        memory_bytes = np.array([float(layout["memory_bytes"])])
        room = float(fit_probability(memory_bytes, float(layout["hbm_bytes"]), catalog)[0])
    return Uncertainty(
        room, likely, extreme, command, errors, memory, unlike_published(run, catalog), asked, note
    )


def with_intervals(run: TrainingRun, layouts: Sequence[Line], num_gpus: int) -> list[Line]:
    """Return layouts with both ends of the interval of their step, where the estimator has one.

    A tie may hide a layout behind one with other columns, whose interval would be another: it has
    none then.
    """
    relation = run.estimator.relations[0]
    if not layouts or not has_interval(run.estimator, relation):
        return list(layouts)
    pairs = [_explain_pairs(run, layout, num_gpus) for layout in layouts]
    resolved = resolve_rows(run.estimator, relation, pl.DataFrame(pairs), run.catalog, run.mends)
    ends = evaluate_intervals(resolved, run.request.inputs)
    steps = evaluate_rows(resolved, [STEP])[STEP]
    found = iter(zip(steps.tolist(), *(ends[name].tolist() for name in ENDS), strict=True))
    lines: list[Line] = []
    for layout, is_good in zip(layouts, resolved.is_good, strict=True):
        step, *own = next(found) if is_good else (np.nan, np.nan, np.nan)
        same = bool(np.isclose(step, layout[STEP]))
        lines.append(
            _after_step(layout, dict(zip(ENDS, own if same else [None, None], strict=True)))
        )
    return lines


def _after_step(layout: Line, ends: Line) -> Line:
    """Return a layout with the ends of its interval next to its step."""
    line: dict[str, Any] = {}
    for name, value in layout.items():
        line[name] = value
        if name == STEP:
            line |= ends
    return line


def _explain_pairs(run: TrainingRun, layout: Line, num_gpus: int) -> dict[str, str]:
    """Return the inputs of a layout as `explain` takes them."""
    estimator, problem = run.estimator, run.problem
    searched = [name for name in estimator.searched_choices if layout.get(name) is not None]
    wanted = {
        **({} if problem["model"] is None else {"model": problem["model"]}),
        "accelerator": problem["accelerator"],
        **run.request.inputs,
        **{n: v for n, v in run.request.held.items() if n in estimator.choice_columns},
        "num_gpus": num_gpus,
        "global_batch_size": run.batch,
        **{name: layout[name] for name in (*searched, *estimator.relations[0].keys)},
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in wanted.items()
    }


def _shell(name: str, value: str) -> str:
    pair = f"{name}={value}"
    return f"'{pair}'" if " " in pair or "(" in pair else pair


# ---- errors on published steps, and on measured memory ----


def measured_cells(run: TrainingRun) -> str:
    """Return the query of one of the estimator's cells that may have a measured configuration."""
    return f"""\
select cell_id
from measured_cell
where estimator = {literal(run.estimator.name)} and variant = {literal(run.variant)}
limit 1"""


def stored_errors(run: TrainingRun) -> str:
    """Return the query of the errors on those published steps that are stored."""
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
where
    estimator = {literal(run.estimator.name)} and variant = {literal(run.variant)}
    and reference <> {literal(MEASUREMENTS)}
group by reference, is_own_framework
order by reference, published_group"""


def memory_errors(run: TrainingRun) -> str:
    """Return the query of the errors of the memory on measured runs."""
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


def _errors(
    run: TrainingRun, stored: Sequence[Line], catalog: Catalog
) -> tuple[list[dict[str, Any]], bool, str]:
    """Return the errors, whether any is the stored one, and a note on what is missing.

    The error of a few rows is not the error of their table. An estimator that takes published rows
    evaluates every table that is not stored whole; for another, partial tables are named.
    """
    published = {
        name: published_reference(name).frame.height
        for name in published_tables()
        if name != MEASUREMENTS
    }
    covered: dict[str, int] = {}
    for line in stored:
        covered[line["reference"]] = covered.get(line["reference"], 0) + line["num_rows"]
    is_evaluated = run.estimator.takes_published_steps
    # a table that is not published has measurements of the user's own
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

    Rows of a program that the estimator does not model take the constants of the nearest one. They
    have a line of their own: they are further off, and leaving them out would flatter.
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

    The rows are those of table `published_measurement`, evaluated now; refused ones do not count.
    """
    product = product_of(catalog, run.problem["accelerator"])
    is_alike = (pl.col("reference") == MEASUREMENTS) & (pl.col("accelerator") == product)
    frame = published_steps().filter(is_alike)
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


def unlike_published(run: TrainingRun, catalog: Catalog) -> list[str]:
    """Return the properties of the run that no published step has: errors say little about them."""
    steps, values = published_steps(), run.problem
    lines = []
    has_experts = pl.col("num_experts").fill_null(1) > 1
    if int(values.get("num_experts") or 1) > 1 and not steps.filter(has_experts).height:
        lines.append("no published step is of a mixture of experts")
    accelerators = sorted(steps["accelerator"].unique().to_list())
    if product_of(catalog, values["accelerator"]) not in accelerators:
        lines.append(
            f"no published step is on {values['accelerator']}: all are on "
            f"{' or '.join(accelerators)}"
        )
    programs = sorted(steps.filter(pl.col(IS_OWN))["framework"].unique().to_list())
    framework = values.get("framework")
    if framework is not None and framework not in programs:
        listed = f"{', '.join(programs[:-1])} and {programs[-1]}"
        lines.append(f"no published step is by {framework}: its own programs are {listed}")
    precision = values.get("precision")
    formats = steps["precision"].unique().to_list()
    if precision in ("fp8", "fp4") and precision not in formats:
        lines.append(f"no published step is in {precision}")
    return lines
