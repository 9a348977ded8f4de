"""^C, SIGTERM and SIGHUP end a command, even where a library turns them into another error."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    former: dict[signal.Signals, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        received.signal = signal.Signals(number)
        if callable(handler := former[received.signal]):
            handler(number, frame)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.Signals[name] for name in _WORDS if hasattr(signal, name)):
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):  # None: Python did not set the handler
                former[number] = handler
                signal.signal(number, note)
    try:
        yield received
    except Exception:
        if received.signal is not None:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
