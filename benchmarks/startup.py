"""Seconds of commands in fresh processes, against those of an empty program and of DuckDB alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FLOOR = "import duckdb"
"""The program that the others are compared with."""

EMPTY = "python -c pass"

WANTED = {
    "warehouse --help": "0.12",
    "warehouse init (new file)": "0.2",
    "warehouse sql 'select 1'": "0.3",
    "warehouse rank --model gpt3_1T": "0.4",
    "warehouse plan (all stored)": "1.0",
    "warehouse plan (new question)": "3",
}
"""Command -> the seconds that it may take."""

_WAREHOUSE = (sys.executable, "-m", "warehouse.cli.main")
_PLAN = (
    "--model",
    "llama3_8B",
    "--tokens",
    "15e12",
    "--gpus",
    "1024",
    "--accelerator",
    "H100 SXM 80GB",
)


class Started(NamedTuple):
    """Median seconds and processor seconds of a command, its start included."""

    command: str
    seconds: float
    cpu_seconds: float


def started(database: Path, new: Path, rounds: int) -> list[Started]:
    """Return the times of the commands; they take turns.

    Parameters
    ----------
    database
        A database with rows of gpt3_1T.
    new
        The path of a database that is made anew each time.
    """
    commands: dict[str, Sequence[str]] = {
        EMPTY: (sys.executable, "-c", "pass"),
        FLOOR: (sys.executable, "-c", FLOOR),
        "warehouse --help": (*_WAREHOUSE, "--help"),
        "warehouse init (new file)": (*_WAREHOUSE, "init", "--db", str(new)),
        "warehouse sql 'select 1'": (*_WAREHOUSE, "sql", "select 1", "--db", str(database)),
        "warehouse rank --model gpt3_1T": (
            *(*_WAREHOUSE, "rank", "--model", "gpt3_1T", "--db", str(database)),
        ),
        "warehouse plan (all stored)": (*_WAREHOUSE, "plan", *_PLAN, "--db", str(database)),
        "warehouse plan (new question)": (*_WAREHOUSE, "plan", *_PLAN, "--db", str(new)),
    }
    for command in commands.values():  # rows of the plan, caches of bytecode and of the file
        _timed(command, new)
    found = [
        {name: _timed(command, new) for name, command in commands.items()} for _ in range(rounds)
    ]
    return [
        Started(
            name,
            statistics.median(times[name][0] for times in found),
            statistics.median(times[name][1] for times in found),
        )
        for name in commands
    ]


def _timed(command: Sequence[str], new: Path) -> tuple[float, float]:
    new.unlink(missing_ok=True)  # also for the plan: its question is new in an empty database
    before, at = getrusage(RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - at, getrusage(RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
