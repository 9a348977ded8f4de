"""Errors and damage of a database file, each with file, reason and remedy.

A file that does not open is made again from its facts. No hint says to delete a file.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from warehouse.database.facts import folder_of, is_folder, rebuild_command
from warehouse.database.paths import ANOTHER
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import DatabaseError, InputError, LockedError, space_error
from warehouse.processes import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HOLDER = re.compile(r"PID (\d+)")
_LOG = re.compile(r"\bWAL\b")
_DAMAGED = ("orrupt", "Could not read enough bytes", "Failed to deserialize", "checksum")
TAKEN = "Existing object"
"""Begins DuckDB's error where a table has the name of a view to create, or the reverse."""

_MISSING = (duckdb.CatalogException, duckdb.BinderException)
_REFUSED = (
    duckdb.InvalidInputException,
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.TypeMismatchException,
    duckdb.ConstraintException,
    duckdb.NotImplementedException,
)


def database_error(
    error: duckdb.Error, path: Path, *, is_opening: bool = False
) -> DatabaseError | InputError:
    """Return DuckDB's error about the file at `path`, or about opening it, with a remedy."""
    said = str(error)
    first = said.partition("\n")[0]
    if "set lock on file" in said:
        return _locked(said, path)
    if "different configuration" in said:
        return LockedError(
            f"{path}: is in use by another connection of this process",
            "close it, or wait for its end with a longer `wait`",
        )
    if "version number" in said:
        return DatabaseError(
            f"{path}: was written by another version of DuckDB",
            f"upgrade with `pip install --upgrade duckdb`, or {ANOTHER}",
        )
    if full := space_error(path, said):
        return full
    if "Permission denied" in said or "Read-only file system" in said:
        return _not_permitted(said, path)
    if is_opening and _LOG.search(said):
        return unreadable(path, f"its log cannot be taken in: {first}")
    if "Cannot open file" in said:
        return DatabaseError(
            f"{path}: cannot be opened: {first}",
            f"let this user read and write it and its directory, or {ANOTHER}",
        )
    return _failed(error, path, is_opening=is_opening)


def _failed(error: duckdb.Error, path: Path, *, is_opening: bool) -> DatabaseError | InputError:
    """Return DuckDB's error about what is in a file that it may read and write."""
    said = str(error)
    first = said.partition("\n")[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return DatabaseError(
            f"{path}: there is not enough memory: {first}",
            "end other programs, or ask for less; committed rows stay",
        )
    if any(word in said for word in _DAMAGED):
        return unreadable(path, first)
    if TAKEN in said:
        return DatabaseError(
            f"{path}: another object has the name of a table or view of this package: {first}",
            "rename or drop that object with DuckDB, then run `warehouse init`",
        )
    if isinstance(error, _MISSING):
        return DatabaseError(
            f"{path}: a table or view is missing: {first}",
            "run `warehouse init`: it makes tables and views again and keeps the rows",
        )
    if isinstance(error, _REFUSED) and not is_opening:
        return InputError(
            f"{path}: DuckDB refuses a value: {first}",
            "correct the value; the database is as it was",
        )
    return DatabaseError(
        f"{path}: DuckDB failed: {first}",
        "run the command again: committed rows stay. If it fails again, "
        f"`{rebuild_command(path)}` makes the file again",
    )


def unreadable(path: Path, reason: str) -> DatabaseError:
    """Return the error of a file that is damaged, or whose log is."""
    if is_folder(folder_of(path)):
        remedy = f"`{rebuild_command(path)}` makes it again from {folder_of(path).name}"
    else:
        remedy = (
            f"it has no folder {folder_of(path).name}: put a backup in its place, and keep the "
            "damaged file and its log"
        )
    return DatabaseError(f"{path}: is damaged: {reason}", remedy)


def _locked(said: str, path: Path) -> LockedError:
    named = _HOLDER.search(said)
    process = int(named[1]) if named else None
    error = LockedError(
        f"{path}: is in use by {in_words(process)}",
        f"wait for it with --wait SECONDS, or {ANOTHER}; `warehouse status` shows the progress of "
        "a sweep",
    )
    error.process = process
    return error


def _not_permitted(said: str, path: Path) -> DatabaseError:
    if "Read-only file system" in said:
        return DatabaseError(
            f"{path}: lies on a file system that may only be read",
            f"commands that only read still work; to write, {ANOTHER}",
        )
    is_unreadable = path.exists() and not os.access(path, os.R_OK)
    return DatabaseError(
        f"{path}: may not be {'read' if is_unreadable else 'written'} by this user",
        f"change its permissions, or those of its directory, or {ANOTHER}",
    )


class Damage(NamedTuple):
    """A table with values that cannot be read, their columns, and DuckDB's reason."""

    table: str
    columns: tuple[str, ...]
    reason: str


def deep_check(connection: duckdb.DuckDBPyConnection) -> list[Damage]:
    """Read every value; return the damage of each table.

    DuckDB keeps a checksum of each block and compares it when it reads the block. A query of few
    columns does not notice damage in the others.
    """
    tables = connection.execute(
        "select schema_name, table_name from duckdb_tables()"
        " where not internal and not temporary and database_name = current_database() order by all"
    ).fetchall()
    damages = (_damage(connection, f"{quoted(schema)}.{quoted(name)}") for schema, name in tables)
    return [damage for damage in damages if damage is not None]


def _damage(connection: duckdb.DuckDBPyConnection, table: str) -> Damage | None:
    # duckdb_columns() binds every view of the database
    query = f"select name from pragma_table_info({literal(table)}) order by cid"
    columns = [name for (name,) in connection.execute(query).fetchall()]
    reason = _unread(connection, table, columns)
    if reason is None:
        return None
    hurt = [column for column in columns if _unread(connection, table, [column]) is not None]
    return Damage(table.replace('"', "").removeprefix("main."), tuple(hurt), reason)


def _unread(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]
) -> str | None:
    """Return why columns cannot be read, or None.

    A hash takes every value. A count or an extreme would come from the statistics.
    """
    hashes = ", ".join(f"bit_xor(hash({quoted(name)}))" for name in columns)
    try:
        connection.execute(f"select {hashes} from {table}").fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        return str(error).partition("\n")[0]
    return None
