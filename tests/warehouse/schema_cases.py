"""What tests of the schema look at."""

from __future__ import annotations

import duckdb


def columns_of(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Return the columns of a table with their types."""
    query = "select column_name, data_type from duckdb_columns() where table_name = ?"
    return dict(connection.execute(query, [table]).fetchall())
