"""Shrinks a database after rows were dropped: DuckDB reuses free blocks but keeps its file size."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import duckdb

from warehouse.database.access import current
from warehouse.database.connection import writing
from warehouse.database.file_format import CONFIG, STORAGE_VERSION
from warehouse.database.leftovers import COMPACTED
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import DatabaseError

MIN_FREE_BYTES = 1 << 20
"""Free space in bytes below which a copy is not worth its time."""


def compact(database: Path, *, done: str = "") -> None:
    """Rewrite `database` without its free blocks, if they take enough space.

    The copy replaces the file in one step, once each of its tables has as many rows. A process
    killed before that leaves the file as it was, and an unfinished copy that the next call
    overwrites.

    Parameters
    ----------
    done
        What the caller has committed, such as "study a is dropped": an error repeats it, and so
        does a message if ^C ends the copy.

    Raises
    ------
    DatabaseError
        If the copy fails, for example on a full disk; the database stays as it was.
    """
    target = database.resolve()  # a symbolic link stays one
    copy = target.with_name(target.name + COMPACTED)
    try:
        with writing(database) as connection:
            connection.execute("checkpoint")
            if free_bytes(connection) < MIN_FREE_BYTES:
                return
            # While this process has the lock: otherwise a commit of another process would be lost.
            try:
                _remove(copy)
                _copy(connection, copy)
                refuse_other_rows(copy, row_counts(connection))
                _take_over_rights(target, copy)
                # The name now belongs to the copy: closing must not write to it.
                connection.execute("pragma disable_checkpoint_on_shutdown")
                copy.replace(target)
            finally:
                _remove(copy)
    except (duckdb.Error, OSError) as error:
        raise DatabaseError(
            f"{database}: {f'{done}, but ' if done else ''}the file could not be shrunk: {error}",
            "new rows reuse the space; to shrink the file, free disk space and run "
            "`warehouse compact`",
        ) from None
    except KeyboardInterrupt:
        if done:
            current().say(
                f"{database}: {done}; its file has its old size, `warehouse compact` shrinks it"
            )
        raise


def row_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of rows of each table of a database."""
    found = connection.execute(
        "select schema_name, table_name from duckdb_tables() where not internal"
        " and database_name = current_database() order by all"
    )
    counts = [
        f"select {literal(f'{schema}.{table}'.removeprefix('main.'))}, count(*)"
        f" from {quoted(schema)}.{quoted(table)}"
        for schema, table in found.fetchall()
    ]
    return dict(connection.execute(" union all ".join(counts)).fetchall()) if counts else {}


def refuse_other_rows(copy: Path, wanted: dict[str, int]) -> None:
    """Open a copy of a database and raise `DatabaseError` unless its tables have these rows."""
    with duckdb.connect(str(copy), read_only=True, config=CONFIG) as connection:
        found = row_counts(connection)
    for table in sorted(wanted.keys() | found.keys()):
        if wanted.get(table) != found.get(table):
            raise DatabaseError(
                f"{copy}: table {table} has {found.get(table)} rows in the copy, "
                f"not {wanted.get(table)}",
                "check the disk; the database itself is as it was",
            )


def free_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the size of the free blocks of a database."""
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
    """Give the copy the mode of the original and, where allowed, its owner."""
    shutil.copymode(source, copy)
    status = source.stat()
    with contextlib.suppress(OSError, AttributeError):  # Windows has no owners of this kind
        os.chown(copy, status.st_uid, status.st_gid)


def _remove(copy: Path) -> None:
    for path in (copy, copy.with_name(copy.name + ".wal")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
