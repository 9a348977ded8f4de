"""Reads every value of every table.

DuckDB keeps a checksum of each block and compares it when it reads the block. A query of few
columns does not notice damage in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import duckdb

from warehouse.database.sql_text import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

_TABLES = """\
select schema_name, table_name from duckdb_tables()
where not internal and not temporary and database_name = current_database()
order by all"""


class Damage(NamedTuple):
    """A table with values that cannot be read, their columns, and DuckDB's reason."""

    table: str
    columns: tuple[str, ...]
    reason: str


def deep_check(connection: duckdb.DuckDBPyConnection) -> list[Damage]:
    """Return the damage of each table; empty if every stored value can be read."""
    tables = connection.execute(_TABLES).fetchall()
    found = (_damage(connection, f"{quoted(schema)}.{quoted(name)}") for schema, name in tables)
    return [damage for damage in found if damage is not None]


def _damage(connection: duckdb.DuckDBPyConnection, table: str) -> Damage | None:
    # duckdb_columns() binds every view of the database
    query = f"select name from pragma_table_info({literal(table)}) order by cid"
    columns = [name for (name,) in connection.execute(query).fetchall()]
    reason = _unread(connection, table, columns)
    if reason is None:
        return None
    hurt = [column for column in columns if _unread(connection, table, [column]) is not None]
    return Damage(table.replace('"', "").removeprefix("main."), tuple(hurt), reason)


def _unread(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]
) -> str | None:
    """Return why columns cannot be read, or None.

    A hash takes every value. A count or an extreme would come from the statistics.
    """
    hashes = ", ".join(f"bit_xor(hash({quoted(name)}))" for name in columns)
    try:
        connection.execute(f"select {hashes} from {table}").fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        return str(error).partition("\n")[0]
    return None
