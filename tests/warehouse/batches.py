"""Rows in, results out: a file of configurations evaluated with the small estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from estimators.contract import PUBLISHED
from tests.small_estimator import CATALOG, SmallEstimator
from warehouse.evaluate.file import BatchReport, evaluate_file


class Batches:
    """Writes rows, evaluates them, reads the results; `report` is that of the last ones."""

    report: BatchReport

    def __init__(self, directory: Path, estimator: SmallEstimator) -> None:
        self.directory, self.estimator = directory, estimator

    def __call__(
        self,
        configs: str | bytes | Path | pl.DataFrame,
        out: str = "out.csv",
        mends: frozenset[str] = PUBLISHED,
        **options: Any,
    ) -> pl.DataFrame:
        if isinstance(configs, Path):
            source = configs
        elif isinstance(configs, pl.DataFrame):
            source = self.directory / "in.parquet"
            configs.write_parquet(source)
        else:
            source = self.directory / "in.csv"
            source.write_bytes(configs if isinstance(configs, bytes) else configs.encode())
        target = self.directory / out
        self.report = evaluate_file(self.estimator, source, target, mends, CATALOG, **options)
        if target.suffix == ".parquet":
            return pl.read_parquet(target)
        return pl.read_csv(target, infer_schema_length=None)
