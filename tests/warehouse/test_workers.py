"""Worker processes: what one process would store, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.leading import LeadingRows
from warehouse.database.record_batches import BATCH_ROWS, record_batches, searched
from warehouse.database.resources import studies_directory
from warehouse.errors import InputError, WarehouseError
from warehouse.studies.study import Study, load_study
from warehouse.sweep import machine, workers
from warehouse.sweep.cells import counted_cells
from warehouse.sweep.progress import progress_path, read_progress
from warehouse.sweep.runner import run_study
from warehouse.sweep.workers import Part, Workers

STUDY = """
name = "small"
estimator = "{estimator}"
variant = "{variant}"
[space]
model = "{model}"
accelerator = ["A100", "H200"]
num_gpus = {num_gpus}
global_batch_size = 512
"""

OF_A_SWEEP = ("cell", "problem", "roofline", "leading_row", "study_cell")


def study(directory: Path, estimator: str = "roofline", **changes: str) -> Study:
    path = directory / "small.toml"
    values = {"variant": "both", "model": "gpt3", "num_gpus": "[8, 16, 32, 64, 128]", **changes}
    path.write_text(STUDY.format(estimator=estimator, **values))
    return load_study(path)


def stored(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of the tables that a sweep fills, without the times of evaluation.

    Rows of cells are in the order of the file. Leading rows have none: a search finds them later.
    """
    later = "columns(lambda c: c not in ('evaluated_at', 'sibling_record'))"
    with duckdb.connect(str(database), read_only=True) as connection:
        found = {t: connection.execute(f"select {later} from {t}").fetchall() for t in OF_A_SWEEP}
    return {
        name: rows if name == "roofline" else sorted(rows, key=repr) for name, rows in found.items()
    }


class Started(subprocess.Popen[Any]):
    """Processes that were started, in order."""

    all: list[Started]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.all.append(self)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    monkeypatch.setattr(Started, "all", [], raising=False)
    monkeypatch.setattr("warehouse.sweep.workers.subprocess.Popen", Started)
    return Started.all


@pytest.mark.long
def test_workers_store_what_one_process_does(
    database: Path, tmp_path: Path, started: list[Started]
) -> None:
    seen: list[int] = []
    report = run_study(
        database, study(tmp_path), workers=3, on_progress=lambda rows, *_: seen.append(rows)
    )
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 3
    assert seen == sorted(seen)
    assert seen[-1] == report.rows > 0
    alone = tmp_path / "alone.duckdb"
    run_study(alone, study(tmp_path), workers=1)
    assert len(started) == 3
    assert stored(database) == stored(alone)


@pytest.mark.long
def test_batches_of_large_cells_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.sweep.workers._PART_ROWS", 70_000)
    asked = study(
        tmp_path, "training_step", variant="corrected", model="mixtral_8x7B", num_gpus="16384"
    )
    cells_of_study = counted_cells(asked, packaged_catalog())
    relation = cells_of_study.estimator.relations[0]
    group = cells_of_study.counted[:3]
    cells = [cell for cell, _ in group]
    assert min(size for _, size in group) > BATCH_ROWS, "cells that several workers share"
    leading, expected_leading = LeadingRows(relation), LeadingRows(relation)
    rows = 0

    def add(number: int) -> None:
        nonlocal rows
        rows += number

    expected = record_batches(
        relation,
        searched(cells_of_study.estimator, relation, cells, cells_of_study.catalog),
        lambda _rows: None,
        expected_leading,
    )
    with Workers(cells_of_study.estimator, cells_of_study.catalog, relation, 2) as evaluating:
        [(_, batches)] = evaluating.evaluated(iter([group]), add)
        kept = []
        for batch, other in zip(batches(leading), expected, strict=True):
            assert batch.equals(other)
            kept.append(batch)
    assert rows == sum(size for _, size in group) == sum(batch.num_rows for batch in kept)
    assert leading.counts == expected_leading.counts
    found, other_found = leading.columns(), expected_leading.columns()
    assert found.keys() == other_found.keys()
    for name, column in found.items():
        np.testing.assert_array_equal(column, other_found[name])


class StartedAndKilled(Started):
    """The first process dies at once."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if len(self.all) == 1:
            self.kill()


@pytest.mark.long
def test_a_killed_worker_is_named_and_nothing_half_is_stored(
    database: Path, tmp_path: Path, started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.sweep.workers.subprocess.Popen", StartedAndKilled)
    with pytest.raises(WarehouseError) as caught:
        run_study(database, study(tmp_path), workers=2)
    assert f"worker process {started[0].pid} ended with signal SIGKILL" in caught.value.message
    assert "--workers" in caught.value.hint
    assert all(process.returncode is not None for process in started)
    assert not progress_path(database).exists()
    assert stored(database)["cell"] == stored(database)["roofline"] == []

    alone = tmp_path / "alone.duckdb"
    for path in (database, alone):
        run_study(path, study(tmp_path), workers=1)
    assert stored(database) == stored(alone)


def children(process: int) -> list[int]:
    return [
        int(number)
        for task in Path(f"/proc/{process}/task").iterdir()
        for number in (task / "children").read_text().split()
    ]


def is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def waited_for(condition: Any) -> Any:
    """Return what a condition returns once it holds; a broken program never gets there."""
    for _ in range(1200):
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_worker_outlives_an_interrupted_sweep(
    database: Path, end: signal.Signals, code: int
) -> None:
    program = "import sys; from warehouse.cli.main import run; sys.exit(run())"
    options = ("sweep", "paper_grid", "--workers", "2", "--db", str(database))
    with subprocess.Popen(
        [sys.executable, "-c", program, *options], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            waited_for(lambda: (read_progress(database) or {"rows": 0})["rows"] > 0)
            workers = children(process.pid)
            assert len(workers) == 2
            process.send_signal(end)
            said = process.communicate()[1]
        finally:
            process.kill()
    assert process.returncode == code
    assert ("the same command resumes" in said) == (end is signal.SIGINT)
    waited_for(lambda: not any(map(is_alive, workers)))
    with duckdb.connect(str(database)) as connection:
        halves = connection.execute(
            "select cell_id from roofline anti join cell using (cell_id)"
        ).fetchall()
    assert halves == []


def test_an_error_of_an_evaluation_comes_back_as_it_is() -> None:
    estimator = get("roofline")
    asked = counted_cells(load_study(studies_directory() / "gpt3_1T_1d.toml"), packaged_catalog())
    cell = asked.counted[0][0]
    relation = estimator.relations[0]
    parts = (Part(cell, 0, sys.maxsize),)

    class Fails:
        relations = estimator.relations
        search = estimator.search
        error: Exception = InputError("it fails", "do something else")

        def estimate(self, *_: Any) -> None:
            raise self.error

    failing: Any = Fails()
    answer = workers.answer(failing, relation, asked.catalog, parts)
    assert isinstance(answer, InputError)
    assert (answer.message, answer.hint) == ("it fails", "do something else")
    assert "Traceback" in answer.__notes__[0]

    class OfNoModuleError(Exception):
        pass

    Fails.error = OfNoModuleError("it cannot be sent")
    answer = workers.answer(failing, relation, asked.catalog, parts)
    assert isinstance(answer, RuntimeError)
    assert "OfNoModuleError: it cannot be sent" in str(answer)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 16),
        ({"": "max 100000"}, 16),
        ({"": "800000 100000"}, 8),
        ({"": "800000 100000", "a/b": "250000 100000"}, 2),
        ({"a": "50000 100000"}, 1),
    ],
)
def test_cores_are_those_of_affinity_and_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, str], expected: int
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for group, limit in limits.items():
        (tmp_path / group / "cpu.max").write_text(limit + "\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "_OWN_CGROUP", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(16)))
    assert machine.usable_cores() == expected


@pytest.mark.parametrize(
    ("usable", "rows", "expected"),
    [(1, 10**8, 1), (2, 10**8, 1), (4, 10**8, 2), (16, 10**8, 10), (16, 3_500_000, 3), (16, 10, 1)],
)
def test_workers_follow_cores_and_rows(
    monkeypatch: pytest.MonkeyPatch, usable: int, rows: int, expected: int
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: usable)
    assert machine.default_workers(rows) == expected
