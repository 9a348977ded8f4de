"""Replaces subqueries that a column is compared with by their values, before planning.

DuckDB plans ``problem_id = (select ...)`` as a join, whose filter passes no window: ranks would be
found in all rows. A number reaches the scan. A subquery that runs alone means the same in the query
around it: it reads nothing of that query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_VALUES = 1_000
"""Longest list that takes the place of a subquery; longer lists stay joins."""

_SUBQUERY = re.compile(rb"\(\s*(select|from|with)\b", re.IGNORECASE)
"""Queries without this text are not parsed."""

_WHOLE = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
}

_Node = dict[str, Any]


class _Subquery(NamedTuple):
    """A subquery with its parentheses: its place in the text, in bytes.

    Attributes
    ----------
    is_list
        Whether it may have several values.
    common
        Names of the common table expressions that it can see.
    """

    start: int
    end: int
    is_list: bool
    common: frozenset[str]


def with_values(connection: DuckDBPyConnection, query: str) -> str:
    """Return a query with the values of its subqueries in their places.

    This replaces ``column = (select ...)`` and ``column in (select ...)`` of whole numbers and
    texts, if the subquery runs alone and returns no NULL. Everything else is left unchanged, faults
    included.

    Parameters
    ----------
    query
        One SELECT.
    """
    text = query.encode()
    if _SUBQUERY.search(text) is None:
        return query
    from warehouse.database.lineage import names_in, parsed  # here: most queries have none

    for place in sorted(
        _subqueries(parsed(query).get("statements", ()), frozenset()), reverse=True
    ):
        subquery = text[place.start : place.end].decode()
        is_own = not place.common & {name.lower() for name in names_in(subquery).relations}
        values = _values(connection, subquery, place) if is_own else None
        if values is not None:
            text = text[: place.start] + values.encode() + text[place.end :]
    return text.decode()


def _subqueries(node: Any, common: frozenset[str]) -> Iterator[_Subquery]:
    """Yield the outermost subqueries under a node that a column is compared with.

    Parameters
    ----------
    common
        Names of the common table expressions around the node.
    """
    if isinstance(node, list):
        for each in node:
            yield from _subqueries(each, common)
    if not isinstance(node, dict):
        return
    named = node.get("cte_map", {}).get("map", ())
    common |= {each["key"].lower() for each in named}
    for subquery in (_of_comparison(node), _of_list(node)):
        if subquery is not None:
            start = subquery["query_location"]
            end = start + subquery["query_location_length"]
            yield _Subquery(start, end, subquery["subquery_type"] == "ANY", common)
            return
    for each in node.values():
        yield from _subqueries(each, common)


def _of_comparison(node: _Node) -> _Node | None:
    """Return the subquery of ``column = (select ...)``."""
    if node.get("type") != "COMPARE_EQUAL" or node.get("class") != "COMPARISON":
        return None
    sides = {side["class"]: side for side in (node["left"], node["right"])}
    subquery: _Node | None = sides.get("SUBQUERY")
    is_scalar = subquery is not None and subquery["subquery_type"] == "SCALAR"
    return subquery if is_scalar and "COLUMN_REF" in sides else None


def _of_list(node: _Node) -> _Node | None:
    """Return the subquery of ``column in (select ...)``: a node that has the column, too."""
    is_list = node.get("class") == "SUBQUERY" and node.get("subquery_type") == "ANY"
    is_equal = is_list and node["comparison_type"] == "COMPARE_EQUAL"
    return node if is_equal and node["child"]["class"] == "COLUMN_REF" else None


def _values(connection: DuckDBPyConnection, subquery: str, place: _Subquery) -> str | None:
    """Return the values of a subquery as SQL; None if it must stay."""
    if not subquery.startswith("("):  # = any (select ...)
        return None
    try:
        result = connection.execute(with_values(connection, f"from {subquery}"))
        [(_, kind, *_)] = list(result.description or ())
        rows = result.fetchmany(_MOST_VALUES + 1)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException):
        raise
    except (duckdb.Error, ValueError):  # it reads the query around it, has two columns, is faulty
        return None
    values = list(dict.fromkeys(value for (value,) in rows))
    is_known = str(kind) in _WHOLE or str(kind) == "VARCHAR"
    is_few = 0 < len(rows) <= (_MOST_VALUES if place.is_list else 1)
    if not (is_known and is_few) or any(value is None or "\0" in str(value) for value in values):
        return None
    # With the type of the subquery: a bare number or text would take that of the column.
    listed = ", ".join(f"cast({literal(str(value))} as {kind})" for value in values)
    return f"({listed})"
