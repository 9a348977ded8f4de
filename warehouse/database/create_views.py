"""Creates views and macros, each bound once.

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

from estimators.registry import all_estimators
from warehouse.database import resources
from warehouse.database.failures import TAKEN
from warehouse.database.meanings import comment_of, meaning_of
from warehouse.database.sql_text import IN_MAIN, literal, quoted
from warehouse.database.tables import all_tables
from warehouse.database.views import MACROS, View, macros_in, packaged
from warehouse.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.columns import Column

_WORD = re.compile(r"\w+")


def create_views(connection: DuckDBPyConnection, directory: Path | None = None) -> list[View]:
    """Create or replace macros and views, and missing kept tables, with comments.

    Returns the views and kept tables that were created, in order; the tables are empty. After an
    `InputError` on a file, roll the transaction back.
    """
    directory = directory or resources.sql_directory()
    macros = directory / MACROS
    if macros.exists():
        _create_macros(connection, macros)
    every = packaged(directory)
    _refuse_shared_names(every)
    present = connection.execute(f"select table_name from duckdb_tables() where {IN_MAIN}")
    tables = {name for (name,) in present.fetchall()}
    created: list[View] = []
    stand_ins: set[str] = set()
    before: set[str] = set()
    for view in every:
        if view.kept_on and view.name in tables:
            continue
        sources = before.intersection(_WORD.findall(view.sql)) - {view.name}
        for name in sorted(sources - stand_ins):
            _create_stand_in(connection, name)
        stand_ins |= sources
        _create(connection, view)
        if not view.is_function:
            created.append(view)
            before |= set() if view.kept_on else {view.name}
    for name in stand_ins:
        connection.execute(f"drop table temp.{quoted(name)}")
    _comment_views(connection, every)
    return created


def _create_stand_in(connection: DuckDBPyConnection, name: str) -> None:
    """Create a temporary table with the name and the columns of a view, and no row."""
    view = connection.view(name)
    columns = [f"{quoted(n)} {t}" for n, t in zip(view.columns, view.types, strict=True)]
    connection.execute(f"create temp table {quoted(name)} ({', '.join(columns)})")


def _refuse_shared_names(wanted: list[View]) -> None:
    tables = {table.name for table in all_tables(all_estimators())}
    taken: set[str] = set()
    for view in sorted(wanted, key=lambda view: view.path is not None):  # generated ones first
        if view.name in tables:
            raise InputError(f"{view.path}: `{view.name}` is a table", "rename the file")
        if view.name in taken:
            raise InputError(f"{view.path}: `{view.name}` names two views", "rename the file")
        taken.add(view.name)


def _create(connection: DuckDBPyConnection, view: View) -> None:
    with _blaming(view.path):
        statements = [statement.type for statement in connection.extract_statements(view.sql)]
        if view.is_function:
            names = [macro.name for macro in macros_in(view.sql)]
            if statements != [duckdb.StatementType.CREATE] or names != [view.name]:
                begins = f"create or replace macro {view.name}("
                raise InputError(
                    f"{view.path}: is not one table macro", f"begin it with `{begins}`"
                )
            connection.execute(view.sql)
            return
        if statements != [duckdb.StatementType.SELECT]:
            raise InputError(f"{view.path}: is not one SELECT", "a file of sql/ is one view")
        kind, rows = ("table", "\nwith no data") if view.kept_on else ("or replace view", "")
        connection.execute(f"create {kind} {quoted(view.name)} as\n{view.sql}{rows}")


def _create_macros(connection: DuckDBPyConnection, path: Path) -> None:
    """Create or replace the scalar macros of a file; each has the text above it as comment."""
    text = path.read_text("utf-8")
    with _blaming(path):
        connection.execute(text)
        for macro in macros_in(text):
            comment(connection, "macro", macro.name, comment_of("macro", macro.comment))


def _comment_views(connection: DuckDBPyConnection, every: list[View]) -> None:
    """Set the comments of views, of their columns and of table macros."""
    query = f"select table_name, list(column_name) from duckdb_columns() where {IN_MAIN} group by 1"
    columns = dict(connection.execute(query).fetchall())
    for view in every:
        if view.is_function:
            comment(connection, "macro table", view.name, view.comment)
        else:
            kind = "table" if view.kept_on else "view"
            meanings = filter(None, map(meaning_of, columns.get(view.name, ())))
            comment(connection, kind, view.name, view.comment, meanings)


def comment(
    connection: DuckDBPyConnection,
    kind: str,
    name: str,
    text: str,
    columns: Iterable[Column] = (),
) -> None:
    """Set the comment of a `table`, `view`, `macro` or `macro table`, and those of its columns."""
    comments = [f"comment on {kind} {quoted(name)} is {literal(text)}"]
    for column in columns:
        target = f"{quoted(name)}.{quoted(column.name)}"
        comments.append(f"comment on column {target} is {literal(column.comment)}")
    connection.execute(";".join(comments))


@contextmanager
def _blaming(path: Path | None) -> Iterator[None]:
    """Turn an error of DuckDB into one that names the file; generated SQL has no file.

    A user's table with the name of a view is no fault of the file.
    """
    try:
        yield
    except duckdb.Error as error:
        if path is None or TAKEN in str(error):
            raise
        raise InputError(f"{path}: {str(error).partition(chr(10))[0]}") from error
