"""Refuses a database in which the user's objects have names of tables of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.database.meta import META, path_of
from warehouse.database.sql_text import IN_MAIN
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from duckdb import DuckDBPyConnection

_VIEWS = f"select view_name from duckdb_views() where {IN_MAIN}"


def refuse_views_of_tables(connection: DuckDBPyConnection, tables: Iterable[str]) -> None:
    """Raise `DatabaseError` if a view has the name of one of `tables`, or of `warehouse_meta`.

    Rows cannot be stored in it, and making it a table again would lose the view.
    """
    views = {name for (name,) in connection.execute(_VIEWS).fetchall()}
    if taken := sorted(views & {META, *tables}):
        raise DatabaseError(
            f"{path_of(connection)}: a view has the name of a table of this package: "
            f"{', '.join(taken)}",
            f"rename or drop the view with DuckDB (`drop view {taken[0]}`), give a table that you "
            "renamed its name back, then run `warehouse init`",
        )


def refuse_tables_of_others(connection: DuckDBPyConnection, tables: Collection[str]) -> None:
    """Raise `DatabaseError` if a table has one of the names `tables`, which this package takes.

    Its rows would be replaced.
    """
    query = f"select table_name from duckdb_tables() where {IN_MAIN}"
    if taken := sorted({name for (name,) in connection.execute(query).fetchall()} & {*tables}):
        raise DatabaseError(
            f"{path_of(connection)}: a table of yours has a name that this version of the package "
            f"takes: {', '.join(taken)}",
            f"rename it with DuckDB (`alter table {taken[0]} rename to my_{taken[0]}`), then run "
            "`warehouse init`",
        )
