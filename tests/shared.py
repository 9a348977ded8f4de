"""Files that a run of the tests makes once, and the types of the fixtures that tests call."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from docs.build import console
from warehouse.database import snapshot
from warehouse.database.paths import CONFIG

call = console.call

Command = Callable[..., tuple[int, str, str]]
"""Calls a command with these arguments; returns exit code, stdout, stderr."""

Document = Callable[..., Any]
"""Calls a command that must succeed; returns the JSON it prints."""

Program = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs the program in its own process."""

Refusal = Callable[..., tuple[int, str]]
"""Calls a command that must fail; returns exit code and error."""


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


def digest(path: Path) -> str:
    """Return a digest of a file: pytest takes an hour to show how two long contents differ."""
    return sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Quickstart:
    """The result of one run of `warehouse quickstart --small`, which no test changes."""

    database: Path
    exit_code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shared:
    """A directory for files that several tests read, in any worker."""

    directory: Path

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the directory `name`; the first worker that asks fills it with `make`."""
        place, complete = self.directory / name, self.directory / f"{name}.complete"
        with (self.directory / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                make(place)
                complete.touch()
        return place

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Keep other workers out of `name`: nobody can read a database while it is written."""
        with (self.directory / f"{name}.use").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def held(database: Path) -> Iterator[int]:
    """Have another process hold a database open for writing; yield its number."""
    program = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('ready', flush=True); "
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        yield holder.pid
    finally:
        holder.communicate("")


@contextmanager
def held_and_published(database: Path) -> Iterator[int]:
    """As `held`, with a snapshot of what the database has, which this process publishes."""
    copy = Path(shutil.copyfile(database, snapshot.snapshot_path(database)))
    with copy.open("rb") as file, held(database) as pid:
        snapshot._lock(file)
        yield pid
    copy.unlink()


def build_wheel(source: Path, place: Path) -> Path:
    """Return a directory with the files that the wheel of `source` installs."""
    build = "import sys, hatchling.build as build; build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, place], cwd=source, check=True)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")
    return place / "installed"


def printed(command: str, place: Path, database: Path | None = None) -> str:
    """Return what a page shows of a command; DuckDB has one thread, as in all tests."""
    with pytest.MonkeyPatch.context() as patch:
        # pages are written with all threads: their figures depend on no number of them
        patch.setitem(CONFIG, "threads", 1)
        return console.printed(command, place, database)


def run_program(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the program in its own process, in a folder where nothing names a database."""
    environment = {name: value for name, value in os.environ.items() if name != "WAREHOUSE_DB"}
    return subprocess.run(
        [sys.executable, "-m", "warehouse.cli.main", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
