"""Files that a run of the tests makes once, and the types of the fixtures that tests call."""

from __future__ import annotations

import fcntl
import io
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pages
from tests.shells import in_shell
from warehouse.cli.main import run
from warehouse.database import snapshot
from warehouse.database.paths import CONFIG

Command = Callable[..., tuple[int, str, str]]
"""Calls a command with these arguments; returns exit code, stdout, stderr."""

Document = Callable[..., Any]
"""Calls a command that must succeed; returns the JSON it prints."""

Program = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs the program in its own process."""

Refusal = Callable[..., tuple[int, str]]
"""Calls a command that must fail; returns exit code and error."""


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


def call(*arguments: object) -> tuple[int, str, str]:
    """Call a command in this process, where no test captures its output."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


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


def arguments_of(command: str) -> list[str] | None:
    """Return the arguments of a line that only calls the program, None where it needs a shell."""
    if "$" in command:
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = list(lexer)
    if words[0] != "warehouse" or any(set(word) <= set("|&;<>()") for word in words):
        return None
    return words[1:]


def printed(command: str, place: Path, database: Path | None = None) -> str:
    """Return what a page shows of a command; the program itself runs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.delenv("WAREHOUSE_DB", raising=False)
        # pages are written with all threads: their figures depend on no number of them
        patch.setitem(CONFIG, "threads", 1)
        if database is not None:
            patch.setenv("WAREHOUSE_DB", str(database))
        arguments = arguments_of(command)
        done = in_shell(command, call) if arguments is None else call(*arguments)
    assert done[0] == 0, f"{command}\n{done[2]}"
    return pages.shown(*done[1:])


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
