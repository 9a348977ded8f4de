"""The estimator's errors on published steps and on measured runs, as a plan shows them.

Errors on published steps have a line for each table, split by whether the estimator has the
constants of the measured program. They do not depend on stored rows. Errors of the rate, without a
prefix, are positive if the estimate is too fast.

The errors depend on the package, on the published steps of the database and on the cells that may
have a measured configuration. They are cached until one of these changes. Steps that are evaluated
now are those of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.catalog import OWN_SYSTEM, product_of
from warehouse.calibrate import OTHER, OWN
from warehouse.database.cache import cached
from warehouse.database.sql_text import literal
from warehouse.database.tables import MEASUREMENTS
from warehouse.evaluate.profiles import DEFAULT
from warehouse.plan.queries import of_estimator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]


@dataclass(frozen=True)
class Errors:
    """Errors by table and group of its rows.

    They are those of rate and time on published `steps`, of the `memory` on measured runs, and of
    the time on the user's own runs by name and profile. If a table is stored completely, some steps
    are stored ones. The note names tables that are compared in part or not at all.
    """

    steps: Sequence[Line]
    is_stored: bool
    memory: Sequence[Line]
    own_runs: Sequence[Line]
    note: str


def known_errors(run: TrainingRun, ask: QueryCache) -> Errors:
    """Return the errors of the run's estimator and variant; evaluates those that are not stored."""
    state = state_of_measured(run, ask)
    facts = (
        np.__version__,
        run.estimator.name,
        sorted(run.mends),
        product_of(run.catalog, run.problem["accelerator"]),
        _measured_as(run),
        run.problem.get("profile"),
        int(run.problem.get("num_experts") or 1) > 1,
        sorted(state.items()),
    )
    return Errors(**cached("errors", facts, lambda: _errors(run, ask, state)))


def _errors(run: TrainingRun, ask: QueryCache, state: Line) -> dict[str, Any]:
    from warehouse.plan.evaluated_steps import errors_of_steps, measured_errors  # takes polars

    # without a cell that may have a measured configuration the queries have no rows
    is_measured = state["num_cells"] > 0
    stored, memory = (
        ask(query(run)) if is_measured else [] for query in (stored_errors, memory_errors)
    )
    own_runs = ask(own_run_errors(run)) if is_measured and state["measurements"] else []
    steps, is_stored, note = errors_of_steps(run, stored)
    if run.estimator.source.takes_published_steps:
        measured, measured_memory = measured_errors(run)
        steps += measured
        memory = [*memory, *measured_memory]
    return {
        "steps": steps,
        "is_stored": is_stored,
        "memory": list(map(dict, memory)),
        "own_runs": list(map(dict, own_runs)),
        "note": note,
    }


def state_of_measured(run: TrainingRun, ask: QueryCache) -> Line:
    """Return the state on which stored errors depend, as a few numbers.

    They are the estimator's cells that may have a measured configuration, with the time of their
    evaluation, and the rows of measurements, of their estimates and of calibrations.
    """
    # published steps may be changed in the database
    [steps] = ask("select cast(sum(hash(published_step)) as varchar) as steps from published_step")
    [state] = ask(f"""\
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
        and measured_cell.variant = {literal(run.variant)}""")
    return {**state, **steps}


def stored_errors(run: TrainingRun) -> str:
    """Return the query of the errors on those published steps that are stored."""
    return f"""\
select
    reference,
    case when is_own_framework then {literal(OWN)} else {literal(OTHER)} end as published_group,
    num_rows,
    rate_mean_absolute_relative_error as mean_absolute_relative_error,
    rate_max_absolute_relative_error as max_absolute_relative_error,
    rate_bias as bias,
    time_mean_absolute_relative_error,
    time_max_absolute_relative_error,
    time_bias
from published_accuracy
where
    grouped_by = 'program' and num_rows > 0 and not is_own_run
    and {of_estimator(run)} and reference <> {literal(MEASUREMENTS)}
order by reference, published_group"""


def _measured_as(run: TrainingRun) -> str:
    """Return the name of the plan's accelerator in measured runs: a user's system keeps its own."""
    name = str(run.problem["accelerator"])
    is_own = name in run.catalog.tables.get(OWN_SYSTEM, {})
    return name if is_own else str(product_of(run.catalog, name))


def own_run_errors(run: TrainingRun) -> str:
    """Return the query of the errors of the time on the user's own runs, by name and profile.

    The runs are compared with the estimates of the plan's profile, where these are stored; else
    with those of the published constants. A profile is fitted to a run if a row that it was fitted
    to has the run's name and time. The bias of the memory is that of runs on the plan's
    accelerator.
    """
    accelerator = literal(_measured_as(run))
    profile = str(run.problem.get("profile") or DEFAULT)
    return f"""\
with compared as (
    select
        *,
        coalesce(profile, {literal(DEFAULT)}) as constants
    from measurement_comparison
    where
        {of_estimator(run)}
        and coalesce(profile, {literal(DEFAULT)}) in ({literal(DEFAULT)}, {literal(profile)})
)

select
    compared.reference,
    compared.constants as profile,
    string_agg(distinct compared.model, ', ' order by compared.model) as models,
    string_agg(distinct compared.accelerator, ', ' order by compared.accelerator) as accelerators,
    count(*) as num_rows,
    avg(abs(compared.time_relative_error)) as time_mean_absolute_relative_error,
    max(abs(compared.time_relative_error)) as time_max_absolute_relative_error,
    avg(compared.time_relative_error) as time_bias,
    count(compared.memory_relative_error)
        filter (where compared.accelerator = {accelerator}) as num_memory_rows,
    avg(compared.memory_relative_error)
        filter (where compared.accelerator = {accelerator}) as memory_bias,
    count(fitted.published_row) as num_fitted_rows
from compared
left join calibration_row as fitted
    on
        compared.constants = fitted.profile
        and compared.measured_row = fitted.published_row
        and compared.measured_step_seconds = fitted.published_step_seconds
group by compared.reference, compared.constants
qualify
    compared.constants = {literal(profile)}
    or not bool_or(compared.constants = {literal(profile)})
        over (partition by compared.reference)
order by compared.reference"""


def memory_errors(run: TrainingRun) -> str:
    """Return the query of the errors of the memory on measured runs."""
    return f"""\
select * exclude (estimator, variant)
from memory_error
where {of_estimator(run)}
order by reference"""
