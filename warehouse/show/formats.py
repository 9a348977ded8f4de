"""Results as text: plain tables, JSON, CSV and Markdown.

Rows come and go in blocks, so that a result of any size passes through in bounded memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from warehouse.show.tables import Terminal

Row = Sequence[Any]
Blocks = Iterable[Sequence[Row]]


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class Figure(str):
    """A number already written out; tables align it as a number."""

    __slots__ = ()


def write(
    stream: TextIO,
    columns: Sequence[str],
    blocks: Blocks,
    form: Format = Format.TABLE,
    terminal: Terminal | None = None,
) -> None:
    """Write a result to `stream`.

    Parameters
    ----------
    terminal
        Where a table is shown: columns that do not fit there are left out and named below it.
        None: nothing is ever cut.
    """
    blocks = (block for block in blocks if block)
    if form is Format.JSON:
        _write_json(stream, columns, blocks)
    elif form is Format.CSV:
        _write_csv(stream, columns, blocks)
    elif form is Format.MARKDOWN:
        _write_markdown(stream, columns, blocks)
    else:
        from warehouse.show.tables import write_table

        write_table(stream, columns, blocks, terminal)


def _write_markdown(stream: TextIO, columns: Sequence[str], blocks: Blocks) -> None:
    first = True
    for block in blocks:
        if first:
            align = [is_numeric(row[place] for row in block) for place in range(len(columns))]
            _write_markdown_header(stream, columns, align)
            first = False
        for row in block:
            cells = ("" if value is None else _markdown(shown(value)) for value in row)
            stream.write(f"| {' | '.join(cells)} |\n")
    if first:
        _write_markdown_header(stream, columns, [False] * len(columns))


def _write_markdown_header(stream: TextIO, columns: Sequence[str], align: Sequence[bool]) -> None:
    stream.write(f"| {' | '.join(_markdown(printable(name)) for name in columns)} |\n")
    stream.write(f"| {' | '.join('---:' if right else '---' for right in align)} |\n")


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _write_json(stream: TextIO, columns: Sequence[str], blocks: Blocks) -> None:
    names = list(_unique(columns))
    separator = "[\n"
    for block in blocks:
        for row in zip(*map(_json_column, zip(*block, strict=True)), strict=True):
            record = dict(zip(names, row, strict=True))
            stream.write(separator + json.dumps(record, ensure_ascii=False, allow_nan=False))
            separator = ",\n"
    stream.write("[]\n" if separator == "[\n" else "\n]\n")


def _unique(columns: Iterable[str]) -> Iterator[str]:
    """Yield the names; one that came before takes a number, since an object has each once."""
    seen: set[str] = set()
    for name in columns:
        unique, number = name, 1
        while unique in seen:
            unique, number = f"{name}_{number}", number + 1
        seen.add(unique)
        yield unique


def _json_column(values: Sequence[Any]) -> Iterable[Any]:
    kinds = set(map(type, values))
    if kinds <= {int, str, bool, type(None)} or (kinds == {float} and all(map(isfinite, values))):
        return values
    return map(json_value, values)


def _write_csv(stream: TextIO, columns: Sequence[str], blocks: Blocks) -> None:
    # By hand, as the csv module cannot tell NULL (nothing) from an empty text (""). Quoting is
    # that of RFC 4180; lines end in a bare line feed, since pipes stumble over the other.
    stream.write(",".join(map(_csv, columns)) + "\n")
    for block in blocks:
        cells = map(_csv_column, zip(*block, strict=True))
        stream.writelines(",".join(row) + "\n" for row in zip(*cells, strict=True))


def _csv_column(values: Sequence[Any]) -> Iterable[str]:
    # By column, as its values are mostly of one kind: a choice for each value takes far longer.
    kinds = set(map(type, values))
    if kinds == {float} or kinds == {int}:
        return map(repr, values)
    if kinds <= {str, type(None)}:
        texts = {value: _csv(value) for value in set(values)}
        return map(texts.__getitem__, values)
    return map(_csv, values)


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    plain = json_value(value)
    if isinstance(plain, str):
        text = plain
    else:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def json_value(value: Any) -> Any:
    """Return what JSON can hold of a value: null for NaN and infinities, ISO dates, hex bytes."""
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


def shown(value: Any) -> str:
    """Return a value as a table shows it: six digits of a fraction, every digit of an integer."""
    if value is None:
        return "NULL"
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
    """Escape what would break a line or steer the terminal."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else repr(mark)[1:-1] for mark in text)


def is_numeric(values: Iterable[Any]) -> bool:
    """Return whether a column is aligned as numbers: it has some, and nothing else but NULL."""
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, (int, float, Decimal, Figure)) and not isinstance(value, bool)
        for value in present
    )


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,234 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
