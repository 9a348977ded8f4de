"""Contents of a database that no fact has: the user's objects, edits, and rows that nothing names.

Both databases are attached to the connection, under the names that the functions are given.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from estimators.registry import all_estimators
from warehouse.database.facts import STUDY
from warehouse.database.recording import PARTS
from warehouse.database.reference import DICTIONARY
from warehouse.database.sql_text import literal, quoted
from warehouse.database.stamp import META, kept_names, reference_tables
from warehouse.database.tables import IS_REPEATED, all_tables
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

_OURS = "One row per"
"""Is in the comment of every table of this package."""

_OBJECTS = """\
select 'table' as kind, schema_name, table_name as name, comment, sql, table_oid as place
from duckdb_tables() where not internal and not temporary and database_name = $former
union all
select 'view', schema_name, view_name, comment, sql, view_oid
from duckdb_views() where not internal and not temporary and database_name = $former
union all
select distinct 'macro', schema_name, function_name, comment, '', function_oid
from duckdb_functions() where not internal and database_name = $former
    and macro_definition is not null
order by 1, place"""

_NOT_COPIED = """\
select 'index ' || index_name || ' of ' || table_name from duckdb_indexes()
where database_name = $former
union all
select 'sequence ' || sequence_name from duckdb_sequences() where database_name = $former
union all
select 'type ' || type_name from duckdb_types() where not internal and database_name = $former
order by 1"""

_MACRO = re.compile(r"create macro (.*?) ?\(", re.IGNORECASE | re.DOTALL)

_NAMED = (*PARTS.values(), ("profile", "calibration_row"))
"""Columns with the names of facts, and their tables."""

_PROBLEMS = ("problem_id", "profiled_problem_id")
"""Columns that differ where another version evaluated the rows."""


class _Object(NamedTuple):
    """A table, view or macro, and the statement that makes it."""

    kind: str
    schema: str
    name: str
    comment: str | None
    sql: str

    def __str__(self) -> str:
        return f"{self.kind} {self.schema}.{self.name}"


def copy_own_objects(
    connection: DuckDBPyConnection, former: str, new: str
) -> tuple[list[str], list[str]]:
    """Copy tables, views and macros that are not of this package to another database.

    Returns the objects that were copied, and the others with the reasons.
    """
    ours = _names_of_package(connection, former, new)
    objects, gone = [], []
    for *row, _ in connection.execute(_OBJECTS, {"former": former}).fetchall():
        thing = _Object(*row)
        if thing.schema == "main" and thing.kind == "table" and _OURS in (thing.comment or ""):
            gone += [] if thing.name in ours else [f"{thing} of a former version"]
        elif thing.schema != "main" or thing.name not in ours:
            objects.append(thing)
    has_macros = any(thing.kind == "macro" for thing in objects)
    statements = _macro_statements(connection, former) if has_macros else {}
    copied: list[str] = []
    reasons: dict[_Object, str] = {}
    connection.execute(f"use {quoted(new)}")
    try:
        while objects:  # an object may need another: once more, as long as some were made
            refusals = {thing: _refusal(connection, thing, former, statements) for thing in objects}
            copied += [str(thing) for thing, reason in refusals.items() if not reason]
            reasons = {thing: reason for thing, reason in refusals.items() if reason}
            if len(reasons) == len(objects):
                break
            objects = list(reasons)
    finally:
        connection.execute(f"use {quoted(former)}")
    others = connection.execute(_NOT_COPIED, {"former": former}).fetchall()
    gone += [f"{name}, which is not copied" for (name,) in others]
    return copied, gone + [f"{thing}: {reason}" for thing, reason in reasons.items()]


def _names_of_package(connection: DuckDBPyConnection, former: str, new: str) -> set[str]:
    """Return the names of the package's own objects, in this version and in the former one."""
    meta = dict(connection.execute(f"select key, value from {quoted(former)}.{META}").fetchall())
    macros = "select function_name from duckdb_functions() where not internal and database_name = ?"
    return {
        META,
        *(table.name for table in all_tables(all_estimators())),
        *(DICTIONARY, *reference_tables(meta).values()),
        *meta.get("view_names", "").split(),
        *meta.get("function_names", "").split(),
        *kept_names(meta),
        *(name for (name,) in connection.execute(macros, [new]).fetchall()),
    }


def _macro_statements(connection: DuckDBPyConnection, former: str) -> dict[str, str]:
    """Return the statements of all macros; only the export of a database has default arguments."""
    connection.execute("attach ':memory:' as shape")
    try:
        connection.execute(f"copy from database {quoted(former)} to shape (schema)")
        with TemporaryDirectory(prefix="warehouse-") as folder:
            connection.execute(f"export database shape to {literal(folder)}")
            text = (Path(folder) / "schema.sql").read_text(encoding="utf-8")
    except duckdb.Error:  # a view that no longer binds
        return {}
    finally:
        connection.execute("detach shape")
    statements = (statement.query.strip() for statement in connection.extract_statements(text))
    matches = ((_MACRO.match(statement), statement) for statement in statements)
    return {match[1]: statement for match, statement in matches if match is not None}


def _refusal(
    connection: DuckDBPyConnection, thing: _Object, former: str, statements: Mapping[str, str]
) -> str:
    """Copy an object to the database in use; return why that fails, or an empty text."""
    path = f"{quoted(thing.schema)}.{quoted(thing.name)}"
    makes = [f"create schema if not exists {quoted(thing.schema)}"]
    if thing.kind == "macro":
        # DuckDB quotes a schema and a name where it must, and leaves out schema main
        schemas = [f"{thing.schema}.", f"{quoted(thing.schema)}.", *[""] * (thing.schema == "main")]
        names = [schema + name for schema in schemas for name in (thing.name, quoted(thing.name))]
        makes += [statements[name] for name in names if name in statements]
    else:
        makes.append(thing.sql)
    if thing.kind == "table":
        makes.append(f"insert into {path} from {quoted(former)}.{path}")
    if thing.comment is not None and thing.kind != "macro":
        makes.append(f"comment on {thing.kind} {path} is {literal(thing.comment)}")
    if len(makes) == 1:
        return "its statement is not known"
    connection.begin()
    try:
        for statement in makes:
            connection.execute(statement)
        connection.commit()
    except duckdb.Error as error:
        with suppress(duckdb.Error):
            connection.rollback()
        return str(error).partition("\n")[0]
    return ""


def contents_without_facts(connection: DuckDBPyConnection, former: str, new: str) -> list[str]:
    """Return rows of a database that the one made from its facts lacks, in words.

    They were stored or changed in a shell, stored by versions that are gone, or for studies that
    were replaced since.
    """
    shared = _shared_columns(connection, former, new)
    lost, edited = [], []
    for key, table in _NAMED:
        if key not in shared.get(table, ()):
            continue
        # what else a study has follows from its evaluation
        columns = key if table == STUDY else ", ".join(map(quoted, shared[table]))
        changed = connection.execute(
            f"select {key}, bool_or({key} in (select {key} from {new}.{table})) from ("
            f"select {columns} from {former}.{table} except all"
            f" select {columns} from {new}.{table}) group by 1 order by 1"
        ).fetchall()
        lost += [f"{table} {name!r}" for name, is_known in changed if not is_known]
        edited += [f"other values of {table} {name!r}" for name, is_known in changed if is_known]
    return [
        *lost,
        *_cells_without_facts(connection, former, new),
        *edited,
        *_edited_cells(connection, former, new, shared),
    ]


def _cells_without_facts(connection: DuckDBPyConnection, former: str, new: str) -> Iterator[str]:
    versions = {estimator.name: estimator.version for estimator in all_estimators()}
    cells = connection.execute(
        "select estimator, estimator_version, count(*), coalesce(sum(num_rows), 0)::bigint"
        f" from {former}.cell where cell_id not in (select cell_id from {new}.cell)"
        " group by 1, 2 order by 1, 2"
    ).fetchall()
    for estimator, version, number, rows in cells:
        why = f"version {version} of {estimator} evaluated them"
        if version == versions.get(estimator):
            why = "no study asks for them"
        yield f"{count(number, 'cell')} of {estimator} with {count(rows, 'row')}: {why}"


def _edited_cells(
    connection: DuckDBPyConnection, former: str, new: str, shared: Mapping[str, list[str]]
) -> Iterator[str]:
    """Yield the numbers of cells with other rows than their evaluation gives, from a shell."""
    for table in (relation.table for each in all_estimators() for relation in each.relations):
        if "cell_id" in shared.get(table, ()):
            listed = ", ".join(map(quoted, shared[table]))
            rows = f"select cell_id, sum(hash({listed})) as rows, count(*) as number"
            [(number,)] = connection.execute(
                f"select count(*) from ({rows} from {former}.{table} group by 1) as before"
                f" inner join ({rows} from {new}.{table} group by 1) as now using (cell_id)"
                " where before.rows <> now.rows or before.number <> now.number"
            ).fetchall()
            if number:
                yield f"other rows of {count(number, 'cell')} in {table}"


def _shared_columns(connection: DuckDBPyConnection, former: str, new: str) -> dict[str, list[str]]:
    """Return the columns that each table has in both databases, with the same type."""
    columns = connection.execute(
        "select table_name, list(column_name order by column_name) from (select table_name,"
        " column_name from duckdb_columns() where database_name in ($former, $new)"
        " and schema_name = 'main' and not list_contains($but, column_name)"
        " group by table_name, column_name, data_type having count(*) = 2) group by 1",
        {"former": former, "new": new, "but": [*_PROBLEMS, IS_REPEATED]},
    ).fetchall()
    return dict(columns)
