"""The rows that the scans of a query give: structure, not time."""

from __future__ import annotations

import json

import duckdb


def rows_read(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    """Return for each stored table the rows that the scans of a query gave."""
    [(_, text)] = connection.execute(f"explain (analyze, format json) {query}").fetchall()
    found: dict[str, int] = {}
    waiting = list(json.loads(text)["operator"])
    while waiting:
        node = waiting.pop()
        table = node["extra_info"].get("Table", "").rpartition(".")[2]
        if table:
            found[table] = found.get(table, 0) + node["intermediate_rows"]
        waiting += node.get("children", [])
    return found
