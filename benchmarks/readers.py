"""Reads beside a sweep: how many are refused, how old their rows are, and what the copies cost.

``python -m benchmarks.readers`` sweeps a study into a new database of a temporary folder while
other processes read it. The exit code is 1 if a read is refused, or sees a part of a group, or an
older state than the read before.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

QUERY = """
select
    (select count(*) from cell) as cells,
    (select sum(num_rows) from cell) as recorded,
    (select count(*) from training_step) as stored
"""
"""A state: whole groups have as many rows as their cells record."""

OTHERS = (
    ("status", "--json"),
    ("rank", "--model", "gpt3_1T"),
    ("cost", "--model", "gpt3_1T", "--tokens", "15T"),
    ("plan", "--model", "gpt3_1T", "--tokens", "1T", "--gpus", "512", "--accelerator", "H100"),
)
"""Commands that take turns with the query. The layouts of the plan are stored before the sweep."""


class Read(NamedTuple):
    """A read: its command, its seconds, the age of the snapshot, the state or None, the error."""

    command: str
    seconds: float
    age: float | None
    state: tuple[int, ...] | None
    error: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readers", description=__doc__)
    parser.add_argument("--study", default="training_step_grid", help="of estimator training_step")
    parser.add_argument("--processes", type=int, default=4, help="processes that read")
    options = parser.parse_args()
    pool = ProcessPoolExecutor(options.processes + 1, get_context("spawn"))
    with tempfile.TemporaryDirectory(prefix="warehouse-") as folder, pool:
        database, end = Path(folder) / "w.duckdb", Path(folder) / "end"
        _said(*OTHERS[-1], "--db", database)
        reading = [pool.submit(reads, database, end) for _ in range(options.processes)]
        try:
            found = pool.submit(swept, database, options.study).result()
        finally:
            end.touch()
        return _put([each.result() for each in reading], found)


def swept(database: Path, name: str) -> dict[str, Any]:
    """Sweep a study; return its seconds, those of the copies, and the states that it committed."""
    from warehouse.database import connection
    from warehouse.database.access import access_for, accessing
    from warehouse.database.snapshot import Snapshots
    from warehouse.sweep.runner import run_study
    from warehouse.sweep.study import study_under_options

    made: list[Snapshots] = []

    class Counted(Snapshots):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            made.append(self)

    done: set[int] = set()
    writer = accessing(access_for(None, writes=True))
    with writer, patch.object(connection, "Snapshots", Counted):
        with connection.open_for_read(database) as opened:
            [(before,)] = opened.execute("select count(*) from cell").fetchall()
        study, started = study_under_options(name, database), time.perf_counter()
        report = run_study(database, study, on_progress=lambda _r, _a, cells, _c: done.add(cells))
    return {
        "seconds": time.perf_counter() - started,
        "copy_seconds": sum(each.seconds for each in made),
        "rows": report.rows,
        "bytes": database.stat().st_size,
        "states": [before + cells - min(done) for cells in sorted(done)],
    }


def reads(database: Path, end: Path) -> list[Read]:
    """Read until `end` exists, as commands do."""
    from warehouse.database.snapshot import snapshot_path

    found: list[Read] = []
    while not end.exists():
        moment, begun = None, time.time()
        with contextlib.suppress(OSError):
            moment = snapshot_path(database).stat().st_mtime
        other = OTHERS[len(found) // 5 % len(OTHERS)] if len(found) % 5 == 4 else None
        words = other or ("sql", QUERY, "--json")
        code, out, err = _said(*words, "--db", database)
        state = tuple(json.loads(out)[0].values()) if other is None and not code else None
        age = None if moment is None else begun - moment
        found.append(Read(words[0], time.time() - begun, age, state, err if code else ""))
        time.sleep(0.2)
    return found


def _said(*words: object) -> tuple[int, str, str]:
    """Return the exit code of a command, and what it printed."""
    from warehouse.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return run([str(word) for word in words]), out.getvalue(), err.getvalue()


def _put(reading: list[list[Read]], found: dict[str, Any]) -> int:
    """Print what came of the reads; return the exit code."""
    every = [read for process in reading for read in process]
    seen = [[read.state for read in process if read.state] for process in reading]
    states = {state for process in seen for state in process}
    halves = [s for s in states if s[1] != s[2] or s[0] not in found["states"]]
    backwards = sum(later < state for process in seen for state, later in pairwise(process))
    refused = [read.error for read in every if read.error]
    ages = [read.age for read in every if read.age is not None]
    times = [read.seconds for read in every]
    slowest = max(every, key=lambda read: read.seconds)
    share = found["copy_seconds"] / found["seconds"]
    lines = (
        f"sweep: {found['rows']:,} rows, {found['bytes'] / 1e6:,.0f} MB, {found['seconds']:.0f} s",
        f"reads: {len(every)}, of which {len(refused)} refused",
        f"states: {len(states)} seen of {len(found['states'])}, {len(halves)} not whole, "
        f"{backwards} older than the one before",
        f"age of a snapshot: median {statistics.median(ages):.0f} s, worst {max(ages):.0f} s",
        f"time of a read: median {statistics.median(times):.2f} s, worst {slowest.seconds:.2f} s "
        f"(`warehouse {slowest.command}`)",
        f"copies: {found['copy_seconds']:.2f} s, {100 * share:.1f} % of the sweep",
    )
    sys.stdout.write("\n".join([*lines, *refused[:3]]) + "\n")
    return int(bool(refused or halves or backwards))


if __name__ == "__main__":
    sys.exit(main())
