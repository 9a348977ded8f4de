"""Describes a database: its tables, views and macros by layer, their columns and lineage.

Names, comments and SQL come from the database itself. Layers, sources and examples come from the
package.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from estimators.columns import GROUPS, Column
from estimators.registry import all_estimators
from warehouse.database import resources, views
from warehouse.database.lineage import all_sources, names_in, readers_of, reads_of
from warehouse.database.meanings import LAYERS, ROLES, meaning_of, role_of
from warehouse.database.reference import DICTIONARY
from warehouse.database.sql_text import IN_MAIN, quoted
from warehouse.database.stamp import reference_names
from warehouse.database.tables import core_tables
from warehouse.database.views import Argument, Macro, macros_in
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection

_GRAIN = re.compile(
    r"\s*(?:\bGrain: )?\b[Oo](ne row\b.*?)\.?(?:\s*\bKey: ([\w, ]+)\.?)?$", re.DOTALL
)
_NEAR = 8

_OBJECTS = f"""\
select table_name as name, 'table' as kind, comment, null as parameters from duckdb_tables()
where {IN_MAIN}
union all
select view_name, 'view', comment, null from duckdb_views() where {IN_MAIN}
union all
select distinct function_name, replace(function_type, '_', ' '), comment, parameters
from duckdb_functions() where {IN_MAIN} and function_type in ('macro', 'table_macro')
order by name"""


@dataclass(frozen=True)
class Thing:
    """A table, view or macro.

    Attributes
    ----------
    kind
        ``table``, ``view``, ``macro`` or ``table macro``.
    role, layer
        Keys of `warehouse.database.meanings.ROLES` and `LAYERS`.
    what, grain, key
        Its content, the meaning of one row, and the columns that no two rows have alike.
    source, notes
        The file or module that it was made from, and the rest of the comment at its top.
    """

    name: str
    kind: str
    role: str
    layer: str
    what: str
    grain: str
    key: tuple[str, ...]
    source: str
    notes: str = ""
    arguments: tuple[Argument, ...] = ()
    macro_example: str = ""

    @property
    def is_relation(self) -> bool:
        """Whether it has columns."""
        return self.kind != "macro"

    @property
    def example(self) -> str:
        """A SELECT that shows its content."""
        if self.kind in ("table", "view"):
            return f"from {self.name} limit 5"
        return self.macro_example


class ColumnOf(NamedTuple):
    """A column of one table, view or table macro; `meaning` is empty where it is unknown."""

    name: str
    type: str
    unit: str
    meaning: str
    source: str


class Use(NamedTuple):
    """A table or view that has a column, and the type of the column there."""

    thing: Thing
    type: str


class Description:
    """The tables, views and macros of a database, read once."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        origins = _origins(connection)
        macros = {macro.name: macro for macro in _macros()}
        things = []
        for name, kind, comment, parameters in connection.execute(_OBJECTS).fetchall():
            layer, source, notes = origins.get(name, ("own", "this database", ""))
            role, what, grain, key, _ = split_comment(comment or "")
            macro = macros.get(name)
            arguments = tuple(Argument(parameter, None) for parameter in parameters or ())
            example = ""
            if macro and [argument.name for argument in macro.arguments] == parameters:
                arguments, example = macro.arguments, macro.example
            made = (role or role_of(layer), layer, what, grain, key, source, notes)
            things.append(Thing(name, kind, *made, arguments, example))
        roles, layers = list(ROLES), list(LAYERS)
        things.sort(key=lambda t: (roles.index(t.role), layers.index(t.layer), t.name))
        self.things = {thing.name: thing for thing in things}

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """For each view, macro and kept table, the names that it reads."""
        reads = reads_of(self._connection)
        for table in views.kept_tables():
            if table.name in self.things:
                relations, functions = names_in(table.sql)
                names = sorted((relations | functions) & self.things.keys())
                reads[table.name] = reads.get(views.FOUND + table.name, tuple(names))
        return reads

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """For each table, view and macro, the names that read it."""
        return readers_of(self.reads)

    def tables_under(self, name: str) -> tuple[str, ...]:
        """Return the stored tables that a view or macro reads, directly or through others."""
        return tuple(n for n in all_sources(self.reads, name) if self.things[n].kind == "table")

    @cached_property
    def rows(self) -> dict[str, int]:
        """Rows of every stored table."""
        names = [thing.name for thing in self.things.values() if thing.kind == "table"]
        counts = (f"select count(*) as rows from {quoted(name)}" for name in names)
        rows = self._connection.execute(" union all ".join(counts)).fetchall() if names else []
        return {name: number for name, (number,) in zip(names, rows, strict=True)}

    def columns(self, name: str) -> list[ColumnOf]:
        """Return the columns of a table, view or table macro, in order."""
        thing = self.things[name]
        if not thing.is_relation:
            return []
        if thing.kind == "table macro":
            described = self._described(thing)
        else:
            query = (
                "select column_name, data_type, comment from duckdb_columns() "
                f"where {IN_MAIN} and table_name = ? order by column_index"
            )
            described = self._connection.execute(query, [name]).fetchall()
        return [
            ColumnOf(name, kind, known.unit, known.meaning, known.source)
            if (known := meaning_of(name))
            else ColumnOf(name, kind, "", comment or "", "")
            for name, kind, comment in described
        ]

    def _described(self, macro: Thing) -> list[tuple[str, str, str | None]]:
        """Return the columns of a table macro: no catalog has them, so a call is bound."""
        needed = sum(argument.default is None for argument in macro.arguments)
        for value in ("null", "1"):  # some arguments may not be NULL
            given = ", ".join([value] * needed)
            with suppress(duckdb.Error):
                bound = self._connection.execute(f"describe from {quoted(macro.name)}({given})")
                return [(row[0], row[1], None) for row in bound.fetchall()]
        return []

    def uses(self, column: str) -> list[Use]:
        """Return the tables and views that have a column of that name, in order of layers."""
        query = (
            "select table_name, data_type from duckdb_columns() "
            f"where {IN_MAIN} and column_name = ?"
        )
        types = dict(self._connection.execute(query, [column]).fetchall())
        return [
            Use(thing, types[thing.name]) for thing in self.things.values() if thing.name in types
        ]

    def find(self, asked: str) -> tuple[Thing | None, Column | None, list[Use]]:
        """Return the table, view or macro, and the column with its uses, called `asked`."""
        name = usual_name(asked)
        thing, uses = self.things.get(name), self.uses(name)
        if thing or uses:
            return thing, (meaning_of(name) if uses else None), uses
        query = f"select distinct column_name from duckdb_columns() where {IN_MAIN}"
        columns = (column for (column,) in self._connection.execute(query).fetchall())
        near = _near(name, [*self.things, *columns, *ROLES, *LAYERS])
        hint = f"did you mean {' or '.join(near)}?" if near else "`warehouse schema` lists them"
        raise InputError(f"`{asked}` is no table, view, macro or column", hint)


def usual_name(asked: str) -> str:
    """Return the name of a table, view, macro or column in the spelling of the database."""
    return asked.strip().lower().replace("-", "_")


class Comment(NamedTuple):
    """The parts of a comment: `role` is empty where the comment begins with none."""

    role: str
    what: str
    grain: str
    key: tuple[str, ...]
    notes: str


def split_comment(comment: str) -> Comment:
    """Split the comment of a table, view or macro."""
    role, _, rest = comment.partition(": ")
    if role not in ROLES:
        role, rest = "", comment
    rest, _, notes = rest.partition(views.NOTE)
    match = _GRAIN.search(rest)
    if not match:
        return Comment(role, rest.rstrip(), "", (), notes)
    key = tuple(match[2].split(", ")) if match[2] else ()
    return Comment(role, rest[: match.start()].rstrip(), f"o{match[1]}", key, notes)


def group_of(column: str) -> str:
    """Return the heading of a column in docs/columns.md, empty if it has none."""
    titles = (title for title, group in GROUPS.items() if column in {c.name for c in group})
    return next(titles, "")


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that resemble `name` or contain it or a similar word."""
    names = sorted(set(known))
    words = {word for known_name in names for word in known_name.split("_")}
    near = {name, *get_close_matches(name, words, 1, 0.7)} if len(name) > 2 else set()
    inside = [known_name for known_name in names if any(word in known_name for word in near)]
    return list(dict.fromkeys([*get_close_matches(name, names, _NEAR), *inside]))[:_NEAR]


def _origins(connection: DuckDBPyConnection) -> dict[str, tuple[str, str, str]]:
    """Return layer, source and notes of each table, view and macro that the package creates."""
    estimators = all_estimators()
    origins = {macro.name: ("macros", "sql/macros.sql", "") for macro in _macros()}
    origins["warehouse_meta"] = ("records", "warehouse/database/schema.py", "")
    for table in core_tables(estimators):
        origins[table.name] = ("records", "warehouse/database/tables.py", "")
    for estimator in estimators:
        for relation in estimator.relations:
            origins[relation.table] = ("results", f"estimator {estimator.name}", "")
    origins[DICTIONARY] = ("reference", "estimators/columns/columns.csv", "")
    measured = reference_names(connection, measured=True)
    for name in reference_names(connection):
        suffix = "parquet" if name in measured else "csv"
        origins[name] = ("reference", f"db/reference/{name}.{suffix}", "")
    for file in (name for estimator in estimators for name in estimator.reference_files):
        origins[Path(file).stem] = ("reference", f"estimators/{file}", "")
    for view in views.packaged():
        path = view.path
        source = f"sql/{view.layer}/{path.name}" if path else "warehouse/database/views.py"
        origins[view.name] = (view.layer, source, view.notes)
    return origins


def _macros() -> list[Macro]:
    directory = resources.sql_directory()
    files = [directory / views.MACROS, *sorted((directory / views.FUNCTIONS).glob("*.sql"))]
    texts = [path.read_text("utf-8") for path in files if path.exists()]
    return [macro for text in texts for macro in macros_in(text)]
