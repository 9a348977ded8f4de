"""The rows of one query as a file: Parquet, CSV, JSON, an Excel sheet or a Markdown table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

import warehouse
from warehouse.database.recast import PARQUET
from warehouse.database.sandbox import Copied, Limits, copy_to, select, sheet_of
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError, UsageError
from warehouse.files import check_target, formula_columns, formula_warning, written_whole
from warehouse.show.formats import Format, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars

    from warehouse.show.values import Row

LIMITS = Limits(seconds=86_400)
"""No time limit for files: ^C ends the export and leaves nothing."""

SHEET_ROWS = 1_048_575
"""Rows of an Excel sheet below its header (Excel specifications and limits, Microsoft)."""


class FileFormat(StrEnum):
    """The formats, by the ending of the file."""

    PARQUET = ".parquet"
    CSV = ".csv"
    JSON = ".json"
    EXCEL = ".xlsx"
    MARKDOWN = ".md"


def format_of(out: Path, *, ids_as_text: bool = False) -> FileFormat:
    """Return the format that the ending of `out` names, or refuse it for ids as texts."""
    try:
        form = FileFormat(out.suffix.lower())
    except ValueError:
        raise UsageError(
            f"`--out` {out} does not say which format to write",
            f"end it in {', '.join(FileFormat)}",
        ) from None
    if ids_as_text and form is not FileFormat.JSON:
        raise UsageError(
            f"`--ids-as-text` is for JSON, and `--out` is {out}",
            "leave it out: this format keeps every digit of an id",
        )
    return form


def export_query(
    database: Path,
    query: str,
    out: Path,
    *,
    ids_as_text: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> int:
    """Write the rows of `query` to `out`, whole or not at all; return their number.

    The query is the name of a table or view, or one SELECT, which runs in the sandbox of
    `warehouse sql`. The ending of `out` names the format; an existing file is replaced. `warn` gets
    the columns that are written in another type, and those with texts that a spreadsheet takes for
    formulas.
    """
    form = format_of(out, ids_as_text=ids_as_text)
    check_target(out)
    sql = f"from {quoted(query)}" if query.isidentifier() else query
    with written_whole(out) as partial:
        if form is FileFormat.PARQUET:
            options = (
                "format parquet, compression zstd, kv_metadata {"
                f"training_warehouse: {literal(warehouse.__version__)}, query: {literal(sql)}}}"
            )
            done = _copied(database, sql, partial, out, options, PARQUET)
            _say_changed(out, done.changed, warn)
            return done.rows
        if form is FileFormat.CSV:
            done = _copied(database, sql, partial, out, "format csv, header")
            if formulas := _formula_columns(partial, done.texts):
                warn(f"{out}: {formula_warning(formulas)}")
            return done.rows
        if form is FileFormat.EXCEL:
            frame, texts = sheet_of(database, sql, LIMITS, SHEET_ROWS + 1)
            return _write_sheet(frame, texts, partial, out, warn)
        return _write_text(database, sql, partial, form, ids_as_text=ids_as_text)


def _copied(
    database: Path,
    sql: str,
    partial: Path,
    out: Path,
    options: str,
    casts: Sequence[Mapping[str, str]] = ({},),
) -> Copied:
    try:
        return copy_to(database, sql, partial, options, LIMITS, casts)
    except duckdb.IOException as error:
        reason = str(error).partition("\n")[0].replace(str(partial), str(out))
        raise InputError(
            f"{out}: cannot be written: {reason}",
            "free some space, or name another file with --out",
        ) from None


def _say_changed(out: Path, changed: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """Name the columns that are not of their own type; whole numbers are whole in any type."""
    names = [
        f"`{name}` as {kind}"
        for name, kind in changed.items()
        if "varchar" in kind or "decimal(38, 0)" in kind
    ]
    if names:
        listed = ", ".join(names)
        warn(f"{out}: columns whose type the format lacks are written as others: {listed}")


def _formula_columns(path: Path, indices: Sequence[int]) -> list[str]:
    """Return those of some columns of a CSV with a text that a spreadsheet runs as a formula."""
    if not indices:
        return []
    import polars as pl

    lines = pl.scan_csv(path, infer_schema=False, glob=False)
    names = [lines.collect_schema().names()[index] for index in indices]
    texts = lines.select(pl.col(names).unique().implode()).collect(engine="streaming")
    return formula_columns(zip(names, texts.row(0), strict=True))


def _write_text(
    database: Path, sql: str, partial: Path, form: FileFormat, *, ids_as_text: bool
) -> int:
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
        write(file, result.columns, counted(), text, ids_as_text=ids_as_text)
    return rows


def _write_sheet(
    frame: polars.DataFrame,
    texts: Sequence[str],
    partial: Path,
    out: Path,
    warn: Callable[[str], None],
) -> int:
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
    import polars as pl

    _refuse_names(frame.columns, out)
    _refuse_long_texts(frame, out)
    _say_changed(out, dict.fromkeys(texts, "varchar"), warn)
    floats = pl.selectors.float()
    with partial.open("wb") as file, xlsxwriter.Workbook(file, _WORKBOOK) as book:
        finite = frame.with_columns(pl.when(floats.is_finite()).then(floats))
        finite.write_excel(book, _SHEET, autofit=frame.height < _FITTED)
        if odd := _write_odd(frame, book.get_worksheet_by_name(_SHEET)):
            warn(f"{out}: NaN and infinities are texts among the numbers of {', '.join(odd)}")
    return frame.height


_SHEET = "rows"


_WORKBOOK = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
"""A text that begins with = stays a text."""

_FITTED = 10_000
"""Sheets with fewer rows get columns as wide as their texts; measuring longer ones is slow."""

_SHEET_COLUMNS, _CELL_LENGTH, _NAME_LENGTH = 16_384, 32_767, 255
"""Columns of a sheet, UTF-16 units of a cell and of the name of a table's column (Excel
specifications and limits, Microsoft)."""


def _refuse_names(names: Sequence[str], out: Path) -> None:
    if len(names) > _SHEET_COLUMNS:
        reason = f"holds {_SHEET_COLUMNS:,} columns, and the query has {len(names):,}"
        raise InputError(f"{out}: an Excel sheet {reason}", "export Parquet or CSV")
    for name in names:
        if len(name) > _NAME_LENGTH:
            reason = f"column `{name[:40]}...` has a name of more than {_NAME_LENGTH} characters"
            raise InputError(f"{out}: {reason}", 'rename it: select "..." as shorter')


def _refuse_long_texts(frame: polars.DataFrame, out: Path) -> None:
    import polars as pl

    texts = pl.col(pl.String)
    beyond = texts.str.count_matches("[\\x{10000}-\\x{10FFFF}]")  # two UTF-16 units each
    longest = frame.select((texts.str.len_chars() + beyond).max())
    for name, [length] in longest.to_dict(as_series=False).items():
        if length is not None and length > _CELL_LENGTH:
            raise InputError(
                f"{out}: column `{name}` has a text of {length:,} UTF-16 units, and a cell of "
                f"Excel holds {_CELL_LENGTH:,}",
                "export Parquet or CSV, or shorten the text with left(...)",
            )


def _write_odd(frame: polars.DataFrame, sheet: Any) -> list[str]:
    """Write numbers that are not finite as texts in their cells; return their columns."""
    odd = []
    for index, column in enumerate(frame):
        rows = (~column.is_finite()).arg_true() if column.dtype.is_float() else ()
        if len(rows):
            odd.append(f"`{column.name}`")
        for row in rows:
            sheet.write_string(row + 1, index, str(column[row]))
    return odd
