"""Processes of this machine: whether one is alive, its start, its command and a unique mark."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

_LONGEST_COMMAND = 80
"""Characters of a command line that a message shows."""

_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def is_alive(pid: object) -> bool:
    """Return whether a process of this number runs; False for a text that is not a number."""
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if the system does not say."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name, in parentheses, may contain spaces; the time is field 22.
        return int(status.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def own_mark() -> str:
    """Return a unique name of this process among all machines: letters, digits and dashes.

    Processes that can see each other share its first part: those of one boot of one machine, in one
    container.
    """
    pid = os.getpid()
    return f"{_numbering()}-{pid}-{started_ticks(pid) or 0}"


def has_ended(mark: str) -> bool | None:
    """Return whether the process with a mark has ended; None: it ran on another machine."""
    numbering, _, rest = mark.partition("-")
    pid, _, ticks = rest.partition("-")
    if numbering != _numbering() or not (pid.isdecimal() and ticks.isdecimal()):
        return None
    return not is_alive(int(pid)) or (started_ticks(int(pid)) or 0) != int(ticks)


@cache
def _numbering() -> str:
    """Return a mark of this boot and container: process numbers are unique only within one."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return blake2b(" ".join(parts).encode(), digest_size=6).hexdigest()


def age_seconds(pid: int) -> float | None:
    """Return for how long a process has run; None if the system does not say."""
    ticks = started_ticks(pid)
    if ticks is None:  # as on every system but Linux
        return None
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot - ticks / os.sysconf("SC_CLK_TCK"))


def command_of(pid: int) -> str | None:
    """Return the command line of a process, shortened; None if the system does not say."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    words = content.decode("utf-8", "replace").split("\0")[:-1]
    if not words:
        return None
    program = [Path(words[0]).name, *words[1:]]
    if words[1:3] in (["-m", "warehouse"], ["-m", "warehouse.cli.main"]):
        program = ["warehouse", *words[3:]]
    elif len(words) > 1 and Path(words[1]).name == "warehouse":
        program = ["warehouse", *words[2:]]
    text = " ".join(" ".join(program).split())
    return text if len(text) <= _LONGEST_COMMAND else f"{text[: _LONGEST_COMMAND - 3]}..."


def in_words(pid: int | None) -> str:
    """Return a process, its command and for how long it has run; None: one that nobody named."""
    if pid is None:
        return "another process"
    command, age = command_of(pid), age_seconds(pid)
    details = [f"`{command}`"] if command else []
    details += [] if age is None else [f"runs for {duration(age)}"]
    return f"process {pid}" + (f" ({', '.join(details)})" if details else "")


def duration(seconds: float) -> str:
    """Return a time in its largest whole unit, such as "3 hours"."""
    unit, size = next((unit for unit in _UNITS if seconds >= unit[1]), ("second", 1))
    number = int(seconds // size)
    return f"{number} {unit}{'' if number == 1 else 's'}"
