"""Terms of cost and energy: numbers, or names of reference tables that have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from warehouse.ask.names import find_name, spellings
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError
from warehouse.limits import read_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from duckdb import DuckDBPyConnection

LONGEST_CODE = 3
"""Numbers of letters in the codes of countries."""

MOST_CARBON = 5.0
"""Limit of the emissions of electricity [kg CO2e/kWh]. Coal has 0.82 (IPCC AR5, working group 3,
annex III, median over the life cycle)."""

MOST_VENDORS = 2
"""Vendors of a price that a sentence names; if there are more, it has their number."""


@dataclass(frozen=True)
class Term:
    """A number, with the name under which a reference table has it; None if it was given."""

    name: str | None
    value: float


def share_and_pue(
    connection: DuckDBPyConnection, goodput: str | None, pue: str | None
) -> tuple[float | None, float | None]:
    """Return the numbers of `--goodput` and `--pue`, which may be names; None without a text."""
    share, hint = "$value > 0 and $value <= 1", "0.9 for 90 %"
    ratio = "$value >= 1 and $value <= 10"
    return (
        None
        if goodput is None
        else term(connection, goodput, "goodput", "goodput", share, hint).value,
        None if pue is None else term(connection, pue, "pue", "facility_pue", ratio).value,
    )


def carbons(connection: DuckDBPyConnection, texts: Iterable[str] | None) -> list[Term]:
    """Return the emissions [kg/kWh] that `--carbon` gives, by number or by grid, each once."""
    limits = f"$value >= 0 and $value <= {MOST_CARBON:g}"
    hint = "kg CO2e of a kWh: 0.385 for 385 grams"
    asked = (term(connection, text, "carbon", "grid_carbon", limits, hint) for text in texts or ())
    return list(dict.fromkeys(asked))


LIKE_A_TYPO = 0.8
"""Similarity of two texts (`difflib`) above which one counts as a misspelling of the other."""


def term(
    connection: DuckDBPyConnection, text: str, option: str, table: str, limits: str, hint: str = ""
) -> Term:
    """Return the number that a text is, or that a reference table has under this name.

    A name is found in any spelling and by its aliases; parentheses may be left out if one row
    remains. A number must meet `limits`, a SQL condition on `$value`; if not, `hint` names the
    unit.
    """
    value = read_number(text)
    if value is None:
        return _named(connection, text, option, table)
    sound = isfinite(value) and connection.execute(f"select {limits}", {"value": value}).fetchall()
    if not sound or not sound[0][0]:
        for sign, words in ((">=", "at least"), ("<=", "at most"), (">", "above")):
            limits = limits.replace(f"$value {sign}", words)
        finite = "" if isfinite(value) else "finite, and "
        raise InputError(f"`--{option}` {text} must be {finite}{limits}", hint)
    return Term(None, float(value))


def _named(connection: DuckDBPyConnection, text: str, option: str, table: str) -> Term:
    """Return the number that a reference table has under a name: its second column."""
    described = connection.execute(f"describe {quoted(table)}").fetchall()
    key, column = (str(row[0]) for row in described[:2])
    query = f"select {quoted(key)}, {quoted(column)} from {quoted(table)}"
    known: dict[str, float] = dict(connection.execute(query).fetchall())
    aliases = {**_short_names(known), **spellings(key)}
    meant = find_name(text, known, aliases)
    if meant is not None:
        return Term(meant, float(known[meant]))
    from estimators.names import did_you_mean, joined_hint  # arrays, which only a refusal needs

    # a country's code is similar to many names
    words = [name for name in aliases if len(name) > LONGEST_CODE]
    capitals = {name.casefold(): name for name in (*words, *known)}
    near = [capitals[name] for name in get_close_matches(text.casefold(), capitals, 3, 0.5)]
    typo = [capitals[name] for name in get_close_matches(text.casefold(), capitals, 3, LIKE_A_TYPO)]
    listing = f"`warehouse sql 'select {key} from {table}'` lists all {len(known):,}"
    like = f"similar: {'; '.join(near)}" if near else ""
    raise InputError(
        f'`--{option}` "{text}" is neither a number nor in the `{table}` table',
        joined_hint(did_you_mean(dict.fromkeys(typo)), listing, "" if typo else like),
    )


def _short_names(names: Collection[str]) -> dict[str, str]:
    """Return name without its parentheses -> name, if only one row has it."""
    short = {name: name.partition(" (")[0] for name in names}
    counted = Counter(short.values())
    return {alias: name for name, alias in short.items() if counted[alias] == 1 and alias != name}


def grids_in_words(grids: Iterable[tuple[object, object, object]]) -> list[str]:
    """Return the kind and the year of the carbon of each grid, and whether they differ.

    Each grid has a name, a kind and a year, as a row of table ``grid_carbon``.
    """
    rows = list(grids)
    words = [f"{grid}: {kind}, {year or 'no year given'}" for grid, kind, year in rows]
    lines = [f"carbon of grids, with its kind and year: {'; '.join(words)}"] if words else []
    if len({(kind, year) for _, kind, year in rows}) > 1:
        lines.append("figures of different years or kinds do not compare")
    return lines


def price_vendors(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the vendors behind each rent of one accelerator; empty if they are the same for all.

    Each line has `basis`, `year` and `quote_vendors`; of a basis the last year counts.
    """
    rented = [line for line in lines if line["quote_vendors"] is not None]
    last = {line["basis"]: line for line in sorted(rented, key=lambda line: int(line["year"]))}
    if len({(line["quote_vendors"], line["year"]) for line in last.values()}) < 2:
        return ""
    bases = [
        f"{basis} of {_vendors(str(line['quote_vendors']))} ({line['year']})"
        for basis, line in sorted(last.items())
    ]
    return (
        f"prices come from different vendors or years, so do not compare them: {', '.join(bases)}"
    )


def _vendors(names: str) -> str:
    listed = names.split(", ")
    return " and ".join(listed) if len(listed) <= MOST_VENDORS else f"{len(listed)} vendors"
