"""Tables that hold what views would find again and again, and how they are kept as they should be.

There is one: `stored_best`, the fastest layout of every cell in force. Views read it for the cells
whose record it has as it is, and look among the rows of the others; so that it may be empty, or
behind, and no view is wrong. `refresh` belongs into every transaction that stores or deletes cells.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

TABLE = "stored_best"
"""What is stored: the rows of `SOURCE`, once they were found."""

SOURCE = "unstored_best"
"""View of the cells in force that the table does not have as they are now."""

STATE = "cell_state"
"""View of what a row of the table depends on."""


def refresh(connection: DuckDBPyConnection) -> int:
    """Bring the table up to date with the cells; return how many rows it gained.

    To be called in the transaction that changed them.
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
    # Numbers in the text reach the scans of the tables, which a join would not.
    cells = ", ".join(str(cell) for (cell,) in missing)
    with _joins_as_written(connection):
        connection.execute(
            f"insert into {TABLE} by name select * from {SOURCE} where cell_id in ({cells})"
        )
    # Cells of other grains, and those that show no layout, are not looked for again.
    connection.execute(
        f"insert into {TABLE} by name select cell_id, sibling_record, 0 as num_layouts,"
        f" 0 as num_fitting_layouts from {STATE} anti join {TABLE} using (cell_id)"
    )
    return len(missing)


@contextmanager
def _joins_as_written(connection: DuckDBPyConnection) -> Iterator[None]:
    """Have DuckDB join what the views name second to what they name first, cells to layouts.

    It counts no rows of the transaction that is under way: to the first one a table is empty, and
    four million layouts are put into a hash table to look a hundred cells up in it, which takes
    four times as long.
    """
    [(before,)] = connection.execute("select current_setting('disabled_optimizers')").fetchall()
    connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    try:
        yield
    finally:
        connection.execute(f"set disabled_optimizers = {literal(before or '')}")


def rebuild(connection: DuckDBPyConnection) -> int:
    """Make the whole table anew: after a change of what its views say."""
    connection.execute(f"delete from {TABLE}")
    return refresh(connection)
