"""Copies a database as it is, even while others read it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from warehouse import settings
from warehouse.database.compact import refuse_other_rows, row_counts
from warehouse.database.connection import open_file
from warehouse.database.failures import database_error
from warehouse.database.file_format import CONFIG
from warehouse.database.paths import is_database, refuse_backslash
from warehouse.files import check_target, refuse_overwriting, written_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def backup(database: Path, out: Path) -> int:
    """Copy `database` to the file `out`, whole or not at all; return its bytes.

    The database is not brought up to date, so that a backup can be made before that. A connection
    that stays open meanwhile keeps writers out. The copy includes the content of the log next to
    the database, and needs no log. It gets its name once it opens and its tables have as many rows.

    Raises
    ------
    DatabaseError
        If the database is missing, locked or damaged, the copy is not equal, or DuckDB cannot open
        a file of that name.
    InputError
        If the file cannot be written.
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
            _take_in_log(partial)
            refuse_other_rows(partial, rows)
        except duckdb.Error as error:
            raise database_error(error, out) from None
        finally:
            for log in _logs(partial):
                with suppress(OSError):
                    log.unlink()
    return out.stat().st_size


def keep_backups(database: Path, out: Path, most: int) -> int:
    """Copy `database` to `out`, and keep the copies before it; return the bytes of the new one.

    `out` is the newest copy, OUT.1 the one before it, up to `most` in all.

    Raises
    ------
    DatabaseError, InputError
        As `backup`, or if a file that is no database has one of the names; the former copies then
        stay as they are.
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
    """Make the backup that setting `backups` asks for; return its path, None if it asks for none.

    Raises
    ------
    DatabaseError, InputError
        As `keep_backups`.
    """
    most = settings.backups()
    if not most or not database.exists():
        return None
    out = usual_backup(database)
    keep_backups(database, out, most)
    return out


def usual_backup(database: Path) -> Path:
    """Return the path of backups that are given none."""
    return database.with_name(f"{database.name}.backup")


def _logs(database: Path) -> Iterator[Path]:
    """Yield the logs: files with content that is not in the database file yet."""
    start = f"{database.name}.wal"
    yield from (path for path in database.parent.iterdir() if path.name.startswith(start))


def _take_in_log(copy: Path) -> None:
    with duckdb.connect(str(copy), config=CONFIG) as connection:
        connection.execute("checkpoint")
