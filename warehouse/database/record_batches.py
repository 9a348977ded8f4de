"""Arrow record batches from cells; evaluation writes directly into their memory."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import Array, Relation
from warehouse.database.leading import LeadingRows
from warehouse.database.pieces import (
    BATCH_ROWS,
    Evaluated,
    column_types,
    keep_freed_memory,
    write,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Functions that make batches import pyarrow: a command that stores nothing starts without it.


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

    Parameters
    ----------
    on_rows
        Called with the number of rows just evaluated.
    leading
        Also receives the pieces, which must then come from `searched`.
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
    """Return an Arrow array over the same memory, a copy of flags and texts.

    Parameters
    ----------
    lease
        An object that lives until nobody reads the array.
    has_gaps
        Whether some values are NaN, which becomes NULL.
    """
    import pyarrow as pa

    if values.dtype.kind in "bO":  # Arrow stores flags as bits, and texts in one buffer
        return pa.array(values, type=kind)
    gaps = pa.array(~np.isnan(values)).buffers()[1] if has_gaps else None
    memory = pa.foreign_buffer(values.ctypes.data, values.nbytes, lease)
    return pa.Array.from_buffers(kind, len(values), [gaps, memory])


def _allocate(relation: Relation, size: int = BATCH_ROWS) -> dict[str, Array]:
    return {name: np.empty(size, kind) for name, kind in column_types(relation).items()}
