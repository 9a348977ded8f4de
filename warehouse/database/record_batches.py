"""Arrow record batches from cells; evaluation writes directly into their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from estimators.columns import COLUMNS, NUMPY_TYPES, Column
from estimators.contract import Array, Catalog, Cell, Columns, Estimator, Relation
from warehouse.database.leading import LeadingRows

BATCH_ROWS = 122_880
"""Rows of a batch, one row group of DuckDB; other sizes cost time and space."""

CHUNK_ROWS = 61_440
"""Layouts evaluated at once, half a batch: enough to pay for the small tables that they share, few
enough for intermediate columns to stay in the processor's cache."""

_KEPT_BYTES = 24_000_000
"""The process keeps freed blocks up to this size; glibc never keeps more than 32 MiB."""

Evaluated = Iterator[tuple[Cell, int, Callable[[dict[str, Array]], None]]]
"""Pieces of cells: the cell, the number of rows, and a function that fills given arrays."""


def searched(
    estimator: Estimator, relation: Relation, cells: Iterable[Cell], catalog: Catalog
) -> Evaluated:
    """Yield the pieces of cells that a search enumerates and the estimator evaluates.

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


def schema_of(relation: Relation) -> pa.Schema:
    """Return the Arrow schema of a relation's fact table."""
    fields = [pa.field("cell_id", pa.int64())]
    fields += [
        pa.field(name, pa.string() if kind is np.object_ else pa.from_numpy_dtype(np.dtype(kind)))
        for name in relation.stored
        for kind in [_storage_dtype(relation.column(name))]
    ]
    return pa.schema(fields)


def record_batches(
    relation: Relation,
    pieces: Evaluated,
    on_rows: Callable[[int], None],
    leading: LeadingRows | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `pieces` in batches of `BATCH_ROWS`, the last one shorter.

    Parameters
    ----------
    on_rows
        Called with the number of rows just evaluated.
    leading
        Takes the pieces too, which must then be those of `searched`.
    """
    _keep_freed_memory()
    schema = schema_of(relation)
    batch, used = _allocate(relation), 0
    for cell, size, fill in pieces:
        if used + size <= BATCH_ROWS:
            _write(batch, used, size, cell, fill, leading)
            used += size
        else:
            spare = _allocate(relation, size)
            _write(spare, 0, size, cell, fill, leading)
            done = 0
            while done < size:
                part = min(BATCH_ROWS - used, size - done)
                for name, column in batch.items():
                    column[used : used + part] = spare[name][done : done + part]
                used, done = used + part, done + part
                if used == BATCH_ROWS:
                    yield _arrow(schema, batch, used)
                    batch, used = _allocate(relation), 0
        on_rows(size)
    if used:
        yield _arrow(schema, batch, used)


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory, so that its pages do not fault again.

    glibc keeps blocks up to the size of the largest mapped block that was freed (mallopt,
    M_MMAP_THRESHOLD: the limit is dynamic). The heaps of DuckDB's threads begin with a limit of one
    intermediate column. Half of the page faults of a sweep, and a quarter of the evaluation, came
    from pages that had just been freed.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def _storage_dtype(column: Column) -> type:
    return NUMPY_TYPES[column.duckdb_type]


def _allocate(relation: Relation, size: int = BATCH_ROWS) -> dict[str, Array]:
    batch = {"cell_id": _column(np.int64, size)}
    for name in relation.stored:
        batch[name] = _column(_storage_dtype(relation.column(name)), size)
    return batch


def _column(dtype: type, size: int) -> Array:
    """Return an uninitialised column in memory of Arrow's pool.

    The pool reuses the pages of finished batches. Memory from numpy would be new for each batch,
    and its page faults would take a third of the evaluation.
    """
    if dtype is np.object_:
        return np.empty(size, dtype=dtype)
    buffer = pa.allocate_buffer(size * np.dtype(dtype).itemsize)
    return np.frombuffer(buffer, dtype=dtype)


def _write(
    batch: dict[str, Array],
    start: int,
    size: int,
    cell: Cell,
    fill: Callable[[dict[str, Array]], None],
    leading: LeadingRows | None,
) -> None:
    views = {name: column[start : start + size] for name, column in batch.items()}
    views.pop("cell_id")[:] = cell.id
    if leading is None:
        fill(views)
        return
    for name in leading.extra:
        views[name] = np.empty(size, dtype=COLUMNS[name].dtype)
    fill(views)
    leading.add(cell, views)


def _arrow(schema: pa.Schema, batch: dict[str, Array], used: int) -> pa.RecordBatch:
    arrays = [_array(batch[field.name][:used], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Array, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array over the same memory; NaN becomes NULL."""
    if values.dtype.kind == "f" and np.isnan(values.min(initial=0.0)):
        return pa.array(values, type=kind, mask=np.isnan(values))
    return pa.array(values, type=kind)
