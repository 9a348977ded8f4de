"""Databases that this process has open for writing.

POSIX locks are those of a process (fcntl(2), POSIX.1-2017): they do not keep out a second writer of
the same process, and its end drops the lock of the first.
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


class _Writer(NamedTuple):
    """A connection, and the thread that opened it."""

    connection: weakref.ref[duckdb.DuckDBPyConnection]
    thread: int

    @property
    def is_open(self) -> bool:
        connection = self.connection()
        with suppress(duckdb.ConnectionException):
            if connection is not None:
                connection.cursor().close()
                return True
        return False


_WRITERS: dict[tuple[int, int], _Writer] = {}
"""Device and number of a file -> its last writer."""

_OPENING = threading.Lock()


def no_writer_opens() -> threading.Lock:
    """Return a lock: while a thread has it, no other one opens a database for writing."""
    return _OPENING


def register(file: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Note that this thread writes to a database until the connection is closed."""
    _WRITERS[_identity(file)] = _Writer(weakref.ref(connection), threading.get_ident())


def refuse_writer(file: Path) -> None:
    """Raise if this process has a database open for writing.

    Raises
    ------
    LockedError
        If another thread has it open.
    DatabaseError
        If this thread has: to wait for it would take forever.
    """
    writer = _WRITERS.get(_identity(file))
    if writer is None or not writer.is_open:
        return
    if writer.thread == threading.get_ident():
        raise DatabaseError(
            f"{file}: this thread has it open for writing", "close that connection first"
        )
    raise LockedError(
        f"{file}: is in use by another thread of this process, which writes to it",
        "wait for its end with a longer `wait`",
    )


def _identity(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)  # a file that is not there yet has no writer
    return (status.st_dev, status.st_ino)
