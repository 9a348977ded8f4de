"""A plan from question to answer: sweep some GPU counts, refine them, read the best layouts.

With a GPU count there is one sweep; limits take a second one, on the counts next to the best of the
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.connection import open_for_read
from warehouse.evaluate.profiles import load_profiles
from warehouse.plan.answer import PlanAnswer, read_answer
from warehouse.plan.candidates import asking
from warehouse.plan.compare import compare_counts, refined_counts
from warehouse.plan.question import read_request, read_terms, reference_tables, resolve
from warehouse.plan.search import Sweep, check_limits, first_counts, plan_sweep
from warehouse.sweep.estimate import cost_of
from warehouse.sweep.runner import run_study
from warehouse.sweep.sizes import LEAST_ROWS, refuse_too_large

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.options import PlanOptions
    from warehouse.plan.question import TrainingRun


def first_sweep(
    options: PlanOptions,
    database: Path,
    on_run: Callable[[TrainingRun], None] = lambda _: None,
) -> tuple[TrainingRun, Sweep]:
    """Return the run that options ask for, and the sweep of the first GPU counts; write nothing.

    `on_run` gets the run before its counts are chosen. The database may be missing.
    """
    request = read_request(options, database)
    with reference_tables(database) as reference:
        terms = read_terms(options, reference)
        run = resolve(request, terms, lambda: load_profiles(database))
        on_run(run)
        return run, sweep_of(run, reference)


def sweep_of(run: TrainingRun, connection: DuckDBPyConnection) -> Sweep:
    """Return the sweep of the first GPU counts of a run; evaluate and write nothing."""
    return plan_sweep(run, first_counts(run, check_limits(run, connection)), connection)


def steps_in_words(run: TrainingRun, sweep: Sweep, top: int) -> list[str]:
    """Return the steps of a plan that is not made yet, a line each."""
    refined = "sweep up to three counts between the best of these and the next"
    layouts = "layout" if top == 1 else f"{top:,} layouts"
    return [
        sweep.in_words(),
        *([refined] if run.request.limits else []),
        f"read the best {layouts} on the best count, with cost and error",
    ]


def store_sweep(sweep: Sweep, database: Path, *, allow_large: bool = False) -> None:
    """Evaluate and store the missing cells of a sweep, without showing progress.

    It is refused if it has more rows than a user has to confirm, or than the disk has space for,
    unless it may be large.
    """
    if sweep.missing_rows >= LEAST_ROWS and not allow_large:
        cost = cost_of(sweep.cells, sweep.missing_rows)
        refuse_too_large(sweep.study.name, sweep.missing_rows, cost.num_bytes, database)
    if sweep.is_needed(database):
        run_study(database, sweep.study, cells=sweep.cells)


def answer_plan(
    run: TrainingRun,
    sweep: Sweep,
    database: Path,
    top: int = 3,
    store: Callable[[Sweep, Path], None] = store_sweep,
) -> PlanAnswer:
    """Store the sweeps of a plan, and return its answer with `top` layouts."""
    store(sweep, database)
    sweeps = [sweep]
    if run.request.limits and (refined := _refined(run, sweep, database)):
        store(refined, database)
        sweeps.append(refined)
    with open_for_read(database) as connection, asking(run, connection) as ask:
        return read_answer(run, ask, sweeps, top)


def _refined(run: TrainingRun, sweep: Sweep, database: Path) -> Sweep | None:
    with open_for_read(database) as connection, asking(run, connection) as ask:
        lines, _ = compare_counts(run, ask, sweep)
        more = refined_counts(run, sweep.problems, lines)
        if not more:
            return None
        return plan_sweep(run, sorted([*sweep.problems, *more]), connection)
