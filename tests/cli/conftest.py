"""Fixtures of the command line's tests: the program as a process, and its commands called here."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.planning import QUESTION
from warehouse.cli.main import run

PROGRAM = (sys.executable, "-m", "warehouse.cli.main")


HIDDEN = ("WAREHOUSE_DB", "PYTHONUNBUFFERED")
"""Variables that a user's shell does not have, and that would hide faults."""


@pytest.fixture(autouse=True)
def _no_database_from_outside(monkeypatch):
    monkeypatch.delenv("WAREHOUSE_DB", raising=False)


@pytest.fixture
def warehouse(capsys):
    """Call a command in this process; return exit code, stdout, stderr."""

    def warehouse(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return warehouse


@pytest.fixture(scope="session")
def program():
    """Run the program as a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}

    def program(*arguments, **options):
        options = {"text": True, "timeout": 120, "env": environment, **options}
        if not {"stdout", "stderr"} & options.keys():
            options["capture_output"] = True
        return subprocess.run([*PROGRAM, *map(str, arguments)], check=False, **options)

    return program


@dataclass(frozen=True)
class Quickstart:
    """What one run of `warehouse quickstart --small` left: never written to afterwards."""

    database: Path
    exit_code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory, program):
    """One run of the small quickstart, shared by all tests that only read."""
    path = tmp_path_factory.mktemp("quickstart") / "warehouse.duckdb"
    done = program("quickstart", "--small", "--db", path)
    return Quickstart(path, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def swept(quickstart, tmp_path):
    """A copy of the quickstart's database, to be written to."""
    path = tmp_path / "swept.duckdb"
    shutil.copyfile(quickstart.database, path)
    return path


TINY_STUDY = """\
name = "tiny"
estimator = "roofline"
variant = "corrected"

[space]
model = "gpt3"
strategy = "tensor_1d"
accelerator = "H200"
nvlink_size = 8
num_gpus = {powers_of_two = [5, 6]}
global_batch_size = 64
"""


@pytest.fixture
def tiny(tmp_path):
    """The file of a study of two cells and a few hundred rows."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_STUDY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def planned(tmp_path_factory, program):
    """A database that has a plan for 8 GPUs, and the plan."""
    path = tmp_path_factory.mktemp("plan") / "warehouse.duckdb"
    done = program("plan", *QUESTION, "--gpus", 8, "--json", "--db", path)
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout), done.stderr


@pytest.fixture
def planned_database(planned, tmp_path):
    """A copy of that database, to be written to."""
    path = tmp_path / "copy.duckdb"
    shutil.copyfile(planned[0], path)
    return path


@pytest.fixture
def plan(warehouse, planned_database):
    """Ask for a plan; return its document and what was said."""

    def plan(*options):
        code, out, err = warehouse("plan", *QUESTION, *options, "--json", "--db", planned_database)
        assert code == 0, err
        return json.loads(out), err

    return plan


@pytest.fixture
def refusal(warehouse, planned_database):
    """Ask for a plan that there is none of; return exit code and error."""

    def refusal(*options):
        code, out, err = warehouse("plan", *options, "--db", planned_database)
        assert (code != 0, out) == (True, "")
        return code, err.partition("error: ")[2]

    return refusal
