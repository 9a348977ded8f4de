"""Cache of each cell's fastest layout; a stale cache is slow, never wrong.

Views take the rows of table `stored_best` whose cell has not changed since, and search the layouts
of all other cells. Call `refresh` in each transaction that stores or deletes cells.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

TABLE = "stored_best"
"""The cache: rows of `SOURCE`."""

SOURCE = "unstored_best"
"""View of the cells in force whose row is missing or stale, with their fastest layout."""

STATE = "cell_state"
"""View of the state that a row of the cache depends on."""


def refresh(connection: DuckDBPyConnection) -> int:
    """Bring the cache up to date; return the number of rows it gained.

    Call it in the transaction that changed the cells.
    """
    connection.execute(
        f"delete from {TABLE} where (cell_id, sibling_record) not in "
        f"(select (cell_id, sibling_record) from {STATE})"
    )
    missing = connection.execute(
        f"select cell_id from {STATE} anti join {TABLE} using (cell_id)"
    ).fetchall()
    if not missing:
        return 0
    # Ids in the text filter the scans of the tables; a join would not.
    cells = ", ".join(str(cell) for (cell,) in missing)
    with _joins_as_written(connection):
        connection.execute(
            f"insert into {TABLE} by name select * from {SOURCE} where cell_id in ({cells})"
        )
    # A row without a layout: cells of other grains are not searched again.
    connection.execute(
        f"insert into {TABLE} by name select cell_id, sibling_record, 0 as num_layouts,"
        f" 0 as num_fitting_layouts from {STATE} anti join {TABLE} using (cell_id)"
    )
    return len(missing)


@contextmanager
def _joins_as_written(connection: DuckDBPyConnection) -> Iterator[None]:
    """Have DuckDB join tables in the order in which the views name them.

    DuckDB plans with committed rows. In the first transaction the table counts as empty: DuckDB
    would build a hash table of four million layouts and look up a hundred cells in it, four times
    as slow.
    """
    [(before,)] = connection.execute("select current_setting('disabled_optimizers')").fetchall()
    connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    try:
        yield
    finally:
        connection.execute(f"set disabled_optimizers = {literal(before or '')}")


def rebuild(connection: DuckDBPyConnection) -> int:
    """Fill the cache from nothing: its views have changed."""
    connection.execute(f"delete from {TABLE}")
    return refresh(connection)
