"""Table `stored_price` follows the reference tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from tests.warehouse.test_materialised import forget_view
from warehouse.database import resources, stored_price
from warehouse.database.schema import prepare
from warehouse.database.views import checks

[CHECK] = [check.sql for check in checks() if check.name == "stored_price_is_found"]


def test_a_new_database_has_the_prices_of_its_references(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    assert warehouse_connection.execute(CHECK).fetchall() == []
    query = "select count(*) from stored_price where usd_per_gpu_hour > 0"
    assert warehouse_connection.execute(query).fetchall() > [(10,)]


@pytest.mark.long
def test_another_view_fills_the_table_again(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    warehouse_connection.execute("update stored_price set usd_per_gpu_hour = 1")
    assert not prepare(warehouse_connection)
    forget_view(warehouse_connection, stored_price.SOURCE)
    assert prepare(warehouse_connection)
    assert warehouse_connection.execute(CHECK).fetchall() == []


@pytest.mark.long
def test_another_reference_table_fills_the_table_again(
    warehouse_connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    other = shutil.copytree(resources.reference_directory(), tmp_path / "reference")
    power = other / "facility_pue.csv"
    text = power.read_text("utf-8")
    assert "Hyperscaler (Epoch),1.1," in text
    power.write_text(text.replace("Hyperscaler (Epoch),1.1,", "Hyperscaler (Epoch),1.3,"), "utf-8")
    assert prepare(warehouse_connection, reference=other)
    found = warehouse_connection.execute("select distinct pue from stored_price").fetchall()
    assert found == [(1.3,)]
    assert warehouse_connection.execute(CHECK).fetchall() == []
