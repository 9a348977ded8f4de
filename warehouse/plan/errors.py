"""The estimator's errors on published steps and on measured runs, as a plan shows them.

Errors on published steps have one line for each table and for whether the estimator has the
constants of the program that was measured. They do not depend on what is stored, and agree with
view ``estimator_accuracy``: of the rate, positive where the estimate is too fast.

The errors follow from the package and from the cells that may have a measured configuration. They
are kept in the cache directory until one of these changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.accelerators import product_of
from warehouse.calibrate.references import MEASUREMENTS, OTHER, OWN
from warehouse.database.cached import cached
from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.queries import QueryCache
    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]


@dataclass(frozen=True)
class Errors:
    """Errors by table and group of its rows.

    Attributes
    ----------
    steps
        Errors of the rate and of the time, with the number of rows compared and published.
    is_stored
        Whether any of them is that of a table that is stored whole.
    memory
        Errors of the memory, by table of measured runs.
    note
        Tables that are compared in part or not at all, and how to compare them.
    """

    steps: Sequence[Line]
    is_stored: bool
    memory: Sequence[Line]
    note: str


def known_errors(run: TrainingRun, ask: QueryCache) -> Errors:
    """Return the errors of the run's estimator and variant; evaluates those that are not stored."""
    [state] = ask(measured_state(run))
    facts = (
        np.__version__,
        run.estimator.name,
        sorted(run.mends),
        product_of(run.catalog, run.problem["accelerator"]),
        run.problem.get("profile"),
        sorted(state.items()),
    )
    found = cached("errors", facts, lambda: _found(run, ask, is_measured=state["num_cells"] > 0))
    return Errors(**found)


def _found(run: TrainingRun, ask: QueryCache, *, is_measured: bool) -> dict[str, Any]:
    """Return the attributes of `Errors`."""
    from warehouse.plan.evaluated_errors import errors_of_steps, measured_errors  # takes polars

    # without a cell that may have a measured configuration neither query finds a row
    stored, memory = (
        ask(query(run)) if is_measured else [] for query in (stored_errors, memory_errors)
    )
    steps, is_stored, note = errors_of_steps(run, stored, run.catalog)
    if run.estimator.takes_published_steps:
        measured, measured_memory = measured_errors(run, run.catalog)
        steps += measured
        memory = [*memory, *measured_memory]
    return {
        "steps": [dict(line) for line in steps],
        "is_stored": is_stored,
        "memory": [dict(line) for line in memory],
        "note": note,
    }


def measured_state(run: TrainingRun) -> str:
    """Return the query of the state that stored errors follow from, as a few numbers.

    They are the estimator's cells that may have a measured configuration, with the time of their
    evaluation, and the rows of measurements, of their estimates and of calibrations.
    """
    return f"""\
select
    count(*) as num_cells,
    cast(sum(hash(cell)) as varchar) as cells,
    (select cast(sum(hash(measurement)) as varchar) from measurement) as measurements,
    (select cast(sum(hash(published_estimate)) as varchar) from published_estimate) as estimates,
    (select cast(sum(hash(calibration)) as varchar) from calibration) as calibrations
from cell
semi join measured_cell
    on
        cell.cell_id = measured_cell.cell_id
        and measured_cell.estimator = {literal(run.estimator.name)}
        and measured_cell.variant = {literal(run.variant)}"""


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
