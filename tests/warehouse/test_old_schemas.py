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

from estimators.registry import all_estimators
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.derived import store_figures
from warehouse.database.in_force import mark
from warehouse.database.paths import CONFIG
from warehouse.database.problem_facts import refresh_problems
from warehouse.database.sql_text import literal
from warehouse.database.tables import all_tables
from warehouse.evaluate.profiles import load_profiles

ENDING = ".sql.xz"
OLD = {
    path.name.removesuffix(ENDING): path
    for path in (Path(__file__).parent / "old_databases").glob(f"*{ENDING}")
}
NEEDED = ("cell", "problem", "roofline", "study", "study_cell")
LATER = ("training_step", "measurement", "calibration", "calibration_row")
COMPARED = {"first_measured_runs_and_profiles", "before_expert_tensor_parallel"}
"""The first and the last file with measured runs."""
LATER_FORM = ("pipeline", "pipeline_leading")
PROFILE = "mine"

LONG = pytest.mark.long
COLUMNS = "select column_name from duckdb_columns() where table_name = ? order by column_index"

SHAPE = """
    select columns.table_name, column_name, data_type, is_nullable
    from duckdb_columns() as columns inner join duckdb_tables() as tables
        using (database_name, table_name)
    where database_name = current_database()
"""

FIRST, WITH_LEADING_ROWS = "first", "first_leading_rows"
LEFT = {
    ("roofline", "bubble_seconds"),
    *(("pipeline", f"{n}_seconds") for n in ("bubble", "matmul")),
}
"""The columns that only an old file has.

An upgrade keeps them, and views must not stumble over them.
"""


def statements(name: str) -> str:
    return lzma.decompress(OLD[name].read_bytes()).decode()


def made(name: str, path: Path, more: str = "") -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Make an old database at `path`; return the columns of its tables, and their rows."""
    with duckdb.connect(str(path), config=CONFIG) as connection:
        connection.execute(statements(name) + more)
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


def assert_views_show(
    connection: duckdb.DuckDBPyConnection, before: dict[str, list[Any]], *, and_compare: bool = True
) -> None:
    """Check that every stored row is shown, and compared with what was measured.

    The comparison takes a second, so that few files ask for it.
    """
    shown = "select count(*) from configuration where estimator = 'roofline'"
    assert connection.execute(shown).fetchall() == [(len(before["roofline"]),)]
    if and_compare and before.get("measurement"):
        compared = "select count(*) from measurement_comparison where reference = 'ours'"
        assert connection.execute(compared).fetchall()[0][0] > 0


def assert_profiles_load(path: Path, before: dict[str, list[Any]]) -> None:
    profiles = {name for name, *_ in before.get("calibration", ())}
    assert profiles <= {PROFILE}
    assert load_profiles(path).keys() == profiles


def shape_of(connection: duckdb.DuckDBPyConnection) -> set[tuple[Any, ...]]:
    """Return the columns of the tables, but of those of reference."""
    names = {table.name for table in all_tables(all_estimators())}
    return {column for column in connection.execute(SHAPE).fetchall() if column[0] in names}


@pytest.fixture(scope="module")
def new_shape(empty_warehouse: Path) -> set[tuple[Any, ...]]:
    """The columns of a new database."""
    with open_for_read(empty_warehouse) as connection:
        return shape_of(connection)


def assert_shape(connection: duckdb.DuckDBPyConnection, new: set[tuple[Any, ...]]) -> None:
    """Check that a file has every column of a new one, and of the old ones at most."""
    upgraded = shape_of(connection)
    assert new - upgraded == set()
    assert {(table, name) for table, name, *_ in upgraded - new} <= LEFT


def assert_figures(connection: duckdb.DuckDBPyConnection) -> None:
    """Check that each cell in force has the figures that its rows share."""
    for estimator in all_estimators():
        for name in estimator.step.cell_figures:
            missing = f"select cell_id from current_cell where estimator = ? and {name} is null"
            assert connection.execute(missing, [estimator.name]).fetchall() == []


def test_an_upgrade_keeps_facts_and_makes_every_view(
    tmp_path: Path, new_shape: set[tuple[Any, ...]]
) -> None:
    """The oldest file, with the tables of a later one that have other old columns."""
    path = tmp_path / "old.duckdb"
    later = [
        line
        for line in statements(WITH_LEADING_ROWS).splitlines()
        for table in LATER_FORM
        if line.startswith(f"CREATE TABLE {table}(")
    ]
    columns, before = made(FIRST, path, "\n".join(later))
    open_for_write(path).close()

    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
        assert_views_show(connection, before)
        assert_figures(connection)
        for table, column in LEFT:
            connection.execute(f"select {column} from {table}")
        assert_shape(connection, new_shape)
    assert_profiles_load(path, before)


@pytest.mark.parametrize("name", sorted(OLD.keys() - {FIRST}))
@LONG
def test_an_upgrade_keeps_facts_measurements_and_profiles(
    name: str,
    tmp_path: Path,
    empty_warehouse: Path,
    new_shape: set[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every view takes three seconds: those of a new database read the upgraded rows instead."""
    path, new = tmp_path / "old.duckdb", tmp_path / "new.duckdb"
    columns, before = made(name, path)
    monkeypatch.setattr("warehouse.database.schema.create_views", lambda *_: [])
    # no old file has a table of reference, so that all would load the same
    monkeypatch.setattr("warehouse.database.schema._load_references", lambda *_: None)
    open_for_write(path).close()

    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
        assert_shape(connection, new_shape)
    monkeypatch.undo()
    shutil.copyfile(empty_warehouse, new)
    with open_for_write(new) as connection:
        connection.execute(f"attach {literal(str(path))} as old (read_only)")
        kept = "select column_name from duckdb_columns() where database_name <> 'old'"
        for table in before:
            names = connection.execute(f"{kept} and table_name = ?", [table]).fetchall()
            listed = ", ".join(name for (name,) in names)
            connection.execute(f"insert into {table} by name select {listed} from old.{table}")
        store_figures(connection, mark(connection))
        refresh_problems(connection)
        assert_figures(connection)
        assert_views_show(connection, before, and_compare=name in COMPARED)
    assert_profiles_load(path, before)
