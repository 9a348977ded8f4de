"""A sweep stores each cell whole and once, resumes after any death, and can be undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from estimators.roofline.estimator import Roofline
from estimators.training_step.estimator import TRAINING_STEP
from estimators.training_step.tables import Latest
from tests.shared import digest
from warehouse.database import sink
from warehouse.database.connection import open_for_write
from warehouse.errors import DatabaseError, InputError
from warehouse.studies.study import Study, load_study, read_study
from warehouse.sweep import runner
from warehouse.sweep.cells import StudyCells, study_cells
from warehouse.sweep.progress import Progress, ProgressFile, progress_path, read_progress
from warehouse.sweep.record import drop_study
from warehouse.sweep.runner import run_study

STUDY = """
name = "{name}"
estimator = "roofline"
variant = "{variant}"
[space]
model = "gpt3"
accelerator = ["A100", "H200"]
nvlink_size = 8
num_gpus = {num_gpus}
global_batch_size = 512
"""


def study(
    directory: Path,
    name: str = "small",
    variant: str = "both",
    num_gpus: str = "[8, 16, 32, 64, 128, 256]",
) -> Study:
    path = directory / f"{name}.toml"
    path.write_text(STUDY.format(name=name, variant=variant, num_gpus=num_gpus))
    return load_study(path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the whole study, to read."""
    place = tmp_path_factory.mktemp("undisturbed")
    run_study(place / "warehouse.duckdb", study(place))
    return place / "warehouse.duckdb"


def rows(database: Path, table: str = "roofline") -> list[tuple[Any, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(f"select * from {table}").fetchall()


def records(database: Path) -> list[tuple[Any, ...]]:
    query = "select * exclude (evaluated_at, sibling_record) from cell order by cell_id"
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_a_sweep_stores_every_cell_with_its_record(database: Path, tmp_path: Path) -> None:
    report = run_study(database, study(tmp_path))
    assert report.cells == 24
    assert report.rows == len(rows(database)) == sum(r[8] for r in records(database))
    assert (report.cells_before, report.rows_before) == (0, 0)
    with open_for_write(database) as connection:
        wrong = connection.execute(
            "select cell_id from cell left join (select cell_id, count(*) as found from roofline"
            " group by cell_id) using (cell_id) where coalesce(found, 0) <> num_rows"
        ).fetchall()
        mends = connection.execute("select distinct variant, mends from cell order by 1").fetchall()
        problems = connection.execute("select count(*) from problem").fetchone()
    assert wrong == []
    assert mends == [("corrected", "R1,R2,R3,R4,R5,R6,R7,R8,R9,R10,R11"), ("published", "")]
    assert problems == (12,)


def test_the_same_study_twice_does_nothing(database: Path, tmp_path: Path) -> None:
    first = run_study(database, study(tmp_path))
    before, size = rows(database), database.stat().st_size
    again = run_study(database, study(tmp_path))
    assert (again.cells, again.rows) == (0, 0)
    assert (again.cells_before, again.rows_before) == (first.cells, first.rows)
    assert rows(database) == before
    assert database.stat().st_size == size


def test_planning_is_part_of_the_time_of_a_sweep(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def slow(*arguments: Any) -> StudyCells:
        nonlocal now
        now += 500
        return study_cells(*arguments)

    asked = study(tmp_path, num_gpus="[8]")
    monkeypatch.setattr(runner, "study_cells", slow)
    monkeypatch.setattr(runner, "time", SimpleNamespace(perf_counter=lambda: now))
    report = run_study(database, asked)
    assert report.seconds == 500
    assert report.rows_per_second == report.rows / 500


def test_a_study_shares_the_cells_of_another(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, "first", "published", "[8, 16]"))
    report = run_study(database, study(tmp_path, "second", "both", "[16, 32]"))
    assert (report.cells, report.cells_before) == (6, 2)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([3], [[3]]),
        ([4, 6, 9], [[4, 6, 9]]),
        ([4, 6, 9, 1, 9], [[4, 6], [9, 1, 9]]),
        ([10, 10, 9], [[10], [10, 9]]),
        ([1, 1, 1, 1, 1, 1], [[1, 1, 1, 1], [1, 1]]),
    ],
)
def test_a_group_has_enough_rows_unless_it_has_too_many_cells(
    sizes: list[int], groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "MOST_CELLS", 4)
    cells: Any = [(f"cell {number}", size) for number, size in enumerate(sizes)]
    found = list(sink.commit_groups(iter(cells), 10))
    assert [[size for _, size in group] for group in found] == groups
    assert [cell for group in found for cell in group] == cells


@pytest.mark.parametrize("fails", [False, True])
def test_an_estimator_keeps_no_figures_of_cells_after_a_sweep(
    database: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    kept: list[bool] = []
    estimator: Any = TRAINING_STEP

    def progress(*_counts: int) -> None:
        kept.append(estimator._latest._chunks is not None)
        if kept[-1] and fails:
            raise ArithmeticError

    monkeypatch.setattr(estimator, "_latest", Latest())
    space = {"model": "gpt3_125M", "accelerator": "H100 SXM 80GB", "global_batch_size": 2}
    table = {"name": "two", "estimator": "training_step", "space": {**space, "num_gpus": 2}}
    with pytest.raises(ArithmeticError) if fails else nullcontext():
        run_study(database, read_study(table, "two"), on_progress=progress)
    assert any(kept)
    assert estimator._latest._chunks is None


@pytest.mark.long
def test_commit_groups_do_not_change_what_is_stored(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path
) -> None:
    monkeypatch.setattr(runner, "COMMIT_ROWS", 2000)
    run_study(database, study(tmp_path))
    assert len(rows(database)) > 3 * 2000
    assert rows(database) == rows(undisturbed)
    assert records(database) == records(undisturbed)


KILLED = """
    import sys, time
    from pathlib import Path
    from estimators.roofline.estimator import Roofline
    from warehouse.sweep import progress
    from warehouse.sweep import runner
    from warehouse.studies.study import load_study

    progress.INTERVAL_SECONDS = 0
    runner.COMMIT_ROWS = 1000
    estimate, calls = Roofline.estimate, [0]

    def slow(*arguments):
        calls[0] += 1
        if calls[0] == 10:
            print("under way", flush=True)
            time.sleep(60)
        return estimate(*arguments)

    Roofline.estimate = slow
    runner.run_study(Path(sys.argv[1]), load_study(Path(sys.argv[2])))
"""


@pytest.fixture
def under_way(database: Path, tmp_path: Path) -> Any:
    """A process that is in the middle of a sweep and stays there."""
    asked = study(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(database), asked.file],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "under way\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.long
def test_a_killed_sweep_resumes_and_ends_as_if_undisturbed(
    database: Path, tmp_path: Path, under_way: subprocess.Popen[str], undisturbed: Path
) -> None:
    os.kill(under_way.pid, signal.SIGKILL)
    under_way.wait()
    assert read_progress(database) is None, "the progress of a dead process does not count"

    resumed = run_study(database, study(tmp_path))
    assert resumed.cells_before > 0
    assert resumed.cells > 0
    assert resumed.cells + resumed.cells_before == 24

    assert rows(database) == rows(undisturbed)
    assert records(database) == records(undisturbed)


@pytest.mark.long
def test_a_second_process_learns_who_has_the_database(
    database: Path, tmp_path: Path, under_way: subprocess.Popen[str]
) -> None:
    with pytest.raises(DatabaseError) as caught:
        run_study(database, study(tmp_path))
    assert caught.value.exit_code == 5
    assert f"process {under_way.pid}" in caught.value.message
    assert "\n" not in caught.value.message
    progress = read_progress(database)
    assert progress is not None
    assert progress["pid"] == under_way.pid
    assert 0 < progress["rows"] < progress["total_rows"]


@pytest.mark.long
def test_an_error_during_a_sweep_loses_the_group_and_is_raised_unchanged(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path
) -> None:
    estimate, calls = Roofline.estimate, []

    def fails(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 10:
            raise ArithmeticError("the tenth call fails")
        estimate(*arguments)

    monkeypatch.setattr(runner, "COMMIT_ROWS", 1000)
    with monkeypatch.context() as patch:
        patch.setattr(Roofline, "estimate", fails)
        with pytest.raises(ArithmeticError, match="the tenth call fails"):
            run_study(database, study(tmp_path))
    assert not progress_path(database).exists()
    kept = {record[0] for record in records(database)}
    assert kept
    assert {row[0] for row in rows(database)} <= kept

    run_study(database, study(tmp_path))
    assert rows(database) == rows(undisturbed)


def test_a_search_that_counts_wrongly_is_caught_before_it_is_stored(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = type(Roofline().search)
    count = search.count
    monkeypatch.setattr(search, "count", lambda self, cell: count(self, cell) + 1)
    with pytest.raises(RuntimeError, match="layouts, counted"):
        run_study(database, study(tmp_path))
    assert rows(database) == []
    assert records(database) == []


def test_force_replaces_stored_rows(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path))
    before = sorted(rows(database))
    with open_for_write(database) as connection:
        connection.execute("update roofline set step_seconds = -1 where tensor_parallel = 8")
    assert sorted(rows(database)) != before
    report = run_study(database, study(tmp_path), force=True)
    assert report.cells == 24
    assert report.cells_before == 0
    assert sorted(rows(database)) == before


def test_a_faulty_study_changes_nothing(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, "good", num_gpus="[8]"))
    before = digest(database)
    with pytest.raises(InputError, match=r"faulty\.toml: `num_gpus` 7919 leaves no layout"):
        run_study(database, study(tmp_path, "faulty", num_gpus="[7919]"))
    assert digest(database) == before


def test_a_refused_study_makes_no_database(tmp_path: Path) -> None:
    database = tmp_path / "new" / "warehouse.duckdb"
    with pytest.raises(InputError):
        run_study(database, study(tmp_path, "faulty", num_gpus="[7919]"))
    assert not database.parent.exists()


def test_a_variant_without_a_layout_does_not_stop_the_other(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "rack.toml"
    text = STUDY.format(name="rack", variant="both", num_gpus="[128]")
    path.write_text(text.replace("nvlink_size = 8", "nvlink_size = 72"))
    assert run_study(database, load_study(path)).cells == 2
    assert {record[6] for record in records(database)} == {"corrected"}


@pytest.mark.long
def test_a_choice_that_comes_later_leaves_stored_cells_alone(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(database, study(tmp_path, num_gpus="[8, 16]"))
    asked = "from (select * exclude (attention), attention from cell) order by cell_id"
    with duckdb.connect(str(database)) as connection:  # as an older package left it
        before = connection.execute(asked).fetchall()
        connection.execute("alter table cell drop column attention")
        connection.execute("update warehouse_meta set value = 'older' where key = 'stamp'")
    # views of an upgraded file are made in test_old_schemas: they take seconds
    monkeypatch.setattr("warehouse.database.schema.create_views", lambda *_: [])
    assert run_study(database, study(tmp_path, num_gpus="[8, 16]")).cells == 0
    with duckdb.connect(str(database)) as connection:
        assert connection.execute(asked).fetchall() == before


@pytest.mark.long
def test_dropping_a_study_keeps_what_others_ask_for(database: Path, tmp_path: Path) -> None:
    small = study(tmp_path, "small", num_gpus="[8, 16]")
    large = study(tmp_path, "large", num_gpus="{powers_of_two = [3, 13]}")
    run_study(database, small)
    before = sorted(rows(database))
    run_study(database, large)
    report = drop_study(database, "large")
    assert sorted(rows(database)) == before
    assert report.rows > 0
    assert report.free_bytes > 0
    assert run_study(database, small).cells == 0, "what is left is whole and usable"
    with open_for_write(database) as connection:
        assert connection.execute("select study from study").fetchall() == [("small",)]
        [views] = connection.execute(
            "select count(*) from duckdb_views() where not internal"
        ).fetchone() or (0,)
        assert views > 0
        assert connection.execute("select count(*) from configuration_rank").fetchone() is not None
    assert not list(database.parent.glob("*.partial*"))


def test_dropping_an_unknown_name_is_refused(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, num_gpus="[8]"))
    with pytest.raises(
        InputError, match=r"`study` \"other\" is not in .*\nhint: stored:\n    small"
    ):
        drop_study(database, "other")


@pytest.mark.long
def test_a_study_that_asks_otherwise_takes_the_place_of_its_name(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, num_gpus="[8]"))
    run_study(database, study(tmp_path, num_gpus="[8, 16]"))
    with open_for_write(database) as connection:
        [definition, cells] = connection.execute(
            "select definition, num_cells from study"
        ).fetchone() or ("", 0)
        asked = connection.execute("select count(*) from study_cell").fetchone()
    assert json.loads(definition)["spaces"][0]["num_gpus"] == [8, 16]
    assert (cells, asked) == (8, (8,))


def test_progress_is_reported_in_rows_and_cells_up_to_the_end(
    database: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, ...]] = []
    report = run_study(database, study(tmp_path), on_progress=lambda *now: seen.append(now))
    assert seen[0] == (0, report.rows, 0, 24)
    assert seen[-1] == (report.rows, report.rows, 24, 24)
    assert [now[0] for now in seen] == sorted(now[0] for now in seen)


def test_the_progress_file_lives_as_long_as_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "warehouse.duckdb"
    progress = Progress("one", total_rows=10, total_cells=2)
    seconds, started = [100.0], progress.started_at
    monkeypatch.setattr("warehouse.sweep.progress.time.monotonic", lambda: seconds[0])
    with ProgressFile(database, progress) as file:
        file.add_cells(1)
        seconds[0] += 16
        # the clock is set back by an hour meanwhile
        monkeypatch.setattr("warehouse.sweep.progress.time.time", lambda: started - 3600)
        file.add_rows(4)
        found = read_progress(database)
        assert found is not None
        assert (found["study"], found["rows"], found["cells"]) == ("one", 4, 1)
        assert found["rows_per_second"] == 4 / 16
    assert read_progress(database) is None


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"pid": -1}', '{"pid": "x"}'])
def test_a_damaged_progress_file_is_no_progress(content: str, tmp_path: Path) -> None:
    database = tmp_path / "warehouse.duckdb"
    progress_path(database).write_text(content)
    assert read_progress(database) is None


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_another_estimator_with_other_grains_is_swept_without_more_ado(
    database: Path, tmp_path: Path
) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(
        'name = "toy"\nestimator = "toy"\nvariant = "published"\n[space]\nmodel = "gpt3"\n'
        'accelerator = "A100"\nnum_gpus = [64, 128]\n'
    )
    report = run_study(database, load_study(path))
    parts, configurations = rows(database, "toy_part"), rows(database, "toy")
    assert report.rows == len(parts) + len(configurations)
    assert len(parts) == 2 * len(configurations) > 0
    with open_for_write(database) as connection:
        shown = connection.execute(
            "select count(*), count(step_seconds), any_value(model) from configuration"
            " where estimator = 'toy'"
        ).fetchone()
        ranked = connection.execute(
            "select max(rank_by_time) from configuration_rank where estimator = 'toy'"
        ).fetchone()
    assert shown == (len(configurations), len(configurations), "gpt3")
    assert ranked is not None
    assert ranked[0] >= 1
