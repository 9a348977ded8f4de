"""Tables of each cell's fastest layout and of its leading rows.

`refresh` fills them, marks the cells in force and their siblings, and fills the table of problems
(`stored_problem`). Call it in each transaction that stores or deletes cells: views do not search
layouts themselves, and `warehouse validate` names cells whose rows are missing or wrong. The rows
of a cell depend on its earlier siblings: they are made again when the record of the cell or of a
sibling changes.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database import stored_front, stored_problem
from warehouse.database.current import (
    CURRENT_CELL,
    current_view_name,
    leading_staging_name,
    staging_name,
)
from warehouse.database.in_force import mark
from warehouse.database.leading import FITS, MEMORY, LeadingTimes
from warehouse.database.narrow import narrowed
from warehouse.database.repeated import mark_repeated, relations_named
from warehouse.database.sql_text import listed, literal, quoted
from warehouse.database.summaries import summaries
from warehouse.database.tables import STORED_BEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from estimators.contract import Relation
    from warehouse.database.leading import Found, LeadingRows

TABLE = STORED_BEST.name
"""The cache: rows of `SOURCE`."""

SOURCE = "unstored_best"
"""View of the cells in force whose row is missing or stale, with their fastest layout."""

_BATCH_ROWS = 1_000_000
"""Rows that a search reads at once."""

_RECORD = ("cell_id", "sibling_record", "num_layouts", "num_fitting_layouts")
"""Columns of `TABLE` that also a cell without a layout has."""


def refresh(connection: DuckDBPyConnection, leading: LeadingRows | None = None) -> int:
    """Bring the caches up to date; return the number of cells that they gained.

    Call it in the transaction that changed the cells.

    Parameters
    ----------
    leading
        The leading rows of the cells that were just evaluated. Those of other cells are searched.
    """
    stored_problem.refresh(connection)
    filled = f"select exists(from cell) or exists(from {TABLE})"
    if connection.execute(filled).fetchall() == [(False,)]:
        return 0
    mark(connection)
    connection.execute(
        f"delete from {TABLE} where (cell_id, sibling_record) not in "
        f"(select (cell_id, sibling_record) from {CURRENT_CELL})"
    )
    missing = connection.execute(
        f"select cell_id, relation, sibling from {CURRENT_CELL} anti join {TABLE} using (cell_id)"
    ).fetchall()
    mark_repeated(connection, missing, leading.found if leading is not None else ())
    for table in (table for one in summaries() for table in one.leading_tables):
        connection.execute(
            f"delete from {quoted(table)} where cell_id not in (select cell_id from {TABLE})"
        )
    with _joins_as_written(connection):
        for relation in relations_named({relation for _, relation, _ in missing}):
            if not relation.keeps_leading:
                continue
            places = {cell: place for cell, name, place in missing if name == relation.name}
            first = {cell for cell, place in places.items() if place == 1}
            known = leading if leading is not None and leading.relation == relation else None
            if known:
                _take(connection, known, first)
            taken = known.found.keys() & first if known else set()
            _search(connection, relation, first - taken, quoted(relation.table))
            # Views show a layout from its first sibling: a row that leads in a later one may be
            # hidden.
            later = places.keys() - first
            _search(connection, relation, later, quoted(current_view_name(relation)))
        _search_others(connection)
        stored_front.refresh(connection, [cell for cell, *_ in missing])
    return len(missing)


def _take(connection: DuckDBPyConnection, leading: LeadingRows, cells: set[int]) -> None:
    """Store the leading rows of those of `cells` that were just evaluated."""
    rows = leading.columns()
    found = {cell: each for cell, each in leading.found.items() if cell in cells}
    if rows:
        with _registered(connection, "leading_rows", rows):
            connection.execute(
                f"insert into {quoted(leading.relation.leading_table)} by name "
                f"select * from leading_rows where cell_id in ({listed(found)})"
            )
    _store(connection, leading.relation, found)


def _search(
    connection: DuckDBPyConnection, relation: Relation, cells: set[int], table: str
) -> None:
    """Find and store the leading rows of stored cells.

    Parameters
    ----------
    table
        The table or view with the rows of these cells that views show.
    """
    if not cells:
        return
    times = LeadingTimes(cells)
    shown = connection.sql(
        f"select cell_id, step_seconds, coalesce({MEMORY}, 0) as {MEMORY}, "
        f"{FITS} is distinct from false as {FITS} from ({_layouts(staging_name(relation))}) "
        f"where cell_id in ({listed(cells)})"
    )
    for batch in shown.to_arrow_reader(_BATCH_ROWS):
        times.add(*(batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names))
    found = times.columns()
    if len(found["cell_id"]):
        _insert_rows(connection, relation, table, found)
    _store(connection, relation, times.found)


def _insert_rows(
    connection: DuckDBPyConnection, relation: Relation, table: str, times: Mapping[str, Any]
) -> None:
    """Store the rows of a table or view whose times and memory are those of leading rows.

    The rows have no memory; their staging view finds it. So all rows of these times are stored
    first, and those that do not fit or need another memory are deleted.
    """
    staging = _layouts(leading_staging_name(relation))
    same = " and ".join(
        f"stored.{quoted(key)} is not distinct from other.{quoted(key)}" for key in relation.keys
    )
    with _registered(connection, "leading_times", times):
        # An old table may have columns that the relation no longer has.
        columns = ", ".join(f"{table}.{quoted(name)}" for name in ("cell_id", *relation.stored))
        connection.execute(
            f"insert into {quoted(relation.leading_table)} by name select {columns} from {table} "
            f"semi join leading_times on {table}.cell_id = leading_times.cell_id "
            f"and {table}.step_seconds = leading_times.step_seconds"
        )
        connection.execute(
            f"delete from {quoted(relation.leading_table)} as stored using ("
            f"select layout.* from ({staging}) as layout anti join leading_times "
            "on layout.cell_id = leading_times.cell_id "
            "and layout.step_seconds = leading_times.step_seconds "
            f"and coalesce(layout.{MEMORY}, 0) = leading_times.{MEMORY} "
            f"and layout.{FITS} is distinct from false "
            f"where layout.cell_id in ({listed(set(times['cell_id'].tolist()))})) as other "
            f"where stored.cell_id = other.cell_id and {same}"
        )


def _store(connection: DuckDBPyConnection, relation: Relation, found: Mapping[int, Found]) -> None:
    """Store the fastest layouts of cells whose leading rows are stored."""
    if not found:
        return
    counts = {
        "cell_id": list(found),
        "num_layouts": [each.num_layouts for each in found.values()],
        "num_fitting_layouts": [each.num_fitting_layouts for each in found.values()],
    }
    with _registered(connection, "counted_cells", counts):
        connection.execute(
            f"insert into {TABLE} by name select counted_cells.*, {CURRENT_CELL}.sibling_record "
            f"from counted_cells inner join {CURRENT_CELL} using (cell_id)"
        )
    best = [name for name in STORED_BEST.columns if name not in _RECORD]
    assigned = ", ".join(f"{name} = found.best.{name}" for name in best)
    # Ids as text in the query filter the scans; a join would not.
    connection.execute(
        f"update {TABLE} set {assigned} from ("
        "select cell_id, min_by(evaluated_layout(layout), layout_order(layout)) as best "
        f"from ({_layouts(leading_staging_name(relation))}) as layout "
        f"where cell_id in ({listed(found)}) and {FITS} is distinct from false "
        f"group by cell_id) as found where {TABLE}.cell_id = found.cell_id"
    )


def _layouts(staging: str) -> str:
    """Return the SQL of the layouts of one relation, NULL where its staging view has no column.

    The union of all relations takes longer to plan than to read.
    """
    return (
        f"from {quoted(staging)} union all by name select *, null as {FITS} from {TABLE} "
        "where false"
    )


def _search_others(connection: DuckDBPyConnection) -> None:
    """Find and store the fastest layouts of all cells that are not in the table yet."""
    cells = connection.execute(
        f"select cell_id, relation from {CURRENT_CELL} anti join {TABLE} using (cell_id)"
    ).fetchall()
    if not cells:
        return
    with narrowed(connection, {relation for _, relation in cells}) as has_configurations:
        if has_configurations:
            ids = listed(cell for cell, _ in cells)
            connection.execute(
                f"insert into {TABLE} by name select * from {SOURCE} where cell_id in ({ids})"
            )
    # Cells of other grains get a row without a layout, so that they are not searched again.
    connection.execute(
        f"insert into {TABLE} by name select cell_id, sibling_record, 0 as num_layouts,"
        f" 0 as num_fitting_layouts from {CURRENT_CELL} anti join {TABLE} using (cell_id)"
    )


@contextmanager
def _registered(
    connection: DuckDBPyConnection, name: str, columns: Mapping[str, Any]
) -> Iterator[None]:
    import pyarrow as pa  # readers do not wait for it

    connection.register(name, pa.table(columns))
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # a transaction that has failed refuses this as well
            connection.unregister(name)


@contextmanager
def _joins_as_written(connection: DuckDBPyConnection) -> Iterator[None]:
    """Make DuckDB join tables in the order in which the views name them.

    DuckDB plans with the counts of committed rows. In the first transaction the table counts as
    empty: DuckDB would build a hash table of four million layouts to look up a hundred cells, which
    takes four times as long.
    """
    [(before,)] = connection.execute("select current_setting('disabled_optimizers')").fetchall()
    disabled = ",".join([*filter(None, [before]), "join_order", "build_side_probe_side"])
    connection.execute(f"set disabled_optimizers = {literal(disabled)}")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # a transaction that has failed refuses this as well
            connection.execute(f"set disabled_optimizers = {literal(before or '')}")


def rebuild(connection: DuckDBPyConnection) -> int:
    """Fill the tables from scratch: their views have changed."""
    connection.execute(f"delete from {TABLE}")
    return refresh(connection)
