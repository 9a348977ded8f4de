"""Pages whose console blocks are real: read, run, compared, and written anew.

``python -m benchmarks.pages README.md docs/planning.md`` runs the commands of the pages, each page
in an empty directory of its own, and puts in what they print. The tour starts from the
quickstart, as its reader does, and the pages of `SMALL` from the small one. An output that differs
in timings only stays as it is. Blocks of Python that begin with ``>>>`` are sessions, and are run
too.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

SESSION = re.compile(r"```python\n(>>> .*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
TIMING = re.compile(r"in [\d.,]+ s \([\d,]+ rows/s\)")
SIZE = re.compile(r"holds [\d,]+ configurations \([\d,]+ MB\)")
ESTIMATE = re.compile(r"about [\d.,]+ \w+ and [\d.,]+ [MG]B")
SMALL = ("python.md", "sql-clients.md")
"""Pages whose reader has the database of the small quickstart."""
HIDDEN = ("WAREHOUSE_DB", "PYTHONPATH")
"""Variables that a user's shell does not have, and that would hide faults."""

Run = Callable[[str, Path, "Path | None"], str]
"""Runs a command in a directory, with a database if one is named, and returns what it shows."""


class Command(NamedTuple):
    """A command of a console block, and what the page says that it prints."""

    text: str
    printed: str


def blocks(page: str, language: str) -> list[str]:
    """Return the contents of a page's blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands(block: str) -> Iterator[Command]:
    """Yield a console block's commands; one goes on until its quotes are closed."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        for number in range(1, len(lines) + 1):
            text = "\n".join(lines[:number])
            try:
                shlex.split(text)
            except ValueError:
                continue
            yield Command(text, "\n".join(lines[number:]))
            break


def write_files(page: str, place: Path) -> None:
    """Write the studies and tables of a page: blocks whose first line is the name of a file.

    That line is a comment of a study, and no part of a table.
    """
    for language in ("toml", "csv"):
        for block in blocks(page, language):
            name, _, content = block.partition("\n")
            (place / name.removeprefix("# ")).write_text(block if language == "toml" else content)


def printed(command: str, place: Path, database: Path | None = None) -> str:
    """Return what a command prints; where that is nothing, what it says.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = f"{scripts}{os.pathsep}{environment['PATH']}"
    if database is not None:
        environment["WAREHOUSE_DB"] = str(database)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stderr}")
    return shown(done.stdout, done.stderr)


def shown(out: str, err: str) -> str:
    """Return what a page shows of a command: its output, or what it says where that is nothing."""
    return "".join(f"{line.rstrip()}\n" for line in (out or err).splitlines())


def comparable(text: str) -> list[str]:
    """Return the lines of an output without timings, sizes, estimates of both and empty lines."""
    lines = [TIMING.sub("in # s (# rows/s)", line).rstrip() for line in text.splitlines()]
    lines = [SIZE.sub("holds # configurations (# MB)", line) for line in lines if line]
    return [ESTIMATE.sub("about # s and # MB", line) for line in lines]


def filled(page: str, place: Path, database: Path | None = None, run: Run = printed) -> str:
    """Return a page with what its commands print; an output that is alike stays as it is."""

    def block(found: re.Match[str]) -> str:
        blocks = []
        for command in commands(found[1]):
            now = run(command.text, place, database)
            is_same = comparable(now) == comparable(command.printed)
            output = f"{command.printed.rstrip()}\n" if is_same and command.printed else now
            blocks.append(f"$ {command.text}\n{output}")
        return f"```console\n{''.join(blocks)}```"

    return CONSOLE.sub(block, page)


def shown_session(block: str, names: dict[str, Any]) -> str:
    """Return a session of Python, lines after ``>>>``, with what its statements print.

    Parameters
    ----------
    names
        The names that the statements see; they add their own.
    """
    lines = []
    for example in doctest.DocTestParser().get_examples(block):
        first, *others = example.source.splitlines()
        lines += [f">>> {first}", *(f"... {line}".rstrip() for line in others)]
        out = io.StringIO()
        with redirect_stdout(out), pl.Config(tbl_width_chars=96):
            exec(compile(example.source, "<page>", "single"), names)
        lines += [line.rstrip() for line in out.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def with_sessions(page: str) -> str:
    """Return a page with what its sessions of Python print, in this process and directory.

    All sessions of a page see the names of those before.
    """
    names: dict[str, Any] = {}
    return SESSION.sub(lambda found: f"```python\n{shown_session(found[1], names)}```", page)


def main() -> None:
    """Write the pages named anew."""
    for path in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            page, place = path.read_text("utf-8"), Path(folder)
            write_files(page, place)
            if path.name == "tour.md":
                printed("warehouse quickstart", place)
            if path.name in SMALL:
                os.environ.pop("WAREHOUSE_DB", None)  # its sessions run in this process
                printed("warehouse quickstart --small", place)
            page = filled(page, place)
            with chdir(place):
                page = with_sessions(page)
            path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
