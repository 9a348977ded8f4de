"""Which processes have a database open, from /proc/locks where there is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from warehouse.processes import age_seconds, command_of

LOCKS = Path("/proc/locks")
"""The locks of all processes, on Linux (proc(5))."""

_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))


class Holder(NamedTuple):
    """A process that has a lock on a file; None where the system does not tell."""

    pid: int
    writes: bool | None


def holders(path: Path, known: int | None = None) -> list[Holder]:
    """Return the processes that have a lock on the file at `path`, in order of their numbers.

    Parameters
    ----------
    known
        A process that DuckDB named. It is returned even if the system shows no locks.
    """
    found: dict[int, bool | None] = {} if known is None else {known: None}
    try:
        status = path.stat()
        lines = LOCKS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 22680 fe:00:2662641 0 EOF
        words = line.split()
        if len(words) != 8 or words[1] != "POSIX":
            continue
        pid, (major, minor, inode) = int(words[4]), words[5].split(":")
        is_same = int(inode) == status.st_ino and (
            (int(major, 16), int(minor, 16)) == (os.major(status.st_dev), os.minor(status.st_dev))
            # Some file systems show another device here: then only the process that DuckDB named is
            # known.
            or pid == known
        )
        if is_same and pid > 0:  # a process of another container has no number here
            found[pid] = words[3] == "WRITE"
    return [Holder(pid, found[pid]) for pid in sorted(found)]


def holders_in_words(path: Path, known: int | None = None) -> str:
    """Return the processes that have the file open, their commands and running times, in words."""
    found = holders(path, known)
    return " and ".join(_in_words(holder) for holder in found) or "another process"


def _in_words(holder: Holder) -> str:
    command, age = command_of(holder.pid), age_seconds(holder.pid)
    details = [f"`{command}`"] if command else []
    if holder.writes is not None:
        details.append("writes" if holder.writes else "reads")
    if age is not None:
        details.append(f"runs for {duration(age)}")
    return f"process {holder.pid}" + (f" ({', '.join(details)})" if details else "")


def writer_in_words(path: Path) -> str:
    """Return the process that writes to the file, with its command."""
    for holder in holders(path):
        if holder.writes:
            command = command_of(holder.pid)
            return f"`{command}` (process {holder.pid})" if command else f"process {holder.pid}"
    return "another process"


def duration(seconds: float) -> str:
    """Return a time in its largest whole unit, such as "3 hours"."""
    for unit, size in _UNITS:
        if seconds >= size or size == 1:
            number = int(seconds // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    raise AssertionError("seconds are the last unit")
