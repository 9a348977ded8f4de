"""Values as text in a table or in JSON, safe for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from types import NoneType
from typing import Any

Row = Sequence[Any]
Blocks = Iterable[Sequence[Row]]


class Figure(str):
    """A number already written out; tables align it as a number."""

    __slots__ = ()


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: null for NaN and infinities, ISO dates, hex bytes."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal):
        near = float(value)
        return near if Decimal(repr(near)) == value else str(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return str(value)


_EXACT = 2**53
"""Programs that read numbers of JSON as doubles, such as jq, round larger whole numbers."""


def with_text_ids(value: Any, name: str = "") -> Any:
    """Return a value of JSON with ids and whole numbers that such programs round as texts.

    Keys of ids end in ``_id``.
    """
    if isinstance(value, dict):
        return {key: with_text_ids(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_text_ids(item, name) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if name.endswith("_id") or abs(value) > _EXACT else value
    return value


def by_column(rows: Sequence[Row], num_columns: int) -> list[Sequence[Any]]:
    """Return the values of each column of these rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * num_columns


def kinds_of(values: Iterable[Any]) -> set[type]:
    """Return the types of the values of a column; NULL has none."""
    return set(map(type, values)) - {NoneType}


def shown(values: Sequence[Any]) -> list[str]:
    """Return a column as a table shows it: six digits of a fraction, every digit of an integer."""
    kinds = kinds_of(values)
    write: Callable[[Any], str]
    if kinds == {float}:
        write = "{:.6g}".format
    elif kinds == {int}:
        write = str
    elif kinds <= {str, Figure}:
        write = str if "".join(filter(None, values)).isprintable() else printable
    else:
        write = _shown
    return ["NULL" if value is None else write(value) for value in values]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    plain = json_value(value)
    text = plain if isinstance(plain, (str, int)) else json.dumps(plain, ensure_ascii=False)
    return printable(str(text))


def printable(text: str) -> str:
    """Escape characters that would break a line or control the terminal."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def is_numeric(values: Iterable[Any]) -> bool:
    """Return whether a column is aligned as numbers: it has numbers and otherwise only NULL."""
    kinds = kinds_of(values)
    return bool(kinds) and all(
        issubclass(kind, (int, float, Decimal, Figure)) and kind is not bool for kind in kinds
    )
