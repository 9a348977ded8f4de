"""Stores evaluated cells whole: both rows and record, or neither."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb

from estimators.columns import COLUMNS
from estimators.contract import Cell, Columns, Relation, variant_name
from estimators.estimator import Estimator
from estimators.registry import all_estimators
from warehouse.database import derived
from warehouse.database.leading import LeadingRows
from warehouse.database.record_batches import given, record_batches, schema_of
from warehouse.database.recording import settle
from warehouse.database.sql_text import quoted, registered

if TYPE_CHECKING:
    import pyarrow as pa


def store_batches(
    connection: duckdb.DuckDBPyConnection,
    estimator: Estimator,
    relation: Relation,
    cells: Sequence[tuple[Cell, int]],
    batches: Iterator[pa.RecordBatch],
    leading: LeadingRows | None = None,
    *,
    replace: bool = False,
) -> None:
    """Store cells, given with their numbers of rows, in one transaction: both rows and record.

    Batches of their rows are evaluated while others are stored. After the last one `leading` has
    the leading rows of the cells, if it is given.
    """
    import pyarrow as pa  # here: a command that stores nothing starts without it

    source = _Source(batches)
    reader = pa.RecordBatchReader.from_batches(schema_of(relation), source)
    with transaction(connection):
        if replace:
            delete_cells(connection, [cell.id for cell, _ in cells])
        try:
            _insert(connection, relation.table, reader)
        except duckdb.Error:
            if source.error is not None:  # the evaluation failed, not DuckDB
                raise source.error from None
            raise
        problems = {cell.problem.id: cell.problem for cell, _ in cells}.values()
        rows = [{"problem_id": problem.id, **problem.values} for problem in problems]
        _insert(connection, "problem", arrow_table(rows), "or ignore")
        _insert(connection, "cell", _cell_rows(estimator, cells))
        derived.refresh(connection, leading)


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Any, conflict: str = ""
) -> None:
    with registered(connection, "incoming_rows", rows):
        connection.execute(
            f"insert {conflict} into {quoted(table)} by name select * from incoming_rows"
        )


def stored_among(connection: duckdb.DuckDBPyConnection, cells: Sequence[int]) -> dict[int, int]:
    """Return those of some cells that are stored, by id, with their numbers of rows."""
    rows = connection.execute(
        "select cell_id, num_rows from cell where cell_id in (select unnest(?::bigint[]))",
        [list(cells)],
    ).fetchall()
    return dict(rows)


class _Source:
    """An iterator that keeps its error, because Arrow does not pass it on."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches
        except BaseException as error:
            self.error = error
            raise


_OPEN: set[int] = set()
"""Connections with a transaction."""


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit at the end of the block; roll back on an error and raise it.

    A transaction within another on the same connection is a part of it: all is stored, or nothing.
    """
    if id(connection) in _OPEN:
        yield
        return
    connection.begin()
    _OPEN.add(id(connection))
    is_known = True
    try:
        try:
            yield
        except BaseException:
            with suppress(duckdb.Error):  # a full disk has ended the transaction already
                connection.rollback()
            raise
        is_known = False  # a commit that fails may have stored the rows all the same
        connection.commit()
        is_known = True
    finally:
        _OPEN.discard(id(connection))
        settle(connection, is_known=is_known)


def store_cells(
    connection: duckdb.DuckDBPyConnection,
    estimator: Estimator,
    relation: Relation,
    cells: Sequence[tuple[Cell, Columns]],
) -> list[Cell]:
    """Store evaluated cells in one transaction; return the new ones."""
    stored = stored_among(connection, [cell.id for cell, _ in cells])
    new = [(cell, columns) for cell, columns in cells if cell.id not in stored]
    if new:
        sizes = [(cell, len(next(iter(columns.values())))) for cell, columns in new]
        pieces = given(relation, new)
        batches = record_batches(relation, pieces, lambda _rows: None)
        store_batches(connection, estimator, relation, sizes, batches)
    return [cell for cell, _ in new]


def delete_cells(connection: duckdb.DuckDBPyConnection, cells: Iterable[int]) -> None:
    """Delete cells and their rows; call it in a transaction."""
    import pyarrow as pa

    ids = pa.table({"cell_id": pa.array(cells, type=pa.int64())})
    with registered(connection, "dropped_cells", ids):
        tables = [relation.table for e in all_estimators() for relation in e.relations]
        for table in [*tables, "cell"]:
            connection.execute(
                f"delete from {quoted(table)} where cell_id in (select cell_id from dropped_cells)"
            )


def _cell_rows(estimator: Estimator, cells: Sequence[tuple[Cell, int]]) -> pa.Table:
    now = datetime.now(UTC).replace(tzinfo=None)
    return arrow_table(
        [
            {
                "cell_id": cell.id,
                "problem_id": cell.problem.id,
                "estimator": cell.estimator,
                "estimator_version": cell.version,
                "relation": cell.relation,
                "mends": ",".join(mend for mend in estimator.mends if mend in cell.mends),
                "variant": variant_name(cell.mends, estimator.mends),
                "is_default_variant": cell.mends.issuperset(estimator.mends),
                "kept": json.dumps(dict(cell.fixed), sort_keys=True),
                "num_rows": num_rows,
                "evaluated_at": now,
                **cell.choices,
            }
            for cell, num_rows in cells
        ]
    )


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return records as a table with the types of the data dictionary; missing values are NULL."""
    import pyarrow as pa

    types = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "str": pa.string(),
        "time": pa.timestamp("us"),
    }
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], type=types[COLUMNS[name].kind])
            for name in names
        }
    )


MOST_CELLS = 8_192
"""Most cells of a group: all of them are in memory at once."""


def commit_groups(
    cells: Iterable[tuple[Cell, int]], commit_rows: int
) -> Iterator[list[tuple[Cell, int]]]:
    """Cut cells, in order, into groups of at least `commit_rows` rows.

    Fewer that are left at the end go into the last group: a transaction of few rows takes as long
    as one of many to find what follows from its cells. Only a group of `MOST_CELLS` cells has fewer
    rows, and what is left behind one.
    """
    ready: list[tuple[Cell, int]] = []
    group: list[tuple[Cell, int]] = []
    rows = 0
    for cell, size in cells:
        group.append((cell, size))
        rows += size
        if ready and len(ready) + len(group) > MOST_CELLS:
            yield ready
            ready = []
        if rows >= commit_rows or len(group) >= MOST_CELLS:
            if ready:
                yield ready
            ready, group, rows = group, [], 0
    if ready or group:
        yield ready + group
