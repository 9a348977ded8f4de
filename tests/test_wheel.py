"""The wheel works where there is no clone: every command, one after the other in one process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.cli.commands import COMMANDS
from warehouse.database.source import package_hash

RUNS = """\
model,accelerator,num_gpus,global_batch_size,step_seconds
gpt3_1.3B,H100,8,64,2.0
gpt3_1.3B,H100,16,64,1.5
"""
LAYOUT = ("model=llama3_8B", "accelerator=H100", "num_gpus=8", "tensor_parallel=8")
OF_RUN = ("--model", "megatron_1.7B")
ON_GPUS = ("--tokens", "300G", "--accelerator", "A100", "--gpus", "8")

LINES: tuple[tuple[str, ...], ...] = (
    ("config",),
    ("init", "--db", "new.duckdb"),
    ("quickstart", "--small"),
    ("sweep", "megatron"),
    ("status",),
    ("rank", *OF_RUN, "--num-gpus", "32"),
    ("plan", *OF_RUN, *ON_GPUS, "--dry-run"),
    ("cost", *OF_RUN, "--tokens", "300G"),
    ("energy", *OF_RUN, "--tokens", "300G"),
    ("plot", "training_days", *OF_RUN, "--out", "days.svg"),
    ("report", *OF_RUN, *ON_GPUS, "--out", "plan.html"),
    ("show", "training_step", *LAYOUT),
    ("operations", "--model", "gpt3_1T", "--accelerator", "H200", "--num-gpus", "64"),
    ("explain", *LAYOUT),
    ("why", *LAYOUT),
    ("measure", "runs.csv"),
    ("evaluate", "training_step", "runs.csv", "--out", "results.csv"),
    ("calibrate", "runs.csv", "--fit", "host_seconds_per_launch", "--name", "tuned"),
    ("profiles",),
    ("sql", "select count(*) from cell"),
    ("schema", "configuration_rank"),
    ("export", "--facts", "facts"),
    ("import", "facts"),
    ("sweep", "roofline_published", "--lake", "lake", "--shard", "1/1"),
    ("collect", "lake"),
    ("drop", "roofline_published"),
    ("backup", "copy.duckdb"),
    ("compact",),
    ("repair",),
    ("validate",),
)

SCRIPT = """
import importlib, json, pkgutil, sys
from pathlib import Path
sys.path.remove("")  # the current directory may be the source tree
from warehouse.cli.main import run
from warehouse.database import resources

for directory in ("sql", "reference", "studies", "examples"):
    found = getattr(resources, f"{directory}_directory")()
    assert found.is_relative_to(sys.argv[1]), found
from warehouse.database.source import package_hash

codes = [run(line) for line in json.loads(sys.argv[2])]
Path("codes.json").write_text(json.dumps([package_hash(), codes]))
for package in map(importlib.import_module, ("estimators", "warehouse")):
    assert Path(package.__file__).is_relative_to(sys.argv[1]), package.__file__
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
assert not {"benchmarks", "docs", "tests"}.intersection(sys.modules)
"""


def test_each_command_is_tried() -> None:
    served = {"explore"}  # serves a page until ^C: tests/cli/test_explore.py
    assert {name for name, *_ in LINES} == {entry.name for entry in COMMANDS} - served


@pytest.mark.long
def test_every_command_of_the_wheel_runs_outside_of_the_clone(
    unpacked_wheel: Path, quickstart: Quickstart, tmp_path: Path
) -> None:
    own = tmp_path / "data" / "training-warehouse" / "warehouse.duckdb"
    own.parent.mkdir(parents=True)
    shutil.copyfile(quickstart.database, own)  # most of it is stored already
    (tmp_path / "runs.csv").write_text(RUNS)
    hidden = ("WAREHOUSE_DB", "WAREHOUSE_CATALOG", "COLUMNS")
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    environment |= {"PYTHONPATH": str(unpacked_wheel), "XDG_DATA_HOME": str(tmp_path / "data")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(unpacked_wheel), json.dumps(LINES)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, codes = json.loads((tmp_path / "codes.json").read_text("utf-8"))
    assert source == package_hash()  # one cache serves the clone and the wheel
    failed = [" ".join(line) for line, code in zip(LINES, codes, strict=True) if code]
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
