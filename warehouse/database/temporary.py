"""Temporary objects and settings of one connection; nothing is written to the database.

DuckDB finds temporary objects first, also inside the views of the file.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.sql_text import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection


def keep_view(connection: DuckDBPyConnection, name: str, condition: str = "") -> None:
    """Replace a view by a table with its rows, for several queries that read it.

    `condition` is of the rows that these need; empty: all rows.
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

    A query has those columns of its view that the block needs.
    """
    for name, query in views.items():
        connection.execute(f"create temp view {quoted(name)} as {query}")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # a failed transaction refuses this statement too
            for name in views:
                connection.execute(f"drop view temp.{quoted(name)}")


@contextmanager
def joins_as_written(connection: DuckDBPyConnection) -> Iterator[None]:
    """Make DuckDB join tables in the order in which the views name them.

    DuckDB plans with the counts of committed rows. In the first transaction a table counts as
    empty: DuckDB would build a hash table of nine million layouts to look up 700 cells, in 30 times
    the time and 13 GB of memory.
    """
    [(before,)] = connection.execute("select current_setting('disabled_optimizers')").fetchall()
    disabled = ",".join([*filter(None, [before]), "join_order", "build_side_probe_side"])
    connection.execute(f"set disabled_optimizers = {literal(disabled)}")
    try:
        yield
    finally:
        with suppress(duckdb.Error):  # a transaction that has failed refuses this as well
            connection.execute(f"set disabled_optimizers = {literal(before or '')}")
