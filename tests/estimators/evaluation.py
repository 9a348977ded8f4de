"""Evaluates cells and batches into polars frames, the long way round that tests compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array, Catalog, Cell, Mends, Refusal, Scalar
from estimators.factored import Factored
from estimators.roofline.estimator import RELATION, ROOFLINE

ALL_MENDS: Mends = frozenset(ROOFLINE.mends)
NOTHING = Catalog({})
"""No reference table: a resolved problem has every figure that the estimator needs."""

NAMES = (*ROOFLINE.problem_columns, *ROOFLINE.choice_columns, *RELATION.keys)
PARTS = (
    "compute_seconds",
    "memory_seconds",
    "tensor_comm_seconds",
    "pipeline_comm_seconds",
    "bubble_seconds",
    "data_comm_seconds",
)


def cells_of(
    space: Mapping[str, Sequence[Scalar]], catalog: Catalog, mends: Mends = PUBLISHED
) -> list[Cell]:
    """Return the cells of a space; raise if it is faulty or has no layout."""
    ROOFLINE.search.check(space, catalog, mends)
    return list(ROOFLINE.search.cells(space, catalog, mends))


def evaluate_cell(cell: Cell, max_rows: int = 16_384) -> pl.DataFrame:
    """Return every layout of a cell with everything the estimator knows of it."""
    names = (*RELATION.keys, *RELATION.outputs)
    frames: list[pl.DataFrame] = []
    for layouts in ROOFLINE.search.layouts(cell, max_rows):
        assert isinstance(layouts, Factored)
        out = _allocate(names, layouts.num_rows)
        ROOFLINE.estimate(RELATION, cell.values, layouts, cell.mends, out, NOTHING)
        frames.append(pl.DataFrame(out))
    return pl.concat(frames) if frames else pl.DataFrame(_allocate(names, 0))


def resolve(
    rows: pl.DataFrame, catalog: Catalog, mends: Mends = PUBLISHED
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the completed input columns of a frame and what is refused."""
    columns = {}
    for name in NAMES:
        if name in rows.columns:
            values = rows[name].to_list()
            is_text = COLUMNS[name].kind == "str"
            columns[name] = np.array(
                values if is_text else [np.nan if v is None else v for v in values],
                dtype=object if is_text else float,
            )
    resolved, refusals = ROOFLINE.resolve(RELATION, columns, catalog, mends)
    return dict(resolved), refusals


def evaluate_rows(
    rows: pl.DataFrame, catalog: Catalog, mends: Mends = PUBLISHED, **changes: Any
) -> pl.DataFrame:
    """Return the results of a batch, in order; `changes` replace resolved columns."""
    resolved, refusals = resolve(rows, catalog, mends)
    assert not refusals, refusals[:3]
    for name, value in changes.items():
        resolved[name] = np.broadcast_to(value, rows.height)
    out = _allocate(RELATION.outputs, rows.height)
    ROOFLINE.estimate(RELATION, resolved, resolved, mends, out, NOTHING)
    return pl.DataFrame(out)


def _allocate(names: Sequence[str], size: int) -> dict[str, Array]:
    return {name: np.empty(size, dtype=COLUMNS[name].dtype) for name in names}


def relative_error(found: pl.Series, expected: pl.Series) -> float:
    """Return the largest relative deviation; absolute where zero is expected."""
    deviation = (found - expected).abs().to_numpy()
    scale = expected.abs().to_numpy()
    return float(np.max(deviation / np.where(scale > 0, scale, 1.0), initial=0.0))
