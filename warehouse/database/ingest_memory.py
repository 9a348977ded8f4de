"""The memory that DuckDB uses while it stores the rows of a relation."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import duckdb

from warehouse.database.pieces import BATCH_ROWS, column_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation

ROW_GROUPS = 2
"""Row groups of a thread, not compressed: it fills one and compresses another. One is enough for
the widest relations with 2 to 8 threads, without a directory to spill to."""

OTHER_BYTES = 32_000_000
"""Memory for everything else."""


class IngestMemory:
    """Bounds the memory of a connection while it stores rows.

    DuckDB keeps the blocks that it has written until the memory limit is reached. For each block it
    takes new memory from the system, and a tenth of the time to store rows goes into page faults.
    With a low limit and memory of its own for blocks it uses the same memory again.
    """

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection

    @cached_property
    def _before(self) -> tuple[str, int]:
        """The limit before the first rows, as DuckDB writes it and in bytes.

        It is read once: DuckDB rounds down what it writes.
        """
        [(limit, in_bytes)] = self._connection.execute(
            "select current_setting('memory_limit') as l, parse_formatted_bytes(l)"
        ).fetchall()
        return limit, in_bytes

    @contextmanager
    def little(self, relation: Relation) -> Iterator[None]:
        """Lower the limit to what rows of a relation need; a limit that is lower already stays."""
        limit, before = self._before
        [(blocks, threads)] = self._connection.execute(
            "select parse_formatted_bytes(current_setting('block_allocator_memory')), "
            "current_setting('threads')"
        ).fetchall()
        row_group = BATCH_ROWS * sum(kind.itemsize for kind in column_types(relation).values())
        needed = OTHER_BYTES + ROW_GROUPS * threads * row_group
        if needed >= before:
            yield
            return
        if needed > blocks:  # DuckDB refuses less
            self._connection.execute(f"set block_allocator_memory = '{needed}B'")
        self._connection.execute(f"set memory_limit = '{needed}B'")
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # a transaction that has failed refuses this as well
                self._connection.execute(f"set memory_limit = '{limit}'")
