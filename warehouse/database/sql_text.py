"""Names and strings in SQL; rows, temporary objects and settings of one connection.

DuckDB finds temporary objects first, also inside the views of the file. Nothing is written to it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from duckdb import DuckDBPyConnection

_NAME = re.compile(r"[a-z][a-z0-9_]*")

IN_MAIN = "not internal and database_name = current_database() and schema_name = 'main'"
"""Condition on DuckDB's catalog for what this package made, and what users put next to it. Their
schemas, attached files and temporary tables may have the same names."""


def is_name(text: str) -> bool:
    """Return whether `text` may name a table or view: lower case, digits, underscores."""
    return _NAME.fullmatch(text) is not None


def quoted(name: str) -> str:
    """Return `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return `text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def listed(ids: Iterable[int]) -> str:
    """Return ids to write after `in`. As texts they filter a scan, where a join would not."""
    return ", ".join(map(str, ids)) or "null"


def view_exists(name: str) -> str:
    """Return a query with a row if a view of that name exists."""
    return f"select 1 from duckdb_views() where {IN_MAIN} and view_name = {literal(name)}"


def value_literal(value: str | float | bool | None) -> str:
    """Return a value in SQL; a float is a DOUBLE, not a DECIMAL."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return literal(value)
    return double(value) if isinstance(value, float) else str(value).lower()


def double(value: float) -> str:
    """Return a number that SQL reads as a DOUBLE, not as a DECIMAL."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


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
        with _unless_failed():
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
        with _unless_failed():
            for name in views:
                connection.execute(f"drop view temp.{quoted(name)}")


@contextmanager
def least_fit_probability(connection: DuckDBPyConnection, least: float) -> Iterator[None]:
    """Let queries in the block rank by another least chance to fit in memory than the usual one.

    The ranks of stored leading rows stay those of the usual one.
    """
    macro = "least_fit_probability()"
    connection.execute(f"create or replace temp macro {macro} as {double(least)}")
    try:
        yield
    finally:
        with _unless_failed():
            connection.execute("drop macro temp.least_fit_probability")


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
        with _unless_failed():
            connection.execute(f"set disabled_optimizers = {literal(before or '')}")


@contextmanager
def _unless_failed() -> Iterator[None]:
    """Pass over errors of DuckDB: a failed transaction refuses every statement."""
    import duckdb  # here: texts need no DuckDB

    with suppress(duckdb.Error):
        yield


def iterate_rows(
    connection: DuckDBPyConnection, query: str, values: Iterable[Any] = ()
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a query, each by the names of its columns; few are in memory at once.

    Read them to the end before the next query.
    """
    result = connection.execute(query, list(values))
    columns = [column[0] for column in result.description or ()]
    while rows := result.fetchmany(1_000):
        yield from (dict(zip(columns, row, strict=True)) for row in rows)
