"""Reference tables: reads the files of db/reference, checks them and stores them.

The data dictionary names the columns. A table has the name of its file. An empty field is NULL.
Each row names its source. Tables of thousands of rows are Parquet files and stay columns; the
others are CSV files.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import estimators
from estimators.columns import COLUMNS, GROUPS, Column
from estimators.contract import Refusal, RefusedError
from estimators.names import did_you_mean
from estimators.registry import all_estimators
from warehouse.database import resources
from warehouse.database.meanings import OTHER_COLUMNS
from warehouse.database.sql_text import is_name, quoted, registered
from warehouse.errors import InputError
from warehouse.limits import accept

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

DICTIONARY = "column_meaning"
"""The reference table that is the data dictionary itself."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FLAGS = {"true": True, "false": False}
_DATES: dict[str, type[date]] = {"date": date, "time": datetime}


@dataclass(frozen=True)
class ReferenceTable:
    """A reference table: its columns, and its rows as tuples of Python values."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]


def reference_files(directory: Path | None = None) -> list[Path]:
    """Return the CSV files of `directory` (by default the packaged one), by name."""
    return sorted((directory or resources.reference_directory()).glob("*.csv"))


def estimators_files() -> list[Path]:
    """Return the CSV files of reference tables that lie in the packages of estimators."""
    package = Path(estimators.__file__ or "").parent
    return [package / path for each in all_estimators() for path in each.reference_files]


def measured_files(directory: Path | None = None) -> list[Path]:
    """Return the Parquet files of `directory` (by default the packaged one), by name."""
    return sorted((directory or resources.reference_directory()).glob("*.parquet"))


def read_table(path: Path) -> ReferenceTable:
    """Read one CSV file; an error lists every fault, such as a row without a source."""
    _check_name(path)
    header, records = _records(path)
    columns = _columns(path, header)
    refusals: list[Refusal] = []
    rows = []
    known: list[dict[str, Any]] = [{} for _ in columns]  # a long table has few distinct texts
    for number, record in enumerate(records):
        if len(record) != len(columns):
            reason = f"has {len(record)} fields, the header {len(columns)}"
            refusals.append(
                Refusal(header[0], record[0], reason, "quote texts with commas", number)
            )
            continue
        row = []
        for column, text, seen in zip(columns, record, known, strict=True):
            try:
                if text not in seen:
                    seen[text] = _value(column, text)
                row.append(seen[text])
            except RefusedError as error:
                refusals += [replace(refusal, row=number) for refusal in error.refusals]
        rows.append(tuple(row))
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    return ReferenceTable(path.stem, columns, tuple(rows))


def read_measured(path: Path) -> pl.DataFrame:
    """Return the rows of a Parquet file; an error names the first faulty value of each column."""
    import polars as pl  # here: a command that reads no measured table starts without it

    _check_name(path)
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: is not a Parquet table: {error}") from error
    columns = _columns(path, frame.columns)
    refusals = [fault for column in columns for fault in _first_fault(column, frame[column.name])]
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    return frame


def dictionary_table() -> ReferenceTable:
    """Return the data dictionary as a reference table: a row a column."""
    shared = ("unit", "meaning", "choices", "minimum", "above", "maximum", "heading", "other_names")
    names = ("column_name", "column_group", "data_type", *shared, "source")
    rows = []
    for group, columns in GROUPS.items():
        for column in columns:
            values = (getattr(column, name) for name in (*shared, "source"))
            texts = (", ".join(v) if isinstance(v, tuple) else v for v in values)
            fields = (None if text == "" else text for text in texts)
            rows.append((column.name, group, column.duckdb_type, *fields))
    return ReferenceTable(DICTIONARY, tuple((OTHER_COLUMNS | COLUMNS)[n] for n in names), (*rows,))


def _first_fault(column: Column, values: pl.Series) -> list[Refusal]:
    """Return the refusal of the first value that the column does not admit; empty if there is none.

    In a column of numbers the extremes are checked, and values that are not numbers of its kind.
    """
    suspects = values.unique(maintain_order=True)
    if column.kind in ("int", "float") and values.dtype.is_numeric():
        suspects = values.sort().gather([0, -1]) if len(values) else values
        if values.dtype.is_float():
            is_broken = values != values.floor() if column.kind == "int" else False
            suspects = suspects.append(values.filter(values.is_nan() | is_broken))
    for value in suspects.to_list():
        try:
            if column.kind == "str":
                _value(column, value or "")
            elif value is not None:
                accept(column, value)
        except RefusedError as error:
            row = values.index_of(value)
            return [replace(refusal, row=row) for refusal in error.refusals]
    return []


def columns_of(frame: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of a measured table except remarks, as numpy arrays."""
    return {
        name: frame[name].to_numpy().astype(COLUMNS[name].stored_dtype, copy=False)
        for name in frame.columns
        if name != "source"
    }


def store_measured(connection: DuckDBPyConnection, name: str, rows: pl.DataFrame) -> None:
    """Create or replace a table in the database, with the types of the dictionary."""
    columns = [COLUMNS[column] for column in rows.columns]
    casts = ", ".join(f"{quoted(c.name)}::{c.duckdb_type} as {quoted(c.name)}" for c in columns)
    with registered(connection, "measured_rows", rows.to_arrow()):
        connection.execute(
            f"create or replace table {quoted(name)} as select {casts} from measured_rows"
        )


def store_table(connection: DuckDBPyConnection, table: ReferenceTable) -> None:
    """Create or replace `table` in the database."""
    name = quoted(table.name)
    types = [column.duckdb_type for column in table.columns]
    columns = [f"{quoted(c.name)} {t}" for c, t in zip(table.columns, types, strict=True)]
    connection.execute(f"create or replace table {name} ({', '.join(columns)})")
    if not table.rows:
        return
    # One list per column, unnested together: a statement per row would take a millisecond each.
    values = [list(column) for column in zip(*table.rows, strict=True)]
    unnested = ", ".join(f"unnest(?::{t}[])" for t in types)
    connection.execute(f"insert into {name} select {unnested}", values)


def _check_name(path: Path) -> None:
    if not is_name(path.stem):
        raise InputError(
            f"{path}: `{path.stem}` is not a table name", "use lower case, digits and underscores"
        )


def _records(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            records = [record for record in csv.reader(file, strict=True) if record]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise InputError(f"{path}: is not a CSV table: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if not records:
        raise InputError(f"{path}: is empty", "its first line must name the columns")
    return records[0], records[1:]


def _columns(path: Path, header: list[str]) -> tuple[Column, ...]:
    refusals = []
    for index, name in enumerate(header):
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, n=3)
            hint = f"{did_you_mean(near)} If not, define" if near else "define"
            reason = "is not in the data dictionary"
            refusals.append(
                Refusal("column", name, reason, f"{hint} it in estimators/columns/columns.csv")
            )
        elif name in header[:index]:
            refusals.append(Refusal("column", name, "appears twice"))
    if "source" not in header:
        hint = "say in every row where its figures were published"
        refusals.append(Refusal("column", "source", "is missing", hint))
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    return tuple(COLUMNS[name] for name in header)


def _value(column: Column, text: str) -> Any:
    """Return a field as a Python value of its column; raise `RefusedError` if it is faulty."""
    text = text.strip()
    if not text:
        if column.name == "source":
            raise RefusedError([Refusal("source", None, "is missing", "every row needs a source")])
        return None
    if column.kind in _DATES:
        try:
            return _DATES[column.kind].fromisoformat(text)
        except ValueError:
            hint = "write it as 2024-05-31"
            raise RefusedError([Refusal(column.name, text, "is not a date", hint)]) from None
    if column.kind == "bool":
        return accept(column, _FLAGS.get(text, text))
    if column.kind in ("int", "float") and _NUMBER.fullmatch(text):
        return accept(column, int(text) if text.lstrip("+-").isdecimal() else float(text))
    return accept(column, text)
