"""The estimator's errors on the user's measured runs and on measured memory, as a plan shows them.

They depend on the package and on the cells that may have a measured configuration. They are cached
until one of these changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.catalog import OWN_SYSTEM, product_of
from warehouse.database.cache import cached
from warehouse.database.sql_text import literal
from warehouse.evaluate.profiles import DEFAULT
from warehouse.plan.queries import of_estimator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warehouse.plan.candidates import QueryCache
    from warehouse.plan.question import TrainingRun

    Line = Mapping[str, Any]


@dataclass(frozen=True)
class Errors:
    """Errors of the memory on measured runs, and of the time on the user's own runs.

    Own runs have a line for each name, profile, machine and program; `why_not` says why those of
    another machine or program do not count.
    """

    memory: Sequence[Line]
    own_runs: Sequence[Line]

    @property
    def counted_runs(self) -> list[Line]:
        """Own runs on the plan's machine with the plan's program."""
        return [line for line in self.own_runs if not line["why_not"]]


def known_errors(run: TrainingRun, ask: QueryCache) -> Errors:
    """Return the errors of the run's estimator and variant; evaluates those that are not stored."""
    state = state_of_measured(run, ask)
    facts = (
        np.__version__,
        run.estimator.name,
        sorted(run.mends),
        product_of(run.catalog, run.problem["accelerator"]),
        _measured_as(run),
        run.problem.get("framework"),
        run.problem.get("profile"),
        int(run.problem.get("num_experts") or 1) > 1,
        sorted(state.items()),
    )
    return Errors(**cached("errors", facts, lambda: _errors(run, ask, state)))


def _errors(run: TrainingRun, ask: QueryCache, state: Line) -> dict[str, Any]:
    # without a cell that may have a measured configuration the queries have no rows
    is_measured = state["num_cells"] > 0
    memory = ask(memory_errors(run)) if is_measured else []
    own_runs = ask(own_run_errors(run)) if is_measured and state["measurements"] else []
    if run.estimator.source.takes_published_steps:
        from warehouse.plan.evaluated_steps import measured_memory  # takes polars

        memory = [*memory, *measured_memory(run)]
    return {
        "memory": list(map(dict, memory)),
        "own_runs": [{**line, "why_not": _why_not(run, line)} for line in own_runs],
    }


def _why_not(run: TrainingRun, line: Line) -> str:
    """Return why a measured run says nothing about a plan; "" if it counts."""
    reasons = []
    if line["accelerator"] != (planned := _measured_as(run)):
        reasons.append(f"on {line['accelerator']}, not {planned}")
    program = run.problem.get("framework")
    if program is not None and line["framework"] not in (None, program):
        reasons.append(f"with {line['framework']}, not {program}")
    return " and ".join(reasons)


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


def _measured_as(run: TrainingRun) -> str:
    """Return the name of the plan's accelerator in measured runs: a user's system keeps its own."""
    name = str(run.problem["accelerator"])
    is_own = name in run.catalog.tables.get(OWN_SYSTEM, {})
    return name if is_own else str(product_of(run.catalog, name))


def own_run_errors(run: TrainingRun) -> str:
    """Return the query of the errors on the user's runs, by name, profile, machine and program.

    The runs are compared with the estimates of the plan's profile, where these are stored; else
    with those of the published constants. A profile is fitted to a run if a row that it was fitted
    to has the run's name and time.
    """
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
    compared.accelerator,
    compared.framework,
    compared.constants as profile,
    string_agg(distinct compared.model, ', ' order by compared.model) as models,
    count(*) as num_rows,
    avg(abs(compared.time_relative_error)) as time_mean_absolute_relative_error,
    max(abs(compared.time_relative_error)) as time_max_absolute_relative_error,
    avg(compared.time_relative_error) as time_bias,
    count(compared.memory_relative_error) as num_memory_rows,
    avg(compared.memory_relative_error) as memory_bias,
    count(fitted.published_row) as num_fitted_rows
from compared
left join calibration_row as fitted
    on
        compared.constants = fitted.profile
        and compared.measured_row = fitted.published_row
        and compared.measured_step_seconds = fitted.published_step_seconds
group by compared.reference, compared.accelerator, compared.framework, compared.constants
qualify
    compared.constants = {literal(profile)}
    or not bool_or(compared.constants = {literal(profile)})
        over (partition by compared.reference)
order by compared.reference, compared.accelerator, compared.framework"""


def memory_errors(run: TrainingRun) -> str:
    """Return the query of the errors of the memory on measured runs."""
    return f"""\
select * exclude (estimator, variant)
from memory_error
where {of_estimator(run)}
order by reference"""
