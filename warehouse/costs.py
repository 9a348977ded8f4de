"""What runs cost, and what energy they take: stored runs, priced and powered at query time."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from warehouse.errors import InputError
from warehouse.naming import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.formats import Row

COST_COLUMNS = (
    *("estimator", "variant", "model", "accelerator", "dataset_tokens", "num_runs"),
    *("num_gpus", "training_seconds", "best_layout", "lowest_gpu_hours", "highest_gpu_hours"),
    *("basis", "year", "num_quotes", "usd_per_gpu_hour", "lowest_cost_usd", "median_cost_usd"),
    *("highest_cost_usd", "priced_as", "price_source", "price_note"),
)
ENERGY_COLUMNS = (
    *("estimator", "variant", "model", "accelerator", "dataset_tokens", "num_runs"),
    *("num_gpus", "training_seconds", "best_layout", "lowest_gpu_hours", "highest_gpu_hours"),
    *("power_basis", "watts_per_gpu", "pue", "power_watts", "lowest_energy_kwh"),
    *("median_energy_kwh", "highest_energy_kwh", "year", "usd_per_kwh"),
    *("lowest_electricity_usd", "grid", "kg_co2e_per_kwh", "lowest_kg_co2e", "priced_as"),
    *("power_source", "power_note"),
)
FILTERS = ("estimator", "variant", "model", "accelerator")


@dataclass(frozen=True)
class Question:
    """Which runs, over how many tokens, under which prices.

    Attributes
    ----------
    filters
        Column -> value that a run must have; `accelerator` by any of its names.
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
    identity: int | None
    num_gpus: int | None
    tokens: float | None
    goodput: float | None
    overrides: Mapping[str, float | None]


@dataclass(frozen=True)
class Answer:
    """Rows of a table macro, and how many runs it could not tell without tokens."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    num_without_tokens: int


def costs(
    connection: DuckDBPyConnection, question: Question, year: int | None, all_years: bool
) -> Answer:
    """Return the cost of runs at the prices of a year, by default the last that there is.

    Raises
    ------
    InputError
        If no run is left, or no price of that year.
    """
    answer = _answer(connection, "training_cost_for", COST_COLUMNS, question)
    place = {name: number for number, name in enumerate(COST_COLUMNS)}
    rows = answer.rows
    if year is not None:
        known = sorted({row[place["year"]] for row in rows if row[place["year"]] is not None})
        rows = [row for row in rows if row[place["year"]] == year]
        if not rows:
            listed = ", ".join(map(str, known)) or "none at all"
            raise InputError(
                f"`year` {year}: there is no price of an hour of what was asked for",
                f"known: {listed}; or give --price",
            )
    elif not all_years:
        rows = _latest(rows, place)
    order = ("estimator", "variant", "model", "dataset_tokens", "accelerator")
    keys = [place[name] for name in (*order, "year", "usd_per_gpu_hour")]
    rows = sorted(rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys])
    return Answer(answer.columns, rows, answer.num_without_tokens)


def energies(
    connection: DuckDBPyConnection, question: Question, grid: str | None, all_powers: bool
) -> Answer:
    """Return the energy and carbon of runs, at the usual basis of power unless all are asked for.

    Parameters
    ----------
    grid
        Name of the grid whose carbon was given, where it has one.

    Raises
    ------
    InputError
        If no run is left.
    """
    where = "" if all_powers else " where is_default or is_default is null"
    answer = _answer(connection, "training_energy_for", ENERGY_COLUMNS, question, where)
    place = {name: number for number, name in enumerate(ENERGY_COLUMNS)}
    order = ("estimator", "variant", "model", "dataset_tokens", "accelerator", "watts_per_gpu")
    keys = [place[name] for name in (*order, "kg_co2e_per_kwh", "grid")]
    rows: list[Row] = sorted(
        answer.rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys]
    )
    if grid is not None:
        at = place["grid"]
        rows = [(*row[:at], grid, *row[at + 1 :]) for row in rows]
    return Answer(answer.columns, rows, answer.num_without_tokens)


def number_or_name(
    connection: DuckDBPyConnection, text: str | None, option: str, table: str, limits: str
) -> float | None:
    """Return a number given as such, or by the name that a reference table has it under.

    Parameters
    ----------
    limits
        SQL condition on `value` that a number must keep.

    Raises
    ------
    InputError
        If it is neither a sound number nor a name.
    """
    if text is None:
        return None
    key, column = (str(row[0]) for row in _described(connection, table)[:2])
    try:
        value = float(text)
    except ValueError:
        query = f"select {quoted(column)} from {quoted(table)} where {quoted(key)} = ?"
        found = connection.execute(query, [text]).fetchall()
        if found:
            return float(found[0][0])
        query = f"select {quoted(key)} from {quoted(table)} order by all"
        names = [row[0] for row in connection.execute(query).fetchall()]
        near = get_close_matches(text, names, 3, 0.4) or names
        raise InputError(
            f'`{option}` "{text}": is neither a number nor in the `{table}` table',
            f"known: {'; '.join(near)}",
        ) from None
    sound = isfinite(value) and connection.execute(f"select {limits}", {"value": value}).fetchone()
    if not sound or not sound[0]:
        raise InputError(
            f"`{option}` {text}: cannot be", f"it must be {limits.replace('$value', 'a number')}"
        )
    return value


def _described(connection: DuckDBPyConnection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"describe {quoted(table)}").fetchall()


def _answer(
    connection: DuckDBPyConnection,
    macro: str,
    columns: Sequence[str],
    question: Question,
    where: str = "",
) -> Answer:
    """Return the rows of a macro that the filters leave."""
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
    rows = [row for row in found if _kept(dict(zip(columns, row, strict=True)), filters)]
    without = 0
    if question.tokens is None:
        without = _without_tokens(connection, question, filters)
    if not rows and without:
        raise InputError(
            f"the tokens of {without:,} runs are not known: their estimator knows none",
            "say how many the run is over: --tokens 20e12",
        )
    if not rows:
        raise InputError("no run is left by all filters together", "leave one out")
    return Answer(tuple(columns), list(rows), without)


def _kept(row: Mapping[str, Any], filters: Mapping[str, str]) -> bool:
    return all(row[name] == value for name, value in filters.items())


def _known_filters(connection: DuckDBPyConnection, question: Question) -> dict[str, str]:
    """Return the filters, an accelerator that no run names under the name it is priced as.

    Raises
    ------
    InputError
        If a filter, or the id, leaves no run at all; what there is is named.
    """
    if question.identity is not None:
        query = "select count(*) from training_run where ? in (cell_id, problem_id)"
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
    """Return the values of a column of training_run, in order."""
    query = f"select distinct {name} from training_run where {name} is not null order by all"
    return [row[0] for row in connection.execute(query).fetchall()]


def _without_tokens(
    connection: DuckDBPyConnection, question: Question, filters: Mapping[str, str]
) -> int:
    """Return how many of the runs asked for have no tokens of their own."""
    columns = (*FILTERS, "priced_as")
    query = (
        f"select {', '.join(columns)}, count(*) from training_run where dataset_tokens is null "
        "and training_seconds is null "
        "and (?::bigint is null or ? in (cell_id, problem_id)) "
        "and (?::bigint is null or ? = num_gpus) group by all"
    )
    wanted = (question.identity, question.identity, question.num_gpus, question.num_gpus)
    found = connection.execute(query, list(wanted)).fetchall()
    rows = [(dict(zip(columns, row, strict=False)), row[-1]) for row in found]
    return sum(number for row, number in rows if _kept(row, filters))


def _latest(rows: Sequence[Row], place: Mapping[str, int]) -> list[Row]:
    """Return the rows of the last year of each accelerator and basis."""
    last: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = (row[place["accelerator"]], row[place["basis"]])
        last[key] = max(last.get(key, 0), row[place["year"]] or 0)
    return [
        row
        for row in rows
        if (row[place["year"]] or 0) == last[row[place["accelerator"]], row[place["basis"]]]
    ]
