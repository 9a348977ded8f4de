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

STUDY = """
name = "benchmark"
estimator = "roofline"
variant = "published"
[space]
model = "gpt3_1T"
strategy = "tensor_1d"
accelerator = "B200"
nvlink_size = [4, 8, 64]
num_gpus = {{powers_of_two = [2, 14]}}
global_batch_size = 4096
[system]
hbm_bytes_per_second = {{linear = [1e12, 16e12, {points}]}}
"""
"""The paper's one-dimensional grid of one system, at many memory bandwidths."""


def _alone(task: Callable[[Path, Path], Measured], study_file: Path, directory: Path) -> Measured:
    """Run `task` on a fresh, prepared database in a fresh process."""
    from warehouse.connection import open_for_write

    database = directory / "benchmark.duckdb"
    database.unlink(missing_ok=True)
    open_for_write(database).close()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, study_file, database).result()


def _rounds(points: int, rounds: int) -> Iterator[dict[str, Measured]]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        study_file = directory / "benchmark.toml"
        study_file.write_text(STUDY.format(points=points), encoding="utf-8")
        for _ in range(rounds):
            yield {task.__name__: _alone(task, study_file, directory) for task in TASKS}


TASKS = (evaluate, ingest, sweep)
WORDS = {
    "evaluate": "evaluated, not stored",
    "ingest": "bare ingest of the same rows",
    "sweep": "evaluated and stored",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--points", type=int, default=48, help="memory bandwidths (default 48)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, cores)

    rounds = list(_rounds(options.points, options.rounds))
    print(f"{rounds[0]['sweep'].rows:,} rows, {len(cores)} cores, median of {len(rounds)} rounds")
    for name, words in WORDS.items():
        rate = statistics.median(r[name].rows_per_second for r in rounds)
        peak = max(r[name].peak_bytes for r in rounds)
        print(f"{words:30} {rate:12,.0f} rows/s   peak memory {peak / 1e6:5.0f} MB")
    ratio = statistics.median(r["sweep"].seconds / r["ingest"].seconds for r in rounds)
    size = rounds[0]["sweep"].file_bytes / rounds[0]["sweep"].rows
    print(f"sweep takes {ratio:.2f} x the bare ingest; {size:.1f} bytes a row on disk")


if __name__ == "__main__":
    main()
