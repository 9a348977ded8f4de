"""Views that others take the place of on one connection: rows found once, or fewer columns.

DuckDB looks a name up among temporary objects first, also inside the views of the database.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection


def keep_view(connection: DuckDBPyConnection, name: str, condition: str = "") -> None:
    """Have a temporary table take the place of a view, also inside other views.

    DuckDB plans some views longer than it runs them. Nothing is written to the database.

    Parameters
    ----------
    condition
        Of the rows that later queries ask for; empty: all.
    """
    where = f" where {condition}" if condition else ""
    [database] = connection.execute("select current_database()").fetchone() or ("",)
    view = f"{quoted(database)}.main.{quoted(name)}"  # in full: a file may be named main.duckdb
    connection.execute(f"create or replace temp table {quoted(name)} as from {view}{where}")


@contextmanager
def replaced(connection: DuckDBPyConnection, views: Mapping[str, str]) -> Iterator[None]:
    """Have queries take the place of views until the block ends.

    Parameters
    ----------
    views
        View -> a SELECT with those of its columns that the queries of the block need.
    """
    for name, query in views.items():
        connection.execute(f"create temp view {quoted(name)} as {query}")
    try:
        yield
    finally:
        for name in views:
            connection.execute(f"drop view temp.{quoted(name)}")
