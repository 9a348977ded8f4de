"""Lineage: the tables, views and macros that each view and macro reads.

DuckDB's own parser finds the names, so that quoted texts and names of subqueries do not count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from warehouse.database.sql_text import IN_MAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from duckdb import DuckDBPyConnection

    Reads = Mapping[str, tuple[str, ...]]

_TEXTS = f"""\
select view_name as name, sql as text from duckdb_views() where {IN_MAIN}
union all
select function_name, if(function_type = 'macro', 'select ', '') || macro_definition
from duckdb_functions() where {IN_MAIN} and function_type in ('macro', 'table_macro')
order by name"""

_NAMES = f"""\
select table_name from duckdb_tables() where {IN_MAIN}
union select view_name from duckdb_views() where {IN_MAIN}
union select function_name from duckdb_functions() where {IN_MAIN}"""


class Token(NamedTuple):
    """A token of SQL: its text, where it begins, and how many parentheses are open there."""

    text: str
    start: int
    depth: int

    def is_word(self, word: str) -> bool:
        """Return whether the token is the keyword, name or sign `word`, in any case."""
        return self.text.lower() == word


class Names(NamedTuple):
    """The names in a query: `relations` are tables, views and table macros."""

    relations: frozenset[str]
    functions: frozenset[str]


def reads_of(connection: DuckDBPyConnection) -> dict[str, tuple[str, ...]]:
    """Return for each view and macro of a database the tables, views and macros that it names."""
    known = {name for (name,) in connection.execute(_NAMES).fetchall()}
    reads = defaultdict[str, set[str]](set)
    for name, text in connection.execute(_TEXTS).fetchall():
        relations, functions = names_in(text)
        reads[name] |= (relations | functions) & known
    return {name: tuple(sorted(names - {name})) for name, names in reads.items()}


def tokens(text: str) -> list[Token]:
    """Return the tokens of SQL, without its comments, as DuckDB finds them."""
    content = text.encode()
    is_ascii = len(content) == len(text)
    starts = duckdb.tokenize(text)
    ends = [start for start, _ in starts[1:]] + [len(content)]
    words, depth = [], 0
    for (start, kind), end in zip(starts, ends, strict=True):
        if kind == duckdb.token_type.comment:
            continue
        word = content[start:end].decode().strip()
        depth -= word == ")"
        words.append(Token(word, start if is_ascii else len(content[:start].decode()), depth))
        depth += word == "("
    return words


def body_of(statement: str) -> str:
    """Return the SELECT of a view or table macro that `statement` creates, else `statement`."""
    words = tokens(statement)
    if not words or not words[0].is_word("create"):
        return statement
    for index, word in enumerate(words):
        if word.depth == 0 and word.is_word("as"):
            rest = words[index + 1 :]
            rest = rest[1:] if rest and rest[0].is_word("table") else rest
            return statement[rest[0].start :] if rest else ""
    return statement


@lru_cache(maxsize=1024)
def names_in(query: str) -> Names:
    """Return the names in a SELECT, or in that of a view or table macro that `query` creates.

    The result is empty for a query that DuckDB cannot parse.
    """
    relations: set[str] = set()
    functions: set[str] = set()
    _collect(parsed(body_of(query)), frozenset(), relations, functions)
    return Names(frozenset(relations), frozenset(functions))


def parsed(query: str) -> dict[str, Any]:
    """Return the syntax tree of a SELECT; ``error`` in it is true where DuckDB finds none."""
    with _parser().cursor() as cursor:
        text = query.rstrip().rstrip(";")
        ((tree,),) = cursor.execute("select json_serialize_sql(?)", [text]).fetchall()
    document: dict[str, Any] = json.loads(tree)
    return document


@cache
def _parser() -> DuckDBPyConnection:
    return duckdb.connect()


def _collect(
    node: Any, subqueries: frozenset[str], relations: set[str], functions: set[str]
) -> None:
    """Add the names under `node`, without the names of `subqueries` that are visible there."""
    if isinstance(node, list):
        for inner in node:
            _collect(inner, subqueries, relations, functions)
    if not isinstance(node, dict):
        return
    match node.get("type"):
        case "BASE_TABLE" if node["table_name"] not in subqueries:
            relations.add(str(node["table_name"]))
        case "TABLE_FUNCTION":
            relations.add(str(node["function"]["function_name"]))
        case "RECURSIVE_CTE_NODE":
            subqueries |= {str(node["cte_name"])}
    if node.get("class") == "FUNCTION":
        functions.add(str(node["function_name"]))
    # A subquery may read those defined before it; within it, its own name means a table.
    for entry in node.get("cte_map", {}).get("map", ()):
        _collect(entry["value"], subqueries, relations, functions)
        subqueries |= {str(entry["key"])}
    for key, value in node.items():
        if key != "cte_map":
            _collect(value, subqueries, relations, functions)


def readers_of(reads: Reads) -> dict[str, tuple[str, ...]]:
    """Return for each name the views and macros that read it."""
    readers = defaultdict[str, tuple[str, ...]](tuple)
    for reader in sorted(reads):
        for name in reads[reader]:
            readers[name] += (reader,)
    return dict(readers)


def all_sources(reads: Reads, name: str) -> tuple[str, ...]:
    """Return everything that `name` reads, itself or through others, by name."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(reads.get(waiting.pop(), ())) - seen
        seen |= new
        waiting.extend(new)
    return tuple(sorted(seen - {name}))


def without(reads: Reads, hidden: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return `reads` without the names `hidden`: their readers then read their sources."""
    return {
        name: tuple(sorted(_seen_through(reads, reads[name], hidden)))
        for name in reads
        if name not in hidden
    }


def _seen_through(reads: Reads, names: Iterable[str], hidden: Collection[str]) -> set[str]:
    seen: set[str] = set()
    for name in names:
        seen |= _seen_through(reads, reads.get(name, ()), hidden) if name in hidden else {name}
    return seen
