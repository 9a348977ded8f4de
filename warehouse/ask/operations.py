"""Operation by operation: what the step of a few configurations consists of.

The rows go through a warehouse in memory, so that what a command shows is what the view
`operation_breakdown` shows of stored rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators.columns import COLUMNS
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Refusal,
    Scalar,
    content_id,
    variant_name,
)
from estimators.registry import get
from estimators.roofline.breakdown import with_operations
from estimators.roofline.estimator import RELATION, RELATION_OPERATION
from warehouse.ask.names import with_known_names
from warehouse.ask.rank import QUESTION, RANKED, Filters, stored_problems
from warehouse.database.connection import rows_as_dicts
from warehouse.database.empty import in_memory
from warehouse.database.sink import store_cells
from warehouse.database.sql_text import quoted
from warehouse.errors import InputError
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.csv_parquet import SUFFIXES, read_configs
from warehouse.evaluate.inputs import input_names, read_columns, wrong_types
from warehouse.studies.study import Study
from warehouse.sweep.record import register_study

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.show.formats import Row

    Cells = Sequence[tuple[Cell, Columns]]

ROOFLINE = get("roofline")
"""The estimator that has operations."""

INPUTS = input_names(ROOFLINE, RELATION)
"""Columns that make a configuration."""

_NEVER = "what an estimator reads, such as num_gpus, tensor_parallel or hbm_bytes_per_second"


def given_configuration(
    given: Mapping[str, Scalar], catalog: Catalog, mends: Mends
) -> dict[str, Array]:
    """Return the configuration that column values make, complete and checked.

    Raises
    ------
    InputError
        If a value is faulty, missing or breaks a rule.
    """
    for name in given:
        if name not in INPUTS:
            raise InputError(f"`{name}` is not a column of a configuration", f"name {_NEVER}")
    frame = pl.DataFrame({name: [str(value)] for name, value in given.items()})
    resolved, refusals = _resolved(frame, catalog, mends)
    if refusals:
        told = [str(replace(refusal, row=None)) for refusal in refusals]
        raise InputError("\n".join(dict.fromkeys(told)))
    return resolved


def configurations_of(
    path: Path, row: int | None, catalog: Catalog, mends: Mends
) -> dict[str, Array]:
    """Return the configurations in a file, or the one in its `row`, counted from 1.

    Raises
    ------
    InputError
        If the file cannot be read, has no such row, or a row is refused.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: is of no known format", f"name a file that ends in {' or '.join(SUFFIXES)}"
        )
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    frame = read_configs(path, INPUTS, keep_text=True)
    if not any(name in INPUTS for name in frame.columns):
        raise InputError(f"{path}: has no column that the estimator reads", f"name {_NEVER}")
    if frame.height < (row or 1):
        have = f"{frame.height} row{'' if frame.height == 1 else 's'}"
        raise InputError(f"{path}: has {have}, there is no row {row or 1}")
    refusals = wrong_types(frame, INPUTS)
    if not refusals:
        frame = frame[row - 1 : row] if row else frame
        resolved, refusals = _resolved(frame, catalog, mends)
    if refusals:
        first = row or 1
        told = [r if r.row is None else replace(r, row=r.row + first - 1) for r in refusals]
        raise InputError.from_refusals(told, str(path))
    return resolved


def best_configurations(
    connection: DuckDBPyConnection, filters: Filters
) -> tuple[dict[str, Array], int]:
    """Return the fastest layout of each problem that `filters` leave, and how many have none.

    Parameters
    ----------
    filters
        As `ranking.rank_layouts` takes them: the variant among them.

    Raises
    ------
    InputError
        If a filter leaves no problem, or none has a layout that fits in memory.
    """
    filters = with_known_names(connection, {**filters, "estimator": ROOFLINE.name})
    stored = stored_problems(connection, filters)
    rank = "rank_in_strategy" if "strategy" in filters else "rank_by_time"
    layout = (*ROOFLINE.choice_columns, *RELATION.keys)
    where = " and ".join(f"{quoted(name)} = ?" for name in filters)
    best = rows_as_dicts(
        connection,
        f"select problem_id, {', '.join(layout)} from {RANKED[rank]} where {where} and {rank} = 1",
        list(filters.values()),
    )
    if not best:
        raise InputError(
            "no layout fits in memory in any problem that the filters leave",
            "`warehouse operations` with the options of one layout shows one that does not fit",
        )
    problems = {
        problem["problem_id"]: problem for problem in rows_as_dicts(connection, "from problem")
    }
    rows = [{**problems[each["problem_id"]], **each} for each in best]
    order = (*QUESTION, *ROOFLINE.problem_columns)
    rows.sort(key=lambda found: [(found[name] is not None, found[name]) for name in order])
    names = (*ROOFLINE.problem_columns, *layout)
    return {name: _column(name, [row[name] for row in rows]) for name in names}, len(stored) - len(
        {row["problem_id"] for row in rows}
    )


def break_down(configurations: Columns, mends: Mends) -> list[tuple[Cell, Columns]]:
    """Return a cell of operations for each configuration, in order; one given twice is one."""
    size = len(configurations["strategy"])
    rows = with_operations({**configurations, "place": np.arange(size)})
    place = rows.pop("place")
    found: dict[str, Array] = {
        name: np.empty(len(place), dtype=COLUMNS[name].dtype)
        for name in RELATION_OPERATION.measures
    }
    ROOFLINE.estimate(RELATION_OPERATION, rows, rows, mends, found)
    cells: dict[int, tuple[Cell, Columns]] = {}
    for start, stop in _runs(place, size):
        own, measured = (
            {name: column[start:stop] for name, column in columns.items()}
            for columns in (rows, found)
        )
        for cell, columns in cells_of(ROOFLINE, RELATION_OPERATION, own, measured, mends):
            cells.setdefault(cell.id, (cell, columns))
    return list(cells.values())


def breakdown(cells: Cells) -> tuple[tuple[str, ...], list[Row]]:
    """Return columns and rows of the view `operation_breakdown` over `cells`, in their order."""
    with in_memory() as connection:
        store_cells(connection, ROOFLINE, RELATION_OPERATION, cells)
        result = connection.execute(
            "select * from operation_breakdown order by list_position(?, cell_id), operation_index",
            [[cell.id for cell, _ in cells]],
        )
        columns = tuple(column[0] for column in result.description or ())
        return columns, list(result.fetchall())


def store_breakdown(connection: DuckDBPyConnection, cells: Cells, mends: Mends) -> tuple[str, int]:
    """Store `cells` under a study of their own; return its name, and how many cells were new."""
    variant = variant_name(mends, ROOFLINE.mends)
    digest = content_id(sorted(cell.id for cell, _ in cells)) >> 31
    name = f"operations {variant} {digest:08x}"
    definition = {
        "name": name,
        "estimator": ROOFLINE.name,
        "relation": RELATION_OPERATION.name,
        "mends": [[mend for mend in ROOFLINE.mends if mend in mends]],
        "cells": sorted(cell.id for cell, _ in cells),
    }
    study = Study(name, ROOFLINE.name, (mends,), (), definition, "")
    sizes = [(cell, len(columns["operation"])) for cell, columns in cells]
    register_study(connection, study, sizes)
    return name, len(store_cells(connection, ROOFLINE, RELATION_OPERATION, cells))


def _resolved(
    frame: pl.DataFrame, catalog: Catalog, mends: Mends
) -> tuple[dict[str, Array], list[Refusal]]:
    columns, refusals = read_columns(frame, INPUTS, RELATION)
    if refusals:
        return {}, refusals
    resolved, refusals = ROOFLINE.resolve(RELATION, columns, catalog, mends)
    return dict(resolved), refusals


def _runs(place: Array, size: int) -> list[tuple[int, int]]:
    """Return where the rows of each configuration begin and end."""
    edges = np.searchsorted(place, np.arange(size + 1)).tolist()
    return list(pairwise(edges))


def _column(name: str, values: list[Any]) -> Array:
    """Return a column as `Estimator.resolve` would: a missing number is NaN."""
    kind: Any = COLUMNS[name].dtype
    if None in values and kind is not np.object_:
        return np.array([np.nan if value is None else value for value in values])
    return np.array(values, dtype=kind)
