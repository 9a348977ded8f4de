"""The table of best layouts: as the views would find them, whatever was stored or removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators.registry import all_estimators
from warehouse.database import stored_best, stored_front
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.in_force import CELL_ORDER
from warehouse.database.leading import LeadingRows
from warehouse.database.schema import prepare
from warehouse.database.stored_best import SOURCE
from warehouse.database.views import checks
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
    return connection.execute("from stored_best order by cell_id").fetchall()


def shown(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    return connection.execute("from best_of_cell order by cell_id").fetchall()


def leading(connection: duckdb.DuckDBPyConnection) -> list[list[Any]]:
    """Return what the tables of leading rows hold, in order."""
    tables = connection.execute(
        "select table_name from duckdb_tables() where table_name like '%_leading' order by 1"
    ).fetchall()
    assert len(tables) >= 3
    return [connection.execute(f"from {name} order by all").fetchall() for (name,) in tables]


def all_leading() -> str:
    """Return the SQL that makes every row that views show a leading one."""
    kept = [r for each in all_estimators() for r in each.relations if r.keeps_leading]
    assert len(kept) >= 3
    return "".join(
        f"delete from {relation.leading_table};"
        f"insert into {relation.leading_table} by name"
        f" select {', '.join(('cell_id', *relation.stored))} from current_{relation.name};"
        for relation in kept
    )


def ranked(connection: duckdb.DuckDBPyConnection) -> list[list[Any]]:
    """Return the ranks and fronts that views show, in order."""
    queries = (
        "from configuration_rank where rank_by_time <= 10",
        "from configuration_rank where rank_by_time between 19 and 22",
        "from strategy_rank where rank_in_strategy = 1",
        "from problem_front",
    )
    return [connection.execute(f"{query} order by all").fetchall() for query in queries]


def stored_in(database: Path) -> list[Any]:
    """Return the table of a database, for tests that change it: `assert_right` takes longer."""
    with open_for_read(database) as connection:
        return stored(connection)


def forget_view(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Leave the database as a package would whose view of that name had another text."""
    for key in ("view_hashes", "made_from"):
        query = "select value from warehouse_meta where key = ?"
        [(text,)] = connection.execute(query, [key]).fetchall()
        hashes = json.loads(text)
        if name in hashes:
            connection.execute(
                "update warehouse_meta set value = ? where key = ?",
                [json.dumps({**hashes, name: "another"}), key],
            )
    connection.execute("update warehouse_meta set value = 'others' where key = 'views'")


def assert_right(database: Path, *, and_ranks: bool = False) -> list[Any]:
    """Check that the tables have all that there is, and that they are the same if made again.

    Views that rank take seconds: a test asks for them where they read cells of a new kind.
    """
    with open_for_write(database) as connection:
        table, view = stored(connection), shown(connection)
        rows, ranks = leading(connection), ranked(connection) if and_ranks else []
        assert connection.execute("from unstored_best").fetchall() == []
        cells = connection.execute("select cell_id from current_cell order by 1").fetchall()
        assert [row[0] for row in table] == [row[0] for row in cells]
        connection.begin()
        connection.execute("delete from stored_best")
        if and_ranks:  # the same among all rows
            connection.execute(all_leading())
            stored_front.rebuild(connection)
            assert ranked(connection) == ranks
            assert ranks[0] and ranks[-1]
        stored_best.refresh(connection)
        assert shown(connection) == view
        assert stored(connection) == table
        # searched now, not found in the evaluation
        assert leading(connection) == rows
        connection.rollback()
    return table


@pytest.mark.long
def test_a_sweep_stores_the_best_of_each_cell_and_a_forced_one_replaces_them(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path))
    before = stored_in(database)
    with open_for_read(database) as connection:
        expected = connection.execute(
            "select cell_id, min(step_seconds) from configuration where fits_memory"
            " group by cell_id order by cell_id"
        ).fetchall()
        found = connection.execute(
            "select cell_id, step_seconds from stored_best where num_fitting_layouts > 0 order by 1"
        ).fetchall()
    assert found == expected != []
    run_study(database, study(tmp_path), force=True)
    after = assert_right(database)
    assert [row[0] for row in after] == [row[0] for row in before]
    assert all(new[1] != old[1] for new, old in zip(after, before, strict=True))  # other times


@pytest.mark.long
def test_a_part_of_a_space_and_the_whole_count_no_layout_twice(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, "part", more="tensor_parallel = 8"))
    alone = stored_in(database)
    assert all(row[2] > 0 for row in alone)
    run_study(database, study(tmp_path))
    both = {row[0]: row for row in assert_right(database, and_ranks=True)}
    assert len(both) == 2 * len(alone)
    assert all(both[row[0]][2] == 0 for row in alone)  # the whole space shows them
    drop_study(database, "whole")
    assert [row[0::2] for row in assert_right(database)] == [row[0::2] for row in alone]
    # of two parts the second in order shows what the other lacks
    run_study(database, study(tmp_path, "other", more="microbatch_size = 1"))
    parts = assert_right(database, and_ranks=True)
    with open_for_read(database) as connection:
        [(rows,)] = connection.execute("select sum(num_rows) from cell").fetchall()
    assert all(row[2] > 0 for row in parts)
    assert rows > sum(row[2] for row in parts)


@pytest.mark.long
def test_a_dropped_study_takes_its_own_along(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, "first", "[8]"))
    kept = stored_in(database)
    run_study(database, study(tmp_path, "second", "[8, 16]"))
    assert len(stored_in(database)) > len(kept)
    drop_study(database, "second")
    assert assert_right(database) == kept


@pytest.mark.long
def test_missing_or_old_rows_are_found_by_the_check_and_made_again_by_init(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path))
    with open_for_write(database) as connection:
        whole = stored(connection)
        with_layouts = connection.execute("from best_of_cell where num_layouts > 0").fetchall()
        connection.execute(
            "delete from stored_best where cell_id = (select min(cell_id) from current_cell)"
        )
        connection.execute("update stored_best set sibling_record = 'old', step_seconds = 1e-9")
        [check] = [each for each in checks() if each.name == "stored_best_is_the_best"]
        assert len(connection.execute(check.sql).fetchall()) == len(with_layouts) > 0
        assert not prepare(connection)
        forget_view(connection, SOURCE)
        assert prepare(connection)
        assert stored(connection) == whole
        assert connection.execute(check.sql).fetchall() == []
        connection.execute("update stored_best set step_seconds = 1e-9")
        stored_best.rebuild(connection)
        assert stored(connection) == whole
        # as if the order were another now, so that a cell comes into force
        connection.execute("delete from stored_best")
        connection.execute("update cell set sibling = null, sibling_record = null")
        forget_view(connection, CELL_ORDER)
        assert prepare(connection)
        assert stored(connection) == whole


@pytest.mark.long
def test_a_transaction_that_fails_leaves_none(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(database, study(tmp_path, "first", "[8]"))
    before = stored_in(database)

    def fail(connection: duckdb.DuckDBPyConnection, leading: LeadingRows | None = None) -> None:
        refresh(connection, leading)
        raise RuntimeError("the power went")

    refresh = stored_best.refresh
    with monkeypatch.context() as patched:
        patched.setattr(stored_best, "refresh", fail)
        with pytest.raises(RuntimeError):
            run_study(database, study(tmp_path, "second", "[16]"))
    assert assert_right(database) == before
    run_study(database, study(tmp_path, "second", "[16]"))
    assert len(stored_in(database)) > len(before)


KILLED = """
import os, sys
from pathlib import Path
from warehouse.sweep import runner
from warehouse.database import stored_best
from warehouse.studies.study import load_study

runner.COMMIT_ROWS = 1
refresh, calls = stored_best.refresh, [0]

def dying(connection, leading=None):
    refresh(connection, leading)
    calls[0] += 1
    if calls[0] == 2:
        os._exit(9)

stored_best.refresh = dying
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
    assert stored_best.refresh(warehouse_connection) == 1
    assert stored_best.refresh(warehouse_connection) == 0
    assert shown(warehouse_connection) == []


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
    assert_right(database, and_ranks=True)
    with open_for_write(database) as connection:
        before = stored(connection)
        assert stored_best.rebuild(connection) == len(before)
        assert stored(connection) == before
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


def test_finding_the_best_leaves_the_optimizer_as_it_was(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, num_gpus="[8]"))
    setting = "select current_setting('disabled_optimizers')"
    with open_for_write(database) as connection:
        before = connection.execute(setting).fetchall()
        stored_best.rebuild(connection)
        assert connection.execute(setting).fetchall() == before
        connection.execute("set disabled_optimizers = 'cte_inlining'")
        stored_best.rebuild(connection)
        assert connection.execute(setting).fetchall() == [("cte_inlining",)]
