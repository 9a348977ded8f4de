"""^C, SIGTERM and SIGHUP end a command, even where a library turns them into another error."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}
"""Signals that ask a command to end, for the user. Windows has no SIGHUP."""


@dataclass
class Received:
    """The signal that ended a block; None: no signal did."""

    signal: signal.Signals | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of the command, as shells give it: 128 and the number of the signal."""
        return 128 + (self.signal or signal.SIGINT)

    @property
    def in_words(self) -> str:
        """The event, for the user."""
        return _WORDS[(self.signal or signal.SIGINT).name]


@contextmanager
def interruptible() -> Iterator[Received]:
    """Have a signal end the block as KeyboardInterrupt, even where a library raises another error.

    DuckDB raises different errors depending on what it was doing. An error after a signal counts as
    its consequence. A signal that the caller ignores, as `nohup` does with SIGHUP, stays ignored.
    """
    received = Received()
    with ExitStack() as restored:
        if threading.current_thread() is threading.main_thread():
            for name in _WORDS:
                if hasattr(signal, name):
                    _note(signal.Signals[name], received, restored)
        try:
            yield received
        except Exception:
            if received.signal is not None:
                raise KeyboardInterrupt from None
            raise


def _note(number: signal.Signals, received: Received, restored: ExitStack) -> None:
    """Have a signal raise KeyboardInterrupt, and note it, until `restored` is closed."""
    previous = signal.getsignal(number)
    if previous is signal.SIG_IGN or previous is None:  # None: a handler that Python did not set
        return

    def note(_: int, frame: FrameType | None) -> None:
        received.signal = number
        if callable(previous):
            previous(number, frame)
        raise KeyboardInterrupt

    signal.signal(number, note)
    restored.callback(signal.signal, number, previous)
