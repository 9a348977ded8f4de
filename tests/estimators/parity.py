"""Evaluates rows of a batch through an estimator and compares them with a source's figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from estimators.contract import PUBLISHED, Array, Catalog, Mends, Refusal, Relation
from estimators.estimator import Estimator
from warehouse.evaluate.frames import read_columns
from warehouse.evaluate.inputs import input_names

GOLDENS = Path(__file__).parents[1] / "goldens"


def read_golden(name: str) -> pl.DataFrame:
    """Return the golden rows of a file."""
    return pl.read_parquet(GOLDENS / f"{name}.parquet")


def read_refused(name: str) -> list[dict[str, Any]]:
    """Return the argument sets that must be refused, each with its case."""
    cases: list[dict[str, Any]] = json.loads((GOLDENS / f"{name}_refused.json").read_text())
    return cases


def resolved(
    estimator: Estimator,
    relation: Relation,
    frame: pl.DataFrame,
    catalog: Catalog,
    mends: Mends = PUBLISHED,
) -> tuple[Mapping[str, Array], list[Refusal]]:
    """Return the completed rows and every refusal, as `warehouse evaluate` would."""
    columns, refused = read_columns(frame, input_names(estimator, relation), relation)
    rows, refusals = estimator.resolve(relation, columns, catalog, mends)
    return rows, refused + refusals


def evaluated(
    estimator: Estimator,
    relation: Relation,
    frame: pl.DataFrame,
    catalog: Catalog,
    mends: Mends = PUBLISHED,
) -> pl.DataFrame:
    """Return every output of rows that must not be refused."""
    rows, refusals = resolved(estimator, relation, frame, catalog, mends)
    assert [str(refusal) for refusal in refusals] == []
    values = {n: rows[n] for n in (*estimator.problem_columns, *estimator.choice_columns)}
    layouts = {name: rows[name] for name in relation.keys}
    out: dict[str, Array] = {
        name: np.empty(frame.height, relation.column(name).dtype) for name in relation.outputs
    }
    estimator.estimate(relation, values, layouts, mends, out, catalog)
    return pl.DataFrame({name: pl.Series(name, column) for name, column in out.items()})


def worst_error(found: pl.DataFrame, golden: pl.DataFrame, names: Sequence[str]) -> dict[str, Any]:
    """Return the largest relative error of each column, over the rows whose figure is given."""
    worst = {}
    for name in names:
        given = golden[name].is_not_null().to_numpy()
        expected = golden[name].cast(pl.Float64).to_numpy()[given]
        actual = found[name].cast(pl.Float64).to_numpy()[given]
        scale = np.where(expected == 0, 1, np.abs(expected))
        worst[name] = float(np.max(np.abs(actual - expected) / scale, initial=0.0))
    return worst
