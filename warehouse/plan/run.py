"""A plan from question to answer: sweep some GPU counts and batches, read the best layouts.

With a GPU count, counts up to it are tried from the largest down until no other can be faster.
Within limits a count between each two powers of two is tried first, then others that may be better,
and if none is within them other batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from warehouse.database.connection import open_for_read
from warehouse.evaluate.profiles import load_profiles
from warehouse.plan import queries
from warehouse.plan.accuracy import asking
from warehouse.plan.answer import PlanAnswer, read_answer
from warehouse.plan.cached import beside_the_cache
from warehouse.plan.compare import (
    compare_counts,
    least_share,
    promising_counts,
    time_to_beat,
    within_limits,
)
from warehouse.plan.question import read_request, read_terms, reference_tables, resolve
from warehouse.plan.search import (
    Candidate,
    Sweep,
    batch_on,
    candidates_on,
    fewer_gpus,
    is_worth_trying,
    plan_first_sweep,
    plan_sweep,
    slowest_within,
    spread_counts,
)
from warehouse.sweep.estimate import cost_of
from warehouse.sweep.runner import run_study
from warehouse.sweep.sizes import LEAST_ROWS, refuse_too_large

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Scalar
    from warehouse.options import PlanOptions
    from warehouse.plan.queries import GpuRates, Line
    from warehouse.plan.question import TrainingRun

    Store = Callable[[Sweep, Path], None]

_AT_ONCE = 48
"""Cells that are evaluated before the best time is read again: each sweep takes seconds to store, a
cell of a thousand layouts some milliseconds."""


def first_sweep(
    options: PlanOptions,
    database: Path,
    on_run: Callable[[TrainingRun], None] = lambda _: None,
) -> tuple[TrainingRun, Sweep]:
    """Return the run that options ask for, and the first sweep; write nothing.

    `on_run` gets the run before its counts are chosen. The database may be missing.
    """
    request = read_request(options, database)
    with reference_tables(database) as reference:
        terms = read_terms(options, reference)
        run = resolve(request, terms, lambda: load_profiles(database))
        on_run(run)
        return run, plan_first_sweep(run, reference)


def steps_in_words(run: TrainingRun, sweep: Sweep, top: int) -> list[str]:
    """Return the steps of a plan that is not made yet, a line each."""
    more = "sweep smaller counts, from the largest down, until none can be faster"
    if run.request.limits:
        more = "sweep other counts that may be better than the best of these"
    others = ["sweep other batches on the best count"] if run.other_batches else []
    layouts = "layout" if top == 1 else f"{top:,} layouts"
    return [
        sweep.in_words(),
        more,
        *others,
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


@beside_the_cache(store_sweep)
def answer_plan(
    run: TrainingRun,
    sweep: Sweep,
    database: Path,
    top: int = 3,
    store: Store = store_sweep,
) -> PlanAnswer:
    """Store the sweeps of a plan, and return its answer with `top` layouts."""
    search = _Search(database, store)
    search.store(sweep)
    if run.request.limits:
        chosen, sweeps = search.within_limits(run, sweep)
    else:
        last = search.fewer_gpus(run, sweep)
        chosen, sweeps = run, [sweep] if last is sweep else [sweep, last]
    with open_for_read(database) as connection, asking(chosen, connection) as ask:
        answer = read_answer(chosen, ask, sweeps, top)
    batches = search.other_batches(chosen, answer) if run.other_batches else []
    return replace(answer, batches=batches, batch_note=_batch_note(run, chosen, answer.num_gpus))


def _batch_note(asked: TrainingRun, chosen: TrainingRun, num_gpus: int) -> str:
    """Return why an answer has another batch than the one that was asked for, or is usual."""
    batch, notes = batch_on(chosen.batch, num_gpus), []
    kind = "published" if asked.is_default_batch else "given"
    if chosen.batch != asked.batch:
        options = " and ".join(asked.request.limits.by_option)
        end = "smallest" if chosen.batch > asked.batch else "largest"
        notes.append(
            f"{chosen.batch:,} is the {end} {kind} batch that meets {options}; {asked.batch:,} "
            "does not"
        )
    if batch != chosen.batch:
        notes.append(
            f"{batch:,} is the batch next to {chosen.batch:,} that {num_gpus:,} GPUs share evenly"
        )
    return "; ".join(notes)


class _Search:
    """Stores sweeps until the best layout is known.

    Parameters
    ----------
    database, store
        The file, and what stores the missing cells of a sweep in it.
    """

    def __init__(self, database: Path, store: Store) -> None:
        self.database = database
        self._store = store

    def store(self, sweep: Sweep) -> None:
        """Store a sweep."""
        self._store(sweep, self.database)

    def fewer_gpus(self, run: TrainingRun, sweep: Sweep) -> Sweep:
        """Store what may be faster than a sweep of the largest count; return all that was tried.

        The bound of a cell is compared with the best time so far, and the cell is left out if it
        cannot win. Cells are tried from the largest count down.
        """
        tried = [*sweep.candidates]
        largest = max(sweep.problems)
        best = self._best_seconds(run, sweep)
        waiting: list[Candidate] = []
        for num_gpus in (*fewer_gpus(run, largest), None):
            if num_gpus is not None and is_worth_trying(run, num_gpus, largest, best):
                waiting += candidates_on(run, num_gpus, best)
                if len(waiting) < _AT_ONCE:
                    continue
            if waiting:
                tried += waiting
                waiting = []
                sweep = self._stored(run, tried)
                best = self._best_seconds(run, sweep)
        return sweep

    def within_limits(self, run: TrainingRun, first: Sweep) -> tuple[TrainingRun, list[Sweep]]:
        """Store the sweeps of limits; return the run with its batch, and its sweeps.

        The batch of the run is tried first, then larger ones, then smaller ones. If no count is
        within the limits at any batch, the one that misses them by least is returned; its others
        are those that were tried, which no lower bound of the time excludes.
        """
        larger = sorted(batch for batch in run.other_batches if batch > run.batch)
        smaller = sorted({*run.other_batches} - {*larger}, reverse=True)
        failed: list[tuple[float, TrainingRun, list[Sweep]]] = []
        lines, rates = self._counts(run, first)
        for batch in (run.batch, *larger, *smaller):
            others = [each for each in (run.batch, *run.other_batches) if each != batch]
            is_usual = run.is_default_batch and batch == run.batch
            current = replace(run, batch=batch, other_batches=others, is_default_batch=is_usual)
            sweeps, tried = [first], {*first.problems}
            price = rates.usd_per_gpu_hour
            if batch != run.batch:
                spread = spread_counts(current, min(first.problems), max(first.problems))
                found = [
                    one
                    for n in spread
                    for one in candidates_on(current, n, slowest_within(current, n, price))
                ]
                if not found:
                    continue
                tried = {*spread}
                sweeps = [self._stored(current, found)]
                lines, rates = self._counts(current, sweeps[0])
            while found := self._promising(current, tried, lines, price):
                sweeps.append(self._stored(current, [*sweeps[-1].candidates, *found]))
                lines, rates = self._counts(current, sweeps[-1])
            if within_limits(current, lines):
                return current, sweeps
            failed.append((least_share(current, lines), current, sweeps))
        _, nearest, sweeps = min(failed, key=itemgetter(0))
        others = [each.batch for _, each, _ in failed if each.batch != nearest.batch]
        return replace(nearest, other_batches=others), sweeps

    def _promising(
        self, run: TrainingRun, tried: set[int], lines: Sequence[Line], price: float | None
    ) -> list[Candidate]:
        """Return the next cells that may be within the limits and better than the best so far.

        Their counts are added to those that were `tried`.
        """
        found: list[Candidate] = []
        for num_gpus in promising_counts(run, tried, lines):
            slowest = slowest_within(run, num_gpus, price)
            better = time_to_beat(run, lines, num_gpus)
            found += candidates_on(run, num_gpus, min(slowest, better))
            tried.add(num_gpus)
            if len(found) >= _AT_ONCE:
                break
        return found

    def other_batches(self, run: TrainingRun, answer: PlanAnswer) -> list[Line]:
        """Store other batches on the count of an answer; return the figures of each, ascending.

        Published ones have the choices of its best layout, such as the recomputation.
        """
        choices = {} if run.request.other_batches else _searched_choices(answer)
        runs: dict[int, TrainingRun] = {}
        cells: list[Candidate] = []
        for batch in sorted(run.other_batches):
            each = replace(run, batch=batch)
            for one in candidates_on(each, answer.num_gpus):
                if one.cell.choices.items() >= choices.items():
                    runs[one.cell.problem.id] = each
                    cells.append(one)
        if not cells:
            return []
        self._stored(run, cells)
        rates = queries.gpu_rates(answer.run, answer.costs, answer.energies)
        lines = {line["problem_id"]: line for line in self._lines_at(runs, rates)}
        sizes = {one.cell.problem.id: one.batch for one in cells}
        return [{"global_batch_size": sizes[id_], **lines[id_]} for id_ in runs if id_ in lines]

    def _stored(self, run: TrainingRun, candidates: Sequence[Candidate]) -> Sweep:
        with open_for_read(self.database) as connection:
            sweep = plan_sweep(run, candidates, connection)
        if sweep.is_needed(self.database):
            self.store(sweep)
        return sweep

    def _lines_at(self, runs: Mapping[int, TrainingRun], rates: GpuRates) -> list[Line]:
        """Return the best layout of each problem; the runs differ in batch, maybe in tokens."""
        groups: dict[float, tuple[TrainingRun, list[int]]] = {}
        for problem, run in runs.items():
            groups.setdefault(run.tokens, (run, []))[1].append(problem)
        lines: list[Line] = []
        for run, problems in groups.values():
            with (
                open_for_read(self.database) as connection,
                asking(run, connection) as ask,
                ask.fastest_of(run, problems),
            ):
                lines += ask(queries.counts(run, problems, rates))
        return lines

    def _best_seconds(self, run: TrainingRun, sweep: Sweep) -> float:
        """Return the time of the fastest layout that is likely to fit; infinite without one."""
        problems = [*sweep.problems.values()]
        with (
            open_for_read(self.database) as connection,
            asking(run, connection) as ask,
            ask.fastest_of(run, problems),
        ):
            lines = ask(queries.counts(run, problems, queries.GpuRates()))
        likely = (line["training_seconds"] for line in lines if line.get("is_likely_to_fit", True))
        return min(likely, default=math.inf)

    def _counts(self, run: TrainingRun, sweep: Sweep) -> tuple[Sequence[Line], GpuRates]:
        with open_for_read(self.database) as connection, asking(run, connection) as ask:
            return compare_counts(run, ask, sweep)


def _searched_choices(answer: PlanAnswer) -> dict[str, Scalar]:
    return {name: answer.best[name] for name in answer.run.estimator.searched_choices}
