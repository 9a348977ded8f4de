"""Databases of former schemas are upgraded in place, and keep facts, measured runs and profiles.

Each file of `old_databases` is what a former state of the package stored, as statements: a study of
a cell and, where that state had them, a measured run and a profile. Reference tables and views are
left out, since the upgrade makes them anew. The name of a file says what that state was the first
to have, or lacked.
"""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.file_format import CONFIG
from warehouse.database.in_force import mark
from warehouse.database.sql_text import literal
from warehouse.evaluate.profiles import load_profiles

ENDING = ".sql.xz"
OLD = {
    path.name.removesuffix(ENDING): path
    for path in (Path(__file__).parent / "old_databases").glob(f"*{ENDING}")
}
NEEDED = ("cell", "problem", "roofline", "study", "study_cell")
LATER = ("training_step", "measurement", "calibration", "calibration_row")
PROFILE = "mine"

LONG = pytest.mark.long
COLUMNS = "select column_name from duckdb_columns() where table_name = ? order by column_index"

SHAPE = """
    select columns.table_name, column_name, data_type, is_nullable
    from duckdb_columns() as columns inner join duckdb_tables() as tables
        using (database_name, table_name)
    where database_name = current_database()
"""

LEFT = {
    "first": {("roofline", "bubble_seconds")},
    "first_leading_rows": {
        (table, name)
        for table in ("pipeline", "pipeline_leading")
        for name in ("bubble_seconds", "matmul_seconds")
    },
}
"""Databases whose upgrade makes every view, each with the columns that only an old file has.

One of them has each such column: an upgrade keeps them, and views must not stumble over them.
"""


def made(name: str, path: Path) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Make an old database at `path`; return the columns of its tables, and their rows."""
    statements = OLD[name].read_bytes()
    with duckdb.connect(str(path), config=CONFIG) as connection:
        connection.execute(lzma.decompress(statements).decode())
        found = {
            table: ", ".join(name for (name,) in connection.execute(COLUMNS, [table]).fetchall())
            for table in (*NEEDED, *LATER)
        }
        columns = {table: names for table, names in found.items() if names}
        before = stored(connection, columns)
    assert all(before[table] for table in NEEDED)
    return columns, before


def stored(connection: duckdb.DuckDBPyConnection, columns: dict[str, str]) -> dict[str, list[Any]]:
    """Return the rows of the tables that must stay, of these columns."""
    query = "select {} from {} order by all"
    return {
        table: connection.execute(query.format(names, table)).fetchall()
        for table, names in columns.items()
    }


def assert_views_show(connection: duckdb.DuckDBPyConnection, before: dict[str, list[Any]]) -> None:
    """Check that every stored row is shown, and compared with what was measured."""
    shown = "select count(*) from configuration where estimator = 'roofline'"
    assert connection.execute(shown).fetchall() == [(len(before["roofline"]),)]
    if before.get("measurement"):
        compared = "select count(*) from measurement_comparison where reference = 'ours'"
        assert connection.execute(compared).fetchall()[0][0] > 0


def assert_profiles_load(path: Path, before: dict[str, list[Any]]) -> None:
    profiles = {name for name, *_ in before.get("calibration", ())}
    assert profiles <= {PROFILE}
    assert load_profiles(path).keys() == profiles


def assert_columns_left(path: Path, new: Path, expected: set[tuple[str, str]]) -> None:
    """Check that a file has every column of a new one, and of the `expected` others at most."""
    shapes = []
    for each in (path, new):
        with open_for_read(each) as connection:
            shapes.append(set(connection.execute(SHAPE).fetchall()))
    upgraded, wanted = shapes
    assert wanted - upgraded == set()
    assert {(table, name) for table, name, *_ in upgraded - wanted} <= expected


@pytest.mark.parametrize("name", ["first", pytest.param("first_leading_rows", marks=LONG)])
def test_an_upgrade_keeps_facts_and_makes_every_view(
    name: str, tmp_path: Path, empty_warehouse: Path
) -> None:
    path = tmp_path / "old.duckdb"
    columns, before = made(name, path)
    open_for_write(path).close()

    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
        assert_views_show(connection, before)
        for table, column in LEFT[name]:
            connection.execute(f"select {column} from {table}")
    assert_columns_left(path, empty_warehouse, LEFT[name])
    assert_profiles_load(path, before)


@pytest.mark.parametrize("name", sorted(OLD.keys() - LEFT.keys()))
@LONG
def test_an_upgrade_keeps_facts_measurements_and_profiles(
    name: str, tmp_path: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view takes three seconds: those of a new database read the upgraded rows instead."""
    path, new = tmp_path / "old.duckdb", tmp_path / "new.duckdb"
    columns, before = made(name, path)
    monkeypatch.setattr("warehouse.database.schema.create_views", lambda *_: [])
    open_for_write(path).close()

    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
    assert_columns_left(path, empty_warehouse, set.union(*LEFT.values()))
    shutil.copyfile(empty_warehouse, new)
    with open_for_write(new) as connection:
        connection.execute(f"attach {literal(str(path))} as old (read_only)")
        kept = "select column_name from duckdb_columns() where database_name <> 'old'"
        for table in before:
            names = connection.execute(f"{kept} and table_name = ?", [table]).fetchall()
            listed = ", ".join(name for (name,) in names)
            connection.execute(f"insert into {table} by name select {listed} from old.{table}")
        mark(connection)
        assert_views_show(connection, before)
    assert_profiles_load(path, before)
