"""The cores and the memory that a sweep uses."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator

Batch = TypeVar("Batch")

_ROWS_OF_WORKER = 1_000_000
"""Rows for which one more worker pays: starting it takes as long as evaluating that many."""

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")

MOST_BYTES = 1_000_000_000
"""Memory limit for two threads. DuckDB keeps written blocks, which nobody reads again, until it
reaches its limit, by default four fifths of the machine: 3 GB after 100 million rows."""

THREAD_BYTES = 100_000_000
"""Memory for each further thread: a few row groups that are not compressed yet."""

WORKING_BYTES = 120_000_000
"""Memory that two threads keep when DuckDB frees written blocks: more than the uncompressed row
groups, which take 75 MB for the widest table."""

BATCHES_BETWEEN = 16
"""Batches after which written blocks are freed: 70 to 110 MB. The allocator then returns its free
pages as well, which costs page faults."""


def usable_cores() -> int:
    """Return the cores that this process may use: by its affinity and by its control group."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *_quotas()]))


def _quotas() -> list[int]:
    """Return the limits of the control groups that this process is in, in whole cores."""
    quotas = []
    with suppress(OSError):
        group_name = _OWN_CGROUP.read_text(encoding="utf-8").rpartition("::")[2]
        folder = _CGROUPS / group_name.strip().lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(_CGROUPS):
                break
            with suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
                quotas.append(int(quota) // int(period))  # "max" is no number: no limit
    return quotas


def default_workers(rows: int) -> int:
    """Return how many processes evaluate `rows` rows: two thirds of the cores at most.

    The other cores compress and write. On two cores this process does everything, and evaluation
    and storage overlap anyway.
    """
    return max(1, min(usable_cores() * 2 // 3, rows // _ROWS_OF_WORKER))


def bound_memory(connection: duckdb.DuckDBPyConnection) -> None:
    """Lower the memory limit of a database to what a sweep needs; keep a lower one."""
    before, threads = _limit(connection)
    most = MOST_BYTES + THREAD_BYTES * max(threads - 2, 0)
    if most < before:
        _set_limit(connection, most)


def giving_back(cursor: duckdb.DuckDBPyConnection, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; after every few of them make DuckDB free the blocks that it has written.

    With a low limit all the time, DuckDB's threads would wait for one another. A low limit for a
    moment only frees blocks that are on disk, because DuckDB frees these first. The cursor is the
    caller's own, and is closed: its connection stores the batches meanwhile.
    """
    with closing(cursor):
        limit, threads = _limit(cursor)
        working_bytes = WORKING_BYTES + THREAD_BYTES * max(threads - 2, 0)
        for number, batch in enumerate(batches, start=1):
            if number % BATCHES_BETWEEN == 0 and working_bytes < limit:
                try:
                    with suppress(duckdb.Error):  # more is in use, but what can be freed is
                        _set_limit(cursor, working_bytes)
                finally:
                    _set_limit(cursor, limit)
            yield batch


def _limit(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the memory limit in bytes, and the number of threads."""
    [(limit, threads)] = connection.execute(
        "select parse_formatted_bytes(current_setting('memory_limit')), current_setting('threads')"
    ).fetchall()
    return int(limit), int(threads)


def _set_limit(connection: duckdb.DuckDBPyConnection, limit: int) -> None:
    connection.execute(f"set memory_limit = '{limit}B'")
