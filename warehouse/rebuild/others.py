"""Contents of a database that no fact has: the user's own objects, and rows that nothing names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from estimators.registry import all_estimators
from warehouse.database.meta import META
from warehouse.database.recording import PARTS
from warehouse.database.sql_text import literal, quoted
from warehouse.show.formats import count

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_OURS = "One row per"
"""Is in the comment of every table and view of this package."""

_TABLES = """\
select schema_name, table_name from duckdb_tables()
where not internal and not temporary and database_name = {former}
    and not (schema_name = 'main' and (contains(coalesce(comment, ''), {ours})
        or table_name = {meta}
        or table_name in (select table_name from duckdb_tables() where database_name = {new})))
order by all"""

_TEXTS = """\
select schema_name, view_name, sql from duckdb_views()
where not internal and not temporary and database_name = {former}
    and not (schema_name = 'main' and (contains(coalesce(comment, ''), {ours})
        or view_name in (select view_name from duckdb_views() where database_name = {new})))
order by view_oid"""

_MACROS = """\
select schema_name, function_name, function_type, parameters, macro_definition
from duckdb_functions()
where not internal and database_name = {former} and macro_definition is not null
    and not (schema_name = 'main' and function_name in
        (select function_name from duckdb_functions() where database_name = {new}))
    and not contains(coalesce(comment, ''), {ours})
order by function_oid"""


def copy_own_objects(
    connection: DuckDBPyConnection, former: str, new: str
) -> tuple[list[str], list[str]]:
    """Copy tables, views and macros that are not of this package to another database.

    Parameters
    ----------
    former, new
        Names of two databases that `connection` has attached.

    Returns
    -------
    tuple[list[str], list[str]]
        What was copied, and what was not with its reason.
    """
    names = {"former": literal(former), "new": literal(new)}
    names |= {"ours": literal(_OURS), "meta": literal(META)}
    statements: list[tuple[str, str]] = []
    for schema, table in connection.execute(_TABLES.format(**names)).fetchall():
        place = f"{quoted(schema)}.{quoted(table)}"
        statements.append(
            (f"table {schema}.{table}", f"create table {place} as from {quoted(former)}.{place}")
        )
    for schema, name, sql in connection.execute(_TEXTS.format(**names)).fetchall():
        statements.append((f"view {schema}.{name}", sql))
    for schema, name, kind, arguments, body in connection.execute(
        _MACROS.format(**names)
    ).fetchall():
        table = "table " if kind == "table_macro" else ""
        listed = ", ".join(arguments)
        place = f"{quoted(schema)}.{quoted(name)}"
        statements.append(
            (f"macro {schema}.{name}", f"create macro {place}({listed}) as {table}{body}")
        )
    copied, left = [], []
    connection.execute(f"use {quoted(new)}")
    try:
        for what, statement in statements:
            schema = what.split(" ", 1)[1].rpartition(".")[0]
            try:
                connection.execute(f"create schema if not exists {quoted(schema)}")
                connection.execute(statement)
            except duckdb.Error as error:
                left.append(f"{what}: {str(error).partition(chr(10))[0]}")
            else:
                copied.append(what)
    finally:
        connection.execute(f"use {quoted(former)}")
    return copied, left


def rows_without_facts(connection: DuckDBPyConnection, former: str, new: str) -> list[str]:
    """Return rows of a database that the one made from its facts lacks, in words.

    They were stored in a shell, by versions that are gone, or for studies that were replaced since.
    """
    found = []
    for name, table in PARTS.values():
        lost = connection.execute(
            f"select {name} from {former}.{table} where {name} not in"
            f" (select {name} from {new}.{table}) group by 1 order by 1"
        ).fetchall()
        found += [f"{table} {each!r}" for (each,) in lost]
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
        found.append(f"{count(number, 'cell')} of {estimator} with {count(rows, 'row')}: {why}")
    return found
