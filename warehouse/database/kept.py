"""Views whose rows are found once for all later queries of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def keep_view(connection: DuckDBPyConnection, name: str, condition: str = "") -> None:
    """Have a temporary table take the place of a view, also inside other views.

    DuckDB finds temporary tables first, and plans some views longer than it runs them. Nothing is
    written to the database.

    Parameters
    ----------
    condition
        Of the rows that later queries ask for; empty: all.
    """
    where = f" where {condition}" if condition else ""
    [database] = connection.execute("select current_database()").fetchone() or ("",)
    view = f"{quoted(database)}.main.{quoted(name)}"  # in full: a file may be named main.duckdb
    connection.execute(f"create or replace temp table {quoted(name)} as from {view}{where}")
