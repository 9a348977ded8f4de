"""What reads what: the views and macros of a database, each with what stands in its SQL.

DuckDB's own parser finds the names, so that a text in quotes or a name of a subquery is none.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from duckdb import DuckDBPyConnection

    Reads = Mapping[str, tuple[str, ...]]

_BEFORE_SELECT = re.compile(
    r"^CREATE\b.*?\bAS\s+(?=(?:SELECT|WITH|FROM|VALUES)\b|\()", re.DOTALL | re.IGNORECASE
)

_TEXTS = """\
select view_name as name, sql as text, 'view' as kind from duckdb_views() where not internal
union all
select function_name, macro_definition, function_type from duckdb_functions()
where not internal and function_type in ('macro', 'table_macro')
order by name"""

_NAMES = """\
select table_name from duckdb_tables() where not internal
union select view_name from duckdb_views() where not internal
union select function_name from duckdb_functions() where not internal"""


def reads_of(connection: DuckDBPyConnection) -> dict[str, tuple[str, ...]]:
    """Return what each view and macro reads or calls itself: tables, views and macros, by name."""
    known = {name for (name,) in connection.execute(_NAMES).fetchall()}
    found: dict[str, set[str]] = {}
    for name, text, kind in connection.execute(_TEXTS).fetchall():
        select = f"select {text}" if kind == "macro" else _BEFORE_SELECT.sub("", text)
        found.setdefault(name, set()).update(names_in(connection, select) & known)
    return {name: tuple(sorted(names - {name})) for name, names in found.items()}


def names_in(connection: DuckDBPyConnection, select: str) -> set[str]:
    """Return the tables, views, functions and operators that a SELECT names; none if it is none."""
    query = "select json_serialize_sql(?)"
    ((text,),) = connection.execute(query, [select.rstrip().rstrip(";")]).fetchall()
    named: set[str] = set()
    defined: set[str] = set()
    stack: list[Any] = [json.loads(text)]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                named.add(str(node["table_name"]))
            if node.get("class") == "FUNCTION":
                named.add(str(node["function_name"]))
            defined.update(entry["key"] for entry in node.get("cte_map", {}).get("map", ()))
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return named - defined


def readers_of(reads: Reads) -> dict[str, tuple[str, ...]]:
    """Return the same the other way round: for each name what reads it."""
    found: dict[str, list[str]] = {}
    for reader in sorted(reads):
        for name in reads[reader]:
            found.setdefault(name, []).append(reader)
    return {name: tuple(readers) for name, readers in found.items()}


def rests_on(reads: Reads, name: str) -> tuple[str, ...]:
    """Return everything that `name` reads, itself or through others, by name."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(reads.get(waiting.pop(), ())) - seen
        seen |= new
        waiting.extend(new)
    return tuple(sorted(seen - {name}))


def without(reads: Reads, hidden: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return `reads` without the names `hidden`: who reads one of them reads what it reads."""
    return {
        name: tuple(sorted(_seen_through(reads, reads[name], hidden)))
        for name in reads
        if name not in hidden
    }


def _seen_through(reads: Reads, names: Iterable[str], hidden: Collection[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        found |= _seen_through(reads, reads.get(name, ()), hidden) if name in hidden else {name}
    return found
