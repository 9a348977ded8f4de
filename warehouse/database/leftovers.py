"""Files that killed processes leave next to a database, and their removal by the next writer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from warehouse.processes import is_alive

if TYPE_CHECKING:
    from pathlib import Path

NEW = ".new-"
"""Text between the name of a new file and the number of the process that writes it."""

SNAPSHOT = ".snapshot"
"""Suffix of a database's snapshot."""

COMPACTED = ".compact"
REBUILT = ".rebuilt"
PARTIAL = ".partial"
PROGRESS = ".progress.json"


def leftovers(database: Path) -> dict[Path, int]:
    """Return the files that killed processes left next to a database, with their sizes.

    Call it while this process has the database open: then none writes to it, shrinks it or
    publishes a snapshot. New files of processes that still run are left out.
    """
    own = [COMPACTED, f"{COMPACTED}.wal", REBUILT, f"{REBUILT}.wal"]
    published = (SNAPSHOT, PROGRESS, SNAPSHOT + PARTIAL, PROGRESS + PARTIAL)
    own += [of + ending for of in ("", REBUILT) for ending in published]
    paths = [*(database.with_name(database.name + ending) for ending in own), *_abandoned(database)]
    found = {}
    for path in paths:
        with suppress(OSError):
            found[path] = path.stat().st_size
    return found


def remove_leftovers(database: Path) -> None:
    """Remove what killed processes left next to a database that this process may write to."""
    for path in leftovers(database):
        _remove(path)


def remove_abandoned(target: Path) -> None:
    """Remove new files for `target` whose processes have ended."""
    for path in _abandoned(target):
        _remove(path)


def _abandoned(target: Path) -> list[Path]:
    start = f"{target.name}{NEW}"
    found = []
    with suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(start):
                number = path.name[len(start) :].removesuffix(".wal")
                if number.isdecimal() and not is_alive(int(number)):
                    found.append(path)
    return found


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
