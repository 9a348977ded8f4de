"""Arrow record batches from cells; evaluation writes directly into their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

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

# pyarrow is imported by what makes a batch: a command that stores nothing starts without it.


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
        Takes the pieces too, which must then be those of `searched`.
    """
    keep_freed_memory()
    schema = schema_of(relation)
    batch, used = _allocate(relation), 0
    for cell, size, fill in pieces:
        if used + size <= BATCH_ROWS:
            write(batch, used, size, cell, fill, leading)
            used += size
        else:
            spare = _allocate(relation, size)
            write(spare, 0, size, cell, fill, leading)
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


def _allocate(relation: Relation, size: int = BATCH_ROWS) -> dict[str, Array]:
    return {name: _column(kind, size) for name, kind in column_types(relation).items()}


def _column(dtype: np.dtype[Any], size: int) -> Array:
    """Return an uninitialised column in memory of Arrow's pool.

    The pool reuses the pages of finished batches. Memory from numpy would be new for each batch,
    and its page faults would take a third of the evaluation.
    """
    import pyarrow as pa

    if dtype.hasobject:
        return np.empty(size, dtype=dtype)
    buffer = pa.allocate_buffer(size * dtype.itemsize)
    return np.frombuffer(buffer, dtype=dtype)


def _arrow(schema: pa.Schema, batch: dict[str, Array], used: int) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [_array(batch[field.name][:used], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Array, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array over the same memory; NaN becomes NULL."""
    import pyarrow as pa

    if values.dtype.kind == "f" and np.isnan(values.min(initial=0.0)):
        return pa.array(values, type=kind, mask=np.isnan(values))
    return pa.array(values, type=kind)
