"""Reads beside a sweep: how many are refused, how old their rows are, and what the copies cost.

``python -m benchmarks.readers`` sweeps a study into a new database of a temporary folder, and reads
it meanwhile as other processes would. The exit code is 1 if a read is refused, or does not see
whole groups.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

QUERY = """
select
    (select count(*) from cell) as cells,
    (select sum(num_rows) from cell) as recorded,
    (select count(*) from training_step_result) as stored
"""
"""A state: whole groups have as many rows as their cells record."""

LOCKED = 5
"""Exit code of a command whose database cannot be opened."""

OTHERS = (
    ("status", "--json"),
    ("rank", "--model", "llama3_8B", "--json"),
    ("cost", "--model", "llama3_8B", "--tokens", "15T", "--json"),
    ("plan", "--model", "gpt3_1T", "--tokens", "1T", "--gpus", "512", "--accelerator", "H100"),
)
"""Commands that are tried in turn as well. The layouts of the plan are stored before the sweep."""


class Read(NamedTuple):
    """One read of the cells and rows: its time, the age of the snapshot, and its state."""

    seconds: float
    age: float | None
    code: int
    state: tuple[int, ...] | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readers", description=__doc__)
    parser.add_argument("--study", default="training_step_grid")
    parser.add_argument("--reads", type=int, default=200)
    parser.add_argument("--sweep", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sweep is not None:
        sys.stdout.write(json.dumps(swept(options.sweep, options.study)))
        return 0
    with tempfile.TemporaryDirectory(prefix="warehouse-") as folder:
        return beside(Path(folder) / "w.duckdb", options.study, options.reads)


def swept(database: Path, name: str) -> dict[str, Any]:
    """Sweep a study; return its seconds, those of the copies, and the states that it committed."""
    from warehouse.database import connection
    from warehouse.database.snapshot import Snapshots
    from warehouse.sweep.asked import asked_study
    from warehouse.sweep.runner import run_study

    made: list[Snapshots] = []

    class Counted(Snapshots):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            made.append(self)

    done: set[int] = set()
    study = asked_study(name, database)
    with connection.open_for_read(database) as opened:
        [(before,)] = opened.execute("select count(*) from cell").fetchall()
    started = time.perf_counter()
    with patch.object(connection, "Snapshots", Counted):
        report = run_study(database, study, on_progress=lambda _r, _a, cells, _c: done.add(cells))
    return {
        "seconds": time.perf_counter() - started,
        "copy_seconds": sum(each.seconds for each in made),
        "rows": report.rows,
        "bytes": database.stat().st_size,
        "states": [before + cells - min(done) for cells in sorted(done)],
    }


def beside(database: Path, study: str, number: int) -> int:
    """Sweep in another process, read in this one, and print what came of it."""
    from warehouse.database.snapshot import snapshot_path

    _said(*OTHERS[-1], "--db", database)
    sweeping = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.readers", "--study", study, "--sweep", str(database)],
        stdout=subprocess.PIPE,
        text=True,
    )
    reads: list[Read] = []
    others: list[int] = []
    while sweeping.poll() is None:
        published = snapshot_path(database)
        moment = None
        with contextlib.suppress(OSError):
            moment = published.stat().st_mtime
        begun = time.time()
        code, out = _said("sql", QUERY, "--json", "--db", database)
        state = tuple(json.loads(out)[0].values()) if not code else None
        age = None if moment is None else begun - moment
        reads.append(Read(time.time() - begun, age, code, state))
        if len(reads) % 5 == 0:
            words = OTHERS[len(reads) // 5 % len(OTHERS)]
            others.append(_said(*words, "--db", database)[0])
        time.sleep(0.2)
    assert sweeping.stdout is not None
    found = json.loads(sweeping.stdout.read())
    if sweeping.returncode:
        return sweeping.returncode
    return _put(reads, others, found, number)


def _said(*words: object) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed."""
    from warehouse.cli.main import run

    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        return run([str(word) for word in words]), out.getvalue()


def _put(reads: list[Read], others: list[int], found: dict[str, Any], number: int) -> int:
    refused = [read.code for read in reads].count(LOCKED) + others.count(LOCKED)
    seen = [read.state for read in reads if read.state is not None]
    halves = [s for s in seen if s[1] != s[2] or s[0] not in found["states"]]
    backwards = [s for s, later in zip(seen, seen[1:], strict=False) if later[0] < s[0]]
    ages = [read.age for read in reads if read.age is not None]
    waits = [read.seconds for read in reads]
    share = found["copy_seconds"] / found["seconds"]
    lines = (
        f"sweep: {found['rows']:,} rows, {found['bytes'] / 1e6:,.0f} MB, {found['seconds']:.1f} s",
        f"reads: {len(reads)} and {len(others)} of other commands, {refused} refused",
        f"states: {len(set(seen))} seen of {len(found['states'])}; not whole: {len(halves)}; "
        f"older than the one before: {len(backwards)}",
        f"age of a snapshot: median {statistics.median(ages):.1f} s, worst {max(ages):.1f} s",
        f"time of a read: median {statistics.median(waits):.2f} s, worst {max(waits):.2f} s",
        f"copies: {found['copy_seconds']:.2f} s, {100 * share:.1f} % of the sweep",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    is_enough = len(reads) >= number
    if not is_enough:
        sys.stderr.write(f"only {len(reads)} reads of {number}: the sweep was too short\n")
    return int(bool(refused or halves or backwards) or not is_enough)


if __name__ == "__main__":
    sys.exit(main())
