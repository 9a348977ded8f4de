"""One line on a terminal while a command works; it goes when the command says something."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

DELAY_SECONDS = 0.5
"""A command that is done sooner says nothing."""

INTERVAL_SECONDS = 0.1
_TICK_SECONDS = 0.5


SECONDS_OF_LOG_LINE = 60.0


class LogLines:
    """Says when a log, which is no terminal, gets the next line of progress: each minute."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SECONDS_OF_LOG_LINE

    def is_due(self) -> bool:
        """Return whether the last line is a minute old; if so, the next one counts as written."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + SECONDS_OF_LOG_LINE
        return True


class _Line:
    """The last line of the terminal, which threads write and take away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._width = 0

    def show(self, words: str) -> None:
        with self._lock:
            self._width = max(self._width, len(words))
            sys.stderr.write(f"\r{words:<{self._width}}")
            sys.stderr.flush()

    def clear(self) -> None:
        with self._lock:
            if self._width:
                sys.stderr.write(f"\r{'':<{self._width}}\r")
                sys.stderr.flush()
            self._width = 0


_LINE = _Line()
clear_line = _LINE.clear
"""Takes the line away; call it before other words are written."""


@contextmanager
def progress_line(things: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows how many things of all are done; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    next_at = time.monotonic() + DELAY_SECONDS

    def show(done: int, total: int) -> None:
        nonlocal next_at
        if (now := time.monotonic()) >= next_at:
            next_at = now + INTERVAL_SECONDS
            _LINE.show(f"{done:,} of {total:,} {things}")

    try:
        yield show
    finally:
        clear_line()


@contextmanager
def working(work: str) -> Iterator[None]:
    """Show on a terminal how long work takes that has no steps to count: "writing the file"."""
    if not sys.stderr.isatty():
        yield
        return
    done, began = threading.Event(), time.monotonic()

    def tick() -> None:
        wait = DELAY_SECONDS
        while not done.wait(wait):
            _LINE.show(f"{work}: {time.monotonic() - began:.0f} s")
            wait = _TICK_SECONDS

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        clear_line()
