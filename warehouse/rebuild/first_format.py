"""Folders of facts of the first format: Parquet files of all tables and rows, with a manifest."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.facts import FORMAT
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError
from warehouse.files import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

MANIFEST = "manifest.json"

_AGAIN = "copy the folder again"
_PATTERN = "*?["
"""Characters of glob patterns, which could match files of other folders."""


@contextmanager
def opened(folder: Path) -> Iterator[DuckDBPyConnection]:
    """Yield a database in memory with the tables of a folder, or refuse a damaged one."""
    if any(sign in str(folder) for sign in _PATTERN):
        raise InputError(
            f"{folder}: DuckDB would read {' '.join(_PATTERN)} in the path as a pattern",
            "rename the folder, or call the command in the folder above it",
        )
    files = _checked_files(folder)
    with duckdb.connect() as connection:
        try:
            for path in files:
                if path.parent.name == "tables":
                    connection.execute(
                        f"create table {quoted(path.stem)} as from {literal(str(path))}"
                    )
            tables = {path.parent.parent.name for path in files if path.name == "rows.parquet"}
            for table in sorted(tables):
                listed = ", ".join(
                    literal(str(path)) for path in files if path.parent.parent.name == table
                )
                connection.execute(
                    f"create view {quoted(table)} as from read_parquet([{listed}],"
                    " hive_partitioning = false, union_by_name = true)"
                )
            yield connection
        except duckdb.Error as error:  # also of the block: a table may be missing
            reason = str(error).partition("\n")[0]
            raise InputError(f"{folder}: cannot be read: {reason}", _AGAIN) from None


def _checked_files(folder: Path) -> list[Path]:
    """Return the files of a folder; each has the size and the hash that the manifest states."""
    manifest = folder / MANIFEST
    try:
        document: Any = json.loads(manifest.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f'{manifest}: `format` is not "{FORMAT}"', "name a folder of facts")
        if document.get("format_version") != 1:
            raise InputError(f"{manifest}: `format_version` is not 1", "upgrade the package")
        files = []
        for name, stated in document["files"].items():
            inner, path = PurePosixPath(name), folder / name
            if inner.is_absolute() or ".." in inner.parts or inner.suffix != ".parquet":
                raise InputError(f"{manifest}: {name!r} is not in the folder", _AGAIN)
            if digest_of(path) != stated["sha256"]:
                raise InputError(f"{path}: its bytes are not those that were written", _AGAIN)
            files.append(path)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}", _AGAIN) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{manifest}: cannot be read: {error}", _AGAIN) from None
    return files
