"""Databases of former schemas are upgraded in place, and keep facts, measured runs and profiles.

Each file of `old_databases` is what a former state of the package stored, as statements: a study of
a cell and, where that state had them, a measured run and a profile. Reference tables and views are
left out, since the upgrade makes them anew. The name of a file says what that state was the first
to have, or lacked.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import duckdb
import pytest

from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.file_format import CONFIG
from warehouse.evaluate.profiles import load_profiles

OLD = sorted((Path(__file__).parent / "old_databases").glob("*.sql.xz"))
NEEDED = ("cell", "problem", "roofline", "study", "study_cell")
LATER = ("training_step", "measurement", "calibration", "calibration_row")
PROFILE = "mine"

COLUMNS = "select column_name from duckdb_columns() where table_name = ? order by column_index"

_LONG = [path for path in OLD if path.name != "first.sql.xz"]


def stored(connection: duckdb.DuckDBPyConnection, columns: dict[str, str]) -> dict[str, list[Any]]:
    """Return the rows of the tables that must stay, of these columns."""
    query = "select {} from {} order by all"
    return {
        table: connection.execute(query.format(names, table)).fetchall()
        for table, names in columns.items()
    }


@pytest.mark.parametrize(
    "statements",
    [pytest.param(path, marks=pytest.mark.long if path in _LONG else ()) for path in OLD],
    ids=lambda path: path.name.partition(".")[0],
)
def test_an_upgrade_keeps_facts_measurements_and_profiles(statements: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path), config=CONFIG) as connection:
        connection.execute(lzma.decompress(statements.read_bytes()).decode())
        columns = {
            table: ", ".join(name for (name,) in connection.execute(COLUMNS, [table]).fetchall())
            for table in (*NEEDED, *LATER)
        }
        columns = {table: names for table, names in columns.items() if names}
        before = stored(connection, columns)
    assert all(before[table] for table in NEEDED)
    open_for_write(path).close()

    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
        shown = "select count(*) from configuration where estimator = 'roofline'"
        assert connection.execute(shown).fetchall() == [(len(before["roofline"]),)]
        if before.get("measurement"):
            compared = "select count(*) from measurement_comparison where reference = 'ours'"
            assert connection.execute(compared).fetchall()[0][0] > 0
    profiles = {name for name, *_ in before.get("calibration", ())}
    assert profiles <= {PROFILE}
    assert load_profiles(path).keys() == profiles
