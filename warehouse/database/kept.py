"""Replaces views on one connection: by tables with their rows, or by views with fewer columns.

DuckDB looks a name up among temporary objects first, also inside the views of the database.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from warehouse.database.cached import cached
from warehouse.database.sql_text import IN_MAIN, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection


def keep_view(connection: DuckDBPyConnection, name: str, condition: str = "") -> None:
    """Replace a view by a temporary table with its rows, also inside other views.

    DuckDB plans some views longer than it runs them. Nothing is written to the database.

    Parameters
    ----------
    condition
        Condition of the rows that later queries need; empty: all rows.
    """
    where = f" where {condition}" if condition else ""
    [database] = connection.execute("select current_database()").fetchone() or ("",)
    view = f"{quoted(database)}.main.{quoted(name)}"  # with the database: a file may be main.duckdb
    connection.execute(f"create or replace temp table {quoted(name)} as from {view}{where}")


def keep_reference_views(connection: DuckDBPyConnection, *names: str) -> None:
    """Replace views that read only a few reference tables by temporary tables with their rows.

    Their rows come from the cache directory while these tables do not change: no view is planned.
    """
    state = state_of_views(connection, *names)
    for name in names:
        types, rows = cached("view", (name, state), partial(_types_and_rows, connection, name))
        # as JSON: DuckDB takes five times as long to parse the rows as values
        connection.execute(
            f"create or replace temp table {quoted(name)} as "
            f"select unnest(from_json(cast(? as json), {literal(json.dumps([types]))}), "
            "recursive := true)",
            [json.dumps(rows)],
        )


def state_of_views(connection: DuckDBPyConnection, *names: str) -> list[tuple[str, Any]]:
    """Return each table that some views read with a hash of its rows; no view is planned."""
    tables = cached("tables", names, lambda: _tables_below(connection, names))
    hashes = (f"select {literal(t)}, sum(hash({quoted(t)})) from {quoted(t)}" for t in tables)
    return sorted(connection.execute(" union all ".join(hashes)).fetchall())


def _tables_below(connection: DuckDBPyConnection, names: Sequence[str]) -> list[str]:
    """Return the tables that views read, directly or through others."""
    from warehouse.database.lineage import reads_of

    reads = reads_of(connection)
    found, waiting = set(), [*names]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += [below for below in reads.get(name, ()) if below not in found]
    query = f"select table_name from duckdb_tables() where {IN_MAIN}"
    return sorted(found.intersection(name for (name,) in connection.execute(query).fetchall()))


def _types_and_rows(
    connection: DuckDBPyConnection, name: str
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    described = connection.execute(f"describe {quoted(name)}").fetchall()
    types = {str(column): str(kind) for column, kind, *_ in described}
    rows = connection.execute(f"from {quoted(name)}").fetchall()
    return types, [dict(zip(types, row, strict=True)) for row in rows]


@contextmanager
def replaced(connection: DuckDBPyConnection, views: Mapping[str, str]) -> Iterator[None]:
    """Replace views by queries until the block ends.

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
