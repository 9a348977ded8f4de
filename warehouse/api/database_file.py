"""A database file that is open during a call, or during a ``with`` block."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from estimators.contract import RefusedError
from warehouse import settings
from warehouse.api.arguments import refuse_control_characters
from warehouse.database.access import access_for, accessing, current_access
from warehouse.database.connection import open_for_read
from warehouse.database.failures import database_error
from warehouse.database.paths import is_address
from warehouse.errors import InputError, UsageError, escaped
from warehouse.files import refused_place, working_directory

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from duckdb import DuckDBPyConnection

_POLL_SECONDS = 0.05


class DatabaseFile:
    """A database file, opened for each call or kept open for reading.

    It waits `wait` seconds for a database that another process or thread has open, by default 30 to
    write and 0.2 to read. While that process goes on writing, a reader then gets the rows that it
    published last; a warning says how old they are.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        writable: bool = False,
        wait: float | None = None,
    ) -> None:
        refuse_control_characters({"path": path})
        given = Path(path) if path is not None else settings.database()
        # once: a later change of the working directory must not lead to another file
        is_whole = given.is_absolute() or is_address(given)
        self.path = given if is_whole else working_directory() / given
        self.writable = writable
        self.wait = wait
        self._turns, self._lock = Turns(), threading.RLock()  # taken in this order
        self._num_blocks = 0
        self._connection: DuckDBPyConnection | None = None
        self._cursors: dict[int, DuckDBPyConnection] = {}
        self._ended: list[DuckDBPyConnection] = []

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process makes the same warehouse: by its path, with nothing open."""
        make = partial(type(self), self.path, writable=self.writable, wait=self.wait)
        return make, ()

    def __repr__(self) -> str:
        return f"Warehouse({str(self.path)!r}, writable={self.writable})"

    def __enter__(self) -> Self:
        """Keep the file open for reading until the block ends.

        Blocks may lie within each other and run in several threads: the last one closes the file.
        """
        with self._turns.shared(), self._lock:
            if not self.writable or self.path.exists():
                with self._access():
                    self._connected()
            self._num_blocks += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file at the end of the last block; relations of the blocks end."""
        with self._lock:
            self._num_blocks -= 1
            if not self._num_blocks:
                self._release()

    def _connected(self) -> DuckDBPyConnection:
        """Return the connection of the ``with`` block, opened where it is closed."""
        if self._connection is None:
            self._connection = open_for_read(self.path)
        return self._connection

    def _of_thread(self) -> DuckDBPyConnection:
        """Return a connection for the relations of this thread, which can be joined."""
        with self._lock:
            number = threading.get_ident()
            if number not in self._cursors:
                self._cursors[number] = self._connected().cursor()
            return self._cursors[number]

    def _release(self) -> bool:
        """Give up the connections of the ``with`` block; return whether relations are still read.

        Those that a call uses stay open until it ends.
        """
        with self._lock:
            self._connection = None  # not closed: that would close its cursors during a call
            self._ended = [*filter(_is_busy, [*self._ended, *self._cursors.values()])]
            self._cursors.clear()
            return bool(self._ended)

    @contextmanager
    def _asking(self, *, may_write: bool = False) -> Iterator[None]:
        """Open the file as this warehouse says, and turn errors into those of the project.

        Other threads wait for the end of a call that may go on to write; writers for any call.
        """
        with self._turns.alone() if may_write else self._turns.shared():
            try:
                with self._access(writes=may_write):
                    yield
            except RefusedError as error:
                raise InputError.from_refusals(error.refusals) from None
            except OSError as error:
                raise refused_place(error) or error from None
            except duckdb.Error as error:
                raise database_error(error, self.path) from error

    @contextmanager
    def _reading(self) -> Iterator[DuckDBPyConnection]:
        """Yield a connection for this call; its temporary objects end with it."""
        with self._asking():
            with self._lock:
                is_open = self._num_blocks > 0
                opened = self._connected().cursor() if is_open else open_for_read(self.path)
            with opened as connection:
                yield connection

    @contextmanager
    def _writing(self, method: str = "") -> Iterator[None]:
        """Close the file for a writer, which opens it alone.

        A `method` that changes more than it is asked for needs a writable warehouse.
        """
        if method and not self.writable:
            raise UsageError(
                f"{self.path}: `{method}` writes, and this warehouse is read-only",
                f"open it with Warehouse({str(self.path)!r}, writable=True)",
            )
        with self._asking(may_write=True):
            limit = time.monotonic() + current_access().write_seconds
            while self._release() and time.monotonic() < limit:
                time.sleep(_POLL_SECONDS)
            yield

    def _access(self, *, writes: bool = False) -> AbstractContextManager[None]:
        return accessing(access_for(self.wait, writes=writes or self.writable, say=warn))


def _is_busy(connection: DuckDBPyConnection) -> bool:
    """Close a connection; return whether a thread is reading a relation of it."""
    try:
        connection.close()
    except duckdb.Error:
        return True
    return False


def warn(text: str) -> None:
    """Say a remark to the user."""
    warnings.warn(escaped(text), UserWarning, stacklevel=3)


class Turns:
    """A lock that several readers share. A thread that waits to write goes before new readers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers: Counter[int] = Counter()
        self._writer: int | None = None
        self._num_waiting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Wait until no other thread writes; keep writers out until the block ends."""
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._readers and thread != self._writer:
                self._changed.wait_for(lambda: self._writer is None and not self._num_waiting)
            self._readers[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= Counter([thread])  # which leaves out a thread with none
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other thread reads or writes; keep all out until the block ends."""
        thread = threading.get_ident()
        if thread == self._writer:
            yield
            return
        with self._changed:
            self._num_waiting += 1
            try:
                self._changed.wait_for(
                    lambda: self._writer is None and self._readers.keys() <= {thread}
                )
                self._writer = thread
            finally:
                self._num_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._writer = None
                self._changed.notify_all()
