"""Fixtures of the warehouse's tests: of batches, rows in, results or refusals out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from tests.small_estimator import SmallEstimator
from tests.warehouse.batches import Batches
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
