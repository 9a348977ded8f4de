"""Table of the fronts of problems: layouts that no other beats in both step time and memory.

View `SOURCE` finds them among the leading rows. A front changes if a cell of its problem gains or
loses rows, or if a cell with a layout on the front is no longer in force. Removing a cell without
such a layout does not change the front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.current import CURRENT_CELL
from warehouse.database.narrow import narrowed
from warehouse.database.sql_text import view_exists
from warehouse.database.tables import STORED_FRONT

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

TABLE = STORED_FRONT.name

SOURCE = "found_front"
"""View with the correct rows."""


def refresh(connection: DuckDBPyConnection, cells: Collection[int]) -> None:
    """Bring the table up to date, after the leading rows.

    Parameters
    ----------
    cells
        Cells in force whose rows are new, or whose siblings changed.
    """
    changed = {
        problem
        for (problem,) in connection.execute(
            f"select problem_id from {CURRENT_CELL} where cell_id in (select unnest(?::bigint[]))"
            f" union select problem_id from {TABLE} anti join {CURRENT_CELL} using (cell_id)",
            [list(cells)],
        ).fetchall()
    }
    if not changed or not connection.execute(view_exists(SOURCE)).fetchall():
        return
    listed = ", ".join(map(str, changed))
    connection.execute(f"delete from {TABLE} where problem_id in ({listed})")
    relations = connection.execute(
        f"select distinct relation from {CURRENT_CELL} where problem_id in ({listed})"
    ).fetchall()
    with narrowed(connection, {relation for (relation,) in relations}) as has_configurations:
        if has_configurations:
            connection.execute(
                f"insert into {TABLE} by name select {', '.join(STORED_FRONT.columns)}"
                f" from {SOURCE} where problem_id in ({listed})"
            )


def rebuild(connection: DuckDBPyConnection) -> None:
    """Fill the table from scratch: its view has changed."""
    connection.execute(f"delete from {TABLE}")
    cells = connection.execute(f"select cell_id from {CURRENT_CELL}").fetchall()
    refresh(connection, [cell for (cell,) in cells])
