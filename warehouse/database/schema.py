"""Creates and updates a database: tables, reference tables, comments, macros and views.

`prepare` brings a database of this or an older version of the package up to date in one
transaction. Fingerprints (hashes) in table `warehouse_meta` say what is up to date.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

import duckdb

import warehouse
from estimators.columns import COLUMNS
from estimators.contract import content_id
from estimators.registry import all_estimators
from warehouse.database import derived, views
from warehouse.database.clashes import refuse_tables_of_others, refuse_views_of_tables
from warehouse.database.create_views import comment, comments_of, create_views
from warehouse.database.meanings import comment_of, meaning_of, reference_comment
from warehouse.database.meta import (
    FACTS_ID,
    FACTS_LAST,
    KEPT_NAMES,
    MEASURED,
    META,
    REFERENCE,
    SCHEMA_VERSION,
    STAMP,
    kept_names,
    read_meta,
    reference_keys,
    stamp_of,
    table_of,
)
from warehouse.database.reference import (
    columns_in,
    measured_files,
    read_measured,
    read_table,
    reference_files,
    store_measured,
    store_table,
)
from warehouse.database.sql_text import IN_MAIN, quoted
from warehouse.database.tables import (
    IS_REPEATED,
    all_tables,
    column,
    create_statement,
    default_of,
    fact_ddl,
    refuse_shared_names,
)

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.columns import Column
    from estimators.contract import Estimator
    from warehouse.database.reference import MeasuredTable, ReferenceTable
    from warehouse.database.views import View


_VERSION = "package_version"


def prepare(
    connection: DuckDBPyConnection,
    *,
    sql: Path | None = None,
    reference: Path | None = None,
    again: bool = False,
    rows_again: bool = False,
) -> bool:
    """Create or bring up to date every table, reference table, comment, macro and view.

    Parameters
    ----------
    connection
        A connection that may write.
    sql, reference
        Directories to take views and reference tables from, by default the packaged ones.
    again
        Whether to create all views, macros and reference tables again. Somebody may have changed
        or removed them, which the fingerprints do not show.
    rows_again
        Whether to make the rows again, too, that follow from others.

    Returns
    -------
    bool
        Whether the database was changed.

    Raises
    ------
    DatabaseError
        If the database is not a warehouse, or was made by a newer package.
    InputError
        If a reference table or SQL file is faulty; the database stays as it was.
    """
    wanted = fingerprints(sql, reference)
    stored = read_meta(connection)
    is_packaged = sql is None and reference is None
    again |= rows_again
    if _agree(stored, wanted) and not again:
        if is_packaged and stored.get(STAMP) != stamp_of(stored):
            _write_meta(connection, {**stored, STAMP: stamp_of(stored)})
        return False
    names = [table.name for table in all_tables(all_estimators())]
    refuse_views_of_tables(connection, [*names, *map(table_of, reference_keys(wanted))])
    ours = kept_names(stored)
    refuse_tables_of_others(connection, {v.name for v in views.kept_tables(sql)} - {*ours})
    with _transaction(connection):
        for name in stored.get("view_names", "").split():
            connection.execute(f"drop view if exists {quoted(name)}")
        for name in stored.get("function_names", "").split():
            connection.execute(f"drop macro table if exists {quoted(name)}")
        if rows_again or not _agree(stored, {**wanted, _VERSION: stored.get(_VERSION, "")}):
            made = f"select table_name from duckdb_tables() where {IN_MAIN} and comment ilike ?"
            for (name,) in connection.execute(made, ["%one row per%"]).fetchall():
                if name in ours:  # by us: ours have a comment
                    connection.execute(f"drop table {quoted(name)}")
        if again or stored.get("tables") != wanted["tables"]:
            _migrate(connection)
        _load_references(connection, {} if again else stored, wanted, reference)
        _make_rows(connection, create_views(connection, sql))
        facts = {key: stored[key] for key in (FACTS_ID, FACTS_LAST) if key in stored}
        meta = {**wanted, **_names(sql), **facts}
        _write_meta(connection, {**meta, STAMP: stamp_of(meta)} if is_packaged else meta)
    return True


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


def _names(sql: Path | None) -> dict[str, str]:
    """Return the names of views, table macros and kept tables, as `warehouse_meta` has them."""
    found = views.packaged(sql)
    return {
        "view_names": " ".join(v.name for v in found if not (v.is_function or v.kept_on)),
        "function_names": " ".join(v.name for v in found if v.is_function),
        KEPT_NAMES: " ".join(v.name for v in found if v.kept_on),
    }


def is_current(
    connection: DuckDBPyConnection, *, sql: Path | None = None, reference: Path | None = None
) -> bool:
    """Return whether `prepare` would change nothing; raise as it does."""
    return _agree(read_meta(connection), fingerprints(sql, reference))


def _key_of(path: Path) -> str:
    """Return the key of a file of a reference table in `warehouse_meta`."""
    return REFERENCE + path.stem + (MEASURED if path.suffix == MEASURED else "")


def _agree(stored: dict[str, str], wanted: dict[str, str]) -> bool:
    return wanted.items() <= stored.items() and reference_keys(stored) == reference_keys(wanted)


def fingerprints(sql: Path | None = None, reference: Path | None = None) -> dict[str, str]:
    """Return the content of `warehouse_meta` in a database that is up to date."""
    files = [*reference_files(reference), *measured_files(reference)]
    tables = all_tables(all_estimators())
    refuse_shared_names([META, *(table.name for table in tables), *(path.stem for path in files)])
    dictionary = [[c.name, c.duckdb_type, c.comment] for c in COLUMNS.values()]
    described = [[t.name, t.comment, t.columns, t.key, t.required] for t in tables]
    return {
        "schema_version": str(SCHEMA_VERSION),
        _VERSION: warehouse.__version__,
        "tables": _fingerprint(dictionary, described),
        "views": _fingerprint(views.definition(sql)),
        **{
            _key_of(path): _fingerprint(
                [[c.name, c.duckdb_type, c.comment] for c in columns_in(path)],
                reference_comment(path.stem),
                blake2b(path.read_bytes()).hexdigest(),
            )
            for path in files
        },
    }


def _fingerprint(*parts: object) -> str:
    return f"{content_id(*parts):016x}"


def _write_meta(connection: DuckDBPyConnection, meta: dict[str, str]) -> None:
    connection.execute(f"create or replace table {META} (key varchar, value varchar)")
    connection.execute(
        f"insert into {META} select unnest(?::varchar[]), unnest(?::varchar[])",
        [list(meta), list(meta.values())],
    )
    meaning = comment_of(
        "internal",
        "Versions and hashes of everything that this database was made from. One row per key",
    )
    columns = [found for found in map(meaning_of, ("key", "value")) if found]
    _comment(connection, META, meaning, columns)


def _migrate(connection: DuckDBPyConnection) -> None:
    """Create missing tables, add missing columns, widen changed ones, and comment all."""
    estimators = all_estimators()
    facts = {relation.table: relation for e in estimators for relation in e.relations}
    stored, comments = _stored_columns(connection), comments_of(connection)
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
        _comment(connection, table.name, table.comment, map(column, table.columns), comments)
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
    connection: DuckDBPyConnection,
    stored: dict[str, str],
    wanted: dict[str, str],
    directory: Path | None,
) -> None:
    for key in set(reference_keys(stored)) - set(wanted):
        connection.execute(f"drop table if exists {quoted(table_of(key))}")
    for path in (*reference_files(directory), *measured_files(directory)):
        if stored.get(_key_of(path)) == wanted[_key_of(path)]:
            continue
        table: ReferenceTable | MeasuredTable
        if path.suffix == MEASURED:
            table = read_measured(path)
            store_measured(connection, table)
        else:
            table = read_table(path)
            store_table(connection, table)
        _comment(connection, table.name, reference_comment(table.name), table.columns)


def _comment(
    connection: DuckDBPyConnection,
    table: str,
    meaning: str,
    columns: Iterable[Column],
    present: Mapping[str, Mapping[str, str | None]] | None = None,
) -> None:
    """Set the comments of a table that differ from those that are `present`, or all of them."""
    wanted = {"": meaning, **{each.name: each.comment for each in columns}}
    comment(connection, "table", table, wanted, present or {})


def _stored_columns(connection: DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return table -> column -> type of everything in the database."""
    query = f"select table_name, column_name, data_type from duckdb_columns() where {IN_MAIN}"
    found: dict[str, dict[str, str]] = {}
    for table, name, kind in connection.execute(query).fetchall():
        found.setdefault(table, {})[name] = kind
    return found


@contextmanager
def _transaction(connection: DuckDBPyConnection) -> Iterator[None]:
    connection.begin()
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):  # a full disk has already ended the transaction
            connection.rollback()
        raise
    connection.commit()
