"""Databases of former schemas are upgraded in place, and keep facts and measured runs.

Each file of `old_databases` is what a former state of the package stored for one study of a cell
and one measured run, as statements; its name says what that state lacked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.file_format import CONFIG

OLD = sorted((Path(__file__).parent / "old_databases").glob("*.sql"))
KEPT = ("cell", "problem", "roofline", "training_step", "study", "study_cell", "measurement")


def stored(connection: duckdb.DuckDBPyConnection, columns: dict[str, str]) -> dict[str, list[Any]]:
    """Return the rows of the tables that must stay, of these columns."""
    query = "select {} from {} order by all"
    return {name: connection.execute(query.format(columns[name], name)).fetchall() for name in KEPT}


@pytest.mark.long
@pytest.mark.parametrize("statements", OLD, ids=lambda path: path.stem)
def test_an_upgrade_keeps_facts_and_measurements(statements: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path), config=CONFIG) as connection:
        connection.execute(statements.read_text("utf-8"))
        columns = {
            name: ", ".join(row[0] for row in connection.execute(f"describe {name}").fetchall())
            for name in KEPT
        }
        before = stored(connection, columns)
    assert all(before.values())
    open_for_write(path).close()
    with open_for_read(path) as connection:
        assert stored(connection, columns) == before
        compared = "select count(*) from measurement_comparison where reference = 'ours'"
        assert connection.execute(compared).fetchall()[0][0] > 0
