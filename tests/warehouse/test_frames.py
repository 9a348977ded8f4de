"""Queries as polars frames."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest

from warehouse.errors import DatabaseError, InputError
from warehouse.frames import frame


def test_a_query_becomes_a_frame_with_its_types_and_order(empty_warehouse: Path) -> None:
    found = frame("select model, num_layers from model order by num_layers desc", empty_warehouse)
    assert found.schema == {"model": pl.String, "num_layers": pl.Int32}
    assert found["num_layers"].is_sorted(descending=True)
    assert found.height > 10


def test_names_in_a_query_take_the_values_given(empty_warehouse: Path) -> None:
    sql = "select num_layers from model where model = $model"
    assert frame(sql, empty_warehouse, model="gpt3").rows() == [(96,)]


def test_the_database_may_come_from_the_environment(
    empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_DB", str(empty_warehouse))
    assert frame("select count(*) as n from system")["n"][0] > 3


def test_nothing_is_written_and_nothing_stays_open(empty_warehouse: Path) -> None:
    with pytest.raises(InputError, match="not a SELECT but: DELETE"):
        frame("delete from model", empty_warehouse)
    duckdb.connect(str(empty_warehouse)).close()  # refused while another connection is open


def test_a_missing_database_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no such database"):
        frame("select 1", tmp_path / "none.duckdb")
