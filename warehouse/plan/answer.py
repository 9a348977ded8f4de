"""A plan's answer: the best layouts on the best number of GPUs, their dollars, energy and error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warehouse.database.connection import open_for_read, rows_as_dicts
from warehouse.plan import queries
from warehouse.plan.accuracy import Sureness, sureness
from warehouse.plan.queries import Terms
from warehouse.plan.question import Run
from warehouse.plan.search import counts_beside, first_counts, nearest_count, within
from warehouse.plan_refusals import nothing_fits, nothing_within, refuse_without_terms
from warehouse.plan_sweep import Wanted, swept, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.studies.study import Study
    from warehouse.sweep.runner import SweepReport

Line = Mapping[str, Any]

NEAR_CAPACITY = 0.05
"""Share of the memory below which a layout's headroom is told to be small: fragmentation, buffers
of libraries and what the estimate leaves out are not in it. Assumed; no source gives a figure."""


@dataclass(frozen=True)
class Answer:
    """What is told of a plan.

    Attributes
    ----------
    num_gpus
        As many as were asked for, or the best count of those tried.
    layouts
        The best layouts on them, best first.
    other
        The best layout that differs from the best in a degree, recomputation or ZeRO stage; None
        where there is none.
    roomier
        Where the best leaves less than `NEAR_CAPACITY` of the memory, the best that leaves that
        much; None where none does.
    counts
        Every count tried, with its best layout's figures; None where nothing fits.
    kept
        Counts that keep within the limits.
    costs, energies
        Of the best layout: by basis of the price, by grid.
    queries
        What each part was asked with.
    """

    run: Run
    num_gpus: int
    problem_id: int
    layouts: Sequence[Line]
    other: Line | None
    roomier: Line | None
    counts: Sequence[Line]
    kept: frozenset[int]
    costs: Sequence[Line]
    energies: Sequence[Line]
    sureness: Sureness
    sweeps: Sequence[Wanted]
    queries: Mapping[str, str]

    @property
    def runner_up(self) -> Line | None:
        """The second best layout."""
        return self.layouts[1] if len(self.layouts) > 1 else None

    @property
    def is_near_capacity(self) -> bool:
        """Whether the best layout leaves little memory."""
        return is_near_capacity(self.layouts[0])


def is_near_capacity(layout: Line) -> bool:
    """Return whether a layout leaves less than `NEAR_CAPACITY` of the memory."""
    spare, memory = layout["headroom_bytes"], layout["hbm_bytes"]
    return spare is not None and memory is not None and spare < NEAR_CAPACITY * memory


def make_plan(
    run: Run,
    database: Path,
    reference: DuckDBPyConnection,
    *,
    top: int = 3,
    dry_run: bool = False,
    tell: Callable[[Wanted], None] = lambda _: None,
    sweep: Callable[[Path, Study], SweepReport] | None = None,
) -> Answer | None:
    """Sweep what is not stored, and answer; None from a dry run, which writes nothing.

    Parameters
    ----------
    reference
        A connection to the reference tables and their views; it is closed before the sweep.
    tell
        Called with what is to be swept, before it is.

    Raises
    ------
    InputError
        If no run keeps within the limits, or nothing fits; the hint says what would.
    """
    power = refuse_without_terms(run, reference)
    reference.close()
    asked = wanted(run, first_counts(run, power), database)
    tell(asked)
    if dry_run:
        return None
    swept(asked, database, sweep)
    sweeps = [asked]
    with open_for_read(database) as connection:
        told = _Told(connection)
        lines, terms = _lines(run, told, asked)
        if not run.asked.limits:
            return _answer(run, told, sweeps, lines, run.asked.num_gpus, top)
    kept = within(run.asked, lines)
    beside = kept[0]["num_gpus"] if kept else nearest_count(run.asked, lines)
    more = counts_beside(run, list(asked.problems), beside)
    if more:
        asked = wanted(run, sorted([*asked.problems, *more]), database)
        tell(asked)
        swept(asked, database, sweep)
        sweeps.append(asked)
    with open_for_read(database) as connection:
        told = _Told(connection)
        lines, terms = _lines(run, told, asked)
        kept = within(run.asked, lines)
        if not kept:
            raise nothing_within(run, lines, terms)
        return _answer(run, told, sweeps, lines, kept[0]["num_gpus"], top)


class _Told:
    """What a database answers; the same query is asked once."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self.connection = connection
        self._answers: dict[str, list[Line]] = {}

    def __call__(self, query: str) -> list[Line]:
        if query not in self._answers:
            self._answers[query] = rows_as_dicts(self.connection, query)
        return self._answers[query]


def _lines(run: Run, told: _Told, asked: Wanted) -> tuple[list[Line], Terms]:
    """Return the best of every count that has a layout that fits, and its terms.

    Raises
    ------
    InputError
        If there is none, or none on as many GPUs as were asked for.
    """
    problems = asked.problems
    bare = told(queries.counts(run, problems.values(), Terms()))
    wants = run.asked.num_gpus
    if not bare or (wants is not None and wants not in {line["num_gpus"] for line in bare}):
        raise nothing_fits(run, told.connection, asked, bare)
    problem = bare[0]["problem_id"] if wants is None else problems[wants]
    terms = terms_of(run, told, problem)
    return told(queries.counts(run, problems.values(), terms)), terms


def terms_of(run: Run, told: Callable[[str], list[Line]], problem: int) -> Terms:
    """Return price and power as the views of costs have them for the runs of a problem."""
    basis = "given" if run.asked.price is not None else run.asked.basis
    costs = told(queries.costs(run, problem))
    rate = next((line["usd_per_gpu_hour"] for line in costs if line["basis"] == basis), None)
    energies = told(queries.energies(run, problem))
    watts = energies[0]["watts_per_gpu"] if energies else None
    return Terms(rate, None if watts is None else watts * energies[0]["pue"])


def _answer(
    run: Run,
    told: _Told,
    sweeps: Sequence[Wanted],
    lines: Sequence[Line],
    num_gpus: int | None,
    top: int,
) -> Answer:
    assert num_gpus is not None
    problems = sweeps[-1].problems
    problem = problems[num_gpus]
    terms = terms_of(run, told, problem)
    asked = {
        "layouts": queries.layouts(run, problem, max(top, 2)),
        "costs": queries.costs(run, problem),
        "energies": queries.energies(run, problem),
        "counts": queries.counts(run, problems.values(), terms),
        "least_memory": queries.least_memory(run, problems.values()),
    }
    best = told(asked["layouts"])[0]
    asked["other_kind"] = queries.layouts(run, problem, 1, unlike=best)
    if is_near_capacity(best):
        asked["roomier"] = queries.layouts(run, problem, 1, NEAR_CAPACITY)
    found = {name: told(query) for name, query in asked.items()}
    sure = sureness(run, told.connection, best, num_gpus)
    asked |= sure.queries
    return Answer(
        run,
        num_gpus,
        problem,
        found["layouts"],
        next(iter(found["other_kind"]), None),
        next(iter(found.get("roomier", ())), None),
        _all_counts(found["counts"], found["least_memory"], sweeps[-1]),
        frozenset(line["num_gpus"] for line in within(run.asked, lines)),
        [{**line, "option": _option_of_price(line)} for line in found["costs"]],
        [
            {**line, "option": "--watts" if line["watts_per_gpu"] is None else None}
            for line in found["energies"]
        ],
        sure,
        sweeps,
        asked,
    )


def _option_of_price(line: Line) -> str | None:
    """Return the option that gives a price where there is none."""
    if line["usd_per_gpu_hour"] is not None:
        return None
    return "--watts" if line["basis"] == "owned" else "--price"


def _all_counts(fitting: Sequence[Line], memory: Sequence[Line], asked: Wanted) -> list[Line]:
    """Return a line for every count tried; one without a layout that fits says why."""
    fits = {line["num_gpus"]: line for line in fitting}
    least = {line["num_gpus"]: line["least_memory_bytes"] for line in memory}
    lines: list[Line] = []
    for count in sorted(asked.problems):
        note = "no layout: degrees must multiply to it and divide heads, layers and batch"
        if least.get(count) is not None:
            note = f"none fits: the least takes {least[count] / 1e9:,.1f} GB"
        known = {"num_gpus": count, "problem_id": asked.problems[count]}
        if count in fits:
            lines.append({**known, **fits[count], "note": None})
        else:
            lines.append({**known, "note": note})
    return lines
