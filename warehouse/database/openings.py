"""Databases that this process has open, by thread.

A POSIX lock belongs to a process (fcntl(2), POSIX.1-2017). It does not keep out a second writer of
the same process, and the end of the second writer drops the lock of the first. DuckDB itself
refuses a reader and a writer in one process.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from warehouse.errors import DatabaseError, LockedError

if TYPE_CHECKING:
    from pathlib import Path


class _Opening(NamedTuple):
    """A connection, the thread that opened it, and whether it may write."""

    connection: weakref.ref[duckdb.DuckDBPyConnection]
    thread: int
    writes: bool

    @property
    def is_open(self) -> bool:
        connection = self.connection()
        with suppress(duckdb.ConnectionException):
            if connection is not None:
                connection.cursor().close()
                return True
        return False


_OPENINGS: dict[tuple[int, int], list[_Opening]] = {}
"""Device and number of a file -> its openings, also some that have ended."""

_NOTING = threading.Lock()

OPENING = threading.Lock()
"""The thread that has it is the only one that opens or closes a database for writing."""


def note_opening(file: Path, connection: duckdb.DuckDBPyConnection, *, writes: bool) -> None:
    """Note that this thread has a database open until the connection is closed."""
    opening = _Opening(weakref.ref(connection), threading.get_ident(), writes)
    with _NOTING:
        _OPENINGS[_identity(file)] = [*_open(file), opening]


def refuse_conflict(file: Path, *, writes: bool) -> None:
    """Raise if this process has a database open in a way that keeps out another opening.

    DuckDB itself refuses a writer beside readers of other threads. A thread that has the database
    open would wait forever: that is no `LockedError`.
    """
    with _NOTING:
        conflicts = [opening for opening in _open(file) if opening.writes or writes]
    for opening in conflicts:
        if opening.thread == threading.get_ident():
            mode = "writing" if opening.writes else "reading"
            raise DatabaseError(
                f"{file}: this thread has it open for {mode}", "close that connection first"
            )
    if any(opening.writes for opening in conflicts):
        raise LockedError(
            f"{file}: is in use by another thread of this process, which writes to it",
            "wait for its end with a longer `wait`",
        )


def _open(file: Path) -> list[_Opening]:
    return [opening for opening in _OPENINGS.get(_identity(file), ()) if opening.is_open]


def _identity(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)  # a file that is not there yet has no writer
    return (status.st_dev, status.st_ino)
