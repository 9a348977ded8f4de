"""Arrow record batches from cells; evaluation writes directly into their memory.

A cell is evaluated in pieces: layouts that are evaluated at once, into given arrays.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Cell, Columns, Relation
from estimators.estimator import Estimator
from warehouse.database.leading import LeadingRows
from warehouse.database.tables import ROW_IDS

if TYPE_CHECKING:
    import pyarrow as pa

# Functions that make batches import pyarrow: a command that stores nothing starts without it.

BATCH_ROWS = 122_880
"""Rows of a batch, one row group of DuckDB; other sizes cost time and space."""

CHUNK_ROWS = 61_440
"""Layouts evaluated at once, half a batch: many enough to share the cost of small tables, few
enough to keep intermediate columns in the processor's cache."""

_FREED_BYTES = 24_000_000
"""The process keeps freed blocks up to this size; glibc never keeps more than 32 MiB."""

Evaluated = Iterator[tuple[Cell, int, Callable[[dict[str, Array]], None]]]
"""Pieces of cells: the cell, the number of rows, and a function that fills given arrays."""


def searched(
    estimator: Estimator, relation: Relation, cells: Iterable[Cell], catalog: Catalog
) -> Evaluated:
    """Yield pieces of cells: the search enumerates layouts, the estimator evaluates them."""
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
    """Evaluate a piece into `size` rows of a batch from `start`, and pass them to `leading`."""
    views = {name: column[start : start + size] for name, column in batch.items()}
    ids = {name: views.pop(name) for name in ROW_IDS}
    ids["cell_id"][:], ids["problem_id"][:] = cell.id, cell.problem.id
    if leading is None:
        fill(views)
        return
    for name in leading.extra:
        views[name] = np.empty(size, dtype=COLUMNS[name].dtype)
    fill(views)
    leading.add(cell.id, ids | views)


def keep_freed_memory() -> None:
    """Make glibc keep freed memory, so that its pages do not fault again.

    glibc keeps blocks up to the size of the largest mapped block that was freed (mallopt,
    M_MMAP_THRESHOLD: the limit is dynamic). The heaps of DuckDB's threads begin with a limit of one
    intermediate column. Half of the page faults of a sweep, and a quarter of the evaluation, came
    from pages that had just been freed.
    """
    np.empty(_FREED_BYTES, dtype=np.uint8)


def column_types(relation: Relation) -> dict[str, np.dtype[Any]]:
    """Return the columns of a batch with their types: the ids of the rows, and what is stored."""
    types: dict[str, np.dtype[Any]] = dict.fromkeys(ROW_IDS, np.dtype(np.int64))
    for name in relation.stored:
        types[name] = np.dtype(relation.column(name).stored_dtype)
    return types


def schema_of(relation: Relation) -> pa.Schema:
    """Return the Arrow schema of a relation's fact table."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(name, pa.string() if kind.hasobject else pa.from_numpy_dtype(kind))
            for name, kind in column_types(relation).items()
        ]
    )


def record_batches(
    relation: Relation,
    pieces: Evaluated,
    on_rows: Callable[[int], None],
    leading: LeadingRows | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `pieces` in batches of `BATCH_ROWS`, the last one shorter.

    `on_rows` gets the number of rows just evaluated. `leading` also receives the pieces, which must
    then come from `searched`.
    """
    keep_freed_memory()
    schema, pool = schema_of(relation), _Pool(relation)
    batch, used = pool.columns(), 0
    spare: dict[str, Array] = {}
    for cell, size, fill in pieces:
        if used + size <= BATCH_ROWS:
            write(batch, used, size, cell, fill, leading)
            used += size
        else:
            if not spare or len(spare["cell_id"]) < size:
                spare = _allocate(relation, size)
            write(spare, 0, size, cell, fill, leading)
            done = 0
            while done < size:
                part = min(BATCH_ROWS - used, size - done)
                for name, column in batch.items():
                    column[used : used + part] = spare[name][done : done + part]
                used, done = used + part, done + part
                if used == BATCH_ROWS:
                    yield pool.arrow(schema, batch, used)
                    batch, used = pool.columns(), 0
        on_rows(size)
    if used:
        yield pool.arrow(schema, batch, used)


def regrouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in batches of `BATCH_ROWS`, the last one shorter."""
    import pyarrow as pa

    parts: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        start = 0
        while len(part := batch.slice(start, BATCH_ROWS - rows)):
            parts.append(part)
            rows, start = rows + len(part), start + len(part)
            if rows == BATCH_ROWS:
                yield parts[0] if len(parts) == 1 else pa.concat_batches(parts)
                parts, rows = [], 0
    if parts:
        yield pa.concat_batches(parts)


class Lease:
    """Keeps columns alive while Arrow's arrays over their memory are in use."""

    def __init__(self, columns: dict[str, Array]) -> None:
        self.columns = columns


class _Pool:
    """Columns of batches, reused for the next batches once nobody reads them.

    Allocating them for each batch takes up to a fifth of the evaluation.
    """

    def __init__(self, relation: Relation) -> None:
        self._relation = relation
        self._free: deque[dict[str, Array]] = deque()

    def columns(self) -> dict[str, Array]:
        """Return uninitialised columns of a batch."""
        try:
            return self._free.pop()
        except IndexError:
            return _allocate(self._relation)

    def arrow(self, schema: pa.Schema, columns: dict[str, Array], used: int) -> pa.RecordBatch:
        """Return the first rows of columns as a batch over the same memory; NaN becomes NULL."""
        import pyarrow as pa

        lease = Lease(columns)
        weakref.finalize(lease, self._free.append, columns)
        arrays = []
        for field in schema:
            values = columns[field.name][:used]
            has_gaps = values.dtype.kind == "f" and bool(np.isnan(values.min(initial=0.0)))
            arrays.append(leased_array(values, field.type, lease, has_gaps=has_gaps))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def leased_array(values: Array, kind: pa.DataType, lease: Lease, *, has_gaps: bool) -> pa.Array:
    """Return an Arrow array over the same memory, a copy of flags and texts; NaN becomes NULL."""
    import pyarrow as pa

    if values.dtype.kind in "bO":  # Arrow stores flags as bits, and texts in one buffer
        return pa.array(values, type=kind)
    gaps = pa.array(~np.isnan(values)).buffers()[1] if has_gaps else None
    memory = pa.foreign_buffer(values.ctypes.data, values.nbytes, lease)
    return pa.Array.from_buffers(kind, len(values), [gaps, memory])


def _allocate(relation: Relation, size: int = BATCH_ROWS) -> dict[str, Array]:
    return {name: np.empty(size, kind) for name, kind in column_types(relation).items()}
