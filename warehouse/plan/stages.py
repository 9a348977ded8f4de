"""A plan as stages: a list, built without side effects, that is printed or run in one loop.

A value goes one way: counts -> sweep -> compare -> answer. With a GPU count there is one round;
limits take a second one, on the counts next to the best of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warehouse.database.connection import open_for_read
from warehouse.evaluate.profiles import load_profiles
from warehouse.plan.answer import PlanAnswer, read_answer
from warehouse.plan.candidates import QueryCache
from warehouse.plan.compare import compare_counts, refined_counts
from warehouse.plan.question import read_request, read_terms, reference_tables, resolve
from warehouse.plan.search import (
    Sweep,
    check_limits,
    first_counts,
    plan_sweep,
)
from warehouse.sweep.estimate import cost_of
from warehouse.sweep.runner import run_study
from warehouse.sweep.size_limits import LEAST_ROWS, refuse_too_large

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.options import PlanOptions
    from warehouse.plan.question import TrainingRun


@dataclass(frozen=True)
class SweepCounts:
    """Evaluate and store every layout on some GPU counts."""

    sweep: Sweep


@dataclass(frozen=True)
class RefineCounts:
    """Compare the counts, then sweep up to three more between the best and the next."""


@dataclass(frozen=True)
class ReadAnswer:
    """Read the best layouts of the best count, with their cost and error.

    Attributes
    ----------
    top
        Layouts to read.
    """

    top: int


Stage = SweepCounts | RefineCounts | ReadAnswer


def asked_stages(
    options: PlanOptions,
    database: Path,
    top: int = 3,
    on_run: Callable[[TrainingRun], None] = lambda _: None,
) -> tuple[TrainingRun, list[Stage]]:
    """Return the run that options ask for, and the stages of its plan; writes nothing.

    Parameters
    ----------
    database
        The file; it may be missing.
    top
        Layouts to answer with.
    on_run
        Called with the run before its stages are built.

    Raises
    ------
    UsageError
        If the options exclude one another or are missing.
    RefusedError
        If the model, the accelerator or another input is not known.
    InputError
        As `build_stages`; or if a term is neither a sound number nor a name in its table.
    """
    request = read_request(options, database)
    with reference_tables(database) as reference:
        terms = read_terms(options, reference)
        run = resolve(request, terms, lambda: load_profiles(database))
        on_run(run)
        return run, build_stages(run, reference, top)


def build_stages(run: TrainingRun, connection: DuckDBPyConnection, top: int = 3) -> list[Stage]:
    """Return the stages of a plan; evaluates and writes nothing.

    Parameters
    ----------
    connection
        A connection to the database, or to the reference tables where there is no database yet.
    top
        Layouts to answer with.

    Raises
    ------
    InputError
        If a limit needs a price or power that is not known, or no GPU count can meet the limits,
        or none has a layout.
    """
    watts = check_limits(run, connection)
    stages: list[Stage] = [SweepCounts(plan_sweep(run, first_counts(run, watts), connection))]
    if run.request.limits:
        stages.append(RefineCounts())
    stages.append(ReadAnswer(top))
    return stages


def store_sweep(sweep: Sweep, database: Path, *, allow_large: bool = False) -> None:
    """Evaluate and store what a sweep misses, without showing progress.

    Parameters
    ----------
    allow_large
        Whether it may have more rows than a user has to confirm, or than the disk has space for.

    Raises
    ------
    UsageError, DatabaseError
        If it is too large.
    """
    if sweep.missing_rows >= LEAST_ROWS and not allow_large:
        cost = cost_of(sweep.plan, sweep.missing_rows)
        refuse_too_large(sweep.study.name, sweep.missing_rows, cost.num_bytes, database)
    if sweep.is_needed(database):
        run_study(database, sweep.study, asked=sweep.plan)


def run_stages(
    run: TrainingRun,
    stages: Sequence[Stage],
    database: Path,
    store: Callable[[Sweep, Path], None] = store_sweep,
) -> PlanAnswer:
    """Run the stages in order and return the answer.

    Parameters
    ----------
    store
        Stores a sweep: `store_sweep`, or a function that shows progress as well.

    Raises
    ------
    InputError
        If nothing fits, or no GPU count meets every limit; the hint says what would.
    ValueError
        If the stages have no `ReadAnswer`.
    """
    sweeps: list[Sweep] = []
    waiting = list(stages)
    while waiting:
        match waiting.pop(0):
            case SweepCounts(sweep):
                store(sweep, database)
                sweeps.append(sweep)
            case RefineCounts():
                waiting[:0] = _refined(run, sweeps[-1], database)
            case ReadAnswer(top):
                with open_for_read(database) as connection:
                    return read_answer(run, QueryCache(connection), sweeps, top)
    raise ValueError("the stages of a plan end without ReadAnswer")


def _refined(run: TrainingRun, sweep: Sweep, database: Path) -> list[Stage]:
    """Return the sweep of the counts that were tried and those next to the best of them."""
    with open_for_read(database) as connection:
        found = compare_counts(run, QueryCache(connection), sweep)
        more = refined_counts(run, sweep.problems, found.lines)
        if not more:
            return []
        return [SweepCounts(plan_sweep(run, sorted([*sweep.problems, *more]), connection))]


def explain_stage(stage: Stage) -> str:
    """Return what a stage does, in a line for people."""
    match stage:
        case SweepCounts(sweep):
            return sweep.in_words()
        case RefineCounts():
            return "sweep up to three counts between the best of these and the next"
        case ReadAnswer(top):
            best = "layout" if top == 1 else f"{top:,} layouts"
            return f"read the best {best} on the best count, with cost and error"
