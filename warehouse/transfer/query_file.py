"""The rows of one query as a file: Parquet, CSV, JSON, an Excel sheet or a Markdown table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

import warehouse
from warehouse.database.sandbox import Limits, copy_to, frame_of, select
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError, UsageError
from warehouse.files import check_target, written_whole
from warehouse.show.formats import Format, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars

    from warehouse.show.values import Row

LIMITS = Limits(seconds=86_400)
"""No time limit for files: ^C ends the export and leaves nothing."""

SHEET_ROWS = 1_048_575
"""Rows of an Excel sheet below its header (Excel specifications and limits, Microsoft)."""

_EXACT = 2**53
"""Excel keeps numbers as doubles: whole numbers above this would lose digits."""


class FileFormat(StrEnum):
    """The formats, by the ending of the file."""

    PARQUET = ".parquet"
    CSV = ".csv"
    JSON = ".json"
    EXCEL = ".xlsx"
    MARKDOWN = ".md"


def format_of(out: Path) -> FileFormat:
    """Return the format that the ending of `out` names.

    Raises
    ------
    UsageError
        If it names none.
    """
    try:
        return FileFormat(out.suffix.lower())
    except ValueError:
        raise UsageError(
            f"`--out` {out} does not say which format to write",
            f"end it in {', '.join(FileFormat)}",
        ) from None


def export_query(database: Path, query: str, out: Path) -> int:
    """Write the rows of `query` to `out`, whole or not at all; return their number.

    Parameters
    ----------
    query
        The name of a table or view, or one SELECT, which runs in the sandbox of `warehouse sql`.
    out
        The file. Its ending names the format; an existing one is replaced.

    Raises
    ------
    UsageError
        If the ending names no format.
    InputError
        If the query is refused, the file cannot be written, or Excel cannot hold the rows.
    DatabaseError
        If the database is missing, locked or damaged.
    """
    form = format_of(out)
    check_target(out)
    sql = f"from {quoted(query)}" if query.isidentifier() else query
    with written_whole(out) as partial:
        if form is FileFormat.PARQUET:
            options = (
                "format parquet, compression zstd, kv_metadata {"
                f"training_warehouse: {literal(warehouse.__version__)}, query: {literal(sql)}}}"
            )
            return _copied(database, sql, partial, out, options)
        if form is FileFormat.CSV:
            return _copied(database, sql, partial, out, "format csv, header")
        if form is FileFormat.EXCEL:
            return _write_sheet(frame_of(database, sql, LIMITS, SHEET_ROWS + 1), partial, out)
        return _write_text(database, sql, partial, form)


def _copied(database: Path, sql: str, partial: Path, out: Path, options: str) -> int:
    try:
        return copy_to(database, sql, partial, options, LIMITS)
    except duckdb.IOException as error:
        reason = str(error).partition("\n")[0].replace(str(partial), str(out))
        raise InputError(
            f"{out}: cannot be written: {reason}",
            "free some space, or name another file with --out",
        ) from None


def _write_text(database: Path, sql: str, partial: Path, form: FileFormat) -> int:
    """Write JSON or Markdown as `warehouse sql` prints them: JSON has no NaN, DuckDB's has."""
    rows = 0
    with (
        select(database, sql, LIMITS) as result,
        partial.open("w", encoding="utf-8", newline="") as file,
    ):

        def counted() -> Iterator[Sequence[Row]]:
            nonlocal rows
            for block in result.blocks:
                rows += len(block)
                yield block

        text = Format.JSON if form is FileFormat.JSON else Format.MARKDOWN
        write(file, result.columns, counted(), text)
    return rows


def _write_sheet(frame: polars.DataFrame, partial: Path, out: Path) -> int:
    import polars as pl

    if frame.height > SHEET_ROWS:
        raise InputError(
            f"{out}: an Excel sheet holds {SHEET_ROWS:,} rows, and the query has more",
            "export Parquet or CSV, or narrow the query",
        )
    try:
        import xlsxwriter
    except ImportError:
        raise InputError(
            f"{out}: Excel files need the package xlsxwriter",
            "install it with `pip install 'training-warehouse[excel]'`, or export CSV",
        ) from None

    changed: list[pl.Expr | pl.Series] = []
    for name, kind in frame.schema.items():
        column = pl.col(name)
        if kind.is_nested():
            texts = [None if value is None else str(value) for value in frame[name].to_list()]
            changed.append(pl.Series(name, texts, dtype=pl.String))
        elif kind.is_integer() and _is_beyond(frame[name]):
            changed.append(column.cast(pl.String))
        elif kind.is_float():
            changed.append(pl.when(column.is_finite()).then(column).alias(name))
    with partial.open("wb") as file, xlsxwriter.Workbook(file, _WORKBOOK) as book:
        frame.with_columns(changed).write_excel(book, "rows", autofit=frame.height < _FITTED)
    return frame.height


_WORKBOOK = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
"""A text that begins with = stays a text."""

_FITTED = 10_000
"""Sheets with fewer rows get columns as wide as their texts; measuring longer ones is slow."""


def _is_beyond(column: polars.Series) -> bool:
    least, most = column.min(), column.max()
    return any(isinstance(end, int) and abs(end) > _EXACT for end in (least, most))
