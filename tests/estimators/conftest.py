"""What the tests of estimators share: the packaged catalog and a way to evaluate a cell."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from estimators.contract import Catalog
from warehouse.database import resources
from warehouse.database.catalog import packaged_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The reference tables that the package ships."""
    return packaged_catalog()


@pytest.fixture(scope="session")
def macros() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that has the functions of sql/macros.sql and nothing else."""
    with duckdb.connect() as connection:
        connection.execute((resources.sql_directory() / "macros.sql").read_text("utf-8"))
        yield connection
