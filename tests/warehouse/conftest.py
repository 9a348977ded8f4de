"""Fixtures of the warehouse's tests: of batches, rows in, results or refusals out."""

import duckdb
import polars as pl
import pytest

from estimators.contract import PUBLISHED
from tests.small_estimator import CATALOG, SmallEstimator
from warehouse.errors import InputError
from warehouse.evaluate.file import evaluate_file


@pytest.fixture
def connection():
    """A database in memory, with nothing in it."""
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture
def small():
    return SmallEstimator()


@pytest.fixture
def run(tmp_path, small):
    """Write rows, evaluate them, read the results."""

    def run(configs, out="out.csv", mends=PUBLISHED, **options):
        source = configs
        if isinstance(configs, str | bytes):
            source = tmp_path / "in.csv"
            source.write_bytes(configs if isinstance(configs, bytes) else configs.encode())
        elif isinstance(configs, pl.DataFrame):
            source = tmp_path / "in.parquet"
            configs.write_parquet(source)
        target = tmp_path / out
        run.report = evaluate_file(small, source, target, mends, CATALOG, **options)
        if target.suffix == ".parquet":
            return pl.read_parquet(target)
        return pl.read_csv(target, infer_schema_length=None)

    return run


@pytest.fixture
def refusal(run, tmp_path):
    """Evaluate what must be refused; nothing may be written."""

    def refusal(configs, out="out.csv", **options):
        with pytest.raises(InputError) as caught:
            run(configs, out, **options)
        assert caught.value.exit_code == 3
        assert {path.name for path in tmp_path.iterdir()} <= {"in.csv", "in.parquet"}
        return str(caught.value)

    return refusal
