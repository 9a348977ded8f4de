"""Speed and size of sweeps on this machine, kept in the cache directory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from warehouse.database.cache import remember, remembered

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_ROWS = 500_000
"""Rows of the smallest sweep whose rate is kept: starting takes most of the time of a shorter
one."""


class Rate(NamedTuple):
    """Speed and size of the rows of one estimator.

    Attributes
    ----------
    rows_per_second
        Rows evaluated and stored in a second.
    bytes_per_row
        Bytes that one of them takes in the database.
    """

    rows_per_second: float
    bytes_per_row: float

    @classmethod
    def measured(cls, rows: int, seconds: float, num_bytes: float) -> Rate:
        """Return the rate of some rows, with at least a bit per row, which blocks may hide."""
        return cls(rows / max(seconds, 1e-6), max(num_bytes / max(rows, 1), 0.125))


def remembered_rate(estimator: str) -> Rate | None:
    """Return the rate of the last long sweep with an estimator; None if there was none."""
    found = remembered(_file(estimator))
    with suppress(TypeError, ValueError, KeyError):
        rate = Rate(float(found["rows_per_second"]), float(found["bytes_per_row"]))
        return rate if min(rate) > 0 else None
    return None


def remember_rate(estimator: str, rate: Rate) -> None:
    """Keep the rate of a sweep for the estimates of later sweeps."""
    remember(_file(estimator), rate._asdict())


def used_bytes(connection: DuckDBPyConnection) -> int:
    """Return the bytes of the blocks in use in the database of a connection."""
    [(found,)] = connection.execute(
        "select used_blocks * block_size from pragma_database_size()"
        " where database_name = current_database()"
    ).fetchall()
    return int(found)


def _file(estimator: str) -> str:
    return f"sweep-rate-{estimator}"
