"""Evaluated rows/s alone, rows/s evaluated and stored, and the bare ingest of the same rows.

Each figure comes from a process of its own, so that its peak memory is its own; the three take
turns, and the median of several rounds is given.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.tasks import Measured, evaluate, ingest, sweep
from warehouse.database.resources import studies_directory


def alone(task: Callable[[Path, Path], Measured], study_file: Path, directory: Path) -> Measured:
    """Run `task` on a fresh, prepared database in a fresh process."""
    from warehouse.database.connection import open_for_write

    database = directory / "benchmark.duckdb"
    database.unlink(missing_ok=True)
    open_for_write(database).close()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, study_file, database).result()


def _rounds(study_file: Path, rounds: int) -> Iterator[dict[str, Measured]]:
    with tempfile.TemporaryDirectory() as name:
        for _ in range(rounds):
            yield {task.__name__: alone(task, study_file, Path(name)) for task in TASKS}


TASKS = (evaluate, ingest, sweep)
WORDS = {
    "evaluate": "evaluated, not stored",
    "ingest": "bare ingest of the same rows",
    "sweep": "evaluated and stored",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--study", default="paper_grid", help="packaged study (paper_grid)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, cores)

    study_file = studies_directory() / f"{options.study}.toml"
    rounds = list(_rounds(study_file, options.rounds))
    print(
        f"study {options.study}: {rounds[0]['sweep'].rows:,} rows, {len(cores)} cores, "
        f"median of {len(rounds)} rounds"
    )
    for name, words in WORDS.items():
        rate = statistics.median(r[name].rows_per_second for r in rounds)
        seconds = statistics.median(r[name].seconds for r in rounds)
        peak = max(r[name].peak_bytes for r in rounds)
        print(
            f"{words:30} {seconds:6.2f} s {rate:12,.0f} rows/s   peak memory {peak / 1e6:5.0f} MB"
        )
    ratio = statistics.median(r["sweep"].seconds / r["ingest"].seconds for r in rounds)
    size = rounds[0]["sweep"].file_bytes / rounds[0]["sweep"].rows
    print(f"sweep takes {ratio:.2f} x the bare ingest; {size:.1f} bytes a row on disk")


if __name__ == "__main__":
    main()
