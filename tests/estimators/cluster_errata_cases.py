"""Runs that show what the faults of the budget's source change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from estimators.cluster.estimator import CLUSTER as ESTIMATOR
from estimators.contract import Catalog, Mends, Relation
from tests.estimators.parity import evaluated

SMALL, LARGE = {"global_batch_tokens": 8192.0}, {"global_batch_tokens": 1e6}
# 20e12 tokens, as in the source's table of exchanges
LONG = {"dataset_tokens": 20e12}
TWO_MILLION = {**LONG, "global_batch_tokens": 2e6, "sync_interval_steps": 500}
LLAMA = {"model": "llama3_70B"}


def figure(
    relation: Relation, column: str, inputs: Mapping[str, Any], mends: Mends, catalog: Catalog
) -> float:
    frame = pl.DataFrame([dict(inputs)])
    return float(evaluated(ESTIMATOR, relation, frame, catalog, mends)[column][0])
