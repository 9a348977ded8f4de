"""Limits above which a sweep needs confirmation: many rows, or more bytes than are free."""

from __future__ import annotations

import shutil
from pathlib import Path

from warehouse.errors import DatabaseError, UsageError
from warehouse.show.units import size_in_words

LEAST_ROWS = 500_000
"""Rows of the smallest sweep whose size is printed and compared with the disk: a second of work."""

MOST_ROWS = 50_000_000
"""Most rows that a sweep evaluates and stores without confirmation: minutes, and gigabytes."""

_CONFIRMED = "with --yes (in Python: allow_large=True)"


def refuse_too_large(study: str, rows: int, num_bytes: float, database: Path) -> None:
    """Raise if a sweep is so large that the user must confirm it.

    Parameters
    ----------
    study
        Name of the study.
    rows, num_bytes
        Size of the rows that the sweep would store; estimates are enough.
    database
        The file that it would store in; it may be missing.

    Raises
    ------
    UsageError
        If it has more than `MOST_ROWS` rows.
    DatabaseError
        If the disk has less space free than the rows take.
    """
    free = _free_bytes(database)
    if num_bytes > free:
        raise DatabaseError(
            f"{study}: its rows take about {size_in_words(num_bytes)}, and the disk of {database} "
            f"has {size_in_words(free)} free",
            "free some disk space, name a file on another disk with --db, or sweep all the same "
            f"{_CONFIRMED}: committed rows stay",
        )
    if rows > MOST_ROWS:
        raise UsageError(
            f"{study}: about {rows:,} rows are more than {MOST_ROWS:,}",
            f"sweep them {_CONFIRMED}, or a part of the study; --dry-run shows time and size",
        )


def _free_bytes(database: Path) -> int:
    """Return the free space of the disk that a file lies on, or will lie on."""
    directory = database.resolve().parent
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free
