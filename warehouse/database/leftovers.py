"""Files that killed processes leave next to a database, and their removal by the next writer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from warehouse.processes import is_alive

if TYPE_CHECKING:
    from pathlib import Path

NEW = ".new-"
"""Between the name of a file and the number of the process that makes it."""

SNAPSHOT = ".snapshot"
"""Follows the name of a database in that of its published state."""

COMPACTED = ".compact"
REPAIRED = ".repaired"
PARTIAL = ".partial"
PROGRESS = ".progress.json"


def remove_leftovers(database: Path) -> None:
    """Remove what killed processes left next to a database that this process may write to alone.

    A writer holds the lock: no other process sweeps, shrinks the file or publishes a snapshot.
    New files of processes that still run stay.
    """
    endings = (COMPACTED, f"{COMPACTED}.wal", REPAIRED, f"{REPAIRED}.wal", SNAPSHOT, PROGRESS)
    for ending in (*endings, SNAPSHOT + PARTIAL, PROGRESS + PARTIAL):
        _remove(database.with_name(database.name + ending))
    remove_abandoned(database)


def remove_abandoned(target: Path) -> None:
    """Remove new files for `target` whose processes have ended."""
    start = f"{target.name}{NEW}"
    with suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(start):
                number = path.name[len(start) :].removesuffix(".wal")
                if number.isdecimal() and not is_alive(int(number)):
                    _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
