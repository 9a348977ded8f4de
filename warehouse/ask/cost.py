"""What runs cost, and what energy they take: stored runs, priced and powered at query time."""

from __future__ import annotations

from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from warehouse.asked_runs import Answer, Question, answer_of
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.show.formats import Row

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


def costs(
    connection: DuckDBPyConnection, question: Question, year: int | None, all_years: bool
) -> Answer:
    """Return the cost of runs at the prices of a year, by default the last that there is.

    A line that has no price of that year stands without one, and its note says of which it has.

    Raises
    ------
    InputError
        If no run is left, or no price of that year.
    """
    answer = answer_of(connection, "training_cost_for", COST_COLUMNS, question)
    place = {name: number for number, name in enumerate(COST_COLUMNS)}
    rows = answer.rows
    if year is not None:
        rows = _of_year(rows, place, year)
    elif not all_years:
        rows = _latest(rows, place)
    order = ("estimator", "variant", "model", "model_shape", "dataset_tokens", "accelerator")
    keys = [place[name] for name in (*order, *_TOLD_APART, "year", "usd_per_gpu_hour")]
    rows = sorted(rows, key=lambda row: [(row[k] is not None, row[k]) for k in keys])
    return Answer(answer.columns, rows, answer.left_out)


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
    answer = answer_of(connection, "training_energy_for", ENERGY_COLUMNS, question, where)
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
    return Answer(answer.columns, rows, answer.left_out)


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
        raise InputError(f"`{option}` {value:g}: cannot be", f"it must be a number {limit}")
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
            f"`year` {year}: there is no price of an hour of what was asked for",
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
