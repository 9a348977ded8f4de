"""Fixtures of the SQL tests: one warehouse for all of them, each in a transaction of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from warehouse.database.connection import open_for_write


@pytest.fixture(scope="session")
def _opened(
    empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("scratch") / "warehouse.duckdb"
    shutil.copyfile(empty_warehouse, path)
    with open_for_write(path) as connection:
        yield connection


@pytest.fixture
def scratch(_opened: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse without a study; a test's changes are rolled back.

    After an error nothing more can be asked in the same test: DuckDB has ended its transaction.
    """
    _opened.begin()
    yield _opened
    _opened.rollback()
