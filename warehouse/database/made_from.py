"""Hashes of what decides how views are created, and which rows a database keeps for them.

The rows are prices, facts of problems, best layouts and fronts. Views and rows are made again where
their hash differs from that of the database. It covers the SQL of the view and of everything below
it, macros and the columns of tables; that of rows also covers the files of reference tables.
Comments change neither, so it leaves them out.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from estimators.contract import content_id
from warehouse.database import resources
from warehouse.database.current import leading_staging_name, staging_name
from warehouse.database.in_force import CELL_ORDER
from warehouse.database.leading import NEAR_RATIO, TOP
from warehouse.database.lineage import names_in, tokens
from warehouse.database.reference import columns_in, measured_files, reference_files
from warehouse.database.stored_best import SOURCE as BEST
from warehouse.database.stored_front import SOURCE as FRONT
from warehouse.database.stored_price import SOURCE as PRICE
from warehouse.database.stored_problem import SOURCE as PROBLEM
from warehouse.database.tables import (
    STORED_BEST,
    STORED_FRONT,
    STORED_PRICE,
    STORED_PROBLEM,
    all_tables,
)
from warehouse.database.views import MACROS, packaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from estimators.contract import Estimator
    from warehouse.database.lineage import Token

_WORD = re.compile(r"\w+")
_NAME_OF_MACRO = 4
"""Place of its name among the tokens of a macro: `create or replace macro name`."""


class _Text(NamedTuple):
    """A macro or view: its text without comments, and a query that reads what it reads."""

    name: str
    plain: str
    query: str


def made_from(
    estimators: Sequence[Estimator], sql: Path | None = None, reference: Path | None = None
) -> dict[str, str]:
    """Return for each view that finds stored rows a hash of what decides these rows.

    Parameters
    ----------
    sql, reference
        Directories of views and reference tables, by default the packaged ones.
    """
    texts = _texts(sql or resources.sql_directory())
    sources = {**_references(reference), **_tables(estimators)}
    parts = _parts(texts, sources)
    for source, table in ((PRICE, STORED_PRICE.name), (PROBLEM, STORED_PROBLEM.name)):
        # Views that read a stored table depend on all that its rows are made from.
        if source in parts:
            sources[table] = _joined([sources[table], parts[source]])
            parts = _parts(texts, sources)
    kept = [r for each in estimators for r in each.relations if r.keeps_leading]
    rule = [TOP, NEAR_RATIO, [[r.name, r.keys, r.stored, r.keeps_near] for r in kept]]
    leading = [
        *(r.leading_table for r in kept),
        *(of(r) for r in kept for of in (staging_name, leading_staging_name)),
    ]
    rests_on = {
        PRICE: [STORED_PRICE.name],
        PROBLEM: [STORED_PROBLEM.name],
        CELL_ORDER: [],
        BEST: [STORED_BEST.name, *leading],
        FRONT: [STORED_FRONT.name],
    }
    every = {**sources, **parts}
    found = {
        view: _joined([every[name] for name in (view, *names) if name in every])
        for view, names in rests_on.items()
        if view in parts
    }
    if BEST in found:
        found[BEST] = _hash(found[BEST], rule)
    return found


def definitions(
    estimators: Sequence[Estimator], sql: Path | None = None, reference: Path | None = None
) -> dict[str, str]:
    """Return for each view and table macro a hash of what decides how it is created.

    That is its text and that of everything below it, and the columns of the tables below it: the
    columns that a view was created with must be those that it finds.
    """
    directory = sql or resources.sql_directory()
    sources = {**_columns_of_references(reference), **_tables(estimators)}
    parts = _parts(_texts(directory), sources)
    return {view.name: parts[view.name] for view in packaged(directory)}


def _texts(directory: Path) -> list[_Text]:
    """Return every macro and view of a directory, each after those that it reads."""
    macros = directory / MACROS
    found = _macros(macros.read_text("utf-8")) if macros.exists() else []
    return found + [
        _Text(view.name, _plain(tokens(view.sql)), view.sql) for view in packaged(directory)
    ]


def _hash(*parts: object) -> str:
    return f"{content_id(*parts):016x}"


def _joined(hashes: Iterable[str]) -> str:
    return _hash(list(hashes))


def _tables(estimators: Sequence[Estimator]) -> dict[str, str]:
    return {
        table.name: _hash([[name, table.type_of(name)] for name in table.columns])
        for table in all_tables(estimators)
    }


def _references(directory: Path | None) -> dict[str, str]:
    """Return the hashes of reference tables, with their rows."""
    return {
        path.stem: _hash(blake2b(path.read_bytes()).hexdigest(), _types(path))
        for path in (*reference_files(directory), *measured_files(directory))
    }


def _columns_of_references(directory: Path | None) -> dict[str, str]:
    """Return the hashes of reference tables without their rows."""
    return {
        path.stem: _hash(_types(path))
        for path in (*reference_files(directory), *measured_files(directory))
    }


def _types(path: Path) -> list[tuple[str, str]]:
    return [(column.name, column.duckdb_type) for column in columns_in(path)]


def _parts(texts: Iterable[_Text], sources: Mapping[str, str]) -> dict[str, str]:
    """Return the hashes of macros and views by name, of texts that come after those they read."""
    found: dict[str, str] = {}
    for name, plain, query in texts:
        known = {**sources, **found}
        relations, functions = names_in(query)
        names = relations | functions or set(_WORD.findall(plain))  # where it cannot be parsed
        below = _joined(known[each] for each in sorted((names & known.keys()) - {name}))
        # macros may share a name
        found[name] = _hash(found.get(name, ""), plain, below)
    return found


def _macros(text: str) -> list[_Text]:
    """Return the macros of a file, in order."""
    found, start = [], 0
    words = tokens(text)
    for place, word in enumerate(words):
        if word.depth == 0 and word.text == ";":
            statement = words[start:place]
            body = _plain(statement).partition(" as ")[2]
            name = statement[_NAME_OF_MACRO].text.lower()
            found.append(_Text(name, _plain(statement), f"select {body}"))
            start = place + 1
    return found


def _plain(words: Iterable[Token]) -> str:
    """Return SQL without comments."""
    return " ".join(word.text for word in words)
