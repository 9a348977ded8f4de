"""What a database, a lake or a folder of facts holds, so that two can be compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from estimators.registry import all_estimators
from warehouse.database.connection import open_as_it_is
from warehouse.database.facts import (
    COMMITTED,
    ENTRIES,
    OPEN,
    folder_of,
    is_folder,
    read_facts,
)
from warehouse.database.sql_text import literal, quoted
from warehouse.database.stamp import FACTS_ID, FACTS_LAST, META, last_fact

State = dict[str, list[Any]]
"""Table or file -> its number of rows, and a hash that does not depend on their order."""

UNREADABLE = "cannot be read"

TIMED = ("sibling_record",)
"""Columns that say when something was stored, as those of type TIMESTAMP do."""


def state_of(database: Path) -> State:
    """Return the rows and the hash of every stored table; none where there is no database."""
    if not database.exists():
        return {}
    with open_as_it_is(database) as connection:
        return hashed(connection)


def hashed(connection: duckdb.DuckDBPyConnection) -> State:
    """Return the rows and the hash of every stored table."""
    columns = connection.execute(
        "select table_name, column_name from duckdb_columns() inner join duckdb_tables()"
        " using (table_name) where not duckdb_columns.internal and data_type <> 'TIMESTAMP'"
        " order by 1, 2"
    ).fetchall()
    tables: dict[str, list[str]] = {}
    for table, column in columns:
        if column not in TIMED:
            tables.setdefault(table, []).append(quoted(column))
    found = {}
    for table, names in tables.items():
        query = f"select count(*), sum(hash(row({', '.join(names)})))::varchar from {quoted(table)}"
        if table == META:  # the last entry has the time at which it was written
            query += f" where key not in ({literal(FACTS_ID)}, {literal(FACTS_LAST)})"
        try:
            found[table] = list(connection.execute(query).fetchall()[0])
        except duckdb.Error:
            found[table] = [-1, UNREADABLE]
    return found


def views_of(database: Path) -> State:
    """Return the rows and the hash of every view; planning all of them takes ten seconds."""
    with open_as_it_is(database) as connection:
        views = connection.execute(
            "select view_name, list(column_name) from duckdb_views() inner join duckdb_columns()"
            " on view_name = table_name where not duckdb_views.internal"
            " and data_type <> 'TIMESTAMP' group by 1 order by 1"
        ).fetchall()
        found: State = {}
        for view, columns in views:
            names = ", ".join(quoted(name) for name in columns if name not in TIMED)
            query = f"select count(*), sum(hash(row({names})))::varchar from {quoted(view)}"
            found[view] = list(connection.execute(query).fetchall()[0])
    return found


def facts_in_force(database: Path) -> list[Any]:
    """Return the facts that the folder of a database has, and its damage.

    The database knows whether an open entry has committed.
    """
    if not database.exists() or not is_folder(folder_of(database)):
        return []
    with open_as_it_is(database) as connection:
        _, number, _ = last_fact(connection)
    facts = read_facts(folder_of(database))
    entries = (
        replace(entry, outcome=COMMITTED)
        if entry.outcome == OPEN and entry.number <= number
        else entry
        for entry in facts.entries
    )
    live = replace(facts, entries=tuple(entries)).live()
    return [sorted(" ".join(entry.subject) for entry in live), facts.damage]


def faults_of(database: Path) -> list[str]:
    """Return what is half stored: cells without all their rows, and rows without their cell."""
    if not database.exists():
        return []
    with open_as_it_is(database) as connection:
        return half_stored(connection)


def half_stored(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return what is half stored in an open database."""
    relations = [relation for each in all_estimators() for relation in each.relations]
    stored = {
        name for (name,) in connection.execute("select table_name from duckdb_tables()").fetchall()
    }
    facts = " union all ".join(
        f"select {literal(relation.name)} as relation, cell_id, count(*) as num_rows"
        f" from {quoted(relation.table)} group by cell_id"
        for relation in relations
        if relation.table in stored
    )
    queries = {
        "cells whose rows are not all there, or rows without a cell": (
            f"select cell_id from cell full join ({facts}) as fact using (relation, cell_id)"
            " where cell.num_rows is null or cell.num_rows <> coalesce(fact.num_rows, 0)"
        ),
        "cells without a problem": "select cell_id from cell anti join problem using (problem_id)",
        "leading rows without a cell": (
            "select cell_id from leading_row anti join cell using (cell_id)"
        ),
        "studies that are registered in part": (
            "select study from study left join study_cell using (study) group by study, num_cells"
            " having count(study_cell.cell_id) <> num_cells"
        ),
        "problems without what follows from them, or the reverse": (
            "select problem_id from stored_problem full join problem using (problem_id)"
            " where stored_problem.problem_id is null or problem.problem_id is null"
        ),
    }
    found: dict[str, Any] = {}
    for name, query in queries.items():
        try:
            found[name] = connection.execute(query).fetchall()[:3]
        except duckdb.Error:
            found[name] = UNREADABLE
    return [f"{name}: {rows}" for name, rows in found.items() if rows]


def stored_cells(database: Path) -> list[int]:
    """Return the ids of the stored cells."""
    if not database.exists():
        return []
    with open_as_it_is(database) as connection:
        return [cell for (cell,) in connection.execute("select cell_id from cell").fetchall()]


def state_of_folder(folder: Path) -> State:
    """Return the rows and the hash of each file of a lake or of a folder of facts."""
    found: State = {}
    with duckdb.connect() as connection:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".parquet":
                source = f"read_parquet({literal(str(path))}, hive_partitioning = false)"
                columns = [
                    quoted(column)
                    for column, kind, *_ in connection.execute(f"describe from {source}").fetchall()
                    if kind != "TIMESTAMP" and column not in TIMED
                ]
                query = (
                    f"select count(*), sum(hash(row({', '.join(columns)})))::varchar from {source}"
                )
                found[name] = list(connection.execute(query).fetchall()[0])
            elif path.name == ENTRIES:
                facts = read_facts(path.parent)
                found[name] = [len(facts.live(with_open=True)), facts.damage]
            elif path.suffix == ".json" and path.parent.name == "cells":
                document = json.loads(path.read_text(encoding="utf-8"))
                content = (folder / document["file"]).read_bytes()
                is_sound = hashlib.sha256(content).hexdigest() == document["sha256"]
                found[name] = [document["num_rows"], is_sound]
            elif path.is_file():
                found[name] = [1, ""]
    return found


def leftovers(place: Path) -> list[str]:
    """Return the temporary files of a folder, those of a database's log not counted."""
    marks = (".partial", ".rebuilt", ".snapshot", ".progress")
    paths = (path.relative_to(place).as_posix() for path in place.rglob("*"))
    return sorted(name for name in paths if any(mark in name for mark in marks))
