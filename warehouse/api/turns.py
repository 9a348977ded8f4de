"""Turns of threads at one file: several read it, or one alone writes to it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


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
