"""Functions that commands share: printing results, finding study files, words for people."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from warehouse.cli.display import (
    chosen_columns,
    fitted,
    shown_width,
    terminal,
    terminal_width,
)
from warehouse.cli.output import current_output, refuse_choice, refuse_missing
from warehouse.cli.waiting import clear_line
from warehouse.errors import escaped
from warehouse.show.formats import Format, entry_lines, write
from warehouse.show.page import Section
from warehouse.show.values import json_value, with_text_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.show.page import Page
    from warehouse.show.tables import Terminal
    from warehouse.show.values import Blocks, Row

    Table = tuple[tuple[str, ...], list[Row]]

PAPER = 100
"""Columns that an answer takes where no terminal has a width."""


def say(text: str) -> None:
    """Print to stderr what is not data."""
    clear_line()
    sys.stderr.write(fitted(escaped(text), terminal_width(sys.stderr)) + "\n")


def title_line(estimator: str) -> str:
    """Return the estimator with its title, which names its source."""
    from warehouse.database.summaries import summary_of

    return f"{estimator}: {summary_of(estimator).title}"


def put(columns: Sequence[str], blocks: Blocks, named: Collection[str] = ()) -> None:
    """Print a result in base units to stdout; a table shows columns that a query has `named`."""
    _refuse_missing([Section("", columns, is_text=True)])
    if chosen := chosen_columns(columns, columns):
        columns = [columns[index] for index in chosen]
        blocks = ([[row[index] for index in chosen] for row in block] for block in blocks)
    _write(columns, blocks, terminal(columns, named=named))


def put_for_people(
    columns: Sequence[str],
    rows: Sequence[Row],
    drop: Collection[str] = (),
    headings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print a result to stdout; tables and Markdown use GB, percent and short headings.

    A table leaves out columns of `drop`. `headings` replaces usual ones, by column.
    """
    section = Section("", columns, rows, drop, headings)
    _refuse_missing([section])
    _put_table(section)


def _put_table(section: Section) -> None:
    """Print the table of a section: for people with the units and headings that they read."""
    from warehouse.show.units import for_people, informative_columns

    columns, rows = section.columns, section.rows
    is_written_out = section.is_text or not current_output().is_for_people
    indices = chosen_columns(columns, _headings(section))
    if not indices and not is_written_out:
        indices = informative_columns(columns, rows, section.drop)
    if indices or not is_written_out:
        columns = [columns[index] for index in indices]
        rows = [[row[index] for index in indices] for row in rows]
    if is_written_out:
        _write(columns, [rows], terminal(columns, columns if section.is_text else None))
    else:
        headings, table = for_people(columns, rows, section.headings)
        _write(headings, [table], terminal(columns, headings, rows))


def _refuse_missing(sections: Sequence[Section]) -> None:
    """Refuse a chosen column that no table has."""
    if chosen := current_output().chosen:
        columns = [name for section in sections for name in section.columns]
        headings = (text for section in sections for text in _headings(section))
        refuse_missing(chosen, columns, headings)


def _headings(section: Section) -> Sequence[str]:
    """Return the headings of a table, by which its columns can be chosen."""
    if section.is_text or not current_output().chosen:
        return section.columns
    from warehouse.show.units import for_people

    return for_people(section.columns, section.rows, section.headings)[0]


def _write(columns: Sequence[str], blocks: Blocks, shown_on: Terminal | None = None) -> None:
    """Write a result to stdout as the user chose, and remarks to stderr."""
    write(
        *(sys.stdout, columns, blocks, current_output().form, shown_on),
        ids_as_text=current_output().ids_as_text,
        warn=lambda text: say(f"warning: {text}"),
    )


def put_page(page: Page) -> None:
    """Print a page: JSON has its document, CSV its rows, and people read its sections."""
    output = current_output()
    if output.is_json:
        put_document(page.document, page.indent)
        return
    for remark in page.remarks:
        say(remark)
    if output.form is Format.CSV:
        if page.table.heading:
            say(f"CSV has {page.table.heading} alone; --json has everything")
        _refuse_missing([page.table])
        _put_table(page.table)
        return
    _refuse_missing(page.sections)
    if output.form is Format.MARKDOWN:
        _put_markdown(page.sections)
    else:
        _put_sections(page.sections)


def _put_markdown(sections: Sequence[Section]) -> None:
    with redirect_stdout(StringIO()) as text:
        _put_sections(sections, is_markdown=True)
    sys.stdout.write(text.getvalue().rstrip("\n") + "\n")


def _put_sections(sections: Sequence[Section], *, is_markdown: bool = False) -> None:
    for section in sections:
        if section.heading:
            sys.stdout.write(f"\n{'## ' if is_markdown else ''}{section.heading}\n\n")
        _put_lines(section.lines, is_markdown=is_markdown)
        if is_markdown:
            sys.stdout.write("".join(f"- {name}: {text}\n" for name, text in section.entries))
        else:
            width = None if current_output().wide else terminal_width() or PAPER
            sys.stdout.write("".join(f"{t}\n" for t in entry_lines(section.entries, width)))
        if section.columns:
            _put_table(section)
            if is_markdown:
                sys.stdout.write("\n")
        _put_lines(section.below, is_markdown=is_markdown)


def _put_lines(lines: Sequence[str], *, is_markdown: bool) -> None:
    """Print lines; in Markdown each is a paragraph, and an empty one is none."""
    for text in lines:
        if is_markdown:
            sys.stdout.write("".join(f"{line}\n\n" for line in text.splitlines()))
        else:
            sys.stdout.write(fitted(text, shown_width()).rstrip("\n") + "\n")


def put_document(document: object, indent: int = 1) -> None:
    """Print one JSON object; it is no table, so that a choice of columns is refused."""
    refuse_choice(current_output())
    if current_output().ids_as_text:
        document = with_text_ids(document)
    sys.stdout.write(json.dumps(document, indent=indent, ensure_ascii=False) + "\n")


def fetched(
    connection: DuckDBPyConnection, query: str, values: Mapping[str, object] | None = None
) -> Table:
    """Return the columns and rows of a query with these values."""
    result = connection.execute(query, values)
    columns = tuple(column[0] for column in result.description or ())
    return columns, list(result.fetchall())


def records(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON-able objects."""
    columns, rows = table
    return [dict(zip(columns, json_value(row), strict=True)) for row in rows]
