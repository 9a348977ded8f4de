"""Cells from evaluated rows, equal to those that a search would store."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.columns import COLUMNS
from estimators.contract import Array, Cell, Columns, Mends, Problem
from warehouse.database.in_force import EVALUATED
from warehouse.evaluate.inputs import scalars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from estimators.contract import Relation
    from estimators.estimator import Estimator


def cells_of(
    estimator: Estimator, relation: Relation, resolved: Columns, results: Columns, mends: Mends
) -> list[tuple[Cell, Columns]]:
    """Return a cell and its stored columns for each distinct problem and set of choices.

    A configuration that is given twice is stored once. The rows of a cell are sorted by their keys,
    and its `kept` holds a hash of them: the same rows in another order or file are the same cell.

    `resolved` has the problem, choice and key columns, `results` at least the relation's measures.
    """
    shared = (*estimator.problem_columns, *estimator.choice_columns)
    stored = {name: resolved[name] for name in relation.keys}
    stored |= {name: results[name] for name in relation.measures}
    cells: list[tuple[Cell, Columns]] = []
    for rows in _groups(resolved, shared):
        rows = _ordered(resolved, relation.keys, rows)
        first = int(rows[0])
        columns = {name: values[rows] for name, values in stored.items()}
        cell = Cell(
            estimator=estimator.name,
            version=estimator.version,
            relation=relation.name,
            problem=Problem(scalars(resolved, estimator.problem_columns, first)),
            mends=mends,
            choices=scalars(resolved, estimator.choice_columns, first),
            fixed={EVALUATED: _digest(columns, relation.keys)},
            neutral=estimator.neutral_choices,
        )
        cells.append((cell, columns))
    return cells


def _groups(columns: Columns, names: Sequence[str]) -> Iterator[Array]:
    """Yield the rows of each distinct combination of `names`, in order of first appearance."""
    frame = pl.DataFrame({name: columns[name] for name in names}).with_row_index("row number")
    if frame.height:
        groups = frame.group_by(names, maintain_order=True).agg("row number")
        for rows in groups["row number"]:
            yield rows.to_numpy()


def _ordered(columns: Columns, keys: Sequence[str], rows: Array) -> Array:
    """Return `rows` sorted by `keys`, the first of each distinct combination."""
    if not keys:
        return rows[:1]
    frame = pl.DataFrame({name: columns[name][rows] for name in keys})
    frame = frame.with_columns(pl.Series("row number", rows))
    frame = frame.sort([*keys, "row number"]).unique(keys, keep="first", maintain_order=True)
    return frame["row number"].to_numpy()


def _digest(columns: Columns, keys: Sequence[str]) -> str:
    """Return a hash of the key columns, the same on every machine."""
    state = hashlib.blake2b(digest_size=8)
    for name in keys:
        state.update(f"{name}:".encode())
        if COLUMNS[name].kind == "str":
            state.update("\0".join(map(str, columns[name])).encode())
        else:
            state.update(np.ascontiguousarray(columns[name], dtype="<f8").tobytes())
    return state.hexdigest()
