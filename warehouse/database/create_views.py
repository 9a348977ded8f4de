"""Creates views and macros, each bound once, and only those that changed.

DuckDB binds a view when it is created, with every view below it: for ninety views that rest on each
other that took most of the time of a new database. So while views are created, each that another
one reads has an empty temporary table of its name and columns, which DuckDB finds first. The stored
text of a view names its sources without a schema, so that it reads the views later.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from estimators.contract import content_id
from warehouse.database import resources
from warehouse.database.meanings import OTHER_COLUMNS, meaning_of
from warehouse.database.sql_text import literal, quoted
from warehouse.database.views import MACROS, View, macros_in, packaged
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_WORD = re.compile(r"\w+")


def create_views(
    connection: DuckDBPyConnection,
    directory: Path | None = None,
    unchanged: Collection[str] = (),
) -> list[str]:
    """Create or replace macros and views, with comments; return the views' names in order.

    Parameters
    ----------
    unchanged
        Views and table macros that are left as they are.

    Raises
    ------
    InputError
        If a file lacks its header or DuckDB refuses it; then roll the transaction back.
    """
    directory = directory or resources.sql_directory()
    macros = directory / MACROS
    if macros.exists():
        _create_macros(connection, macros)
    every = packaged(directory)
    _refuse_shared_names(every)
    created: list[View] = []
    with _StandIns(connection) as stand_ins:
        for place, view in enumerate(every):
            if view.name in unchanged:
                continue
            stand_ins.add_sources_of(view, every[:place])
            _create(connection, view)
            created += [] if view.is_function else [view]
    _comment(connection, created)
    return [view.name for view in created]


def content_hashes(
    directory: Path | None, tables: str, reference: Mapping[str, str]
) -> dict[str, str]:
    """Return view or table macro -> hash of its text and of everything that it reads.

    Parameters
    ----------
    tables
        Fingerprint of the tables and the dictionary.
    reference
        Reference table -> its fingerprint.
    """
    directory = directory or resources.sql_directory()
    macros = directory / MACROS
    text = macros.read_text("utf-8") if macros.exists() else ""
    others = [[column.name, column.comment] for column in OTHER_COLUMNS]
    shared = content_id(tables, text, others)
    found: dict[str, str] = dict(reference)
    views = packaged(directory)
    for view in views:
        sources = sorted((name, found[name]) for name in _words(view) & found.keys())
        found[view.name] = f"{content_id(shared, view.comment, view.sql, sources):016x}"
    return {view.name: found[view.name] for view in views}


def _words(view: View) -> set[str]:
    """Return the words of a view's text, which include its sources."""
    return set(_WORD.findall(view.sql)) - {view.name}


class _StandIns:
    """Temporary tables with the names and columns of views, and no row."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        self._made: set[str] = set()

    def __enter__(self) -> _StandIns:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # after an error the caller rolls back
            for name in self._made:
                self._connection.execute(f"drop table temp.{quoted(name)}")

    def add_sources_of(self, view: View, before: list[View]) -> None:
        """Make those of the views created `before` that a view names."""
        views = {each.name for each in before if not each.is_function}
        for name in sorted(_words(view) & views - self._made):
            source = self._connection.view(name)
            columns = ", ".join(
                f"{quoted(column)} {kind}"
                for column, kind in zip(source.columns, source.types, strict=True)
            )
            self._connection.execute(f"create temp table {quoted(name)} ({columns})")
            self._made.add(name)


def _refuse_shared_names(wanted: list[View]) -> None:
    taken: set[str] = set()
    for view in sorted(wanted, key=lambda view: view.path is not None):  # generated ones first
        if view.name in taken:
            raise InputError(f"{view.path}: `{view.name}` names two views", "rename the file")
        taken.add(view.name)


def _create(connection: DuckDBPyConnection, view: View) -> None:
    if view.is_function:
        _create_function(connection, view)
        return
    with _blaming(view.path):
        statements = connection.extract_statements(view.sql)
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise InputError(f"{view.path}: is not one SELECT", "a file of sql/ is one view")
        connection.execute(f"create or replace view {quoted(view.name)} as\n{view.sql}")


def _create_function(connection: DuckDBPyConnection, view: View) -> None:
    """Create or replace the table macro that has the name of its file."""
    with _blaming(view.path):
        kinds = [statement.type for statement in connection.extract_statements(view.sql)]
        names = [macro.name for macro in macros_in(view.sql)]
        if kinds != [duckdb.StatementType.CREATE] or names != [view.name]:
            begins = f"create or replace macro {view.name}("
            raise InputError(f"{view.path}: is not one table macro", f"begin it with `{begins}`")
        connection.execute(view.sql)
        connection.execute(f"comment on macro table {quoted(view.name)} is {literal(view.comment)}")


def _create_macros(connection: DuckDBPyConnection, path: Path) -> None:
    """Create or replace the scalar macros of a file; each has the text above it as comment."""
    text = path.read_text("utf-8")
    with _blaming(path):
        connection.execute(text)
        for macro in macros_in(text):
            target = f"macro {quoted(macro.name)}"
            connection.execute(f"comment on {target} is {literal(macro.comment)}")


def _comment(connection: DuckDBPyConnection, created: list[View]) -> None:
    columns = connection.execute(
        "select table_name, column_name from duckdb_columns() where not internal"
    ).fetchall()
    for view in created:
        comments = [f"comment on view {quoted(view.name)} is {literal(view.comment)}"]
        for name in (column for table, column in columns if table == view.name):
            meaning = meaning_of(name)
            if meaning is not None:
                target = f"{quoted(view.name)}.{quoted(name)}"
                comments.append(f"comment on column {target} is {literal(meaning.comment)}")
        connection.execute(";".join(comments))


@contextmanager
def _blaming(path: Path | None) -> Iterator[None]:
    """Turn an error of DuckDB into one that names the file; generated SQL has no file."""
    try:
        yield
    except duckdb.Error as error:
        if path is None:
            raise
        raise InputError(f"{path}: {str(error).partition(chr(10))[0]}") from error
