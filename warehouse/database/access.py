"""How the database is opened in a block: how long to wait for a lock, and what to read.

A command or a call of `Warehouse` decides it once; other modules only open the file.
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


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True)
class Access:
    """How a database is opened.

    Attributes
    ----------
    write_seconds, read_seconds
        Time to wait for a lock of another process, to write and to read.
    snapshot
        Whether a reader takes the last published snapshot while a sweep has the database.
    may_be_snapshot
        Whether the user could have chosen that: only then a hint names the option.
    say
        Called with a line for the user: that a lock is waited for, or a snapshot is read.
    """

    write_seconds: float = 0.0
    read_seconds: float = 0.0
    snapshot: bool = False
    may_be_snapshot: bool = True
    say: Callable[[str], None] = _say_nothing


_USUAL = Access()
_CURRENT: ContextVar[Access] = ContextVar("access", default=_USUAL)


def current() -> Access:
    """Return how the database is opened here."""
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
    wait: float | None,
    *,
    writes: bool,
    snapshot: bool = False,
    may_be_snapshot: bool = True,
    say: Callable[[str], None] = _say_nothing,
) -> Access:
    """Return the access of a command or method.

    Parameters
    ----------
    wait
        Seconds to wait for a lock; None: those of a writer to write, none to read.
    writes
        Whether it may write. It then waits as long as a writer even where it only reads.
    snapshot, may_be_snapshot, say
        As `Access` has them.
    """
    to_write = WRITER_SECONDS if wait is None else wait
    to_read = to_write if writes else wait or 0.0
    return Access(to_write, to_read, snapshot, may_be_snapshot, say)
