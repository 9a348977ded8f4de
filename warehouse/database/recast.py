"""Columns of a query in types that the reader of its rows can hold without a change of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars
    from duckdb import DuckDBPyRelation

_TEXT = "varchar"

_ZONED = dict.fromkeys(("timestamp with time zone", "timestamptz_ns", "time with time zone"), _TEXT)

_TIMES = {
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms"), "timestamp"),
}
"""Types with infinite values, which Python lacks."""

TEXTS = frozenset({"varchar", "enum", "interval", "union", "variant"})
"""Types whose values may be texts, or are texts in a CSV that may begin as a formula does."""

PYTHON: Mapping[str, str] = {
    **_ZONED,  # they need one more package
    **dict.fromkeys(("interval", "timestamp_ns", "time_ns"), _TEXT),
}
"""Type whose values Python changes or cannot read -> the type to read instead."""

_NOT_IN_ARROW = (
    *("interval", "bit", "bignum", "variant", "union", "geometry", "time with time zone"),
    "uhugeint",  # Arrow has no such type: polars would read the largest as -1
)

FRAME: Mapping[str, str] = {
    **dict.fromkeys(_NOT_IN_ARROW, _TEXT),
    **dict.fromkeys(("timestamp_s", "timestamp_ms"), "timestamp"),
}
"""The same of polars."""

_NESTED = ("list", "array", "struct", "tuple", "map", "union")

SHEET: Mapping[str, str] = {**FRAME, **PYTHON, **dict.fromkeys(_NESTED, _TEXT)}
"""The same of Excel."""

_PARQUET = dict.fromkeys(("interval", "bit", "bignum", "variant", "time with time zone"), _TEXT)

PARQUET: Sequence[Mapping[str, str]] = [
    {**_PARQUET, "hugeint": whole, "uhugeint": whole}
    for whole in ("bigint", "decimal(38, 0)", _TEXT)
]
"""The same of Parquet. Sums of integers are HUGEINT: the first that holds their values is taken."""


def recast(
    statement: str, columns: Sequence[str], types: Sequence[Any], instead: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """Return a query with other types of columns, and the types of those that it changes.

    Parameters
    ----------
    types
        Types of the columns, as DuckDB gives them.
    instead
        Name of a type, as DuckDB's ``id``, -> the type to take in its place, also in lists and
        structs.
    """
    changed, terms = _terms(columns, types, instead)
    if not changed:
        return statement, {}
    return f"select {', '.join(terms)} from query({literal(statement)})", changed


def readable(statement: str, columns: Sequence[str], types: Sequence[Any]) -> str:
    """Return a query whose rows Python holds unchanged; infinite dates and times are texts."""
    within = {**PYTHON, **dict.fromkeys(_TIMES, _TEXT)}
    _, terms = _terms(columns, types, PYTHON, within)
    times = {place: _TIMES[kind.id] for place, kind in enumerate(types) if kind.id in _TIMES}
    if not times and all(term == f"#{place}" for place, term in enumerate(terms, start=1)):
        return statement
    for place, kind in times.items():
        value, union = f"cast(#{place + 1} as {kind})", f"union(finite {kind}, infinite {_TEXT})"
        terms[place] = (
            f"case when isfinite({value}) then cast({value} as {union}) "
            f"else cast(cast({value} as {_TEXT}) as {union}) end as {quoted(columns[place])}"
        )
    return f"select {', '.join(terms)} from query({literal(statement)})"


def frame_of(
    relation: DuckDBPyRelation, instead: Mapping[str, str] = FRAME
) -> tuple[polars.DataFrame, list[str]]:
    """Return the rows of a relation as a frame, and the columns that are texts in it instead.

    Raises
    ------
    InputError
        If a date or time is infinite or too far away: polars fails when it reads such a value.
    """
    import polars as pl

    changed, terms = _terms(relation.columns, relation.types, instead)
    found: pl.DataFrame = (relation.project(", ".join(terms)) if changed else relation).pl()
    for name, dtype in found.schema.items():
        furthest = _FURTHEST.get(getattr(dtype, "time_unit", "day"))
        if (
            dtype in (pl.Date, pl.Datetime)
            and not (found[name].to_physical().abs() <= furthest).all()
        ):
            raise InputError(
                f"column `{name}` has a time that a frame cannot hold, such as infinity",
                f"select it as a text: cast({quoted(name)} as varchar)",
            )
    return found, [name for name, kind in changed.items() if _TEXT in kind]


_FURTHEST = {"day": 95 * 10**6, "us": 95 * 86_400 * 10**12, "ns": 2**63 - 2}
"""Unit -> the number of them from 1970 that polars reads: 260,000 years, or 292."""


def _terms(
    columns: Sequence[str],
    types: Sequence[Any],
    instead: Mapping[str, str],
    within: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """Return the new types of the columns that change, and a term of a SELECT for each column."""
    changed, terms = {}, []
    for place, (name, kind) in enumerate(zip(columns, types, strict=True), start=1):
        new = _new_type(kind, instead, within or instead)
        if new is None:
            terms.append(f"#{place}")
        else:
            changed[name] = new
            terms.append(f"cast(#{place} as {new}) as {quoted(name)}")
    return changed, terms


def _new_type(kind: Any, instead: Mapping[str, str], within: Mapping[str, str]) -> str | None:
    """Return the type to take in place of one; None where it stays."""
    if kind.id in instead:
        return instead[kind.id]
    if kind.id not in _NESTED:
        return None
    parts = [(name, part) for name, part in kind.children if not isinstance(part, int)]
    new = [_new_type(part, within, within) for _, part in parts]
    if not any(new):
        return None
    if kind.id == "union":
        return _TEXT
    inner = [one or str(part) for one, (_, part) in zip(new, parts, strict=True)]
    if kind.id == "list":
        return f"{inner[0]}[]"
    if kind.id == "array":
        return f"{inner[0]}[{dict(kind.children)['size']}]"
    if kind.id == "struct":
        inner = [f"{quoted(name)} {one}" for one, (name, _) in zip(inner, parts, strict=True)]
    return f"{kind.id}({', '.join(inner)})"
