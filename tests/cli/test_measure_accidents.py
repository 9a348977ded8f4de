"""`warehouse measure` killed, on a full disk, twice at once: nothing is ever half stored."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, Program, Shared, call
from warehouse.database.connection import open_for_write
from warehouse.database.facts import folder_of

pytestmark = pytest.mark.long

TEXT = (
    "run,model,accelerator,num_gpus,global_batch_size,tensor_parallel,step_seconds\n"
    "a,gpt3_1.3B,H100,8,64,{degree},{seconds}\nb,gpt3_1.3B,H100,16,64,{degree},{seconds}\n"
)

KILLED = """\
import os, signal, sys
from importlib import import_module
from warehouse.cli.main import run
module, name = sys.argv[1].rsplit(".", 1)
setattr(import_module(module), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
run(sys.argv[2:])
"""
"""The program, killed where it calls a function."""


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of two runs; return its path."""

    def file(degree: int = 2, seconds: float = 0.5) -> Path:
        path = tmp_path / f"runs_{degree}_{seconds}.csv"
        path.write_text(TEXT.format(degree=degree, seconds=seconds))
        return path

    return file


def contents(database: Path) -> dict[str, list[Any]]:
    """Return all that a measurement may change, each row as text."""
    tables = ("measurement", "study", "study_cell", "cell", "problem", "training_step")
    with duckdb.connect(str(database)) as connection:  # replays what a killed process left
        return {
            table: connection.execute(f"select t::varchar from {table} t order by 1").fetchall()
            for table in (
                *tables,
                "stored_problem",
                "leading_row",
            )
        }


@pytest.fixture(scope="module")
def measured(shared: Shared, empty_warehouse: Path) -> Path:
    """A database with two measured runs."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        (place / "runs.csv").write_text(TEXT.format(degree=2, seconds=0.5))
        code, _, err = call("measure", place / "runs.csv", "--name", "ours", "--db", path)
        assert code == 0, err

    return shared("measured", make) / "warehouse.duckdb"


@pytest.fixture
def before(measured: Path, database: Path) -> dict[str, list[Any]]:
    """Copy the measured runs to `database`; return what is stored then."""
    shutil.copyfile(measured, database)
    return contents(database)


@pytest.mark.parametrize(
    "place",
    [
        "warehouse.measure.store.registered",
        "warehouse.measure.compare._compared",
    ],
)
def test_a_killed_measure_leaves_all_or_nothing(
    before: dict[str, list[Any]],
    warehouse: Command,
    database: Path,
    file: Callable[..., Path],
    place: str,
) -> None:
    new = file(4, 0.7)
    arguments = ("measure", str(new), "--name", "ours", "--replace", "--db", str(database))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, place, *arguments], check=False, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    found = contents(database)
    if place == "warehouse.measure.compare._compared":  # it is stored, and about to be shown
        assert all("'measured_step_seconds': 0.7," in row[0] for row in found["measurement"])
        assert [len(found[name]) for name in ("measurement", "study_cell", "cell")] == [2, 2, 4]
    else:
        assert found == before
    if place == "warehouse.measure.store.registered":  # rows were written, and not committed
        code, _, err = warehouse(*arguments)
        assert code == 0, err
        assert len(contents(database)["measurement"]) == 2


@pytest.mark.parametrize("size", [0, 65536])
def test_a_disk_that_is_full_before_the_commit_stores_nothing_with_a_message(
    before: dict[str, list[Any]],
    program: Program,
    warehouse: Command,
    database: Path,
    file: Callable[..., Path],
    size: int,
) -> None:
    resource = pytest.importorskip("resource")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    arguments = ("measure", file(4, 0.7), "--name", "ours", "--replace", "--db", database)
    done = program(*arguments, preexec_fn=limit)
    found = contents(database)
    if size > 4096 and done.returncode == 0:  # the commit, of a few kilobytes, had room
        assert all("'measured_step_seconds': 0.7," in row[0] for row in found["measurement"])
        assert len(found["training_step"]) == 4
        return
    assert done.returncode == 5, done.stderr
    full = (f"error: {path}: there is no space left" for path in (database, folder_of(database)))
    assert any(said in done.stderr for said in full)
    assert found == before
    assert warehouse(*arguments)[0] == 0


def test_of_two_at_once_each_is_stored_whole_or_refused(
    database: Path, file: Callable[..., Path]
) -> None:
    open_for_write(database).close()
    environment = {name: value for name, value in os.environ.items() if name != "WAREHOUSE_DB"}
    asked = {"first": file(2), "second": file(4, 0.7)}
    running = {
        name: subprocess.Popen(
            [
                *(sys.executable, "-m", "warehouse.cli.main", "measure", str(path)),
                *("--name", name, "--wait", "300", "--db", str(database)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name, path in asked.items()
    }
    ended = {name: (process.communicate(timeout=600), process) for name, process in running.items()}
    for (_, err), process in ended.values():
        assert process.returncode == 0, err
    stored = list(asked)
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select reference, count(*) from measurement_comparison group by 1 order by 1"
        assert connection.execute(query).fetchall() == [(name, 2) for name in stored]
        query = "select study from study order by 1"
        assert connection.execute(query).fetchall() == [(f"measure {name}",) for name in stored]
