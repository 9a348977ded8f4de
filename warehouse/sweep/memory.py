"""The memory that DuckDB may use while a sweep stores rows."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeVar

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator

Batch = TypeVar("Batch")

MOST_BYTES = 1_000_000_000
"""Memory for two threads. DuckDB keeps what it has written until the limit is reached, by default
four fifths of the machine: 3 GB after 100 million rows, which nobody reads again."""

THREAD_BYTES = 100_000_000
"""Memory for each further thread: a few row groups that are not compressed yet."""

WORKING_BYTES = 120_000_000
"""Memory that two threads keep when they give back what they have written: more than row groups
take that are not compressed yet, 75 MB of the widest table."""

BATCHES_BETWEEN = 16
"""Batches after which written blocks are given back: 70 to 110 MB. The allocator then returns its
free pages as well, and they fault again."""


def bound_memory(connection: duckdb.DuckDBPyConnection) -> None:
    """Lower the memory limit of a database to what a sweep needs; a lower one stays."""
    before, threads = _limit(connection)
    most = MOST_BYTES + THREAD_BYTES * max(threads - 2, 0)
    if most < before:
        _set_limit(connection, most)


def giving_back(connection: duckdb.DuckDBPyConnection, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Return batches; every few of them DuckDB frees the blocks that it has written.

    If the limit stayed low, DuckDB's threads would wait for one another. A limit that is low for a
    moment only frees blocks that are on disk: they go first.

    Parameters
    ----------
    connection
        Stores the batches.
    """
    limit, threads = _limit(connection)
    kept = WORKING_BYTES + THREAD_BYTES * max(threads - 2, 0)
    # batches are yielded within the query that stores them: it has the connection
    return _giving_back(connection.cursor(), batches, kept, limit)


def _giving_back(
    cursor: duckdb.DuckDBPyConnection, batches: Iterator[Batch], kept: int, limit: int
) -> Iterator[Batch]:
    with closing(cursor):
        for number, batch in enumerate(batches, start=1):
            if number % BATCHES_BETWEEN == 0 and kept < limit:
                _give_back(cursor, kept, limit)
            yield batch


def _give_back(connection: duckdb.DuckDBPyConnection, kept: int, limit: int) -> None:
    """Free written blocks until DuckDB uses `kept` bytes, then set its limit again."""
    try:
        with suppress(duckdb.Error):  # more is in use, and all that can be is freed
            _set_limit(connection, kept)
    finally:
        _set_limit(connection, limit)


def _limit(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the memory limit in bytes, and the number of threads."""
    [(limit, threads)] = connection.execute(
        "select parse_formatted_bytes(current_setting('memory_limit')), current_setting('threads')"
    ).fetchall()
    return int(limit), int(threads)


def _set_limit(connection: duckdb.DuckDBPyConnection, limit: int) -> None:
    connection.execute(f"set memory_limit = '{limit}B'")
