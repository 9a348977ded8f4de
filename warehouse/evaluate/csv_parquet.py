"""Reads and writes batch files, CSV or Parquet; unknown columns are kept unchanged."""

from __future__ import annotations

import csv
import operator
from typing import TYPE_CHECKING, Any

import polars as pl

from warehouse.errors import InputError
from warehouse.evaluate.frames import has_parts, refused_names
from warehouse.files import check_target, refuse_overwriting, written_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

SUFFIXES = (".csv", ".parquet")

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Separators of other tables of text, in words: spreadsheets write the first in many countries."""

INFERRED_ROWS = 10_000
"""Rows of a CSV from which column types are inferred first."""


def check_paths(configs: Path, out: Path) -> None:
    """Refuse files that cannot be read from or written to."""
    _check_suffix(configs)
    _check_suffix(out)
    check_source(configs)
    check_target(out)
    refuse_overwriting(out, read=(configs,))


def check_source(path: Path) -> None:
    """Refuse a file that cannot be read."""
    _check_suffix(path)
    try:
        is_missing = not path.exists()
    except OSError as error:
        raise InputError(f"{path}: cannot be reached: {error.strerror}") from None
    if is_missing:
        raise InputError(f"{path}: there is no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a directory", hint="name a file")


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        hint = f"name a file that ends in {' or '.join(SUFFIXES)}"
        raise InputError(f"{path}: is of no known format", hint=hint)


def read_configs(path: Path, inputs: Collection[str], *, keep_text: bool) -> pl.DataFrame:
    """Read every row of `path`, `inputs` as numbers and texts.

    With `keep_text` all other columns of a CSV are texts, so that ``007`` is written as ``007``;
    otherwise their types are inferred.
    """
    frame = _read(path, inputs, keep_text=keep_text)
    # first: a needed column with such a name would be reported as missing
    if refusals := refused_names(frame.columns):
        raise InputError.from_refusals(refusals, str(path))
    return frame


def values_of(source: Path | pl.DataFrame, column: str) -> list[object]:
    """Return the distinct values of a column; none if it, or a file, cannot be read."""
    try:
        frame = source if isinstance(source, pl.DataFrame) else _scanned(source)
        if column not in frame.lazy().collect_schema():
            return []
        return frame.lazy().select(column).unique().collect()[column].to_list()
    except (OSError, UnicodeDecodeError, pl.exceptions.PolarsError):
        return []  # `read_configs` says what is wrong


def _scanned(path: Path) -> pl.LazyFrame:
    if path.suffix.lower() == ".parquet":
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)
    return pl.scan_csv(path, glob=False, infer_schema=False)


def _read(path: Path, inputs: Collection[str], *, keep_text: bool) -> pl.DataFrame:
    try:
        if path.suffix.lower() == ".parquet":
            return pl.read_parquet(path, glob=False, hive_partitioning=False)
        return _read_csv(path, inputs, keep_text=keep_text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text", hint="save the file as UTF-8") from None
    except (csv.Error, pl.exceptions.PolarsError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: cannot be read: {first}") from None


def write_results(frame: pl.DataFrame, out: Path) -> None:
    """Write `frame` whole or not at all: a killed process leaves no partial file."""
    is_parquet = out.suffix.lower() == ".parquet"
    nested = [name for name, dtype in frame.schema.items() if has_parts(dtype)]
    if nested and not is_parquet:
        kind = frame.schema[nested[0]]
        raise InputError(
            f"{out}: column `{nested[0]}` is of type {kind}, which CSV cannot hold",
            "write a file that ends in .parquet, or remove the column",
        )
    with written_whole(out) as partial:
        try:
            if is_parquet:
                frame.write_parquet(partial)
            else:
                frame.write_csv(partial)
        except pl.exceptions.PolarsError as error:
            hint = "free some space, or name another file with --out"
            raise InputError(f"{out}: cannot be written: {error}", hint=hint) from None


def _read_csv(path: Path, inputs: Collection[str], *, keep_text: bool) -> pl.DataFrame:
    header = _header(path)
    _refuse_other_first_lines(path, header, inputs)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path}: column `{twice[0]}` is twice in the header")
    as_text = {name: pl.String for name in header if keep_text and name not in inputs}
    try:
        frame = _inferred(path, as_text)
    except pl.exceptions.PolarsError:
        _refuse_uneven_lines(path, len(header), operator.gt)
        raise
    frame.columns = header  # polars would keep doubled quotes within a name
    frame = frame.head(frame.height - _num_trailing_empty(frame))
    if frame.width > 1 and frame.to_series(-1).null_count():
        _refuse_uneven_lines(path, len(header), operator.lt)
    return frame


def _inferred(path: Path, as_text: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read a CSV with types inferred from its first rows, or from all if those mislead.

    Inference from all rows takes twenty times as long as reading.
    """
    options: dict[str, Any] = {"schema_overrides": as_text, "glob": False}
    try:
        frame = pl.read_csv(path, infer_schema_length=INFERRED_ROWS, **options)
    except pl.exceptions.ComputeError:
        return pl.read_csv(path, infer_schema_length=None, **options)
    first = frame.head(INFERRED_ROWS)
    rest = frame.tail(-INFERRED_ROWS)
    is_undecided = any(
        first[name].null_count() == first.height and rest[name].null_count() < rest.height
        for name in frame.columns
        if name not in as_text
    )
    return pl.read_csv(path, infer_schema_length=None, **options) if is_undecided else frame


def _header(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file), [])
    if not header:
        hint = "the first line must name the columns, separated by commas"
        raise InputError(f"{path}: has no header", hint=hint)
    return header


def _refuse_other_first_lines(path: Path, header: list[str], inputs: Collection[str]) -> None:
    has_inputs = not set(header).isdisjoint(inputs)
    is_comment = header[0].startswith("# " if has_inputs else "#")  # a column may be named `#run`
    if is_comment or header[0].lower().startswith("sep="):
        kind = "a comment" if is_comment else "a remark for spreadsheets"
        hint = "remove the lines above the header: the first line must name the columns"
        raise InputError(f"{path}: line 1 is {kind}: {header[0]}", hint=hint)
    if has_inputs:
        return
    for separator, words in SEPARATORS.items():
        names = {name.strip().strip('"') for name in header[0].split(separator)}
        if len(header) == 1 and len(names) > 1 and not names.isdisjoint(inputs):
            raise InputError(
                f"{path}: has {words} between its columns",
                hint="save it with commas between them, and with points in numbers such as 0.5",
            )


def _num_trailing_empty(frame: pl.DataFrame) -> int:
    """Count the blank lines at the end of the file, which are not rows."""
    is_empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    full = (~is_empty).arg_true()
    return frame.height - (int(full[-1]) + 1 if len(full) else 0)


def _refuse_uneven_lines(path: Path, width: int, is_wrong: Callable[[int, int], bool]) -> None:
    """Refuse the first line whose number of cells is wrong: less or more than `width`.

    Missing cells would silently become defaults.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        for record in reader:
            if not record or not is_wrong(len(record), width):
                continue
            line = f"{path}: line {reader.line_num}"
            if record[0].startswith("#"):
                hint = "remove it: every line below the header is a row"
                raise InputError(f"{line} is a comment: {record[0]}", hint=hint)
            if len(record) < width:
                hint = "leave a cell empty between its commas to take the default"
            elif not any(record[width:]):
                hint = "remove the commas at its end"
            else:
                hint = "write numbers without commas (1000), and other texts with one in quotes"
            raise InputError(f"{line} has {len(record)} cells, not {width}", hint=hint)
