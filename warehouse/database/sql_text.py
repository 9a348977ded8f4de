"""Names and strings to write into SQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
