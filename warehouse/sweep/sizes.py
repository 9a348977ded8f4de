"""Speed and size of sweeps on this machine, and the sizes that a user must confirm."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from warehouse.database.cache import remember, remembered
from warehouse.errors import DatabaseError, UsageError
from warehouse.show.units import size_in_words

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

LEAST_ROWS = 500_000
"""Rows of the smallest sweep whose size is printed and compared with the disk, and whose rate is
kept. Starting takes most of the time of a shorter one."""

MOST_ROWS = 50_000_000
"""Most rows that a sweep evaluates and stores without confirmation: minutes, and gigabytes."""

_CONFIRMED = "with --yes (in Python: allow_large=True)"


class Rate(NamedTuple):
    """Speed and size of the rows of one estimator."""

    rows_per_second: float
    bytes_per_row: float

    @classmethod
    def measured(cls, rows: int, seconds: float, num_bytes: float) -> Rate:
        """Return the rate of some rows, with at least a bit per row, which blocks may hide."""
        return cls(rows / max(seconds, 1e-6), max(num_bytes / max(rows, 1), 0.125))


def remembered_rate(estimator: str) -> Rate | None:
    """Return the rate of the last long sweep with an estimator; None if there was none."""
    stored = remembered(_file(estimator))
    with suppress(TypeError, ValueError, KeyError):
        rate = Rate(float(stored["rows_per_second"]), float(stored["bytes_per_row"]))
        return rate if min(rate) > 0 else None
    return None


def remember_rate(estimator: str, rate: Rate) -> None:
    """Keep the rate of a sweep for the estimates of later sweeps."""
    remember(_file(estimator), rate._asdict())


def used_bytes(connection: DuckDBPyConnection) -> int:
    """Return the bytes of the blocks in use in the database of a connection."""
    [(num_bytes,)] = connection.execute(
        "select used_blocks * block_size from pragma_database_size()"
        " where database_name = current_database()"
    ).fetchall()
    return int(num_bytes)


def refuse_too_large(study: str, rows: int, num_bytes: float, database: Path) -> None:
    """Refuse a sweep of too many rows, or of more bytes than the disk has free."""
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


def _file(estimator: str) -> str:
    return f"sweep-rate-{estimator}"
