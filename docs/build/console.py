"""Pages whose console blocks are real: read, run, compared, and written anew.

An output that differs in timings only stays as it is. Blocks of Python that begin with ``>>>`` are
sessions, and are run too.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from docs.build.shells import in_shell
from warehouse.cli.main import run

SESSION = re.compile(r"```python\n(>>> .*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
TIMING = re.compile(r"in [\d.,]+ s \([\d,]+ rows/s\)")
SIZE = re.compile(r"holds [\d,]+ configurations \([\d,]+ MB\)")
REFERENCE = re.compile(r"reference data [0-9a-f]{8}")
ESTIMATE = re.compile(r"about [\d.,]+ \w+ and [\d.,]+ [MG]B")

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
    """Write the files of a page: blocks whose first line is the name of a file.

    That line is a comment of a study or a script, and no part of a table.
    """
    for language in ("toml", "csv", "sh"):
        for block in blocks(page, language):
            name, _, content = block.partition("\n")
            (place / name.removeprefix("# ")).write_text(content if language == "csv" else block)


def call(*arguments: object) -> tuple[int, str, str]:
    """Call a command in this process; return its exit code, stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


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
    """Return what a page shows of a command; the program itself runs in this process.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    with chdir(place), environment(database):
        arguments = arguments_of(command)
        code, out, err = in_shell(command, call) if arguments is None else call(*arguments)
    if code:
        raise RuntimeError(f"{command}\n{err}")
    return shown(out, err)


@contextmanager
def environment(database: Path | None) -> Iterator[None]:
    """Name a database in the environment, or none; the caller's shell does not matter.

    Programs that are installed beside Python, such as `duckdb`, are found.
    """
    former = dict(os.environ)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{former['PATH']}"
    os.environ.pop("WAREHOUSE_DB", None)
    if database is not None:
        os.environ["WAREHOUSE_DB"] = str(database)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)


def shown(out: str, err: str) -> str:
    """Return what a page shows of a command: its output, or what it says where that is nothing."""
    return "".join(f"{line.rstrip()}\n" for line in (out or err).splitlines())


def comparable(text: str) -> list[str]:
    """Return the lines of an output without timings, sizes, estimates of both and empty lines.

    The version of the reference data is left out, too: each new figure changes it.
    """
    text = REFERENCE.sub("reference data #", text)
    lines = [TIMING.sub("in # s (# rows/s)", line).rstrip() for line in text.splitlines()]
    lines = [SIZE.sub("holds # configurations (# MB)", line) for line in lines if line]
    return [ESTIMATE.sub("about # s and # MB", line) for line in lines]


def filled(page: str, place: Path, database: Path | None = None, ask: Run = printed) -> str:
    """Return a page with what its commands print; an output that is alike stays as it is."""

    def block(found: re.Match[str]) -> str:
        blocks = []
        for command in commands(found[1]):
            now = ask(command.text, place, database)
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
