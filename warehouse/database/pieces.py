"""Pieces of cells: layouts that are evaluated at once, into given arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.columns.dtypes import NUMPY_TYPES
from estimators.contract import Array, Catalog, Cell, Columns, Estimator, Relation
from warehouse.database.leading import LeadingRows
from warehouse.database.tables import ROW_IDS

BATCH_ROWS = 122_880
"""Rows of a batch, one row group of DuckDB; other sizes cost time and space."""

CHUNK_ROWS = 61_440
"""Layouts evaluated at once, half a batch: many enough to share the cost of small tables, few
enough to keep intermediate columns in the processor's cache."""

_KEPT_BYTES = 24_000_000
"""The process keeps freed blocks up to this size; glibc never keeps more than 32 MiB."""

Evaluated = Iterator[tuple[Cell, int, Callable[[dict[str, Array]], None]]]
"""Pieces of cells: the cell, the number of rows, and a function that fills given arrays."""


def searched(
    estimator: Estimator, relation: Relation, cells: Iterable[Cell], catalog: Catalog
) -> Evaluated:
    """Yield pieces of cells: the search enumerates layouts, the estimator evaluates them.

    Raises
    ------
    RuntimeError
        If a cell does not yield as many layouts as its count.
    """
    search = estimator.search
    if search is None:
        raise TypeError(f"estimator {estimator.name} has no search")
    for cell in cells:
        values, seen = cell.values, 0
        for layouts in search.layouts(cell, CHUNK_ROWS):
            size = num_rows(layouts)
            seen += size

            def fill(
                out: dict[str, Array],
                values: Any = values,
                layouts: Columns = layouts,
                cell: Cell = cell,
            ) -> None:
                estimator.estimate(relation, values, layouts, cell.mends, out, catalog)

            yield cell, size, fill
        if seen != search.count(cell):
            raise RuntimeError(f"cell {cell.id}: {seen} layouts, counted {search.count(cell)}")


def given(relation: Relation, cells: Iterable[tuple[Cell, Columns]]) -> Evaluated:
    """Yield the pieces of cells that are already evaluated."""
    for cell, columns in cells:

        def fill(out: dict[str, Array], columns: Columns = columns) -> None:
            for name in relation.stored:
                out[name][:] = columns[name]

        yield cell, num_rows(columns), fill


def num_rows(columns: Columns) -> int:
    """Return the number of rows of columns; factored columns know it."""
    known = getattr(columns, "num_rows", None)
    return int(known) if known is not None else len(next(iter(columns.values())))


def write(
    batch: dict[str, Array],
    start: int,
    size: int,
    cell: Cell,
    fill: Callable[[dict[str, Array]], None],
    leading: LeadingRows | None,
) -> None:
    """Evaluate a piece into rows of a batch, which has the ids of cell and problem as well.

    Parameters
    ----------
    start, size
        The first of the rows, and their number.
    leading
        Takes the rows, too.
    """
    views = {name: column[start : start + size] for name, column in batch.items()}
    views.pop("cell_id")[:] = cell.id
    views.pop("problem_id")[:] = cell.problem.id
    if leading is None:
        fill(views)
        return
    for name in leading.extra:
        views[name] = np.empty(size, dtype=COLUMNS[name].dtype)
    fill(views)
    leading.add(cell, views)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, so that its pages do not fault again.

    glibc keeps blocks up to the size of the largest mapped block that was freed (mallopt,
    M_MMAP_THRESHOLD: the limit is dynamic). The heaps of DuckDB's threads begin with a limit of one
    intermediate column. Half of the page faults of a sweep, and a quarter of the evaluation, came
    from pages that had just been freed.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def column_types(relation: Relation) -> dict[str, np.dtype[Any]]:
    """Return the columns of a batch with their types: the ids of the rows, and what is stored."""
    types: dict[str, np.dtype[Any]] = dict.fromkeys(ROW_IDS, np.dtype(np.int64))
    for name in relation.stored:
        types[name] = np.dtype(NUMPY_TYPES[relation.column(name).duckdb_type])
    return types
