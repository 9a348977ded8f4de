"""Columns of a query in types that the reader of its rows can hold without a change of a value."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import polars
    from duckdb import DuckDBPyRelation

_TEXT = "varchar"

_ZONED = dict.fromkeys(("timestamp with time zone", "timestamptz_ns", "time with time zone"), _TEXT)

_TIMES = {
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms"), "timestamp"),
}
"""Types with infinite values, which Python lacks."""

TEXTS = frozenset({"varchar", "enum", "union", "variant"})
"""Types whose values may be texts."""

PYTHON: Mapping[str, str] = {
    **_ZONED,  # they need one more package
    **dict.fromkeys(("interval", "timestamp_ns", "time_ns", "geometry"), _TEXT),
}
"""Type whose values Python changes or cannot read -> the type to read instead."""

_NOT_IN_ARROW = (
    *("interval", "bit", "bignum", "variant", "union", "geometry", "time with time zone"),
    "uhugeint",  # Arrow has no such type: polars would read the largest as -1
)

_TIMES_OF_DAY = dict.fromkeys(("time", "time_ns"), _TEXT)
"""Types with the value 24:00:00, which polars reads as null."""

_FRAME = {
    **dict.fromkeys(_NOT_IN_ARROW, _TEXT),
    **dict.fromkeys(("timestamp_s", "timestamp_ms"), "timestamp"),
    **_TIMES_OF_DAY,
}
"""The same of polars. A column of times of day becomes one of times again, if all are below 24."""

_NESTED = ("list", "array", "struct", "tuple", "map", "union")

_SHEET = {**_FRAME, **PYTHON, **dict.fromkeys(_NESTED, _TEXT)}
"""The same of Excel."""

_EXACT = 2**53
"""Excel keeps numbers as doubles: whole numbers above this would lose digits."""

_SHEET_YEARS = (1901, 9999)
"""Years that Excel counts right: its 1900 is a leap year."""

_PARQUET = dict.fromkeys(
    ("interval", "bit", "bignum", "variant", "union", "time with time zone"), _TEXT
)

PARQUET: Sequence[Mapping[str, str]] = [
    {**_PARQUET, "hugeint": whole, "uhugeint": whole}
    for whole in ("bigint", "decimal(38, 0)", _TEXT)
]
"""The same of Parquet. Sums of integers are HUGEINT: each column takes the first that holds it."""


def recast(
    statement: str,
    columns: Sequence[str],
    types: Sequence[Any],
    casts: Sequence[Mapping[str, str]],
    holds: Callable[[str], bool] = lambda _: True,
) -> tuple[str, dict[str, str]]:
    """Return a query with other types of columns, and the types of those that it changes.

    `casts` map the name of a type (DuckDB's ``id``) to the type to take in its place, also in lists
    and structs. Each column takes the first of them that holds its values: `holds` runs a query of
    one column, and returns whether no value is too large for its type.
    """
    source = f"from query({literal(statement)})"
    changed, terms = {}, []
    for number, (name, kind) in enumerate(zip(columns, types, strict=True), start=1):
        *others, last = dict.fromkeys(_new_type(kind, instead, instead) for instead in casts)
        queries = {other: f"select cast(#{number} as {other}) as x {source}" for other in others}
        new = next((other for other, query in queries.items() if holds(query)), last)
        terms.append(_term(number, name, new))
        if new is not None:
            changed[name] = new
    return (f"select {', '.join(terms)} {source}" if changed else statement), changed


def readable(statement: str, columns: Sequence[str], types: Sequence[Any]) -> str:
    """Return a query whose rows Python holds unchanged; infinite dates and times are texts."""
    within = {**PYTHON, **dict.fromkeys(_TIMES, _TEXT)}
    terms = []
    for number, (name, kind) in enumerate(zip(columns, types, strict=True), start=1):
        if kind.id not in _TIMES:
            terms.append(_term(number, name, _new_type(kind, PYTHON, within)))
            continue
        finite = _TIMES[kind.id]
        value, union = f"cast(#{number} as {finite})", f"union(finite {finite}, infinite {_TEXT})"
        terms.append(
            f"case when isfinite({value}) then cast({value} as {union}) "
            f"else cast(cast({value} as {_TEXT}) as {union}) end as {quoted(name)}"
        )
    if all(term.startswith("#") for term in terms):
        return statement
    return f"select {', '.join(terms)} from query({literal(statement)})"


def frame_of(relation: DuckDBPyRelation) -> polars.DataFrame:
    """Return the rows of a relation as a frame; types that polars lacks are texts.

    A value that polars cannot hold, such as an infinite date, is an `InputError`.
    """
    import polars as pl

    frame, _ = _read(relation, _FRAME, _TIMES_OF_DAY)
    for column, name, kind in zip(frame, relation.columns, relation.types, strict=True):
        unheld = _unheld(column)
        if kind.id in _TIMES_OF_DAY and column.dtype == pl.String:
            unheld = "a time", "24:00:00"
        if unheld:
            raise InputError(
                f"column `{column.name}` has {unheld[0]} that a frame cannot hold, such as "
                f"{unheld[1]}",
                f"select it as a text: cast({quoted(name)} as varchar)",
            )
    return frame


def excel_frame(relation: DuckDBPyRelation) -> tuple[polars.DataFrame, list[str]]:
    """Return the rows of a relation as a frame for Excel, and the columns that are texts instead.

    Numbers that are not finite remain.
    """
    import polars as pl

    rows = relation.materialize()
    frame, texts = _read(rows, _SHEET, ("time",))
    others = [
        index
        for index, column in enumerate(frame)
        if _unheld(column) or _is_changed_by_excel(column)
    ]
    if others:
        terms = [f"cast(#{index + 1} as {_TEXT}) as c{index}" for index in others]
        for index, column in zip(others, rows.project(", ".join(terms)).pl(), strict=True):
            frame.replace_column(index, column.alias(frame.columns[index]))
    binary = [column.name for column in frame if column.dtype == pl.Binary]
    frame = frame.with_columns(pl.col(binary).bin.encode("hex"))
    return frame, [*texts, *(frame.columns[index] for index in others), *binary]


def _read(
    relation: DuckDBPyRelation, instead: Mapping[str, str], times_of_day: Collection[str]
) -> tuple[polars.DataFrame, list[str]]:
    """Return rows as a frame that may have changed values, and the columns that are texts in it."""
    new_types = [_new_type(kind, instead, instead) for kind in relation.types]
    terms = [
        _term(number, name, new)
        for number, (name, new) in enumerate(zip(relation.columns, new_types, strict=True), start=1)
    ]
    frame = (relation.project(", ".join(terms)) if any(new_types) else relation).pl()
    texts = []
    for index, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True)):
        if kind.id in times_of_day:
            column = frame.to_series(index)
            times = column.str.to_time("%H:%M:%S%.f", strict=False)
            if times.null_count() == column.null_count():
                frame.replace_column(index, times)
                continue
        if _TEXT in (new_types[index] or ""):
            texts.append(name)
    return frame, texts


_FURTHEST = {"day": 95 * 10**6, "us": 95 * 86_400 * 10**12, "ns": 2**63 - 2}
"""Unit -> the number of them from 1970 that polars reads: 260,000 years, or 292."""

_LARGEST = 10**38 - 1
"""Largest whole number that polars reads: a HUGEINT may have a digit more."""


def _unheld(column: polars.Series) -> tuple[str, str] | None:
    """Return a name of the values and an example, if polars fails on a value or changes it."""
    import polars as pl

    dtype = column.dtype
    if isinstance(dtype, pl.Struct):
        return next(filter(None, map(_unheld, column.struct.unnest())), None)
    if isinstance(dtype, pl.Map):
        return _unheld(column.map.entries())
    if isinstance(dtype, pl.List | pl.Array):
        return _unheld(column.explode())
    if isinstance(dtype, pl.Decimal):
        most, unheld = _LARGEST, ("a number", "one of 39 digits")
    elif isinstance(dtype, pl.Date | pl.Datetime):
        most, unheld = _FURTHEST[getattr(dtype, "time_unit", "day")], ("a time", "infinity")
    else:
        return None
    return None if column.to_physical().is_between(-most, most).all() else unheld


def _is_changed_by_excel(column: polars.Series) -> bool:
    """Return whether a number has more digits than a double, or a date is outside of the years."""
    import polars as pl

    dtype = column.dtype
    if isinstance(dtype, pl.Date | pl.Datetime):
        return not column.dt.year().is_between(*_SHEET_YEARS).all()
    if not dtype.is_integer() and not dtype.is_decimal():
        return False
    places = getattr(dtype, "scale", 0)
    return any(
        isinstance(end, int | Decimal) and abs(Decimal(end)).scaleb(places) > _EXACT
        for end in (column.min(), column.max())
    )


def _term(number: int, name: str, new: str | None) -> str:
    """Return a column in a SELECT by its number, in another type unless that is None."""
    return f"#{number}" if new is None else f"cast(#{number} as {new}) as {quoted(name)}"


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
    inner = [changed or str(part) for changed, (_, part) in zip(new, parts, strict=True)]
    if kind.id == "list":
        return f"{inner[0]}[]"
    if kind.id == "array":
        return f"{inner[0]}[{dict(kind.children)['size']}]"
    if kind.id == "struct":
        inner = [f"{quoted(name)} {type_}" for type_, (name, _) in zip(inner, parts, strict=True)]
    return f"{kind.id}({', '.join(inner)})"
