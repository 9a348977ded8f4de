"""The wheel works where there is no clone: the example of every command, in one process."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from estimators.columns.columns import FILE
from tests.shared import Quickstart
from warehouse.cli.commands import COMMANDS
from warehouse.database.stamp import package_hash

STEPS = """\
model,accelerator,num_gpus,global_batch_size,step_seconds
gpt3_1.3B,H100,8,64,2.0
gpt3_1.3B,H100,16,64,1.5
"""

EXAMPLES = {entry.name: entry.example for entry in COMMANDS}
SHORTER = {
    "init": "warehouse init --db new.duckdb",
    "quickstart": "warehouse quickstart --small",  # tests/test_readme.py runs the example
    # tests/cli/test_calibrate.py runs the example
    "calibrate": "warehouse calibrate steps.csv --fit host_seconds_per_launch --name tuned",
    "rebuild": "warehouse rebuild --db new.duckdb",  # tests/warehouse/test_rebuild.py fills one
    "validate": "warehouse validate --db new.duckdb",  # tests/cli/test_validate.py runs it
    "repair": "warehouse repair --db new.duckdb",  # another name of `rebuild`
    "explore": "",  # serves a page until ^C: tests/cli/test_explore.py
    "serve": "",  # serves an agent until it ends: tests/cli/test_serve.py
}
LAST = ("drop", "export", "compact", "repair", "validate")
"""After these the studies of the quickstart are no longer stored."""

SCRIPT = """
import contextlib, importlib, json, pkgutil, sys
from pathlib import Path
sys.path.remove("")  # the current directory may be the source tree
from warehouse.cli.main import run
from warehouse.database import resources

for directory in ("sql", "reference", "studies", "examples"):
    found = getattr(resources, f"{directory}_directory")()
    assert found.is_relative_to(sys.argv[1]), found
from warehouse.calibrate import published
from warehouse.database.stamp import package_hash

codes, evaluate = [], published.evaluate_intervals
for name, arguments, out in json.loads(sys.argv[2]):
    if name == "quickstart":  # a second one evaluates nothing
        del published.evaluate_intervals
    with contextlib.ExitStack() as stack:
        if out:
            file = stack.enter_context(open(out, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(file))
        codes.append(run(arguments))
    published.evaluate_intervals = evaluate
Path("codes.json").write_text(json.dumps([package_hash(), codes]))
for package in map(importlib.import_module, ("estimators", "warehouse")):
    assert Path(package.__file__).is_relative_to(sys.argv[1]), package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
assert not {"benchmarks", "docs", "tests"}.intersection(sys.modules)
"""


def lines() -> list[tuple[str, list[str], str]]:
    """Return the name of each command, its arguments and the file that its output goes to."""
    names = [*(name for name in EXAMPLES if name not in LAST), *LAST]
    found = []
    for name in names:
        for line in (EXAMPLES | SHORTER)[name].splitlines():
            command, _, out = line.partition(" > ")
            if command.startswith("warehouse "):
                found.append((name, shlex.split(command)[1:], out))
    return found


def test_the_wheel_has_the_data_dictionary(unpacked_wheel: Path) -> None:
    packed = unpacked_wheel / "estimators" / "columns" / FILE.name
    assert packed.read_bytes() == FILE.read_bytes()


def test_the_program_has_the_names_of_package_and_distribution(unpacked_wheel: Path) -> None:
    [file] = unpacked_wheel.glob("training_warehouse-*.dist-info/entry_points.txt")
    scripts = re.findall(r"^(.+) = (.+)$", file.read_text("utf-8"), re.MULTILINE)
    assert dict(scripts) == dict.fromkeys(
        ("training-warehouse", "warehouse"), "warehouse.cli.main:main"
    )


@pytest.mark.long
def test_the_first_command_in_an_empty_folder_answers_and_says_once_where_its_database_is(
    unpacked_wheel: Path, tmp_path: Path
) -> None:
    home, empty = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    empty.mkdir()
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(unpacked_wheel)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    question = ("--model", "gpt3_1.3B", "--tokens", "1G", "--accelerator", "H100", "--gpus", "8")

    def plan(**changed: str) -> tuple[float, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "warehouse", "plan", *question, "--json"],
            cwd=empty,
            env={**environment, **changed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["training_seconds"], done.stderr

    database = home / ".local" / "share" / "training-warehouse" / "warehouse.duckdb"
    said = f"{database}: the new database; --db or WAREHOUSE_DB names another place\n"
    (first, err), (second, again) = plan(), plan()
    assert first == second > 0
    assert err.count(said) == 1
    assert "the new database" not in again
    assert database.is_file()
    assert [*empty.iterdir()] == []
    # without a home that can be written, the database is below the working directory
    (seconds, err) = plan(HOME="/dev/null")
    assert seconds == first
    assert f"{empty / 'db' / 'warehouse.duckdb'}: the new database" in err


def test_each_command_is_tried() -> None:
    assert {name for name, _, _ in lines()} == set(EXAMPLES) - {"explore", "serve"}


@pytest.mark.long
def test_the_example_of_every_command_runs_from_the_wheel_outside_of_the_clone(
    unpacked_wheel: Path, quickstart: Quickstart, tmp_path: Path
) -> None:
    own = tmp_path / "data" / "training-warehouse" / "warehouse.duckdb"
    own.parent.mkdir(parents=True)
    shutil.copyfile(quickstart.database, own)  # most of it is stored already
    (tmp_path / "steps.csv").write_text(STEPS)
    [write_runs] = [line for line in EXAMPLES["measure"].splitlines() if line[:6] == "printf"]
    subprocess.run(write_runs, shell=True, check=True, cwd=tmp_path)
    hidden = ("WAREHOUSE_DB", "WAREHOUSE_CATALOG", "COLUMNS")
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    environment |= {"PYTHONPATH": str(unpacked_wheel), "XDG_DATA_HOME": str(tmp_path / "data")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # test_project.py compares what was unpacked
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(unpacked_wheel), json.dumps(lines())],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, codes = json.loads((tmp_path / "codes.json").read_text("utf-8"))
    assert source == package_hash()  # one cache serves the clone and the wheel
    failed = [" ".join(line[1]) for line, code in zip(lines(), codes, strict=True) if code]
    assert not failed, done.stderr
    # an installed package has one database for the user, wherever a command is run
    assert f"{own} is up to date" in done.stderr
    assert not (tmp_path / "db").exists()
    # a second quickstart evaluates nothing, and shows the same; the file may grow
    assert done.stderr.count("nothing to do") >= 6
    first, shown = (re.sub(r"\(\d+ MB\)", "", text) for text in (quickstart.out, done.stdout))
    assert (
        first.replace(f" --db {quickstart.database}", "").replace(
            str(quickstart.database), str(own)
        )
        in shown
    )
    with duckdb.connect(tmp_path / "new.duckdb", read_only=True) as connection:
        assert connection.execute("select count(*) from configuration").fetchall() == [(0,)]
