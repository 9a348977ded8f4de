"""Connections to a warehouse database, and errors for a file that cannot be opened."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.access import current
from warehouse.database.facts import folder_of, is_folder, last_outcome, rebuild_command
from warehouse.database.failures import database_error
from warehouse.database.file_format import CONFIG
from warehouse.database.leftovers import SNAPSHOT, remove_leftovers
from warehouse.database.meta import is_stamped, last_fact
from warehouse.database.new_file import create_missing
from warehouse.database.paths import ANOTHER, file_of, is_database
from warehouse.errors import DatabaseError, LockedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_POLL_SECONDS = 0.1


@dataclass
class _Kept:
    """A database that stays open for reading, once a reader has opened it."""

    path: Path
    connection: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


_KEPT: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def kept_open(path: Path) -> Iterator[None]:
    """Have readers of a database share one opening until the block ends.

    DuckDB reads every view when it opens a file. Each reader has a connection of its own, whose
    temporary objects end with it. Close all of them before a writer opens the database.
    """
    kept = _Kept(Path(path))
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)
        kept.close()


def open_for_write(path: Path, *, mended: bool = False) -> duckdb.DuckDBPyConnection:
    """Return the only connection that may write to the database at `path`; use it with `with`.

    The file and its directory are created if they are missing. Tables, reference tables and views
    are brought up to date.

    Parameters
    ----------
    mended
        Whether to look for what somebody changed or removed by hand, and to make it again.

    Raises
    ------
    DatabaseError
        If the file is locked, damaged, foreign or newer than this package, or cannot be made.
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    path = Path(path)
    kept = _KEPT.get()
    if kept is not None:
        kept.close()
    create_missing(path)
    connection = _connect(path, read_only=False)
    try:
        is_current = is_stamped(connection)
        from warehouse.database.recording import attend  # here: readers start without it

        attend(connection, path)
        if not is_current:
            from warehouse.database.schema import prepare

            if prepare(connection) and mended:
                connection.close()  # views are compared as the file has them
                connection = _connect(path, read_only=False)
        if mended:
            from warehouse.database.mend import mend

            mend(connection)
        remove_leftovers(file_of(path))
    except duckdb.Error as error:
        connection.close()
        raise database_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the database at `path`; use it with `with`.

    Raises
    ------
    DatabaseError
        If there is no such file, it is locked, damaged or foreign, or another version of the
        package made it.
    """
    path = Path(path)
    kept = _KEPT.get()
    if kept is None or kept.path != path:
        return _open_for_read(path)
    if kept.connection is None:
        kept.connection = _open_for_read(path)
    return kept.connection.cursor()


def _open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    try:
        connection = open_as_it_is(path)
    except LockedError as error:
        if not current().snapshot:
            raise
        return _open_snapshot(path, error)
    try:
        if is_stamped(connection) or _is_current(connection):
            _warn_of_lacking_facts(connection, path)
            return connection
    except duckdb.Error as error:
        connection.close()
        raise database_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    connection.close()
    raise DatabaseError(
        f"{path}: was made by another version of this package, and reading changes nothing",
        f"`{rebuild_command(path)}` makes it again with this version, from its facts",
    )


def _warn_of_lacking_facts(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Say that a database is older than its folder of facts, as one without its log is."""
    name, number, _ = last_fact(connection)
    last = last_outcome(folder_of(path))
    if last is not None and last[0] == name and last[1] > number:
        current().say(
            f"warning: {path}: lacks facts that {folder_of(path).name} has\n"
            f"hint: `{rebuild_command(path)}` stores them"
        )


def _open_snapshot(path: Path, error: LockedError) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the snapshot that a sweep into a database published."""
    snapshot = snapshot_path(path)
    try:
        published = time.localtime(snapshot.stat().st_mtime)
        connection = _connect(snapshot, read_only=True)
    except OSError:
        raise LockedError(
            error.message,
            "it has published no snapshot yet: a large sweep does between its transactions of "
            "eight million rows or more; "
            f"wait for it with --wait SECONDS, or {ANOTHER}",
        ) from None
    if not (is_stamped(connection) or _is_current(connection)):
        connection.close()
        raise DatabaseError(
            f"{snapshot}: was published by another version of this package",
            "ask with that version, or wait for the end of the sweep with --wait SECONDS",
        )
    current().say(
        f"{path}: a sweep has it; this is what it had stored at "
        f"{time.strftime('%H:%M:%S', published)} ({snapshot.name})"
    )
    return connection


def snapshot_path(database: Path) -> Path:
    """Return the path of the snapshot that a sweep into `database` publishes."""
    file = file_of(database)
    return file.with_name(file.name + SNAPSHOT)


def _is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the views and tables are up to date, even if other files made them."""
    from warehouse.database.schema import is_current

    return is_current(connection)


def open_as_it_is(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to a database of any version; use it with `with`.

    Raises
    ------
    DatabaseError
        If there is no such file, or it is locked, damaged or foreign.
    """
    path = Path(path)
    if not is_database(path):
        makes_again = f"`{rebuild_command(path)}` makes it again from {folder_of(path).name}"
        begins = "run `warehouse init` or `warehouse quickstart`, or name the file with --db"
        raise DatabaseError(
            f"{path}: there is no such database",
            makes_again if is_folder(folder_of(path)) else begins,
        )
    return _connect(path, read_only=True)


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a file, and wait for a lock of another process as long as the access says."""
    access = current()
    seconds = access.read_seconds if read_only else access.write_seconds
    until: float | None = None
    while True:
        try:
            return duckdb.connect(str(file_of(path)), read_only=read_only, config=CONFIG)
        except duckdb.Error as error:
            found = database_error(error, path, is_opening=True)
            if not isinstance(found, LockedError) or seconds <= 0:
                raise found from error
            now = time.monotonic()
            if until is None:
                until = now + seconds
                access.say(f"{found.message}; waiting for it, {seconds:g} s at most")
            elif now >= until:
                raise found from error
        time.sleep(min(_POLL_SECONDS, max(0.0, until - now)))


def rows_as_dicts(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> list[Mapping[str, Any]]:
    """Return the rows of a query, each by the names of its columns."""
    result = connection.execute(query, list(values))
    columns = [column[0] for column in result.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
