"""How long to wait for other processes that have a database open.

A command or a call of `Warehouse` decides it once, for all files that it opens.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITER_SECONDS = 30.0
"""Time that a command or method waits for a database that it writes to."""

FIRST_SECONDS = 2.0
"""Time that a process writes before it publishes the first snapshot: readers wait for the end of a
shorter write."""

READER_SECONDS = 0.2
"""Time that a command or method waits for a database before it reads the snapshot of the process
that writes to it: most writes are shorter."""

SNAPSHOT_SECONDS = FIRST_SECONDS + 3.0
"""Time that it waits where there is no snapshot: that process publishes the first one earlier."""


@dataclass(frozen=True)
class Access:
    """How a database is opened: times to wait for other processes, and a place for messages.

    `write_seconds` is for a lock to write. A reader takes a snapshot after `read_seconds`, and
    gives up after `snapshot_seconds` if there is none. `say` gets lines for the user.
    """

    write_seconds: float = 0.0
    read_seconds: float = 0.0
    snapshot_seconds: float = 0.0
    say: Callable[[str], None] = lambda _: None


_USUAL = Access()
_CURRENT: ContextVar[Access] = ContextVar("access", default=_USUAL)


def current_access() -> Access:
    """Return how databases are opened here."""
    return _CURRENT.get()


@contextmanager
def accessing(access: Access) -> Iterator[None]:
    """Open databases in this way until the block ends."""
    token = _CURRENT.set(access)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def access_for(
    wait: float | None, *, writes: bool, say: Callable[[str], None] = Access.say
) -> Access:
    """Return the access of a command or method that may write, or that only reads.

    One that may write takes a snapshot after 0.2 seconds at most: with nothing to write, it need
    not wait. Without a snapshot it waits as long as a writer. `wait` is a user's choice in seconds.
    """
    to_write = WRITER_SECONDS if wait is None else wait
    to_read = READER_SECONDS if wait is None else wait
    if writes:
        return Access(to_write, min(to_read, READER_SECONDS), to_write, say)
    return Access(to_write, to_read, SNAPSHOT_SECONDS if wait is None else wait, say)
