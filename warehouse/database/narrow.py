"""Queries about some relations: their branches of the union of all configurations, and no other.

DuckDB takes longer to plan a query over all estimators than to run it. Temporary views take the
place of the unions, on one connection: DuckDB looks a name up among temporary objects first, also
inside the views of the database. Nothing is written, and the connection must not store cells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warehouse.database.sql_text import quoted
from warehouse.database.views import CONFIGURATION_SOURCE, LEADING

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

_COLUMNS = """\
select table_name, column_name, data_type
from duckdb_columns()
where not internal and list_contains(?, table_name)
order by table_name, column_index"""


_UNSTORED = """\
select exists(
    from cell_state
    anti join stored_best using (cell_id, sibling_record)
)"""


def narrow_to(connection: DuckDBPyConnection, relations: Collection[str]) -> None:
    """Have the later queries on a connection see the configurations of some relations only.

    Relations without a branch in the unions leave them as they are.
    """
    stored = connection.execute(
        "select view_name, sql from duckdb_views() where not internal and "
        "list_contains(?, view_name)",
        [[CONFIGURATION_SOURCE, LEADING + CONFIGURATION_SOURCE]],
    ).fetchall()
    branches = {
        union: [name for relation in relations for name in _branches(union, relation, sql)]
        for union, sql in stored
    }
    asked = [*branches, *(name for names in branches.values() for name in names)]
    columns: dict[str, dict[str, str]] = {}
    for view, column, kind in connection.execute(_COLUMNS, [asked]).fetchall():
        columns.setdefault(view, {})[column] = kind
    for union, names in branches.items():
        selects = [
            f"select {_selected(columns[union], columns[name])} from {quoted(name)}"
            for name in names
        ]
        if selects:
            # Bound where it is used: a union is used in few of the queries.
            connection.execute(
                f"create or replace temp view {quoted(union)} with (defer_binding) as "
                + " union all ".join(selects)
            )


def narrow_to_stored_best(connection: DuckDBPyConnection) -> None:
    """Have the later queries on a connection read the best layouts of cells where they are stored.

    An empty table takes the place of view `unstored_best`, unless a cell in force needs it.
    """
    if connection.execute(_UNSTORED).fetchall() == [(False,)]:
        connection.execute("create or replace temp table unstored_best as from stored_best limit 0")


def _branches(union: str, relation: str, sql: str) -> list[str]:
    """Return the staging view of a relation, if the union has it."""
    prefix = LEADING if union.startswith(LEADING) else ""
    name = f"{prefix}stg_{relation}"
    return [name] if name in re.findall(r"\w+", sql) else []


def _selected(wanted: dict[str, str], present: dict[str, str]) -> str:
    """Return the columns of a union, NULL where the branch has none, with the union's types."""
    return ", ".join(
        f"cast({quoted(name) if name in present else 'null'} as {kind}) as {quoted(name)}"
        for name, kind in wanted.items()
    )
