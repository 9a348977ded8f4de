"""Connections to a warehouse database.

A file that cannot be opened is a `DatabaseError`: it is locked, damaged, foreign, or newer than
this package.
"""

from __future__ import annotations

import shlex
import time
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse import settings
from warehouse.database.access import READER_SECONDS, WRITER_SECONDS, current_access
from warehouse.database.facts import folder_of, last_outcome, rebuild_command
from warehouse.database.failures import database_error
from warehouse.database.new_file import create_missing
from warehouse.database.openings import OPENING, note_opening, refuse_conflict
from warehouse.database.paths import CONFIG, file_of, refuse_missing, remove_leftovers
from warehouse.database.snapshot import Snapshots, is_being_copied, is_published, snapshot_path
from warehouse.database.sql_text import iterate_rows
from warehouse.database.stamp import is_stamped, last_fact, path_of
from warehouse.errors import DatabaseError, LockedError
from warehouse.processes import command_of, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_POLL_SECONDS = 0.1

_NAMED: set[tuple[Path, float]] = set()
"""Snapshots that this process has named, each with its time."""


@dataclass
class _SharedReader:
    """A database that stays open for reading, once a reader has opened it."""

    path: Path
    connection: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


_SHARED: ContextVar[_SharedReader | None] = ContextVar("shared_reader", default=None)


@contextmanager
def open_once(path: Path) -> Iterator[None]:
    """Have readers of a database share one opening until the block ends.

    DuckDB reads every view when it opens a file. Each reader has a connection of its own, whose
    temporary objects end with it. Close all of them before a writer opens the database.
    """
    shared = _SharedReader(Path(path))
    token = _SHARED.set(shared)
    try:
        yield
    finally:
        _SHARED.reset(token)
        shared.close()


def open_for_write(
    path: Path, *, remakes: bool = False, keeps_rows: bool = True
) -> duckdb.DuckDBPyConnection:
    """Return the only connection that may write to the database at `path`; use it with `with`.

    The file and its directory are created if they are missing. Tables, reference tables and views
    of another version are brought up to date; one with a fault is an `InputError`. With `remakes`
    those of this version are made again, too; without `keeps_rows` also the rows that follow.
    """
    path = Path(path)
    if (shared := _SHARED.get()) is not None:
        shared.close()
    is_new = not path.exists()
    create_missing(path)
    if is_new and path.is_absolute() and path == settings.usual_database():
        current_access().say(f"{path}: the new database; --db or WAREHOUSE_DB names another place")
    connection = _connect(path, read_only=False)
    with _closed_on_error(connection, path):
        is_current = is_stamped(connection)
        from warehouse.database.recording import attend  # here: readers start without it

        attend(connection, path)
        if remakes or not is_current:
            from warehouse.database.schema import prepare

            prepare(connection, keeps_rows=keeps_rows and is_current)
        remove_leftovers(file_of(path))
    return connection


@contextmanager
def writing(
    path: Path, *, remakes: bool = False, keeps_rows: bool = True
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the connection of `open_for_write`; publish snapshots for readers if it stays open.

    A snapshot has the state of the last checkpoint.
    """
    snapshots = Snapshots(path)
    connection = open_for_write(path, remakes=remakes, keeps_rows=keeps_rows)
    try:
        with snapshots:
            yield connection
    finally:
        with OPENING, closing(snapshots):  # which drops the locks of this process
            connection.close()


def open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to a database of this version; use it with `with`."""
    path = Path(path)
    shared = _SHARED.get()
    if shared is None or shared.path != path:
        return _open_for_read(path)
    if shared.connection is None:
        shared.connection = _open_for_read(path)
    return shared.connection.cursor()


def _open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    connection = open_as_it_is(path)
    with _closed_on_error(connection, path):
        of_snapshot = is_snapshot(connection, path)
        if is_stamped(connection):
            if not of_snapshot:
                _warn_of_lacking_facts(connection, path)
            return connection
        if of_snapshot:
            raise DatabaseError(
                f"{path}: another version of this package writes to it",
                "ask with that version, or wait for its end with --wait SECONDS",
            )
        raise DatabaseError(
            f"{path}: was made by another version of this package, and reading changes nothing",
            f"`warehouse init --db {shlex.quote(str(path))}` brings it up to date; its rows stay",
        )


@contextmanager
def _closed_on_error(connection: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Close a connection if the block fails; name its file in errors of DuckDB."""
    of_snapshot = is_snapshot(connection, path)
    try:
        yield
    except duckdb.Error as error:
        connection.close()
        if not of_snapshot:
            raise database_error(error, path) from error
        raise DatabaseError(
            f"{snapshot_path(path)}: cannot be read: {str(error).partition(chr(10))[0]}",
            "it is a copy: wait with --wait SECONDS for the end of the process that writes to "
            f"{path.name}, and ask again",
        ) from error
    except BaseException:
        connection.close()
        raise


def _warn_of_lacking_facts(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Say that a database is older than its folder of facts, as one without its log is."""
    name, number, _ = last_fact(connection)
    last = last_outcome(folder_of(path))
    if last is not None and last[0] == name and last[1] > number:
        current_access().say(
            f"warning: {path}: lacks facts that {folder_of(path).name} has\n"
            f"hint: `{rebuild_command(path)}` stores them"
        )


def is_snapshot(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Return whether a reader of the database at `path` was given a snapshot of it."""
    return path_of(connection) == str(snapshot_path(path))


def open_as_it_is(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to a database of any version; use it with `with`.

    While another process writes to the file, it is one to the snapshot that this process published.
    """
    refuse_missing(path)
    return _connect(path, read_only=True, takes_snapshot=True)


def open_file(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection as `open_as_it_is`, to the file itself and never to a snapshot."""
    refuse_missing(path)
    return _connect(path, read_only=True)


def _connect(
    path: Path, *, read_only: bool, takes_snapshot: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a file or its snapshot; wait for other processes and threads as the access says."""
    access = current_access()
    limit = access.snapshot_seconds if takes_snapshot else access.write_seconds
    silent = min(access.read_seconds, READER_SECONDS) if takes_snapshot else 0.0
    begun: float | None = None
    is_said = False
    while True:
        try:
            return _opened(path, read_only=read_only)
        except LockedError as error:
            locked = error
            now = time.monotonic()
            begun = now if begun is None else begun
            waited = now - begun
            if takes_snapshot and waited >= access.read_seconds:
                snapshot = _open_snapshot(path, locked)
                if snapshot is not None:
                    return snapshot
                if limit and is_being_copied(path):
                    limit = max(limit, WRITER_SECONDS)
            if waited >= limit:
                raise
        if not is_said and waited >= silent:
            access.say(f"{locked.message}; waiting for it, {limit:g} s at most")
            is_said = True
        time.sleep(min(_POLL_SECONDS, limit - waited))


def _opened(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    file = file_of(path)
    try:
        with nullcontext() if read_only else OPENING:
            refuse_conflict(file, writes=not read_only)
            connection = duckdb.connect(str(file), read_only=read_only, config=CONFIG)
            note_opening(file, connection, writes=not read_only)
    except duckdb.Error as error:
        raise database_error(error, path, is_opening=True) from error
    return connection


def _open_snapshot(path: Path, locked: LockedError) -> duckdb.DuckDBPyConnection | None:
    """Return a read-only connection to the snapshot of a database, or None where there is none."""
    snapshot = snapshot_path(path)
    try:
        if not is_published(snapshot):
            return None
        moment = snapshot.stat().st_mtime
        connection = duckdb.connect(str(snapshot), read_only=True, config=CONFIG)
    except (OSError, duckdb.Error):  # the writer has just ended, and has removed it
        return None
    if (snapshot, moment) not in _NAMED:
        _NAMED.add((snapshot, moment))
        age = duration(max(time.time() - moment, 1.0))
        process = f"process {locked.process}" if locked.process else "another process"
        command = command_of(locked.process) if locked.process else None
        writer = f"`{command}` ({process})" if command else process
        current_access().say(f"{path}: {writer} writes to it; these are its rows of {age} ago")
    return connection


def rows_as_dicts(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> list[Mapping[str, Any]]:
    """Return the rows of a query, each by the names of its columns."""
    return list(iterate_rows(connection, query, values))
