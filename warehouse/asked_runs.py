"""Which stored runs are asked for, what a table macro makes of them, and which it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from estimators import registry
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.show.formats import Row

FILTERS = ("estimator", "variant", "model", "accelerator")
WITHOUT_TOKENS = "the tokens of the run are not known"
"""The `run_note` of a run that wants only `--tokens`."""


@dataclass(frozen=True)
class Question:
    """Which runs, over how many tokens, under which prices.

    Attributes
    ----------
    filters
        Column -> value that a run must have; `accelerator` by any of its names.
    is_default_variant
        Whether each estimator is asked for its default: corrected, where it has mends.
    identity
        A cell's or a problem's id: only its runs.
    num_gpus
        Only runs on so many GPUs.
    tokens
        Tokens of every run; None: each run's own, where it has some.
    goodput
        Share of the time that makes progress; None: a budgeted run's own, of others 1.
    overrides
        Arguments of the macro: `given_price`, `given_pue` ...
    """

    filters: Mapping[str, str]
    is_default_variant: bool
    identity: int | None
    num_gpus: int | None
    tokens: float | None
    goodput: float | None
    overrides: Mapping[str, float | None]


@dataclass(frozen=True)
class Answer:
    """Rows of a table macro, and how many runs were left out for what reason."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    left_out: Mapping[str, int]


def answer_of(
    connection: DuckDBPyConnection,
    macro: str,
    columns: Sequence[str],
    question: Question,
    where: str = "",
) -> Answer:
    """Return the rows of a macro that the filters leave.

    Raises
    ------
    InputError
        If there is none.
    """
    filters = _known_filters(connection, question)
    arguments: dict[str, Any] = {
        "assumed_goodput": question.goodput,
        "only_id": question.identity,
        "only_num_gpus": question.num_gpus,
        **question.overrides,
    }
    named = ", ".join(f"{name} := ?" for name in arguments)
    query = f"select {', '.join(columns)} from {macro}(?, {named}){where}"
    found = connection.execute(query, [question.tokens, *arguments.values()]).fetchall()
    rows = [r for r in found if _kept(dict(zip(columns, r, strict=True)), question, filters)]
    left_out = _left_out(connection, question, filters)
    if not rows:
        _refuse_nothing(question, left_out)
    return Answer(tuple(columns), list(rows), left_out)


def _refuse_nothing(question: Question, left_out: Mapping[str, int]) -> None:
    if number := left_out.get(WITHOUT_TOKENS):
        raise InputError(
            f"the tokens of {number:,} runs are not known: their estimator knows none",
            "say how many the run is over: --tokens 20e12",
        )
    if left_out:
        reasons = "; ".join(f"{reason} ({number:,})" for reason, number in left_out.items())
        raise InputError(f"no run is left that has a time: {reasons}", "ask for others")
    hint = ", or ask for --variant all" if question.is_default_variant else ""
    raise InputError("no run is left by all filters together", f"leave one out{hint}")


def default_variant(estimator: str) -> str:
    """Return the variant that an estimator is asked for: corrected, if it has mends."""
    return "corrected" if registry.get(estimator).mends else "published"


def _kept(row: Mapping[str, Any], question: Question, filters: Mapping[str, str]) -> bool:
    if question.is_default_variant and row["variant"] != default_variant(row["estimator"]):
        return False
    return all(row[name] == value for name, value in filters.items())


def _known_filters(connection: DuckDBPyConnection, question: Question) -> dict[str, str]:
    """Return the filters as stored: an accelerator's name that is priced, mends in order.

    Raises
    ------
    InputError
        If a filter, or the id, leaves no run at all; what there is is named.
    """
    if question.identity is not None:
        query = "select count(*) from estimated_run where ? in (cell_id, problem_id)"
        if connection.execute(query, [question.identity]).fetchall() == [(0,)]:
            raise InputError(
                f"`id` {question.identity}: is neither a cell nor a problem with a run",
                "`warehouse rank --format json` shows ids",
            )
    filters = {}
    for name, value in question.filters.items():
        if value in (known := _stored(connection, name)):
            filters[name] = value
            continue
        if name == "variant":
            mends = set(value.replace(" ", "").split(","))
            if alike := [other for other in known if set(other.split(",")) == mends]:
                filters[name] = alike[0]
                continue
        if name == "accelerator":
            query = "select accelerator from accelerator_spelling where spelling = ?"
            spelt = connection.execute(query, [value]).fetchone()
            if spelt and spelt[0] in _stored(connection, "priced_as"):
                filters["priced_as"] = spelt[0]
                continue
        near = get_close_matches(value, known, 3, 0.5) or known[:20]
        listed = ", ".join(near) or "nothing; `warehouse sweep cluster_budget` stores some"
        raise InputError(f'`{name}` "{value}": no run of it is stored', f"stored: {listed}")
    return filters


def _stored(connection: DuckDBPyConnection, name: str) -> list[str]:
    """Return the values of a column of estimated_run, in order."""
    query = f"select distinct {name} from estimated_run where {name} is not null order by all"
    return [row[0] for row in connection.execute(query).fetchall()]


def _left_out(
    connection: DuckDBPyConnection, question: Question, filters: Mapping[str, str]
) -> dict[str, int]:
    """Return how many of the runs asked for the macro cannot tell, by reason."""
    columns = (*FILTERS, "priced_as")
    query = (
        f"select {', '.join(columns)}, run_note, count(*) "
        "from training_run_for(?, assumed_goodput := ?) where run_note is not null "
        "and (?::bigint is null or ? in (cell_id, problem_id)) "
        # of how many GPUs it has, a run that does not know says nothing
        "and (?::bigint is null or ? = num_gpus or num_gpus is null) group by all order by all"
    )
    wanted = (question.identity, question.identity, question.num_gpus, question.num_gpus)
    given = [question.tokens, question.goodput, *wanted]
    found: dict[str, int] = {}
    for *values, note, number in connection.execute(query, given).fetchall():
        if _kept(dict(zip(columns, values, strict=True)), question, filters):
            found[note] = found.get(note, 0) + number
    return found
