"""Creates and updates a database: tables, reference tables, comments, macros, views, kept rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import warehouse
from estimators.registry import all_estimators
from warehouse.database import derived, views
from warehouse.database.create_views import comment, create_views
from warehouse.database.meanings import comment_of, meaning_of, reference_comment
from warehouse.database.reference import (
    DICTIONARY,
    dictionary_table,
    estimators_files,
    measured_files,
    read_measured,
    read_table,
    reference_files,
    store_measured,
    store_table,
)
from warehouse.database.sink import transaction
from warehouse.database.sql_text import IN_MAIN, quoted
from warehouse.database.stamp import (
    FACTS_ID,
    FACTS_LAST,
    KEPT_NAMES,
    MEASURED,
    META,
    REFERENCE,
    SCHEMA_VERSION,
    STAMP,
    kept_names,
    path_of,
    read_meta,
    reference_tables,
    source_hash,
)
from warehouse.database.tables import (
    IS_REPEATED,
    all_tables,
    column,
    create_statement,
    default_of,
    fact_ddl,
    refuse_shared_names,
)
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.estimator import Estimator
    from warehouse.database.views import View


def prepare(connection: DuckDBPyConnection, *, keeps_rows: bool = False) -> None:
    """Make every table, reference table, comment, macro, view and kept row of this package.

    All is made again in one transaction; stored rows stay, and with `keeps_rows` also the kept
    rows: this version of the package has made them. After an error the database is as it was.
    """
    stored = read_meta(connection)
    paths = (*reference_files(), *estimators_files(), *measured_files())
    files = {_key_of(path): path for path in paths}
    tables = [table.name for table in all_tables(all_estimators())]
    tables += [DICTIONARY, *reference_tables(files).values()]
    refuse_shared_names([META, *tables])
    packaged = views.packaged()
    kept = {view.name for view in packaged if view.kept_on}
    new = kept - {*kept_names(stored)} | ({DICTIONARY} - _commented(connection))
    _refuse_objects_of_user(connection, {META, *tables}, new)
    with transaction(connection):
        _drop_former(connection, stored, keeps_rows=keeps_rows)
        _migrate(connection)
        _load_references(connection, stored, files)
        _make_rows(connection, create_views(connection))
        names = {
            "view_names": " ".join(v.name for v in packaged if not (v.is_function or v.kept_on)),
            "function_names": " ".join(v.name for v in packaged if v.is_function),
            KEPT_NAMES: " ".join(v.name for v in packaged if v.kept_on),
        }
        facts = {key: stored[key] for key in (FACTS_ID, FACTS_LAST) if key in stored}
        versions = {
            "schema_version": str(SCHEMA_VERSION),
            "package_version": warehouse.__version__,
            STAMP: source_hash(),
        }
        _write_meta(connection, {**versions, **dict.fromkeys(files, ""), **names, **facts})


def _refuse_objects_of_user(
    connection: DuckDBPyConnection, tables: set[str], new: set[str]
) -> None:
    """Refuse views that have the names of `tables`, and tables that have those of `new` ones.

    Rows cannot be stored in a view, and rows of a table with such a name would be replaced.
    """
    if taken := sorted(_names(connection, "view") & tables):
        raise DatabaseError(
            f"{path_of(connection)}: a view has the name of a table of this package: "
            f"{', '.join(taken)}",
            f"rename or drop the view with DuckDB (`drop view {taken[0]}`), give a table that you "
            "renamed its name back, then run `warehouse init`",
        )
    if taken := sorted(_names(connection, "table") & new):
        raise DatabaseError(
            f"{path_of(connection)}: a table of yours has a name that this version of the package "
            f"takes: {', '.join(taken)}",
            f"rename it with DuckDB (`alter table {taken[0]} rename to my_{taken[0]}`), then run "
            "`warehouse init`",
        )


def _commented(connection: DuckDBPyConnection) -> set[str]:
    """Return the tables with a comment of this package; one of the user has none of its kind."""
    query = f"select table_name from duckdb_tables() where {IN_MAIN} and comment ilike ?"
    return {name for (name,) in connection.execute(query, ["%one row per%"]).fetchall()}


def _names(connection: DuckDBPyConnection, kind: str) -> set[str]:
    query = f"select {kind}_name from duckdb_{kind}s() where {IN_MAIN}"
    return {name for (name,) in connection.execute(query).fetchall()}


def _drop_former(
    connection: DuckDBPyConnection, stored: dict[str, str], *, keeps_rows: bool
) -> None:
    """Drop all views and table macros that this package made, and its kept tables."""
    for name in stored.get("view_names", "").split():
        connection.execute(f"drop view if exists {quoted(name)}")
    for name in stored.get("function_names", "").split():
        connection.execute(f"drop macro table if exists {quoted(name)}")
    if keeps_rows:
        return
    for name in _commented(connection) & {*kept_names(stored)}:
        connection.execute(f"drop table {quoted(name)}")


def _make_rows(connection: DuckDBPyConnection, created: Collection[View]) -> None:
    """Fill the kept tables that were created, and bring the others up to date."""
    for view in created:
        if view.kept_on == "reference":
            source = quoted(views.FOUND + view.name)
            connection.execute(f"insert into {quoted(view.name)} by name from {source}")
    if any(view.kept_on == "cell" for view in created):
        derived.rebuild(connection)
    else:
        derived.refresh(connection)


def _key_of(path: Path) -> str:
    """Return the key of a file of a reference table in `warehouse_meta`."""
    return REFERENCE + path.stem + (MEASURED if path.suffix == MEASURED else "")


def _write_meta(connection: DuckDBPyConnection, meta: dict[str, str]) -> None:
    connection.execute(f"create or replace table {META} (key varchar, value varchar)")
    connection.execute(
        f"insert into {META} select unnest(?::varchar[]), unnest(?::varchar[])",
        [list(meta), list(meta.values())],
    )
    meaning = comment_of(
        "internal",
        "Versions of this database, a hash of its files, and its names. One row per key",
    )
    columns = filter(None, map(meaning_of, ("key", "value")))
    comment(connection, "table", META, meaning, columns)


def _migrate(connection: DuckDBPyConnection) -> None:
    """Create missing tables, add missing columns, widen changed ones, and comment all."""
    estimators = all_estimators()
    facts = {relation.table: relation for e in estimators for relation in e.relations}
    stored = _stored_columns(connection)
    for table in all_tables(estimators):
        present = stored.get(table.name, {})
        if not present:
            fact = facts.get(table.name)
            connection.execute(fact_ddl(fact) if fact else create_statement(table))
        for name in table.columns if present else ():
            kind, altered = table.type_of(name), f"alter table {quoted(table.name)}"
            if name not in present:
                default = default_of(name) if name == IS_REPEATED else ""
                connection.execute(f"{altered} add column {quoted(name)} {kind}{default}")
            elif present[name] != kind:
                connection.execute(f"{altered} alter column {quoted(name)} set data type {kind}")
        if present and table.name in facts and "problem_id" not in present:
            connection.execute(
                f"update {quoted(table.name)} set problem_id = cell.problem_id from cell"
                f" where {quoted(table.name)}.cell_id = cell.cell_id"
            )
        comment(connection, "table", table.name, table.comment, map(column, table.columns))
    for estimator in estimators:
        fill_choices(connection, estimator)


def fill_choices(connection: DuckDBPyConnection, estimator: Estimator) -> None:
    """Set columns that are newer than a cell: a choice to its neutral value, which it assumed."""
    connection.execute(
        "update cell set is_default_variant = (mends = ?)"
        " where is_default_variant is null and estimator = ?",
        [",".join(estimator.mends), estimator.name],
    )
    for name, value in estimator.neutral_choices.items():
        connection.execute(
            f"update cell set {quoted(name)} = ? where {quoted(name)} is null and estimator = ?",
            [value, estimator.name],
        )


def _load_references(
    connection: DuckDBPyConnection, stored: dict[str, str], files: Mapping[str, Path]
) -> None:
    for key, table in reference_tables(stored).items():
        if key not in files:
            connection.execute(f"drop table if exists {quoted(table)}")
    store_table(connection, dictionary_table())
    for path in files.values():
        if path.suffix == MEASURED:
            store_measured(connection, path.stem, read_measured(path))
        else:
            store_table(connection, read_table(path))
    for name in (DICTIONARY, *(path.stem for path in files.values())):
        columns = filter(None, map(meaning_of, connection.table(quoted(name)).columns))
        comment(connection, "table", name, reference_comment(name), columns)


def _stored_columns(connection: DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return table -> column -> type of everything in the database."""
    query = f"select table_name, column_name, data_type from duckdb_columns() where {IN_MAIN}"
    types: dict[str, dict[str, str]] = {}
    for table, name, kind in connection.execute(query).fetchall():
        types.setdefault(table, {})[name] = kind
    return types
