"""Copies a database: as a backup, or without its free blocks in the place of the file."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from warehouse import settings
from warehouse.database.connection import open_file, writing
from warehouse.database.failures import database_error
from warehouse.database.paths import (
    CONFIG,
    STORAGE_VERSION,
    is_database,
    log_of,
    refuse_backslash,
)
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import DatabaseError
from warehouse.files import check_target, put_whole, refuse_overwriting, written_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIN_FREE_BYTES = 1 << 20
"""Free space in bytes below which a smaller file is not worth its time."""


def backup(database: Path, out: Path) -> int:
    """Copy `database` to the file `out`, whole or not at all; return its bytes.

    The database is not brought up to date, so that a backup can be made before that. A connection
    that stays open meanwhile keeps writers out. The copy includes the content of the log next to
    the database, and needs no log. It gets its name once it opens and its tables have as many rows.
    """
    check_target(out)
    refuse_backslash(out)
    with open_file(database) as connection, written_whole(out) as partial:
        rows = row_counts(connection)
        source = database.resolve()
        try:
            # The database comes last: closing a file ends every lock that the process has on it.
            for log in _logs(source):
                shutil.copyfile(log, partial.with_name(partial.name + log.name[len(source.name) :]))
            shutil.copyfile(source, partial)
            with duckdb.connect(str(partial), config=CONFIG) as copy:
                copy.execute("checkpoint")  # takes in the log
            _refuse_other_rows(partial, rows)
        except duckdb.Error as error:
            raise database_error(error, out) from None
        finally:
            for log in _logs(partial):
                with suppress(OSError):
                    log.unlink()
    return out.stat().st_size


def _logs(database: Path) -> Iterator[Path]:
    """Yield the logs: files with content that is not in the database file yet."""
    start = log_of(database).name
    yield from (path for path in database.parent.iterdir() if path.name.startswith(start))


def keep_backups(database: Path, out: Path, most: int) -> int:
    """Copy `database` to `out`, and keep the copies before it; return the bytes of the new one.

    `out` is the newest copy, OUT.1 the one before it, up to `most` in all. If a file that is no
    database has one of the names, the former copies stay as they are.
    """
    new = out.with_name(f"{out.name}.new")
    names = [out, *(out.with_name(f"{out.name}.{number}") for number in range(1, most))]
    for path in (new, *names):
        is_database(path)  # refuses to replace a file that is none
    refuse_overwriting(out, read=(), database=database)
    size = backup(database, new)
    for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
        with suppress(FileNotFoundError):
            newer.replace(older)
    new.replace(out)
    return size


def back_up_before_sweep(database: Path) -> Path | None:
    """Make the backup that setting `backups` asks for; return its path, None for no backup."""
    most = settings.backups()
    if not most or not database.exists():
        return None
    out = usual_backup(database)
    keep_backups(database, out, most)
    return out


def usual_backup(database: Path) -> Path:
    """Return the path of backups for which no path is given."""
    return database.with_name(f"{database.name}.backup")


def compact(database: Path) -> None:
    """Rewrite `database` without its free blocks, if they take enough space.

    DuckDB reuses the blocks of dropped rows, but keeps the size of the file. The copy replaces the
    file in one step, once each of its tables has as many rows. If it fails, the database stays as
    it was.
    """
    target = database.resolve()  # a symbolic link stays one
    try:
        with writing(database) as connection:
            if free_bytes(connection) < MIN_FREE_BYTES:
                return
            # While this process has the lock: otherwise a commit of another process would be lost.
            with put_whole(target) as copy:
                _copy(connection, copy)
                _refuse_other_rows(copy, row_counts(connection))
                _take_over_rights(target, copy)
                # The name now belongs to the copy: closing must not write to it.
                connection.execute("pragma disable_checkpoint_on_shutdown")
    except (duckdb.Error, OSError) as error:
        raise DatabaseError(
            f"{database}: the file could not be shrunk: {error}",
            "new rows reuse the space; to shrink the file, free disk space and run "
            "`warehouse compact`",
        ) from None


def row_counts(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of rows of each table of a database."""
    tables = connection.execute(
        "select schema_name, table_name from duckdb_tables() where not internal"
        " and database_name = current_database() order by all"
    ).fetchall()
    counts = [
        f"select {literal(f'{schema}.{table}'.removeprefix('main.'))}, count(*)"
        f" from {quoted(schema)}.{quoted(table)}"
        for schema, table in tables
    ]
    return dict(connection.execute(" union all ".join(counts)).fetchall()) if counts else {}


def _refuse_other_rows(copy: Path, wanted: dict[str, int]) -> None:
    """Open a copy of a database and raise `DatabaseError` unless its tables have these rows."""
    with duckdb.connect(str(copy), read_only=True, config=CONFIG) as connection:
        copied = row_counts(connection)
    for table in sorted(wanted.keys() | copied.keys()):
        if wanted.get(table) != copied.get(table):
            raise DatabaseError(
                f"{copy}: table {table} has {copied.get(table)} rows in the copy, "
                f"not {wanted.get(table)}",
                "check the disk; the database itself is as it was",
            )


def free_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the size of the free blocks of a database, after a checkpoint."""
    connection.execute("checkpoint")  # which finds blocks without rows
    query = (
        "select free_blocks * block_size from pragma_database_size()"
        " where database_name = current_database()"
    )
    [(size,)] = connection.execute(query).fetchall()
    return int(size)


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
    with suppress(OSError, AttributeError):  # Windows has no owners of this kind
        os.chown(copy, status.st_uid, status.st_gid)
