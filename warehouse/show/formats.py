"""Results as text: plain tables, JSON, CSV and Markdown.

Rows are written in blocks, so that a result of any size needs bounded memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO

from warehouse.files import formula_columns, formula_warning
from warehouse.show.values import (
    Blocks,
    by_column,
    is_numeric,
    json_value,
    printable,
    shown,
    with_text_ids,
)

if TYPE_CHECKING:
    from warehouse.show.tables import Terminal


_NUMBER_AND_UNIT = (
    r"(\d) (%|s|h|minutes|hours|days|GB|GB/s|USD|MWh|MW|GPUs|GPU-hours|times|million)(?=\W|$)"
)


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


def write(
    stream: TextIO,
    columns: Sequence[str],
    blocks: Blocks,
    form: Format = Format.TABLE,
    terminal: Terminal | None = None,
    *,
    ids_as_text: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a result to `stream`.

    A table is cut to its `terminal`: columns that do not fit are named below it. `warn` is called
    with a remark on what readers of the result may take for something else.
    """
    blocks = (block for block in blocks if block)
    if form is Format.JSON:
        _write_json(stream, columns, blocks, ids_as_text=ids_as_text)
    elif form is Format.CSV:
        formulas = _write_csv(stream, columns, blocks)
        if formulas:
            warn(formula_warning(formulas))
    elif form is Format.MARKDOWN:
        _write_markdown(stream, columns, blocks)
    else:
        from warehouse.show.tables import write_table

        write_table(stream, columns, blocks, terminal)


def _write_markdown(stream: TextIO, columns: Sequence[str], blocks: Blocks) -> None:
    blocks_by_column = (by_column(block, len(columns)) for block in blocks)
    first = next(blocks_by_column, by_column([], len(columns)))
    align = ["---:" if is_numeric(values) else "---" for values in first]
    stream.write(f"| {' | '.join(_markdown(printable(name)) for name in columns)} |\n")
    stream.write(f"| {' | '.join(align)} |\n")
    for block in chain([first], blocks_by_column):
        rows = zip(*map(_markdown_column, block), strict=True)
        stream.writelines(f"| {' | '.join(row)} |\n" for row in rows)


def _markdown_column(values: Sequence[Any]) -> list[str]:
    texts = zip(values, shown(values), strict=True)
    return ["" if value is None else _markdown(text) for value, text in texts]


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _write_json(
    stream: TextIO, columns: Sequence[str], blocks: Blocks, *, ids_as_text: bool
) -> None:
    names = list(_unique(columns))
    separator = "[\n"
    for block in blocks:
        for row in zip(*map(_json_column, by_column(block, len(names))), strict=True):
            record = dict(zip(names, row, strict=True))
            if ids_as_text:
                record = with_text_ids(record)
            stream.write(separator + json.dumps(record, ensure_ascii=False, allow_nan=False))
            separator = ",\n"
    stream.write("[]\n" if separator == "[\n" else "\n]\n")


def _unique(columns: Iterable[str]) -> Iterator[str]:
    """Yield the names; a repeated name gets a number, because a JSON object has each name once."""
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


def _write_csv(stream: TextIO, columns: Sequence[str], blocks: Blocks) -> list[str]:
    """Write rows; return the columns with a text that a spreadsheet takes for a formula."""
    # By hand, as the csv module cannot tell NULL (nothing) from an empty text (""). Quoting follows
    # RFC 4180, but lines end in a bare line feed, which shell tools expect.
    stream.write(",".join(map(_csv, columns)) + "\n")
    formulas: set[str] = set()
    for block in blocks:
        values = by_column(block, len(columns))
        formulas.update(formula_columns(zip(columns, values, strict=True)))
        rows = zip(*map(_csv_column, values), strict=True)
        stream.writelines(",".join(row) + "\n" for row in rows)
    return [name for name in columns if name in formulas]


def _csv_column(values: Sequence[Any]) -> Iterable[str]:
    # By column, because values of a column mostly have one kind: a test for each value is slower.
    kinds = set(map(type, values))
    if kinds in ({float}, {int}):
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
    is_text = isinstance(plain, str)
    text = plain if is_text else json.dumps(plain, ensure_ascii=False, allow_nan=False)
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,234 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def entry_lines(entries: Sequence[tuple[str, str]], width: int | None) -> list[str]:
    """Return named lines with their texts below one another, broken to fit; None: never broken."""
    longest = max((len(name) for name, _ in entries), default=0)
    lines = []
    for name, text in entries:
        first = f"  {name:<{longest}}  "
        is_whole = width is None or len(first + text) <= width
        lines += [first + text] if is_whole else wrapped(text, width or 0, first, " " * len(first))
    return lines


def wrapped(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """Return the lines of a text, broken between words; a number and its unit stay on one line.

    `first` begins the first line, `further` the others.
    """
    import re  # here: tables need neither
    import textwrap

    bound = re.sub(_NUMBER_AND_UNIT, "\\1\u00a0\\2", text)
    lines = textwrap.wrap(
        bound,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]
