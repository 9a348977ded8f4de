"""Narrows the union of all configurations to some relations, for queries about these alone.

DuckDB takes longer to plan a query over all estimators than to run it. Temporary views take the
place of the unions, on one connection: DuckDB looks a name up among temporary objects first, also
inside the views of the database. Nothing is written. Do not store cells on the connection
afterwards.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.database.cached import cached
from warehouse.database.current import (
    CURRENT_CELL,
    LEADING,
    current_cell_sql,
)
from warehouse.database.meta import is_stamped
from warehouse.database.sql_text import IN_MAIN, literal, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from duckdb import DuckDBPyConnection

_COLUMNS = f"""\
select table_name, column_name, data_type
from duckdb_columns()
where {IN_MAIN} and list_contains(?, table_name)
order by table_name, column_index"""

_MADE_FROM = "select key, value from warehouse_meta where key in ('tables', 'views') order by key"

_IN_FORCE = "select distinct relation from cell where sibling is not null order by relation"

_BY_READERS: dict[str, list[tuple[list[str], str]]] = {}
"""What this process has read of `_statements_by_readers`, by what it follows from."""

_OF_CATALOG = re.compile(
    r"\b(?:duckdb_|pragma_|pg_|sqlite_|information_schema|show\b)", re.IGNORECASE
)
"""Questions about views themselves: temporary ones would be among the answers."""


def narrow_to(connection: DuckDBPyConnection, relations: Collection[str]) -> None:
    """Make later queries on a connection see only the configurations of some relations.

    Relations without a branch in the unions leave them as they are.
    """
    for statement in _cached_statements(connection, relations).values():
        connection.execute(statement)


def narrow_to_stored(connection: DuckDBPyConnection, query: str) -> None:
    """Have the later queries on a connection see the relations with cells in force only.

    The rows of all views stay the same. Planning a query over all estimators takes longer than
    planning one over the few that a database has cells of.

    Parameters
    ----------
    query
        What the user asks. A union that it does not read stays as it is.
    """
    words = {word.lower() for word in re.findall(r"\w+", query)}
    if "from" not in words or _OF_CATALOG.search(query):
        return
    relations = [relation for (relation,) in connection.execute(_IN_FORCE).fetchall()]
    facts = (relations, connection.execute(_MADE_FROM).fetchall())
    if repr(facts) not in _BY_READERS:  # the cache directory is slower than short queries
        _BY_READERS[repr(facts)] = cached(
            "stored", facts, lambda: _statements_by_readers(connection, relations)
        )
    for readers, statement in _BY_READERS[repr(facts)]:
        if not words.isdisjoint(readers):
            connection.execute(statement)


def _statements_by_readers(
    connection: DuckDBPyConnection, relations: Collection[str]
) -> list[tuple[list[str], str]]:
    """Return for each union all that read it, itself or through others, and its statement."""
    from warehouse.database.lineage import all_sources, readers_of, reads_of

    readers = readers_of(reads_of(connection))
    return [
        (sorted({union, *all_sources(readers, union)}), statement)
        for union, statement in _statements(connection, relations).items()
    ]


def _unions() -> list[str]:
    """Return the views of the configurations of all estimators."""
    from warehouse.database.views import CONFIGURATION_SOURCE, NEAR_SOURCE

    return [CONFIGURATION_SOURCE, LEADING + CONFIGURATION_SOURCE, NEAR_SOURCE]


@contextmanager
def narrowed(connection: DuckDBPyConnection, relations: Collection[str]) -> Iterator[bool]:
    """Narrow the unions within a block that may store cells; yield whether any branch is left.

    While a database is brought up to date its meta table lags: the statements are made anew.
    """
    make = _cached_statements if is_stamped(connection) else _statements
    statements = make(connection, relations)
    for statement in statements.values():
        connection.execute(statement)
    yield bool(statements)
    for union in _unions():
        connection.execute(f"drop view if exists temp.{quoted(union)}")


def _cached_statements(
    connection: DuckDBPyConnection, relations: Collection[str]
) -> dict[str, str]:
    """Return `_statements`, kept: the catalog takes longer to list columns than most queries."""
    statements: dict[str, str] = cached(
        "narrow",
        (sorted(relations), connection.execute(_MADE_FROM).fetchall()),
        lambda: _statements(connection, relations),
    )
    return statements


def _statements(connection: DuckDBPyConnection, relations: Collection[str]) -> dict[str, str]:
    """Return the statement that creates the temporary view of each union."""
    stored = connection.execute(
        f"select view_name, sql from duckdb_views() where {IN_MAIN} and "
        "list_contains(?, view_name)",
        [_unions()],
    ).fetchall()
    branches = {
        union: [name for relation in relations for name in _branches(relation, sql)]
        for union, sql in stored
    }
    asked = [*branches, *(name for names in branches.values() for name in names)]
    columns: dict[str, dict[str, str]] = {}
    for view, column, kind in connection.execute(_COLUMNS, [asked]).fetchall():
        columns.setdefault(view, {})[column] = kind
    return {
        union: _view(
            union,
            " union all ".join(
                f"select {_selected(columns[union], columns[name])} from {quoted(name)}"
                for name in names
            ),
        )
        for union, names in branches.items()
        if names
    }


def leave_out_others(connection: DuckDBPyConnection, view: str, relations: Collection[str]) -> None:
    """Make a view read the staging views of some relations only; its other sources are empty."""
    for statement in cached(
        "others",
        (view, sorted(relations), connection.execute(_MADE_FROM).fetchall()),
        lambda: _others(connection, view, relations),
    ):
        connection.execute(statement)


def _others(connection: DuckDBPyConnection, view: str, relations: Collection[str]) -> list[str]:
    """Return the statements that create views without rows."""
    from warehouse.database.lineage import names_in  # here: the statements are mostly cached

    query = f"select sql from duckdb_views() where {IN_MAIN} and view_name = ?"
    [(sql,)] = connection.execute(query, [view]).fetchall()
    own = {f"stg_{relation}" for relation in relations}
    names = sorted({name for name in names_in(sql).relations if name.startswith("stg_")} - own)
    columns: dict[str, dict[str, str]] = {}
    for name, column, kind in connection.execute(_COLUMNS, [names]).fetchall():
        columns.setdefault(name, {})[column] = kind
    return [_view(name, f"select {_selected(columns[name], {})} where false") for name in columns]


def narrow_to_cells(
    connection: DuckDBPyConnection, problems: Collection[int], variant: str
) -> None:
    """Make later queries on a connection see the cells in force of some problems and one variant.

    A filter outside a view does not reach all tables below it: `ranked_layouts` reads the
    layouts of every cell that this leaves.
    """
    listed = ", ".join(map(str, sorted(problems)))
    cells = f"{current_cell_sql()} and variant = {literal(variant)} and problem_id in ({listed})"
    connection.execute(_view(CURRENT_CELL, cells))


def _view(name: str, sql: str) -> str:
    """Return the statement of a temporary view, bound where it is used: few queries do."""
    return f"create or replace temp view {quoted(name)} with (defer_binding) as {sql}"


def _branches(relation: str, sql: str) -> list[str]:
    """Return the staging view of a relation, if the union has it: of leading rows, or of all."""
    from warehouse.database.lineage import names_in

    present = names_in(sql).relations
    return [name for name in (f"{LEADING}stg_{relation}", f"stg_{relation}") if name in present]


def _selected(wanted: dict[str, str], present: dict[str, str]) -> str:
    """Return the columns of a union, NULL where the branch has none, with the union's types."""
    return ", ".join(
        quoted(name)
        if present.get(name) == kind
        else f"cast({quoted(name) if name in present else 'null'} as {kind}) as {quoted(name)}"
        for name, kind in wanted.items()
    )
