"""Rows of the budget, by the mends that they are evaluated under, and what refuses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from estimators.cluster.estimator import CLUSTER
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.parity import evaluated
from tests.examples import examples

ALL_MENDS: Mends = frozenset(CLUSTER.mends)
SOURCES_OWN: Mends = frozenset(f"C{number}" for number in range(1, 9))

SIZE, TOKENS = 70e9, 1.4e12

each_variant = pytest.mark.parametrize("mends", [PUBLISHED, ALL_MENDS], ids=["published", "all"])


def run(
    catalog: Catalog, relation: Relation, mends: Mends = PUBLISHED, **inputs: Any
) -> dict[str, Any]:
    """Return the figures of one row."""
    return evaluated(CLUSTER, relation, pl.DataFrame([inputs]), catalog, mends).row(0, named=True)


def assert_figures(found: Mapping[str, Any], expected: Mapping[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


few = examples(60)
