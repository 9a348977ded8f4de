"""Temporary objects of one connection: DuckDB finds them first, also inside the views of the file.

Nothing is written to the database.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection


def keep_view(connection: DuckDBPyConnection, name: str, condition: str = "") -> None:
    """Replace a view by a table with its rows, for several queries that read it.

    Parameters
    ----------
    condition
        Condition of the rows that later queries need; empty: all rows.
    """
    where = f" where {condition}" if condition else ""
    [database] = connection.execute("select current_database()").fetchone() or ("",)
    view = f"{quoted(database)}.main.{quoted(name)}"  # with the database: a file may be main.duckdb
    connection.execute(f"create or replace temp table {quoted(name)} as from {view}{where}")


@contextmanager
def registered(connection: DuckDBPyConnection, name: str, rows: Any) -> Iterator[None]:
    """Let SQL read `rows` under `name`; an error in the block is raised as it is."""
    connection.register(name, rows)
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # a failed transaction refuses this statement too
            connection.unregister(name)


@contextmanager
def replaced(connection: DuckDBPyConnection, views: Mapping[str, str]) -> Iterator[None]:
    """Replace views by queries until the block ends; an error in the block is raised as it is.

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
        with suppress(duckdb.Error):  # a failed transaction refuses this statement too
            for name in views:
                connection.execute(f"drop view temp.{quoted(name)}")
