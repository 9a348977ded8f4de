"""Rows are stored in little memory; afterwards the limit is that of the connection again."""

from __future__ import annotations

import duckdb
import pytest

from estimators.registry import get
from warehouse.database.ingest_memory import IngestMemory

RELATION = get("roofline").relations[0]
LIMIT, BLOCKS = "memory_limit", "block_allocator_memory"


def _bytes(connection: duckdb.DuckDBPyConnection, setting: str) -> int:
    query = f"select parse_formatted_bytes(current_setting('{setting}'))"
    found: int = connection.execute(query).fetchall()[0][0]
    return found


def test_the_limit_holds_while_rows_are_stored_and_grows_with_the_threads() -> None:
    with duckdb.connect(config={"memory_limit": "8GB"}) as connection:
        before, limits = _bytes(connection, LIMIT), []
        memory = IngestMemory(connection)
        for threads in (1, 2, 8):
            connection.execute(f"set threads = {threads}")
            with memory.little(RELATION):
                limits.append(_bytes(connection, LIMIT))
                assert _bytes(connection, BLOCKS) == limits[-1]
            # DuckDB shows a tenth of a unit less than it was given
            assert _bytes(connection, LIMIT) == pytest.approx(before, abs=0.11 * 2**30)
        # a row of 23 columns has 136 bytes, a row group 16.7 MB; a thread has two
        assert limits == pytest.approx([65.4e6, 98.8e6, 299.4e6], rel=0.01)


def test_a_lower_limit_stays() -> None:
    with duckdb.connect(config={"memory_limit": "60MB", "threads": "2"}) as connection:
        before = _bytes(connection, LIMIT)
        with IngestMemory(connection).little(RELATION):
            assert _bytes(connection, LIMIT) == before
            assert _bytes(connection, BLOCKS) == 0


def test_many_groups_of_rows_do_not_wear_the_limit_down() -> None:
    with duckdb.connect(config={"memory_limit": "8GB", "threads": "2"}) as connection:
        before, memory = _bytes(connection, LIMIT), IngestMemory(connection)
        for _ in range(20):
            with memory.little(RELATION):
                pass
        assert _bytes(connection, LIMIT) == pytest.approx(before, abs=0.11 * 2**30)


def test_memory_for_blocks_never_shrinks() -> None:
    with duckdb.connect(config={"memory_limit": "8GB", "threads": "4"}) as connection:
        memory = IngestMemory(connection)
        with memory.little(RELATION):
            most = _bytes(connection, BLOCKS)
        connection.execute("set threads = 2")
        with memory.little(RELATION):
            assert _bytes(connection, LIMIT) < most == _bytes(connection, BLOCKS)


def test_the_limit_returns_after_an_error() -> None:
    with duckdb.connect(config={"memory_limit": "8GB", "threads": "2"}) as connection:
        before, memory = _bytes(connection, LIMIT), IngestMemory(connection)
        with pytest.raises(KeyError), memory.little(RELATION):
            raise KeyError("a cell")
        assert _bytes(connection, LIMIT) == pytest.approx(before, abs=0.11 * 2**30)


def test_a_failed_transaction_raises_its_own_error_and_the_next_rows_restore_the_limit() -> None:
    with duckdb.connect(config={"memory_limit": "8GB", "threads": "2"}) as connection:
        before, memory = _bytes(connection, LIMIT), IngestMemory(connection)
        connection.begin()
        with pytest.raises(duckdb.CatalogException), memory.little(RELATION):
            connection.execute("create table twice as select 1; create table twice as select 1")
        connection.rollback()
        with memory.little(RELATION):
            pass
        assert _bytes(connection, LIMIT) == pytest.approx(before, abs=0.11 * 2**30)
