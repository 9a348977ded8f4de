"""A database that an older version of the package wrote opens, reads and sweeps on."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.shared import digest
from warehouse import Warehouse
from warehouse.database import views
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.paths import CONFIG
from warehouse.database.problem_facts import find_problems
from warehouse.errors import DatabaseError
from warehouse.studies.study import load_study
from warehouse.sweep.runner import run_study

STATEMENTS = Path(__file__).parent / "old_database.sql"

STUDY = """\
name = "tiny"
estimator = "roofline"
variant = "corrected"

[space]
model = "gpt3"
strategy = "tensor_1d"
accelerator = "H200"
nvlink_size = 8
num_gpus = 16
global_batch_size = 4
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The database: records, rows and the best layouts of one cell, but no view."""
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path), config=CONFIG) as connection:
        connection.execute(STATEMENTS.read_text("utf-8"))
        # the statements lack the comments, by which an update knows the tables of the package
        connection.execute(
            "comment on table stored_best is 'The fastest layouts. One row per cell.'"
        )
    return path


def test_a_read_only_warehouse_does_not_write_into_an_old_database(old: Path) -> None:
    before = digest(old)
    with pytest.raises(DatabaseError, match="another version of this package") as refused:
        Warehouse(old).sql("select 1")
    assert refused.value.hint.startswith(f"`warehouse init --db {old}`")
    assert digest(old) == before


@pytest.mark.long
def test_an_old_database_opens_reads_and_sweeps_on(old: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(old), read_only=True) as connection:
        before = connection.execute("from roofline order by all").fetchall()
        fastest = connection.execute("select step_seconds from stored_best").fetchall()

    open_for_write(old).close()
    with open_for_read(old) as connection:
        rows = "select * exclude (is_repeated, problem_id) from roofline order by all"
        assert connection.execute(rows).fetchall() == before
        count = "select count(*), min(step_seconds) filter (fits_memory) from configuration"
        assert connection.execute(count).fetchall() == [(51, fastest[0][0])]
        former = "select table_name from duckdb_tables() where table_name like 'stored_%'"
        assert connection.execute(former).fetchall() == [("stored_problem",)]
        best = "select num_layouts, best.step_seconds from best_of_cell"
        assert connection.execute(best).fetchall() == [(51, fastest[0][0])]

    (tmp_path / "tiny.toml").write_text(STUDY)
    assert run_study(old, load_study(tmp_path / "tiny.toml")).cells == 0
    (tmp_path / "more.toml").write_text(STUDY.replace("tiny", "more").replace("= 16", "= 8"))
    assert run_study(old, load_study(tmp_path / "more.toml")).cells == 1

    with open_for_read(old) as connection:
        counted = connection.execute("select distinct num_gpus from configuration order by 1")
        assert counted.fetchall() == [(8,), (16,)]
        find_problems(connection)
        checks = {check.name: connection.execute(check.sql).fetchall() for check in views.checks()}
    assert {name: rows for name, rows in checks.items() if rows} == {}
