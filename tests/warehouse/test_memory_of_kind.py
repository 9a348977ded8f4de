"""Estimated and measured memory that count the same, and how far they are apart."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from estimators.contract import PUBLISHED
from estimators.interval import QUANTILE
from estimators.registry import get
from warehouse.calibrate.published import published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.database.tables import MEASUREMENTS
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.plan.evaluated_steps import MEMORY_OF_KIND, memory_of_kind


def test_each_kind_has_the_estimate_that_counts_the_same() -> None:
    kinds = ["allocated", "reserved", "device", "unknown", None]
    columns = ("memory_bytes", "allocated_bytes", "reserved_bytes")
    found = {name: np.full(5, size) for name, size in zip(columns, (9.0, 5.0, 7.0), strict=True)}
    assert memory_of_kind(kinds, found).tolist() == [5, 7, 9, 9, 9]
    whole = {"memory_bytes": found["memory_bytes"]}
    assert memory_of_kind(kinds, whole).tolist() == [9] * 5


def test_the_spread_of_memory_is_that_of_the_published_rows() -> None:
    catalog = packaged_catalog()
    frame = published_steps().filter(
        (pl.col("reference") == MEASUREMENTS) & pl.col("published_memory_bytes").is_not_null()
    )
    estimator = get("training_step")
    resolved = resolve_rows(estimator, estimator.relations[0], frame, catalog, PUBLISHED)
    assert resolved.is_good.all()
    found = evaluate_rows(resolved, MEMORY_OF_KIND)
    estimated = memory_of_kind(frame["measured_memory_kind"].to_list(), found)
    errors = np.log(frame["published_memory_bytes"].cast(pl.Float64).to_numpy() / estimated)
    row = catalog.tables["interval_term"]["memory_error"]
    centre, half = errors.mean(), QUANTILE * errors.std()
    assert row["constant_value"] == pytest.approx(centre, abs=0.01)
    assert row["lowest_value"] == pytest.approx(centre - half, abs=0.01)
    assert row["highest_value"] == pytest.approx(centre + half, abs=0.01)
