"""A page: the answer of a command, from which each format takes its part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warehouse.show.values import Row

Line = Mapping[str, Any]

Entry = tuple[str, str]
"""A line of an answer: its name, and its text."""


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading, lines, a table in base units, and lines below the table.

    Attributes
    ----------
    columns, rows
        The table; without columns there is none.
    drop
        Columns that people do not see.
    headings
        Column -> its heading for people, where it is not the usual one.
    lines, entries
        Lines above the table, and named lines below these.
    is_text
        Whether the cells are texts and figures as people read them.
    """

    heading: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()
    drop: Collection[str] = ()
    headings: Mapping[str, str] = field(default_factory=dict)
    lines: Sequence[str] = ()
    entries: Sequence[Entry] = ()
    below: Sequence[str] = ()
    is_text: bool = False


@dataclass(frozen=True)
class Page:
    """The answer of a command.

    Attributes
    ----------
    document
        JSON has this object, with lines indented by `indent` blanks a level.
    table
        CSV has this table. If it is not all of the answer, its heading says which part it is.
    sections
        People read these.
    remarks
        Lines that are not part of the answer, such as the title of an estimator. JSON has none.
    """

    document: object
    table: Section
    sections: Sequence[Section]
    remarks: Sequence[str] = ()
    indent: int = 1


def table_of(records: Sequence[Line]) -> tuple[tuple[str, ...], list[list[Any]]]:
    """Return the columns of records, and their rows; a record may lack columns."""
    longest = max(records, key=len, default={})
    columns = tuple(dict.fromkeys([*longest, *(name for record in records for name in record)]))
    return columns, [[record.get(name) for name in columns] for record in records]
