"""What runs cost, and what energy they take: stored runs, priced and powered at query time."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from estimators import registry
from warehouse.ask.names import name_meant, spellings
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError
from warehouse.limits import read_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.show.formats import Row

FILTERS = ("estimator", "variant", "model", "accelerator")
WITHOUT_TOKENS = "the tokens of the run are not known"
"""The `run_note` of a run that wants only `--tokens`."""

RUN_COLUMNS = (
    *("estimator", "variant", "model", "model_shape", "accelerator", "system_changes"),
    *("assumptions", "dataset_tokens", "is_lower_bound", "num_runs"),
    *("num_gpus", "training_seconds", "best_layout", "lowest_gpu_hours", "highest_gpu_hours"),
)
_TOLD_APART = ("system_changes", "assumptions")
PRICE_COLUMNS = (
    *("basis", "year", "num_quotes", "amortised_usd_per_gpu_hour"),
    *("electricity_usd_per_gpu_hour", "usd_per_gpu_hour"),
    *("lowest_cost_usd", "median_cost_usd", "highest_cost_usd", "price_source"),
)
COST_COLUMNS = (*RUN_COLUMNS, *PRICE_COLUMNS, "priced_as", "price_note")
ENERGY_COLUMNS = (
    *(*RUN_COLUMNS, "power_basis", "watts_per_gpu", "pue", "power_watts", "lowest_energy_kwh"),
    *("median_energy_kwh", "highest_energy_kwh", "year", "usd_per_kwh"),
    *("lowest_electricity_usd", "grid", "kg_co2e_per_kwh", "lowest_kg_co2e", "priced_as"),
    *("power_source", "power_note"),
)


@dataclass(frozen=True)
class RunQuery:
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
class RunTable:
    """Rows of a table macro, and how many runs were left out for what reason."""

    columns: tuple[str, ...]
    rows: Sequence[Row]
    left_out: Mapping[str, int]


def costs(
    connection: DuckDBPyConnection, question: RunQuery, year: int | None, all_years: bool
) -> RunTable:
    """Return the cost of runs at the prices of a year, by default the last that there is.

    A line that has no price of that year stands without one, and its note says of which it has.

    Raises
    ------
    InputError
        If no run is left, or no price of that year.
    """
    answer = _run_table(connection, "training_cost_for", COST_COLUMNS, question)
    place = {name: number for number, name in enumerate(COST_COLUMNS)}
    rows = answer.rows
    if year is not None:
        rows = _of_year(rows, place, year)
    elif not all_years:
        rows = _latest(rows, place)
    order = ("estimator", "variant", "model", "model_shape", "dataset_tokens", "accelerator")
    keys = [place[name] for name in (*order, *_TOLD_APART, "year", "usd_per_gpu_hour")]
    rows = sorted(rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys])
    return RunTable(answer.columns, rows, answer.left_out)


def energies(
    connection: DuckDBPyConnection, question: RunQuery, grid: str | None, all_powers: bool
) -> RunTable:
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
    answer = _run_table(connection, "training_energy_for", ENERGY_COLUMNS, question, where)
    place = {name: number for number, name in enumerate(ENERGY_COLUMNS)}
    order = ("estimator", "variant", "model", "model_shape", "dataset_tokens", "accelerator")
    power = ("watts_per_gpu", "kg_co2e_per_kwh", "grid")
    keys = [place[name] for name in (*order, *_TOLD_APART, *power)]
    rows: list[Row] = sorted(
        answer.rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys]
    )
    if grid is not None:
        at = place["grid"]
        rows = [(*row[:at], grid, *row[at + 1 :]) for row in rows]
    return RunTable(answer.columns, rows, answer.left_out)


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
    value = read_number(text)
    if value is None:
        known = [row[0] for row in connection.execute(f"from {quoted(table)}").fetchall()]
        meant = name_meant(text, known, {})
        if meant is None:
            near = get_close_matches(text, known, 3, 0.4) or sorted(known)
            raise InputError(
                f'`--{option}` "{text}" is neither a number nor in the `{table}` table',
                f"known: {'; '.join(near)}",
            )
        query = f"select {quoted(column)} from {quoted(table)} where {quoted(key)} = ?"
        [[value]] = connection.execute(query, [meant]).fetchall()
        return float(value)
    sound = isfinite(value) and connection.execute(f"select {limits}", {"value": value}).fetchone()
    if not sound or not sound[0]:
        for sign, words in ((">=", "at least"), ("<=", "at most"), (">", "above")):
            limits = limits.replace(f"$value {sign}", words)
        raise InputError(f"`--{option}` {text} must be {limits}")
    return float(value)


def above_zero(option: str, value: float | None) -> float | None:
    """Return an option's number, None where it was not given.

    Raises
    ------
    InputError
        If it is not a number above 0.
    """
    return _checked(option, value, value is None or value > 0, "above 0")


def not_negative(option: str, value: float | None) -> float | None:
    """Return an option's number, None where it was not given.

    Raises
    ------
    InputError
        If it is not a number of at least 0.
    """
    return _checked(option, value, value is None or value >= 0, "at least 0")


def _checked(option: str, value: float | None, is_sound: bool, limit: str) -> float | None:
    if value is not None and not (is_sound and isfinite(value) and value <= 1e30):
        raise InputError(f"`--{option}` {value:g} must be {limit}")
    return value


def _described(connection: DuckDBPyConnection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"describe {quoted(table)}").fetchall()


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


def _of_year(rows: Sequence[Row], place: Mapping[str, int], year: int) -> list[Row]:
    """Return the rows of a year; one without a price for each line that has none of it.

    Raises
    ------
    InputError
        If no line has a price of that year.
    """
    years = {row[place["year"]] for row in rows} - {None}
    if year not in years:
        listed = ", ".join(map(str, sorted(years))) or "none at all"
        raise InputError(
            f"`--year` {year} has no price of an hour for these runs",
            f"known: {listed}; or give --price",
        )
    lines: dict[Row, list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(row[place[name]] for name in RUN_COLUMNS), []).append(row)
    kept: list[Row] = []
    for line in lines.values():
        kept += [row for row in line if row[place["year"]] in (year, None)]
        known = {row[place["year"]] for row in line} - {None}
        if known and year not in known:
            listed = ", ".join(map(str, sorted(known)))
            note = f"no price of {year}; known: {listed}"
            told = {**dict.fromkeys(PRICE_COLUMNS), "price_note": note}
            kept.append(tuple(told.get(name, line[0][at]) for name, at in place.items()))
    return kept


def _run_table(
    connection: DuckDBPyConnection,
    macro: str,
    columns: Sequence[str],
    question: RunQuery,
    where: str = "",
) -> RunTable:
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
    return RunTable(tuple(columns), list(rows), left_out)


def _refuse_nothing(question: RunQuery, left_out: Mapping[str, int]) -> None:
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


def _kept(row: Mapping[str, Any], question: RunQuery, filters: Mapping[str, str]) -> bool:
    if question.is_default_variant and row["variant"] != default_variant(row["estimator"]):
        return False
    return all(row[name] == value for name, value in filters.items())


def _known_filters(connection: DuckDBPyConnection, question: RunQuery) -> dict[str, str]:
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
        known = _stored(connection, name)
        if meant := name_meant(value, known, {}):
            filters[name] = meant
            continue
        if name == "variant":
            mends = set(value.replace(" ", "").split(","))
            if alike := [other for other in known if set(other.split(",")) == mends]:
                filters[name] = alike[0]
                continue
        if name == "accelerator":
            priced = _priced_as(connection, value)
            if priced in _stored(connection, "priced_as"):
                filters["priced_as"] = str(priced)
                continue
        if meant := name_meant(value, known, spellings(connection, name)):
            filters[name] = meant
            continue
        near = get_close_matches(value, known, 3, 0.5) or known[:20]
        listed = ", ".join(near) or "nothing; `warehouse sweep cluster_budget` stores some"
        raise InputError(f'`{name}` "{value}": no run of it is stored', f"stored: {listed}")
    return filters


def _priced_as(connection: DuckDBPyConnection, name: str) -> str | None:
    """Return the accelerator that a name of one, of a system or of a device is priced as."""
    query = "select spelling, accelerator from accelerator_spelling"
    priced = dict(connection.execute(query).fetchall())
    return name_meant(name, set(priced.values()), priced)


def _stored(connection: DuckDBPyConnection, name: str) -> list[str]:
    """Return the values of a column of estimated_run, in order."""
    query = f"select distinct {name} from estimated_run where {name} is not null order by all"
    return [row[0] for row in connection.execute(query).fetchall()]


def _left_out(
    connection: DuckDBPyConnection, question: RunQuery, filters: Mapping[str, str]
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
