"""One line on a terminal that says how far a command has come, and goes when it is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY_SECONDS = 0.5
"""A command that is done sooner says nothing."""

_INTERVAL_SECONDS = 0.1


@contextmanager
def progress_line(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows ``done`` of ``total``; None if stderr is no terminal.

    Parameters
    ----------
    what
        The things that are done, in the plural.
    """
    if not sys.stderr.isatty():
        yield None
        return
    width, next_at = 0, time.monotonic() + DELAY_SECONDS

    def show(done: int, total: int) -> None:
        nonlocal width, next_at
        if (now := time.monotonic()) < next_at:
            return
        next_at = now + _INTERVAL_SECONDS
        words = f"{done:,} of {total:,} {what}"
        width = max(width, len(words))
        sys.stderr.write(f"\r{words:<{width}}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if width:
            sys.stderr.write(f"\r{'':<{width}}\r")
            sys.stderr.flush()
