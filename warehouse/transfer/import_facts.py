"""Imports a folder of facts: stores everything that is missing, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from estimators.registry import all_estimators
from warehouse.database import stored_best, stored_problem
from warehouse.database.connection import writing
from warehouse.database.schema import fill_choices
from warehouse.database.sink import transaction
from warehouse.database.sql_text import literal, quoted
from warehouse.errors import InputError
from warehouse.transfer.export_facts import kept_tables
from warehouse.transfer.folder import ROWS, read_manifest, table_path

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_NAMED = {
    "study": ("study", "study"),
    "calibration": ("profile", "profile"),
    "measurement": ("reference", "measurements"),
}
"""Table of named things -> the column with the name, and the word for such a thing."""

_PARTS = {
    "study": ("study",),
    "calibration": ("calibration", "calibration_row"),
    "measurement": ("measurement",),
}
"""The same table -> the tables with its content. Cells of one study may come from several
folders."""

_RECORDED = ("created_at", "study_file", "measurement_file", "num_cells", "num_rows")
"""Columns with time and origin: things that differ only in these are equal."""

_CONTENT = (
    duckdb.BinderException,
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
    duckdb.OutOfRangeException,
)
"""Errors about the files, not about the database."""


_PATTERN = "*?["
"""Characters of glob patterns, which could match files of other folders."""

_COUNT_CELLS = """
update study set num_cells = asked.num_cells, num_rows = asked.num_rows
from (
    select study, count(*) as num_cells, sum(cell.num_rows)::bigint as num_rows
    from study_cell left join cell using (cell_id) group by study
) as asked
where study.study = asked.study and study.num_cells < asked.num_cells
"""
"""Corrects the counts of a study swept with two versions of its estimator: it has the cells of
both."""


@dataclass(frozen=True)
class ImportReport:
    """The outcome: new and known cells, new rows, and new things by table."""

    num_cells: int
    num_known_cells: int
    num_rows: int
    named: dict[str, list[str]]


def import_facts(database: Path, folder: Path) -> ImportReport:
    """Import a folder that `export_facts` wrote, in one transaction.

    Cells that are stored stay as they are. Studies, profiles and measurements of the same name must
    be the same. Reference tables come with the package and are left out.

    Raises
    ------
    InputError
        If it is not such a folder, is damaged, or contradicts stored content.
    DatabaseError
        If the database is locked or damaged.
    """
    if any(sign in str(folder) for sign in _PATTERN):
        raise InputError(
            f"{folder}: DuckDB would read {' '.join(_PATTERN)} in the path as a pattern",
            "rename the folder, or call the command in the folder above it",
        )
    files = read_manifest(folder)
    for name in map(table_path, kept_tables()):
        if name not in files:
            raise InputError(f"{folder}: has no {name}", "export the folder again")
    with writing(database) as connection:
        try:
            with transaction(connection):
                return _take(connection, folder, files)
        except _CONTENT as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"{folder}: does not fit this database: {reason}", "export the folder again"
            ) from None


def _take(connection: DuckDBPyConnection, folder: Path, files: Collection[str]) -> ImportReport:
    for table in kept_tables():
        path = literal(str(folder / table_path(table)))
        connection.execute(
            f"create or replace temporary view {_incoming(table)} as from read_parquet({path})"
        )
        _refuse_columns(connection, table, folder)
    named = {table: _new_names(connection, table, folder) for table in _NAMED}
    connection.execute(
        "create or replace temporary table new_cell as"
        f" from {_incoming('cell')} anti join cell using (cell_id)"
    )
    _refuse_cells(connection, folder)
    for estimator in all_estimators():
        for relation in estimator.relations:
            start = f"{ROWS}/{relation.table}/"
            paths = [str(folder / name) for name in files if name.startswith(start)]
            if paths:
                _insert_rows(connection, relation.table, paths)
            _refuse_counts(connection, relation.name, relation.table, folder)
    _insert(connection, "problem", "anti join problem using (problem_id)")
    connection.execute("insert into cell by name from new_cell")
    for table, names in named.items():
        for part in _PARTS[table]:
            listed = ", ".join(map(literal, names)) or "null"
            _insert(connection, part, f"where {_NAMED[table][0]} in ({listed})")
    _insert(connection, "study_cell", "anti join study_cell using (study, cell_id)")
    connection.execute(_COUNT_CELLS)
    _insert(connection, "published_estimate", "anti join published_estimate using (estimator)")
    for estimator in all_estimators():
        fill_choices(connection, estimator)
    stored_problem.refresh(connection, named["calibration"])
    stored_best.refresh(connection)
    [(cells, rows, known)] = connection.execute(
        "select count(*), coalesce(sum(num_rows), 0)::bigint,"
        f" (select count(*) from {_incoming('cell')}) - count(*) from new_cell"
    ).fetchall()
    connection.execute("drop table new_cell")
    for table in kept_tables():
        connection.execute(f"drop view {_incoming(table)}")
    return ImportReport(cells, known, rows, named)


def _incoming(table: str) -> str:
    return quoted(f"incoming_{table}")


def _insert(connection: DuckDBPyConnection, table: str, condition: str) -> None:
    connection.execute(
        f"insert into {quoted(table)} by name from {_incoming(table)} as incoming {condition}"
    )


def _insert_rows(connection: DuckDBPyConnection, table: str, paths: list[str]) -> None:
    listed = ", ".join(map(literal, sorted(paths)))
    connection.execute(
        f"insert into {quoted(table)} by name select incoming.* from"
        f" read_parquet([{listed}], hive_partitioning = false, union_by_name = true) as incoming"
        " semi join new_cell using (cell_id)"
    )


def _refuse_columns(connection: DuckDBPyConnection, table: str, folder: Path) -> None:
    known = _columns(connection, quoted(table))
    unknown = [name for name in _columns(connection, _incoming(table)) if name not in known]
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        raise InputError(
            f"{folder / table_path(table)}: {names}: table {table} has no such column",
            "upgrade with `pip install --upgrade training-warehouse`",
        )


def _new_names(connection: DuckDBPyConnection, table: str, folder: Path) -> list[str]:
    """Return the names that are not stored; raise if a stored name has other content."""
    key, word = _NAMED[table]
    found = connection.execute(f"select distinct {key} from {_incoming(table)} order by 1")
    names = [name for (name,) in found.fetchall()]
    stored = {name for (name,) in connection.execute(f"select {key} from {table}").fetchall()}
    for part in _PARTS[table]:
        columns = _columns(connection, quoted(part))
        present = _columns(connection, _incoming(part))
        shared = [quoted(c) for c in columns if c in present and c not in _RECORDED]
        listed = ", ".join(shared)
        differing = connection.execute(
            f"select distinct {key} from ("
            f"(select {listed} from {part} except all select {listed} from {_incoming(part)})"
            f" union all"
            f" (select {listed} from {_incoming(part)} except all select {listed} from {part})"
            f") where {key} in (select {key} from {table})"
            f" and {key} in (select {key} from {_incoming(table)}) order by 1"
        ).fetchall()
        if differing:
            both = ", ".join(f'"{name}"' for (name,) in differing)
            raise InputError(
                f"{folder}: {word} {both}: others of that name are stored",
                "import the folder into a new database: name its file with --db",
            )
    return [name for name in names if name not in stored]


def _columns(connection: DuckDBPyConnection, table: str) -> list[str]:
    return [name for (name, *_) in connection.execute(f"describe {table}").fetchall()]


def _refuse_cells(connection: DuckDBPyConnection, folder: Path) -> None:
    known = ", ".join(
        literal(f"{e.name} {relation.name}") for e in all_estimators() for relation in e.relations
    )
    unknown = connection.execute(
        "select distinct estimator || ' ' || relation from new_cell"
        f" where estimator || ' ' || relation not in ({known}) order by 1"
    ).fetchall()
    if unknown:
        names = ", ".join(name for (name,) in unknown)
        raise InputError(
            f"{folder}: has cells of {names}, which this package does not know",
            "upgrade with `pip install --upgrade training-warehouse`",
        )
    [(lost,)] = connection.execute(
        "select count(*) from new_cell where problem_id not in (select problem_id from problem)"
        f" and problem_id not in (select problem_id from {_incoming('problem')})"
    ).fetchall()
    if lost:
        raise InputError(f"{folder}: {lost:,} of its cells have no problem", "export it again")


def _refuse_counts(connection: DuckDBPyConnection, relation: str, table: str, folder: Path) -> None:
    wrong = connection.execute(
        "select new_cell.cell_id, new_cell.num_rows, count(stored.cell_id) as found"
        f" from new_cell left join {quoted(table)} as stored using (cell_id)"
        " where new_cell.relation = ? group by all having found <> new_cell.num_rows"
        " order by 1 limit 1",
        [relation],
    ).fetchall()
    if wrong:
        [(cell, wanted, found)] = wrong
        raise InputError(
            f"{folder}: cell {cell} of {relation} has {found:,} rows, not {wanted:,}",
            "export the folder again",
        )
