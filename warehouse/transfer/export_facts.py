"""Exports all facts of a database as a folder of Parquet files; `folder` has the layout."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

import warehouse
from estimators.registry import all_estimators
from warehouse.database.connection import open_for_read
from warehouse.database.meta import reference_names
from warehouse.database.sql_text import literal, quoted
from warehouse.database.tables import DERIVED, core_tables
from warehouse.errors import InputError
from warehouse.files import partial_path, remove_abandoned
from warehouse.transfer.folder import (
    REFERENCE,
    StoredFile,
    described,
    rows_path,
    table_path,
    write_manifest,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation

PARQUET = "format parquet, compression zstd"


def kept_tables() -> list[str]:
    """Return the tables of a folder: all shared tables except derived ones."""
    return [t.name for t in core_tables(all_estimators()) if t.name not in DERIVED]


@dataclass(frozen=True)
class ExportReport:
    """The outcome: cells, their rows, files, and bytes of the folder."""

    num_cells: int
    num_rows: int
    num_files: int
    num_bytes: int


def export_facts(database: Path, folder: Path) -> ExportReport:
    """Write the stored cells, measurements, profiles and studies to a new folder.

    The folder appears whole under its name, or not at all.

    Raises
    ------
    InputError
        If `folder` exists already or cannot be written.
    DatabaseError
        If the database is missing, locked or damaged.
    """
    _refuse_folder(folder)
    remove_abandoned(folder)
    new = partial_path(folder)
    with open_for_read(database) as connection:
        try:
            files = _write_folder(connection, new)
            if folder.exists():
                folder.rmdir()  # an empty folder
            new.rename(folder)
        except duckdb.IOException as error:
            if str(new) not in str(error):
                raise  # the error is about the database
            raise _unwritable(folder, str(error).partition("\n")[0]) from None
        except OSError as error:
            raise _unwritable(folder, error.strerror or str(error)) from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
        [(cells, rows)] = connection.execute(
            "select count(*), coalesce(sum(num_rows), 0)::bigint from cell"
        ).fetchall()
    size = sum(file.num_bytes for file in files.values())
    return ExportReport(cells, rows, len(files), size)


def _refuse_folder(folder: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        if not folder.is_dir() or any(folder.iterdir()):
            folder.stat()
            raise InputError(f"{folder}: exists already", "name a new or an empty folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(
            f"{folder}: the directory {folder.parent} does not exist", hint="make it first"
        )


def _unwritable(folder: Path, reason: str) -> InputError:
    return InputError(
        f"{folder}: cannot be written: {reason}", "free some space, or name another folder"
    )


def _write_folder(connection: DuckDBPyConnection, folder: Path) -> dict[str, StoredFile]:
    files = {}
    relations = [relation for e in all_estimators() for relation in e.relations]
    for relation in relations:
        for model in _models(connection, relation):
            name = rows_path(relation.table, model)
            files[name] = _copied(connection, _rows_of(relation, model), folder / name)
    parts = [(table_path(name), name) for name in kept_tables()]
    parts += [(table_path(name, REFERENCE), name) for name in reference_names(connection)]
    for name, table in parts:
        files[name] = _copied(connection, f"from {quoted(table)}", folder / name)
    write_manifest(
        folder,
        files,
        package_version=warehouse.__version__,
        duckdb_version=duckdb.__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return files


def _models(connection: DuckDBPyConnection, relation: Relation) -> list[str | None]:
    found = connection.execute(
        "select distinct problem.model from cell inner join problem using (problem_id)"
        " where cell.relation = ? order by 1",
        [relation.name],
    )
    return [model for (model,) in found.fetchall()]


def _rows_of(relation: Relation, model: str | None) -> str:
    table = quoted(relation.table)
    same = "is null" if model is None else f"= {literal(model)}"
    return (
        f"select {table}.* from {table} semi join (select cell_id from cell"
        f" inner join problem using (problem_id) where cell.relation = {literal(relation.name)}"
        f" and problem.model {same}) as wanted using (cell_id)"
    )


def _copied(connection: DuckDBPyConnection, query: str, path: Path) -> StoredFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    copy = f"copy ({query}) to {literal(str(path))} ({PARQUET})"
    [(rows,)] = connection.execute(copy).fetchall()
    return described(path, int(rows))
