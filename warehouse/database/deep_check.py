"""Reads every value of every table, and finds the cells whose rows a damaged file has lost.

DuckDB keeps a checksum of each block and compares it when it reads the block. A query of few
columns does not notice damage in the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from estimators.registry import all_estimators
from warehouse.database.sql_text import literal, quoted

ROW_GROUP = 122_880
"""Rows that DuckDB compresses together: the smallest part that is read alone."""

Span = tuple[int, int]
"""First and last row id of rows in sequence."""


@dataclass(frozen=True)
class Damage:
    """The unreadable part of a table.

    Attributes
    ----------
    columns
        The columns with unreadable values.
    spans
        The rows that have such values, by row id.
    cells
        Cells with a row among them; empty where the table has no cells.
    reason
        What DuckDB says.
    """

    table: str
    columns: tuple[str, ...]
    spans: tuple[Span, ...]
    cells: frozenset[int]
    reason: str


def deep_check(connection: duckdb.DuckDBPyConnection) -> list[Damage]:
    """Return the damage of each table; empty if every stored value can be read."""
    return [found for table in _tables(connection) if (found := _damage(connection, table))]


def good_spans(connection: duckdb.DuckDBPyConnection, damage: Damage) -> list[Span]:
    """Return the rows of a table that can be read, by row id."""
    spans = []
    start = 0
    for first, last in damage.spans:
        if start < first:
            spans.append((start, first - 1))
        start = last + 1
    end = _last_row(connection, damage.table)
    if start <= end:
        spans.append((start, end))
    return spans


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute(
        "select table_name from duckdb_tables() where not internal and not temporary"
        " and database_name = current_database() order by 1"
    )
    return [name for (name,) in found.fetchall()]


def _damage(connection: duckdb.DuckDBPyConnection, table: str) -> Damage | None:
    # duckdb_columns() binds every view of the database
    query = f"select name from pragma_table_info({literal(quoted(table))}) order by cid"
    columns = [name for (name,) in connection.execute(query).fetchall()]
    reason = _unread(connection, table, columns) or _unread_key(connection, table)
    if reason is None:
        return None
    end = _last_row(connection, table)
    hurt: dict[str, list[Span]] = {}
    for column in columns:
        if _unread(connection, table, [column]) is not None:
            hurt[column] = list(_unread_spans(connection, table, column, (0, end)))
    spans = _joined([span for found in hurt.values() for span in found])
    damage = Damage(table, tuple(hurt), tuple(spans), frozenset(), reason)
    cells = _cells(connection, damage) if "cell_id" in columns else frozenset()
    return Damage(table, damage.columns, damage.spans, cells, reason)


def _unread(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str],
    span: Span | None = None,
) -> str | None:
    """Return why columns of some rows cannot be read, or None.

    A hash takes every value. A count or an extreme would come from the statistics.
    """
    hashes = ", ".join(f"bit_xor(hash({quoted(name)}))" for name in columns)
    where = f" where rowid between {span[0]} and {span[1]}" if span else ""
    try:
        connection.execute(f"select {hashes} from {quoted(table)}{where}").fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        return str(error).partition("\n")[0]
    return None


def _unread_key(connection: duckdb.DuckDBPyConnection, table: str) -> str | None:
    """Return why the index of a table's key cannot be read; None: it can, or there is none."""
    keys = connection.execute(
        "select constraint_column_names from duckdb_constraints()"
        " where database_name = current_database() and constraint_type = 'PRIMARY KEY'"
        f" and table_name = {literal(table)}"
    ).fetchall()
    for (names,) in keys:
        listed = ", ".join(quoted(name) for name in names)
        equal = " and ".join(f"{quoted(name)} = ?" for name in names)
        try:
            rows = connection.execute(f"select {listed} from {quoted(table)}").fetchall()
            for row in rows[:: max(1, len(rows) // 100)]:
                query = f"select count(*) from {quoted(table)} where {equal}"
                if connection.execute(query, list(row)).fetchall() != [(1,)]:
                    return f"the index of {listed} does not find {row}"
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            return str(error).partition("\n")[0]
    return None


def _unread_spans(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, span: Span
) -> Iterator[Span]:
    """Yield the row groups of a span in which a column cannot be read."""
    first, last = span
    if _unread(connection, table, [column], span) is None:
        return
    groups = last // ROW_GROUP - first // ROW_GROUP + 1
    if groups == 1:
        yield span
        return
    middle = (first // ROW_GROUP + groups // 2) * ROW_GROUP
    yield from _unread_spans(connection, table, column, (first, middle - 1))
    yield from _unread_spans(connection, table, column, (middle, last))


def _cells(connection: duckdb.DuckDBPyConnection, damage: Damage) -> frozenset[int]:
    """Return the cells with a row in the unreadable spans of a table.

    If the cells' ids are unreadable too, cells that lack rows elsewhere count.
    """
    table = quoted(damage.table)
    if "cell_id" not in damage.columns:
        query = f"select distinct cell_id from {table} where {_in(damage.spans)}"
        return frozenset(cell for (cell,) in connection.execute(query).fetchall())
    relation = {
        each.table: each.name for estimator in all_estimators() for each in estimator.relations
    }.get(damage.table)
    if relation is None or _unread(connection, "cell", ["cell_id", "relation", "num_rows"]):
        return frozenset()
    query = (
        f"select cell_id from cell left join (select cell_id, count(*) as found from {table}"
        f" where {_in(good_spans(connection, damage))} group by cell_id) using (cell_id)"
        f" where relation = {literal(relation)} and num_rows <> coalesce(found, 0)"
    )
    return frozenset(cell for (cell,) in connection.execute(query).fetchall())


def _in(spans: Sequence[Span]) -> str:
    between = " or ".join(f"rowid between {first} and {last}" for first, last in spans)
    return f"({between})" if between else "false"


def _last_row(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    [(last,)] = connection.execute(f"select max(rowid) from {quoted(table)}").fetchall()
    return -1 if last is None else int(last)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Return spans in order; those that touch are one."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
