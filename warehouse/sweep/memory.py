"""The memory that DuckDB may use while a sweep stores rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_BYTES = 1_000_000_000
"""Memory for two threads. DuckDB keeps what it has written until the limit is reached, by default
four fifths of the machine: 3 GB after 100 million rows, which nobody reads again."""

THREAD_BYTES = 100_000_000
"""Memory for each further thread: a few row groups that are not compressed yet."""


def bound_memory(connection: DuckDBPyConnection) -> None:
    """Lower the memory limit of a database to what a sweep needs; a lower one stays."""
    [(before, threads)] = connection.execute(
        "select parse_formatted_bytes(current_setting('memory_limit')), current_setting('threads')"
    ).fetchall()
    most = MOST_BYTES + THREAD_BYTES * max(threads - 2, 0)
    if most < before:
        connection.execute(f"set memory_limit = '{most}B'")
