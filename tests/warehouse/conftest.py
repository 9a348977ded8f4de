"""Fixtures of the warehouse's tests: of batches, rows in, results or refusals out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from estimators.registry import ESTIMATORS
from tests.shared import Shared
from tests.small_estimator import SmallEstimator
from tests.warehouse.batches import Batches
from tests.warehouse.facts_cases import make_every_kind
from tests.warehouse.small_package import SMALL_FUNCTION, SMALL_VIEW
from warehouse.database import resources, stamp
from warehouse.errors import InputError


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory, with nothing in it."""
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture
def small() -> SmallEstimator:
    return SmallEstimator()


@pytest.fixture
def run(tmp_path: Path, small: SmallEstimator) -> Batches:
    """Write rows, evaluate them, read the results."""
    return Batches(tmp_path, small)


@pytest.fixture
def refusal(run: Batches, tmp_path: Path) -> Callable[..., str]:
    """Evaluate what must be refused; nothing may be written."""

    def refusal(configs: str | bytes | pl.DataFrame, out: str = "out.csv", **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            run(configs, out, **options)
        assert caught.value.exit_code == 3
        assert {path.name for path in tmp_path.iterdir()} <= {"in.csv", "in.parquet"}
        return str(caught.value)

    return refusal


@pytest.fixture
def small_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one estimator, few views and an empty cache: a database takes a moment.

    Returns the directory that has its `sql`, `reference` and `cache`.
    """
    one = {"linear_layer": ESTIMATORS["linear_layer"]}
    monkeypatch.setattr("estimators.registry.ESTIMATORS", one)
    sql, reference = tmp_path / "sql", tmp_path / "reference"
    (sql / "marts").mkdir(parents=True)
    (sql / "functions").mkdir()
    reference.mkdir()
    (sql / "marts" / "models.sql").write_text(SMALL_VIEW)
    (sql / "macros.sql").write_text("-- Sum.\ncreate or replace macro plus(x, y) as x + y;")
    (sql / "functions" / "wider.sql").write_text(SMALL_FUNCTION)
    (reference / "model.csv").write_text("model,hidden_size,source\na,8,here\n")
    monkeypatch.setattr(resources, "sql_directory", lambda: sql)
    monkeypatch.setattr(resources, "reference_directory", lambda: reference)
    monkeypatch.setattr(stamp, "_hash", stamp._hash.__wrapped__)  # tests change files
    monkeypatch.setenv("WAREHOUSE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="session")
def every_kind(shared: Shared) -> Path:
    """A database with every kind of fact, to be copied."""
    return shared("every-kind-of-fact", make_every_kind) / "warehouse.duckdb"
