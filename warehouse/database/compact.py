"""Gives the space of dropped rows back: DuckDB reuses free blocks but never shrinks its file."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import duckdb

from warehouse.database.connection import open_for_write
from warehouse.database.empty import STORAGE_VERSION
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import DatabaseError

MIN_FREE_BYTES = 1 << 20
"""Less than this is not worth a copy."""


def compact(database: Path) -> None:
    """Rewrite `database` without its free blocks, if there are enough of them.

    The copy takes the file's place in one step once it is complete; a process killed before
    leaves the file as it was, and a leftover beside it that the next copy overwrites.

    Raises
    ------
    DatabaseError
        If the copy fails, for want of space for instance; the database is as it was.
    """
    target = database.resolve()  # a link keeps pointing where it did
    copy = target.with_name(target.name + ".compact")
    try:
        with open_for_write(database) as connection:
            connection.execute("checkpoint")
            if _free_bytes(connection) < MIN_FREE_BYTES:
                return
            # All within the lock: what another process commits after it would be lost.
            try:
                _remove(copy)
                _copy(connection, copy)
                _take_over_rights(target, copy)
                # Closing must not write under a name that is the copy's from here on.
                connection.execute("pragma disable_checkpoint_on_shutdown")
                copy.replace(target)
            finally:
                _remove(copy)
    except (duckdb.Error, OSError) as error:
        raise DatabaseError(
            f"{database}: the rows are dropped, but the file could not be shrunk: {error}",
            "free some disk space and drop another study, or leave it: the space is reused",
        ) from None


def _free_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    found = connection.execute(
        "select free_blocks * block_size from pragma_database_size()"
        " where database_name = current_database()"
    ).fetchone()
    return int(found[0]) if found else 0


def _copy(connection: duckdb.DuckDBPyConnection, target: Path) -> None:
    [source] = connection.execute("select current_database()").fetchone() or ("",)
    connection.execute(
        f"attach {literal(str(target))} as compacted (storage_version {literal(STORAGE_VERSION)})"
    )
    try:
        connection.execute(f"copy from database {quoted(source)} to compacted")
        connection.execute("checkpoint compacted")
    finally:
        connection.execute("detach compacted")


def _take_over_rights(source: Path, copy: Path) -> None:
    """Give the copy the mode and, where that is allowed, the owner of the original."""
    shutil.copymode(source, copy)
    status = source.stat()
    with contextlib.suppress(OSError, AttributeError):  # Windows has no owners of this kind
        os.chown(copy, status.st_uid, status.st_gid)


def _remove(copy: Path) -> None:
    for path in (copy, copy.with_name(copy.name + ".wal")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
