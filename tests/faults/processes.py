"""Work in a forked process, which may be killed at a moment of its own processor time.

A fork starts in a millisecond, where the program takes a second. The campaign itself opens no
database, so that no thread of DuckDB is lost in a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shared import call

_POLL_SECONDS = 0.0005

HANG_SECONDS = 600.0
"""A process that takes longer hangs: an undisturbed one takes a second."""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes
    ----------
    value
        What the work returned, as JSON has it; None if it did not end by itself.
    signal
        The signal that ended it, 0 if none did.
    seconds
        Its processor time, 0 if it did not end by itself.
    error
        The traceback of an exception that the work raised.
    """

    value: Any = None
    signal: int = 0
    seconds: float = 0.0
    error: str = ""


class Running:
    """A process that works; `wait` for it, or `kill` it.

    Parameters
    ----------
    work
        Returns what JSON can have.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        handle, name = tempfile.mkstemp(prefix="ended-")
        os.close(handle)
        self._result = Path(name)
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            self._work(work)

    def _work(self, work: Callable[[], Any]) -> None:
        code = 1
        try:
            document = {"value": work()}
            code = 0
        except BaseException:
            document = {"error": traceback.format_exc()}
        document["seconds"] = time.process_time()
        self._result.write_text(json.dumps(document), encoding="utf-8")
        os._exit(code)

    def kill_at(self, seconds: float, then: float = 0.0) -> Ended:
        """Send SIGKILL after these seconds of processor time and, then, of time; wait for the end.

        Processor time does not depend on how busy the machine is.
        """
        clock = (~self.pid << 3) | 2  # clock_getcpuclockid(3) of Linux
        with suppress(OSError):
            while not self.has_ended() and time.clock_gettime(clock) < seconds:
                time.sleep(_POLL_SECONDS)
        time.sleep(then)
        self.kill()
        return self.wait()

    def kill(self) -> None:
        """Send SIGKILL, to its children as well if it has a process group of its own."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> Ended:
        """Wait for its end; raise if it hangs."""
        until = time.monotonic() + HANG_SECONDS
        while not self.has_ended():
            if time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"process {self.pid} did not end in {HANG_SECONDS:g} seconds")
            time.sleep(4 * _POLL_SECONDS)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        text = self._result.read_text(encoding="utf-8")
        self._result.unlink()
        if status < 0:
            return Ended(signal=-status)
        return Ended(**json.loads(text))


def forked(work: Callable[[], Any]) -> Ended:
    """Do work in a process of its own; return how it ended."""
    return Running(work).wait()


def value_of(work: Callable[[], Any]) -> Any:
    """Do work that must succeed in a process of its own; return its value."""
    ended = forked(work)
    if ended.signal or ended.error:
        raise RuntimeError(f"ended by signal {ended.signal}: {ended.error}")
    return ended.value


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def is_refusal(self) -> bool:
        """Whether it ended with a message that has a hint, and no traceback."""
        return self.code != 0 and "error: " in self.err and "\nhint: " in self.err


def said(*arguments: object) -> list[Any]:
    """Call a command here; return the values of `Said`, for the work of a process."""
    return list(call(*arguments))
