"""Measured tables: Parquet files, checked like CSV files, stored and read as columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from warehouse.database.catalog import packaged_catalog
from warehouse.database.new_file import in_memory
from warehouse.database.reference import columns_of, read_measured, store_measured
from warehouse.database.schema import prepare
from warehouse.database.stamp import reference_names
from warehouse.errors import InputError

GOOD: dict[str, list[Any]] = {
    "accelerator": ["a", "a"],
    "product_rows": [1, 2],
    "product_flops_per_second": [1.0, 2e12],
    "follows_waves": [True, False],
    "source": ["x", "y"],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "rates", **changes: Any) -> Path:
        path = tmp_path / f"{name}.parquet"
        columns = {**GOOD, **changes}
        pl.DataFrame({n: own for n, own in columns.items() if own is not None}).write_parquet(path)
        return path

    return write


def test_a_table_is_stored_with_the_types_of_the_dictionary(write: Callable[..., Path]) -> None:
    table = read_measured(write())
    with duckdb.connect() as connection:
        store_measured(connection, "rates", table)
        assert connection.execute("from rates").fetchall() == [
            ("a", 1, 1.0, True, "x"),
            ("a", 2, 2e12, False, "y"),
        ]
        kinds = [kind for _, kind, *_ in connection.execute("describe rates").fetchall()]
        assert kinds == ["VARCHAR", "INTEGER", "DOUBLE", "BOOLEAN", "VARCHAR"]
        assert connection.execute(
            "select count(*) from duckdb_views() where not internal"
        ).fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": None}, '"source" is missing'),
        ({"source": ["x", None]}, "row 2: `source` is missing"),
        ({"source": ["", "y"]}, "row 1: `source` is missing"),
        ({"produc_rows": [1, 2]}, "did you mean product_rows"),
        ({"product_rows": [1, 0]}, "row 2: `product_rows` 0 must be at least 1"),
        ({"product_rows": [1.5, 2.0]}, "row 1: `product_rows` 1.5 must be a whole number"),
        ({"product_rows": ["1", "2"]}, 'row 1: `product_rows` "1" must be a whole number'),
        ({"product_flops_per_second": [1.0, -2.0]}, "row 2: `product_flops_per_second` -2"),
        ({"product_flops_per_second": [float("nan"), 1.0]}, "row 1: `product_flops_per_second`"),
        ({"product_flops_per_second": [1.0, float("inf")]}, "row 2: `product_flops_per_second`"),
        ({"follows_waves": [1, 0]}, "row 1: `follows_waves` 1 must be true or false"),
    ],
)
def test_a_fault_is_named_with_its_row(
    write: Callable[..., Path], changes: dict[str, Any], said: str
) -> None:
    path = write(**changes)
    with pytest.raises(InputError) as caught:
        read_measured(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path, write: Callable[..., Path]) -> None:
    (tmp_path / "rates.parquet").write_text("no")
    with pytest.raises(InputError, match="is not a Parquet table"):
        read_measured(tmp_path / "rates.parquet")
    with pytest.raises(InputError, match="is not a table name"):
        read_measured(write("My rates"))


def test_a_catalog_has_the_columns_without_the_source(write: Callable[..., Path]) -> None:
    catalog = packaged_catalog(write().parent)
    columns = catalog.measured["rates"]
    assert [*columns] == [name for name in GOOD if name != "source"]
    assert columns["product_rows"].dtype == np.int32
    assert columns["product_flops_per_second"].tolist() == [1.0, 2e12]
    assert catalog.measured["rates"] is columns
    assert "rates" not in catalog.tables
    with pytest.raises(KeyError):
        catalog.measured["nothing"]


def test_a_faulty_table_is_read_when_an_estimator_asks(write: Callable[..., Path]) -> None:
    catalog = packaged_catalog(write(product_rows=[0, 1]).parent)
    with pytest.raises(InputError, match="must be at least 1"):
        catalog.measured["rates"]


def test_a_database_has_the_columns_of_the_catalog() -> None:
    with in_memory() as connection:
        stored = columns_of(connection.table("matrix_product_rate").pl())
    packaged = packaged_catalog().measured["matrix_product_rate"]
    assert stored.keys() == packaged.keys()
    for name, column in packaged.items():
        assert stored[name].dtype == column.dtype
        assert (stored[name] == column).all()


def test_a_table_that_is_gone_or_changed_is_gone_or_changed_in_the_database(
    write: Callable[..., Path], small_package: Path
) -> None:
    path = small_package / "reference" / "rates.parquet"
    write().rename(path)
    with duckdb.connect() as connection:
        prepare(connection)
        assert "rates" in reference_names(connection)
        assert connection.execute("select count(*) from rates").fetchone() == (2,)
        write(product_rows=[3, 4]).rename(path)
        prepare(connection)
        assert connection.execute("select max(product_rows) from rates").fetchone() == (4,)
        path.unlink()
        prepare(connection)
        assert "rates" not in reference_names(connection)
        assert connection.execute("select model from model").fetchall() == [("a",)]
