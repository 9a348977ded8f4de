"""A plan's answer: the best layouts on the best number of GPUs, their dollars, energy and error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warehouse import plan_queries as queries
from warehouse.connection import open_for_read
from warehouse.errors import InputError
from warehouse.plan import Run
from warehouse.plan_counts import counts_beside, first_counts, nearest_count, within
from warehouse.plan_queries import Terms
from warehouse.plan_refusals import nothing_fits, nothing_within
from warehouse.plan_sureness import Sureness, sureness
from warehouse.plan_sweep import Wanted, swept, wanted
from warehouse.ranking import records

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.runner import SweepReport
    from warehouse.studies import Study

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What is told of a plan.

    Attributes
    ----------
    num_gpus
        As many as were asked for, or the best count of those tried.
    layouts
        The best layouts on them, best first.
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
    power = _refuse_without_terms(run, reference)
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
            self._answers[query] = records(self.connection, query)
        return self._answers[query]


def _refuse_without_terms(run: Run, connection: DuckDBPyConnection) -> float | None:
    """Return the power of one GPU; raise where a limit needs a price or power that is not known.

    A budget that no layout could keep, even at the peak rate, is refused here as well.
    """
    asked = run.asked
    name = str(run.facts.problem["accelerator"])

    def first(query: str, *values: Any) -> float | None:
        row = connection.execute(query, list(values)).fetchone()
        return None if row is None else row[0]

    watts = asked.watts or first(queries.POWER_OF, name)
    pue = asked.pue or first(queries.PUE)
    price = asked.price or first(queries.PRICE_OF, name, asked.basis)
    if asked.limits.max_mw is not None and watts is None:
        raise InputError(
            f"`--max-mw` {asked.limits.max_mw:g}: no power of a server with {name} was published",
            "give the power of one GPU with its server, in watts: --watts",
        )
    if asked.limits.budget_usd is not None:
        is_computed = asked.basis == "owned" and asked.watts is not None
        if price is None and not is_computed:
            option = " or --watts" if asked.basis == "owned" else ""
            raise InputError(
                f"`--budget-usd` {asked.limits.budget_usd:,.0f}: no price of an hour of {name} was "
                f"published on the basis {asked.basis}",
                f"give the price of an hour of one GPU: --price{option}; or another --basis",
            )
        least = run.least_seconds_of_one_gpu / 3600 * (price or 0.0)
        if price is not None and asked.basis != "owned" and least > asked.limits.budget_usd:
            raise InputError(
                f"`--budget-usd` {asked.limits.budget_usd:,.0f}: {asked.tokens:.4g} tokens of "
                f"{asked.model} cost at least {least:,.0f} USD at {price:.2f} USD/GPU-hour, even "
                f"at the peak rate of {name}",
                "raise it, ask for fewer --tokens, or give another --basis or --price",
            )
    return None if watts is None or pue is None else watts * pue


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
    found = {name: told(query) for name, query in asked.items()}
    sure = sureness(run, told.connection, found["layouts"][0], num_gpus)
    if sure.query:
        asked["accuracy"] = sure.query
    return Answer(
        run,
        num_gpus,
        problem,
        found["layouts"],
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
