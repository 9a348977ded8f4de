"""Contents of a database that no fact has: the user's objects, edits, and rows that nothing names.

Both databases are attached to the connection, under the names that the functions are given.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from estimators.registry import all_estimators
from warehouse.database.recording import PARTS
from warehouse.database.sql_text import literal, quoted
from warehouse.database.stamp import META, kept_names, reference_keys, table_of
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

_KEYS = {"measurement": "reference", "calibration": "profile", "calibration_row": "profile"}
"""Tables of facts, and the columns with their names."""

_PROBLEMS = ("problem_id", "profiled_problem_id")
"""Columns that differ where another version evaluated the rows."""


class _Object(NamedTuple):
    """A table, view or macro, and the statement that makes it."""

    kind: str
    schema: str
    name: str
    comment: str | None
    sql: str

    @property
    def place(self) -> str:
        """Its quoted schema and name."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def is_of_package(self) -> bool:
        """Whether it seems to be a table of this package."""
        return self.kind == "table" and self.schema == "main" and _OURS in (self.comment or "")

    @property
    def places(self) -> list[str]:
        """The ways in which DuckDB writes its schema and name."""
        schemas = [f"{self.schema}.", f"{quoted(self.schema)}."]
        schemas += [""] if self.schema == "main" else []
        return [schema + name for schema in schemas for name in (self.name, quoted(self.name))]

    def __str__(self) -> str:
        return f"{self.kind} {self.schema}.{self.name}"


def copy_own_objects(
    connection: DuckDBPyConnection, former: str, new: str
) -> tuple[list[str], list[str]]:
    """Copy tables, views and macros that are not of this package to another database.

    Returns
    -------
    tuple[list[str], list[str]]
        The objects that were copied, and the others with the reasons.
    """
    ours = _names_of_package(connection, former, new)
    found = _rows(connection, _OBJECTS, former)
    own = [_Object(*row[:-1]) for row in found if row[1] != "main" or row[2] not in ours]
    gone = [f"{each} of a former version" for each in own if each.is_of_package]
    own = [each for each in own if not each.is_of_package]
    macros = any(each.kind == "macro" for each in own)
    statements = _macro_statements(connection, former) if macros else {}
    copied: list[str] = []
    reasons: dict[_Object, str] = {}
    connection.execute(f"use {quoted(new)}")
    try:
        while own:  # an object may need another: once more, as long as some were made
            reasons = {}
            for each in own:
                if reason := _refusal(connection, each, former, statements):
                    reasons[each] = reason
                else:
                    copied.append(str(each))
            if len(reasons) == len(own):
                break
            own = list(reasons)
    finally:
        connection.execute(f"use {quoted(former)}")
    gone += [f"{name}, which is not copied" for (name,) in _rows(connection, _NOT_COPIED, former)]
    return copied, gone + [f"{each}: {reason}" for each, reason in reasons.items()]


def _rows(connection: DuckDBPyConnection, query: str, former: str) -> list[tuple[Any, ...]]:
    return connection.execute(query, {"former": former}).fetchall()


def _names_of_package(connection: DuckDBPyConnection, former: str, new: str) -> set[str]:
    """Return the names of the package's own objects, in this version and in the former one."""
    meta = dict(connection.execute(f"select key, value from {quoted(former)}.{META}").fetchall())
    names = {META, *(table.name for table in all_tables(all_estimators()))}
    names |= {table_of(key) for key in reference_keys(meta)}
    names |= {*meta.get("view_names", "").split(), *meta.get("function_names", "").split()}
    names |= {*kept_names(meta)}
    macros = "select function_name from duckdb_functions() where not internal and database_name = ?"
    return names | {name for (name,) in connection.execute(macros, [new]).fetchall()}


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
    statements = (each.query.strip() for each in connection.extract_statements(text))
    found = ((_MACRO.match(each), each) for each in statements)
    return {match[1]: each for match, each in found if match is not None}


def _refusal(
    connection: DuckDBPyConnection, each: _Object, former: str, statements: Mapping[str, str]
) -> str:
    """Copy an object to the database in use; return why that fails, or an empty text."""
    makes = [f"create schema if not exists {quoted(each.schema)}"]
    if each.kind == "macro":
        makes += [statements[place] for place in each.places if place in statements]
    else:
        makes.append(each.sql)
    if each.kind == "table":
        makes.append(f"insert into {each.place} from {quoted(former)}.{each.place}")
    if each.comment is not None and each.kind != "macro":
        makes.append(f"comment on {each.kind} {each.place} is {literal(each.comment)}")
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
    present = _tables_of(connection, former)
    found = []
    for name, table in PARTS.values():
        if table in present:
            lost = connection.execute(
                f"select {name} from {former}.{table} where {name} not in"
                f" (select {name} from {new}.{table}) group by 1 order by 1"
            ).fetchall()
            found += [f"{table} {each!r}" for (each,) in lost]
    return [
        *found,
        *_cells_without_facts(connection, former, new),
        *_edits(connection, former, new),
    ]


def _cells_without_facts(connection: DuckDBPyConnection, former: str, new: str) -> Iterator[str]:
    versions = {estimator.name: estimator.version for estimator in all_estimators()}
    cells = connection.execute(
        "select estimator, estimator_version, count(*), coalesce(sum(num_rows), 0)::bigint"
        f" from {former}.cell where cell_id not in (select cell_id from {new}.cell)"
        " group by 1, 2 order by 1, 2"
    ).fetchall()
    for estimator, version, number, rows in cells:
        if version == versions.get(estimator):
            why = "no study asks for them"
        else:
            why = f"version {version} of {estimator} evaluated them"
        yield f"{count(number, 'cell')} of {estimator} with {count(rows, 'row')}: {why}"


def _edits(connection: DuckDBPyConnection, former: str, new: str) -> Iterator[str]:
    """Yield what has other values than its facts or its evaluation give: a shell changed it."""
    shared = _shared_columns(connection, former, new)
    for table, key in _KEYS.items():
        if key in shared.get(table, ()):
            listed = ", ".join(map(quoted, shared[table]))
            changed = connection.execute(
                f"select {key} from (select {listed} from {former}.{table} where {key} in"
                f" (select {key} from {new}.{table}) except all select {listed} from {new}.{table})"
                " group by 1 order by 1"
            ).fetchall()
            yield from (f"other values of {table} {each!r}" for (each,) in changed)
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
    found = connection.execute(
        "select table_name, list(column_name order by column_name) from (select table_name,"
        " column_name from duckdb_columns() where database_name in ($former, $new)"
        " and schema_name = 'main' and not list_contains($but, column_name)"
        " group by table_name, column_name, data_type having count(*) = 2) group by 1",
        {"former": former, "new": new, "but": [*_PROBLEMS, IS_REPEATED]},
    ).fetchall()
    return dict(found)


def _tables_of(connection: DuckDBPyConnection, database: str) -> set[str]:
    query = (
        "select table_name from duckdb_tables() where database_name = ? and schema_name = 'main'"
    )
    return {name for (name,) in connection.execute(query, [database]).fetchall()}
