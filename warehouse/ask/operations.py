"""The operations of a step: how long each takes, and which resource limits it.

The rows pass through a warehouse in memory, so that a command shows the rows of the view
`operation_breakdown`, as for stored configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Operations,
    content_id,
    variant_name,
)
from warehouse.ask.names import Filters, condition, with_known_names
from warehouse.ask.problems import as_sold, stored_problems
from warehouse.ask.rank import PROBLEM_NAMES
from warehouse.database.connection import rows_as_dicts
from warehouse.database.new_file import in_memory
from warehouse.database.sink import store_cells
from warehouse.errors import InputError, require_capability
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.csv_parquet import check_source, read_configs
from warehouse.evaluate.inputs import estimated, input_names, resolve_rows
from warehouse.show.formats import count
from warehouse.studies.study import Study
from warehouse.sweep.record import store_evaluated

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.estimator import Estimator
    from warehouse.show.values import Row
    from warehouse.studies.definitions import Definitions

    Cells = Sequence[tuple[Cell, Columns]]

_HINT = "name a column that it reads, such as num_gpus, tensor_parallel or hbm_bytes_per_second"


def operations_of(estimator: Estimator) -> Operations:
    """Return the operations of the estimator's step."""
    lack = "does not divide a step into operations: `warehouse explain` shows its parts"
    require_capability(estimator, "step.operations", lack)
    assert estimator.step.operations is not None
    return estimator.step.operations


def given_configuration(
    estimator: Estimator, given: Mapping[str, str], catalog: Catalog, mends: Mends
) -> Columns:
    """Return the configuration that inputs in texts make, complete and checked."""
    relation = estimator.relations[0]
    resolved = resolve_rows(estimator, relation, given, catalog, mends)
    if resolved.refusals:
        reasons = [str(replace(refusal, row=None)) for refusal in resolved.refusals]
        raise InputError("\n".join(dict.fromkeys(reasons)))
    return resolved.columns


def configurations_of(
    estimator: Estimator, path: Path, row: int | None, catalog: Catalog, mends: Mends
) -> Columns:
    """Return the configurations in a file, or the one in its `row`, counted from 1."""
    relation = estimator.relations[0]
    inputs = input_names(estimator, relation)
    check_source(path)
    frame = read_configs(path, inputs, keep_text=True)
    if not any(name in inputs for name in frame.columns):
        raise InputError(f"{path}: has no column that the estimator reads", _HINT)
    if frame.height < (row or 1):
        raise InputError(f"{path}: has {count(frame.height, 'row')}, there is no row {row or 1}")
    chosen = frame[row - 1 : row] if row else frame
    resolved = resolve_rows(estimator, relation, chosen, catalog, mends)
    if resolved.refusals:
        before = (row or 1) - 1
        refusals = [
            r if r.row is None else replace(r, row=r.row + before) for r in resolved.refusals
        ]
        raise InputError.from_refusals(refusals, str(path))
    return resolved.columns


def best_configurations(
    connection: DuckDBPyConnection, estimator: Estimator, filters: Filters
) -> tuple[Columns, int]:
    """Return the fastest layout of each problem that passes `filters`, and how many have none."""
    filters = with_known_names(connection, {**filters, "estimator": estimator.name})
    stored = as_sold(connection, stored_problems(connection, filters))
    rank = "rank_in_strategy" if "strategy" in filters else "rank_by_time"
    layout = (*estimator.choice_columns, *estimator.relations[0].keys)
    best = rows_as_dicts(
        connection,
        f"select problem_id, {', '.join(layout)} from leading_row "
        f"where {condition(filters)} and {rank} = 1 and list_contains(?, problem_id)",
        [*filters.values(), sorted(stored)],
    )
    if not best:
        raise InputError(
            "no problem that passes the filters has a layout that fits in memory",
            "`warehouse operations` with the options of one layout shows one that does not fit",
        )
    problems = {row["problem_id"]: row for row in rows_as_dicts(connection, "from problem")}
    rows = [{**problems[layout["problem_id"]], **layout} for layout in best]
    order = (*PROBLEM_NAMES, *estimator.problem_columns)
    rows.sort(key=lambda row: [(row[name] is not None, row[name]) for name in order])
    names = (*estimator.problem_columns, *layout)
    num_without = len(stored) - len({row["problem_id"] for row in rows})
    return {name: _column(name, [row[name] for row in rows]) for name in names}, num_without


def break_down(
    estimator: Estimator, configurations: Columns, mends: Mends, catalog: Catalog
) -> list[tuple[Cell, Columns]]:
    """Return a cell of operations for each distinct configuration, in order."""
    operations = operations_of(estimator)
    relation = operations.relation
    size = len(next(iter(configurations.values())))
    rows = operations.expand({**configurations, "place": np.arange(size)})
    configuration = rows.pop("place")
    results = estimated(estimator, relation, rows, mends, relation.measures, catalog)
    cells: dict[int, tuple[Cell, Columns]] = {}
    edges = np.searchsorted(configuration, np.arange(size + 1)).tolist()
    for start, stop in pairwise(edges):
        inputs, outputs = (
            {name: column[start:stop] for name, column in columns.items()}
            for columns in (rows, results)
        )
        for cell, columns in cells_of(estimator, relation, inputs, outputs, mends):
            cells.setdefault(cell.id, (cell, columns))
    return list(cells.values())


def breakdown(estimator: Estimator, cells: Cells) -> tuple[tuple[str, ...], list[Row]]:
    """Return columns and rows of the view `operation_breakdown` over `cells`, in their order."""
    with in_memory() as connection:
        store_cells(connection, estimator, operations_of(estimator).relation, cells)
        result = connection.execute(
            "select * from operation_breakdown order by list_position(?, cell_id), operation_index",
            [[cell.id for cell, _ in cells]],
        )
        columns = tuple(column[0] for column in result.description or ())
        return columns, list(result.fetchall())


def store_breakdown(
    connection: DuckDBPyConnection,
    estimator: Estimator,
    cells: Cells,
    mends: Mends,
    defined: Definitions,
) -> tuple[str, int]:
    """Store `cells` in a study named by their content; return its name, and the new cells."""
    relation = operations_of(estimator).relation
    variant = variant_name(mends, estimator.mends)
    digest = content_id(sorted(cell.id for cell, _ in cells)) >> 31
    name = f"operations {variant} {digest:08x}"
    definition = {
        "name": name,
        "estimator": estimator.name,
        "relation": relation.name,
        "mends": [[mend for mend in estimator.mends if mend in mends]],
        "cells": sorted(cell.id for cell, _ in cells),
    }
    study = Study(name, estimator.name, (mends,), (), definition, "", defined)
    return name, store_evaluated(connection, relation, cells, study)


def _column(name: str, values: list[Any]) -> Array:
    """Return a column as `Estimator.resolve` would: a missing number is NaN."""
    kind: Any = COLUMNS[name].dtype
    if None in values and kind is not np.object_:
        return np.array([np.nan if value is None else value for value in values])
    return np.array(values, dtype=kind)
