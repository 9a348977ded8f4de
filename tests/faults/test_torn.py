"""The library that stops a command at each of its writes; `make faults` judges what is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.test_campaign import ROOT
from tests.faults.torn import PAGE

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not (shutil.which("cc") or shutil.which("gcc")),
    reason="torn writes need a C compiler and Linux",
)

SCRIPT = """
import os, sys
from pathlib import Path
from tests.faults.torn import KILL, Recorder, watched

folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
for name in ("files", "blocks"):
    (folder / name).mkdir()
recorder = Recorder(folder / "files", folder / "blocks")

def work():
    file = os.open(folder / "files" / "some.duckdb", os.O_RDWR | os.O_CREAT)
    for value in (1, 2):
        os.pwrite(file, bytes([value]) * 20_000, 0)

def at(moment):
    num_bytes = recorder.at(moment)
    is_reached = recorder.faults[-1].number == 2 and moment.done == wanted
    return KILL if is_reached else num_bytes

ended = watched(work, folder / "files", at)
content = (folder / "files" / "some.duckdb").read_bytes()
print(ended.signal, content.count(2), recorder.keep() == recorder.faults[-1].kept)
"""
"""Writes a file twice. It is killed when the second write has a given number of bytes."""


def python(script: str, *arguments: object, **variables: str) -> list[str]:
    """Run a script; return the words that it prints."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


@pytest.mark.parametrize(
    "num_bytes",
    [pytest.param(0, marks=pytest.mark.long), PAGE, pytest.param(20_000, marks=pytest.mark.long)],
)
def test_a_kill_leaves_the_files_that_are_judged(tmp_path: Path, num_bytes: int) -> None:
    script = "from tests.faults.torn import library; print(library())"
    [library] = python(script, TORN_FOLDER=str(tmp_path))
    said = python(SCRIPT, tmp_path, num_bytes, LD_PRELOAD=library)
    assert said == ["9", str(num_bytes), "True"]
