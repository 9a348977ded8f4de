"""Queries about one estimator: its branch of the union of all configurations, and no other.

DuckDB takes longer to plan a query over all estimators than to run it. Temporary views take the
place of the unions, on one connection: DuckDB looks a name up among temporary objects first, also
inside the views of the database. Nothing is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warehouse.database.sql_text import quoted
from warehouse.database.views import CONFIGURATION_SOURCE, LEADING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator

_COLUMNS = """\
select table_name, column_name, data_type
from duckdb_columns()
where not internal and list_contains(?, table_name)
order by table_name, column_index"""


def narrow_to(connection: DuckDBPyConnection, estimator: Estimator) -> None:
    """Have the later queries on a connection see the configurations of one estimator only.

    An estimator without a branch in the unions leaves them as they are.
    """
    stored = connection.execute(
        "select view_name, sql from duckdb_views() where not internal and "
        "list_contains(?, view_name)",
        [[CONFIGURATION_SOURCE, LEADING + CONFIGURATION_SOURCE]],
    ).fetchall()
    branches = {
        union: [
            name
            for relation in estimator.relations
            for name in _branches(union, relation.name, sql)
        ]
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
