"""Databases that plots are drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read


@pytest.fixture
def empty(empty_warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse without a study."""
    with open_for_read(empty_warehouse) as connection:
        yield connection


@pytest.fixture
def quickstarted(quickstart: Quickstart) -> Iterator[duckdb.DuckDBPyConnection]:
    """The small quickstart's warehouse."""
    with open_for_read(quickstart.database) as connection:
        yield connection
