"""Leading rows, ranks and fronts: those of all rows, whatever was stored or removed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database import derived
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.leading import LeadingRows
from warehouse.database.schema import prepare
from warehouse.database.views import LEADING_ROW, checks, kept_tables, leading_sql
from warehouse.studies.study import Study, load_study
from warehouse.sweep.record import drop_study
from warehouse.sweep.runner import run_study

STUDY = """
name = "{name}"
estimator = "{estimator}"
[space]
model = "gpt3_13B"
accelerator = "{accelerator}"
{domain}
num_gpus = {num_gpus}
global_batch_size = 64
{more}
"""


def study(
    directory: Path,
    name: str = "whole",
    num_gpus: str = "[8, 16]",
    more: str = "",
    estimator: str = "roofline",
    accelerator: str = "A100",
) -> Study:
    path = directory / f"{name}.toml"
    text = STUDY.format(
        name=name,
        estimator=estimator,
        accelerator=accelerator,
        domain="nvlink_size = 8" if estimator == "roofline" else "",
        num_gpus=num_gpus,
        more=more,
    )
    path.write_text(text)
    return load_study(path)


def stored(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    return connection.execute(f"from {LEADING_ROW} order by all").fetchall()


def counts(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    """Return the numbers of layouts of each cell in force."""
    query = "select cell_id, num_layouts, num_fitting_layouts from current_cell order by 1"
    return connection.execute(query).fetchall()


def counts_in(database: Path) -> list[Any]:
    """Return the same of a database, for tests that change it: `assert_right` takes longer."""
    with open_for_read(database) as connection:
        return counts(connection)


def assert_right(database: Path) -> list[Any]:
    """Check that leading rows are those of all rows, and the same if made again.

    Returns
    -------
    list
        The numbers of layouts of each cell.
    """
    with open_for_write(database) as connection:
        rows, numbers = stored(connection), counts(connection)
        assert None not in [number for _, number, _ in numbers]
        found = connection.execute(f"from ({leading_sql()}) order by all").fetchall()
        assert found == rows
        connection.begin()
        # searched now, not found in the evaluation
        derived.rebuild(connection)
        assert (stored(connection), counts(connection)) == (rows, numbers)
        connection.rollback()
    return numbers


@pytest.mark.long
def test_a_sweep_stores_the_best_of_each_cell_and_a_forced_one_replaces_them(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path))
    before = counts_in(database)
    with open_for_read(database) as connection:
        expected = connection.execute(
            "select cell_id, min(step_seconds) from configuration where fits_memory"
            " group by cell_id order by cell_id"
        ).fetchall()
        found = connection.execute(
            f"select cell_id, step_seconds from {LEADING_ROW} where rank_in_cell = 1 order by 1"
        ).fetchall()
    assert found == expected != []
    run_study(database, study(tmp_path), force=True)
    assert assert_right(database) == before


@pytest.mark.long
def test_a_part_of_a_space_and_the_whole_count_no_layout_twice(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, "part", more="tensor_parallel = 8"))
    alone = counts_in(database)
    assert all(row[1] > 0 for row in alone)
    run_study(database, study(tmp_path))
    both = {row[0]: row for row in assert_right(database)}
    assert len(both) == 2 * len(alone)
    assert all(both[row[0]][1] == 0 for row in alone)  # the whole space shows them
    drop_study(database, "whole")
    assert assert_right(database) == alone
    # of two parts the second in order shows what the other lacks
    run_study(database, study(tmp_path, "other", more="microbatch_size = 1"))
    parts = assert_right(database)
    with open_for_read(database) as connection:
        [(rows,)] = connection.execute("select sum(num_rows) from cell").fetchall()
    assert all(row[1] > 0 for row in parts)
    assert rows > sum(row[1] for row in parts)


@pytest.mark.long
def test_a_dropped_study_takes_its_own_along(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, "first", "[8]"))
    kept = counts_in(database)
    run_study(database, study(tmp_path, "second", "[8, 16]"))
    assert len(counts_in(database)) > len(kept)
    drop_study(database, "second")
    assert assert_right(database) == kept


@pytest.mark.long
def test_missing_or_wrong_rows_are_found_by_the_check_and_made_again_by_init(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, num_gpus="[8]"))
    with open_for_write(database) as connection:
        whole, numbers = stored(connection), counts(connection)
        [check] = [each for each in checks() if each.name == "leading_rows_lead"]
        changes = (
            f"delete from {LEADING_ROW} where rank_in_cell = 1",
            f"update {LEADING_ROW} set step_seconds = 1e-9",
            "update cell set num_layouts = 1",
        )
        for change in changes:
            connection.begin()
            connection.execute(change)
            assert len(connection.execute(check.sql).fetchall()) == len(numbers) > 0
            connection.rollback()
        connection.execute(";".join(changes))
        derived.rebuild(connection)  # `init --anew` calls it: tests/warehouse/test_init.py
        assert (stored(connection), counts(connection)) == (whole, numbers)
        assert connection.execute(check.sql).fetchall() == []
        # as if the order were another now, so that a cell comes into force
        connection.execute("update cell set sibling = null, sibling_record = null")
        prepare(connection, keeps_rows=True)
        assert (stored(connection), counts(connection)) == (whole, numbers)


@pytest.mark.long
def test_a_transaction_that_fails_leaves_none(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(database, study(tmp_path, "first", "[8]"))
    before = counts_in(database)

    def fail(connection: duckdb.DuckDBPyConnection, leading: LeadingRows | None = None) -> None:
        refresh(connection, leading)
        raise RuntimeError("the power went")

    refresh = derived.refresh
    with monkeypatch.context() as patched:
        patched.setattr(derived, "refresh", fail)
        with pytest.raises(RuntimeError):
            run_study(database, study(tmp_path, "second", "[16]"))
    assert assert_right(database) == before
    run_study(database, study(tmp_path, "second", "[16]"))
    assert len(counts_in(database)) > len(before)


KILLED = """
import os, sys
from pathlib import Path
from warehouse.sweep import runner
from warehouse.database import derived
from warehouse.studies.study import load_study

runner.COMMIT_ROWS = 1
refresh, calls = derived.refresh, [0]

def dying(connection, leading=None):
    refresh(connection, leading)
    calls[0] += 1
    if calls[0] == 2:
        os._exit(9)

derived.refresh = dying
runner.run_study(Path(sys.argv[1]), load_study(Path(sys.argv[2])))
"""


@pytest.mark.long
def test_a_killed_sweep_leaves_those_of_its_commits(database: Path, tmp_path: Path) -> None:
    asked = study(tmp_path)
    open_for_write(database).close()
    command = [sys.executable, "-c", KILLED, str(database), str(tmp_path / "whole.toml")]
    assert subprocess.run(command, check=False).returncode == 9
    with open_for_write(database) as connection:
        cells = connection.execute("select count(*) from cell").fetchall()
    assert len(assert_right(database)) == cells[0][0] == 1
    run_study(database, asked)
    assert len(assert_right(database)) > 1


def test_operations_and_budgets_have_no_best_layout_and_are_looked_at_once(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    warehouse_connection.execute(
        "insert into problem (problem_id) values (1); insert into cell (cell_id, problem_id,"
        " estimator, estimator_version, relation, mends, variant, kept, num_rows) values"
        " (1, 1, 'roofline', 1, 'roofline_operation', '', 'published', '{}', 3)"
    )
    assert derived.refresh(warehouse_connection) == 1
    assert derived.refresh(warehouse_connection) == 0
    assert counts(warehouse_connection) == [(1, 0, 0)]
    assert warehouse_connection.execute("from best_of_cell").fetchall() == []


@pytest.mark.long
def test_cells_of_several_estimators_are_found_in_one_go_and_compared(
    database: Path, tmp_path: Path
) -> None:
    product = "A100 SXM 80GB"
    run_study(database, study(tmp_path, num_gpus="[8]", accelerator=product))
    # the paper's A100 has another bandwidth: it is not asked the same
    run_study(database, study(tmp_path, "paper", "[8]", accelerator="A100"))
    other = study(tmp_path, "steps", "[8]", estimator="training_step", accelerator=product)
    run_study(database, other)
    assert_right(database)
    with open_for_write(database) as connection:
        several = connection.execute(
            "select distinct estimator from best_of_cell order by 1"
        ).fetchall()
        found = connection.execute(
            "select distinct estimator, other_estimator, variant, model, accelerator, num_gpus"
            " from estimator_disagreement"
        ).fetchall()
        pairs = connection.execute("select count(*) from problem_pair").fetchall()
        ratios = connection.execute(
            "select min(step_ratio), max(step_ratio), count(*) from estimator_disagreement"
        ).fetchall()
    assert several == [("roofline",), ("training_step",)]
    assert found == [("roofline", "training_step", "corrected", "gpt3_13B", "A100 SXM 80GB", 8)]
    assert pairs == [(1,)]
    [(low, high, count)] = ratios
    assert count > 10
    assert 0.2 < low < high < 5


@pytest.mark.parametrize("table", [t.name for t in kept_tables() if t.name != LEADING_ROW])
def test_a_kept_table_that_differs_from_its_view_fails_its_check(
    warehouse_connection: duckdb.DuckDBPyConnection, table: str
) -> None:
    [check] = [each for each in checks() if each.name == f"{table}_is_found"]
    assert warehouse_connection.execute(check.sql).fetchall() == []
    count = f"select count(*) from {table}"
    [(rows,)] = warehouse_connection.execute(count).fetchall()
    assert rows > 0
    warehouse_connection.execute(f"insert into {table} from {table} limit 1")
    [found] = warehouse_connection.execute(check.sql).fetchall()
    assert found[-1] is True  # the table has a row more
    warehouse_connection.execute(f"delete from {table}")
    found_alone = warehouse_connection.execute(check.sql).fetchall()
    assert [row[-1] for row in found_alone] == [False] * rows


def test_finding_leading_rows_leaves_the_optimizer_as_it_was(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, num_gpus="[8]"))
    setting = "select current_setting('disabled_optimizers')"
    with open_for_write(database) as connection:
        before = connection.execute(setting).fetchall()
        derived.rebuild(connection)
        assert connection.execute(setting).fetchall() == before
        connection.execute("set disabled_optimizers = 'cte_inlining'")
        derived.rebuild(connection)
        assert connection.execute(setting).fetchall() == [("cte_inlining",)]


def test_leading_rows_are_found_with_joins_in_the_order_of_the_views(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB counts rows of the same transaction as none, and would build a hash table of them."""
    settings: list[str] = []
    search = derived._search

    def watched(connection: duckdb.DuckDBPyConnection, *arguments: Any) -> Any:
        setting = connection.execute("select current_setting('disabled_optimizers')")
        settings.extend(text for (text,) in setting.fetchall())
        return search(connection, *arguments)

    run_study(database, study(tmp_path, num_gpus="[8]"))
    monkeypatch.setattr(derived, "_search", watched)
    with open_for_write(database) as connection:
        derived.rebuild(connection)
    [setting] = settings
    assert {"join_order", "build_side_probe_side"} <= set(setting.split(","))


WRONG = {
    "leading_row_is_found": (
        "update leading_row set rank_by_time = 3 - rank_by_time where rank_by_time < 3",
        "update leading_row set rank_in_strategy = null, rank_in_cell = 7",
        "update leading_row set is_on_front = not is_on_front",
    ),
    "leading_rows_are_stored": (
        "update leading_row set num_gpus = 2 * num_gpus where rank_by_time = 1",
        "update leading_row set cell_id = 77 where rank_by_time = 1",
    ),
    "rows_have_cells": ("update roofline set problem_id = problem_id + 1",),
}
"""Changes of a database, by the check that finds them."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.long
def test_checks_find_a_wrong_rank_a_wrong_copy_and_a_wrong_problem(
    quickstart: Quickstart, database: Path, name: str
) -> None:
    [check] = [each for each in checks() if each.name == name]
    shutil.copyfile(quickstart.database, database)
    with open_for_write(database) as connection:
        assert connection.execute(check.sql).fetchall() == []
        for change in WRONG[name]:
            connection.begin()
            connection.execute(change)
            assert connection.execute(check.sql).fetchall() != [], change
            connection.rollback()
