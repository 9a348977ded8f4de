"""Fixtures of the command line's tests: the program as a process, and its commands called here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.planning import QUESTION
from tests.shared import (
    TINY_STUDY,
    Command,
    Document,
    Program,
    Quickstart,
    Refusal,
    Shared,
    call,
)
from warehouse.calibrate import run as calibration
from warehouse.cli.main import run
from warehouse.database.paths import CONFIG
from warehouse.plan import run as plan_run

PROGRAM = (sys.executable, "-m", "warehouse.cli.main")


HIDDEN = ("WAREHOUSE_DB", "PYTHONUNBUFFERED")
"""Variables that a user's shell does not have, and that would hide faults."""


@pytest.fixture(autouse=True)
def _no_database_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAREHOUSE_DB", raising=False)


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give DuckDB one thread where every table is one row group: a second one has nothing to do.

    It takes a tenth more CPU time all the same. Tests on the quickstart's rows, and programs that
    tests start, have all threads.
    """
    if "quickstart" not in request.fixturenames:
        monkeypatch.setitem(CONFIG, "threads", 1)


@pytest.fixture
def warehouse(capsys: pytest.CaptureFixture[str]) -> Command:
    """Call a command in this process; return exit code, stdout, stderr."""

    def warehouse(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return warehouse


@pytest.fixture(scope="session")
def program() -> Program:
    """Run the program as a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}

    def program(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"text": True, "timeout": 600, "env": environment, **options}
        if not {"stdout", "stderr"} & options.keys():
            options["capture_output"] = True
        return subprocess.run([*PROGRAM, *map(str, arguments)], check=False, **options)

    return program


@pytest.fixture
def swept(quickstart: Quickstart, tmp_path: Path) -> Path:
    """A copy of the quickstart's database, to be written to."""
    path = tmp_path / "swept.duckdb"
    shutil.copyfile(quickstart.database, path)
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The file of a study of two cells and a few hundred rows."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_STUDY, encoding="utf-8")
    return path


@pytest.fixture
def tiny_database(tiny_swept: Path, tmp_path: Path) -> Path:
    """A copy of that database, to be written to."""
    return Path(shutil.copyfile(tiny_swept, tmp_path / "tiny.duckdb"))


@pytest.fixture(scope="session")
def answers() -> dict[object, Any]:
    """Answers of plans, by question and database."""
    return {}


@pytest.fixture
def same_answers(answers: dict[object, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer a question about the same stored rows once; it may be printed in several formats.

    A file that was written to since has another time, and is asked again.
    """
    answered = plan_run.answer_plan

    def answer_plan(run: Any, sweep: Any, database: Path, top: int = 3, *more: Any) -> Any:
        def key() -> object:
            file = database.stat() if database.exists() else None
            asked = repr((run.request, run.terms, top))
            return asked, database, file and (file.st_size, file.st_mtime_ns)

        if (before := key()) not in answers:
            answers[before] = answer = answered(run, sweep, database, top, *more)
            answers[key()] = answer
        return answers[before]

    monkeypatch.setattr(plan_run, "answer_plan", answer_plan)


@pytest.fixture(scope="session")
def fits() -> dict[object, Any]:
    """Fits of `calibrate`, by what they are fitted to."""
    return {}


@pytest.fixture(scope="module")
def same_fits(fits: dict[object, Any]) -> Iterator[None]:
    """Fit the same constants to the same rows once; they may be printed, and stored, again."""
    fitted = calibration.run_calibration

    def run_calibration(reference: str, path: Path, **options: Any) -> Any:
        rows = path.read_bytes() if path.is_file() else b""
        asked = repr((reference, rows, sorted(options.items())))
        if asked not in fits:
            fits[asked] = fitted(reference, path, **options)
        return fits[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "run_calibration", run_calibration)
        yield


@pytest.fixture(scope="session")
def planned(shared: Shared, empty_warehouse: Path) -> tuple[Path, dict[str, Any], str]:
    """A database that has a plan for 8 GPUs, and the plan."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        code, out, err = call("plan", *QUESTION, "--gpus", 8, "--json", "--db", path)
        assert code == 0, err
        (place / "done.json").write_text(json.dumps([out, err]), encoding="utf-8")

    place = shared("planned", make)
    out, err = json.loads((place / "done.json").read_text(encoding="utf-8"))
    return place / "warehouse.duckdb", json.loads(out), err


@pytest.fixture
def planned_database(planned: tuple[Path, dict[str, Any], str], tmp_path: Path) -> Path:
    """A copy of that database, to be written to."""
    path = tmp_path / "copy.duckdb"
    shutil.copyfile(planned[0], path)
    return path


@pytest.fixture
def plan(warehouse: Command, planned_database: Path) -> Callable[..., tuple[Any, str]]:
    """Ask for a plan; return its document and what was said."""

    def plan(*options: object) -> tuple[Any, str]:
        code, out, err = warehouse("plan", *QUESTION, *options, "--json", "--db", planned_database)
        assert code == 0, err
        return json.loads(out), err

    return plan


@pytest.fixture
def refusal(warehouse: Command, planned_database: Path) -> Refusal:
    """Ask for a plan that there is none of; return exit code and error."""

    def refusal(*options: object) -> tuple[int, str]:
        code, out, err = warehouse("plan", *options, "--db", planned_database)
        assert (code != 0, out) == (True, "")
        return code, err.partition("error: ")[2]

    return refusal


@pytest.fixture
def why(warehouse: Command) -> Document:
    """Ask why a layout is not the best; return the document."""

    def why(*arguments: object) -> Any:
        code, out, err = warehouse("why", *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return why
