"""The benchmark of docs/speed.md: ``make bench`` prints its tables and writes them into the page.

Start-up in fresh processes, against DuckDB alone; evaluation and storage, against the bare ingest
of the same rows; queries, each in a process of its own, at 9 and at 30 million rows, and with
``BENCH=large`` at 100 million. Ratios are of one run: compare those, not the seconds, between
machines.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.queries import MEMORY_LIMIT, QUERIES, Answered, answered
from benchmarks.startup import FLOOR, started
from benchmarks.tasks import Measured, alone, evaluate, ingest, sweep
from estimators.registry import get
from warehouse.database.resources import studies_directory
from warehouse.studies.study import Study, load_study

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
_MADE = re.compile(r"(<!-- benchmark -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)

_DENSE = ("llama3_8B", "llama3_70B", "llama3_405B", "gpt3_175B", "megatron_1T")
_MENDS_OF_LARGE = 8
"""Errata that are mended one at a time: each stores the grid of the paper once more."""


def sizes(*, is_large: bool) -> Iterator[tuple[Study, ...]]:
    """Yield the studies that each database has in addition to those of the one before."""
    grid = _study("paper_grid")
    mends = get(grid.estimator).mends
    yield (grid,)
    yield replace(grid, name="corrected", mends=(frozenset(mends),)), dense_grid()
    if is_large:
        alone_mended = tuple(frozenset({mend}) for mend in mends[:_MENDS_OF_LARGE])
        yield (replace(grid, name="mended", mends=alone_mended),)


def dense_grid() -> Study:
    """Return the grid of training_step without mixtures."""
    grid = _study("training_step_grid")
    return replace(grid, spaces=tuple({**space, "model": _DENSE} for space in grid.spaces))


def _study(name: str) -> Study:
    return load_study(studies_directory() / f"{name}.toml")


def main() -> None:
    """Print the tables, and write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of short tasks (default 3)")
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    parser.add_argument("--only-print", action="store_true", help="leave the page as it is")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, cores)
    is_large = os.environ.get("BENCH") == "large"
    with tempfile.TemporaryDirectory() as name:
        blocks = list(_blocks(Path(name), options.rounds, len(cores), is_large=is_large))
    if not options.only_print:
        text = "\n\n".join(blocks)
        page = PAGE.read_text("utf-8")
        page = _MADE.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
        PAGE.write_text(page, encoding="utf-8")


def _blocks(folder: Path, rounds: int, cores: int, *, is_large: bool) -> Iterator[str]:
    """Yield the parts of the page, each printed when it is there."""
    load = os.getloadavg()[0]
    yield _shown(
        f"{cores} cores, load at the start {load:.1f}. Seconds are medians of {rounds} rounds, for"
        " the larger grid and for queries of one. CPU is processor seconds of all cores."
    )
    small = load_study(studies_directory() / "gpt3_1T_1d.toml")
    database = folder / "small.duckdb"
    alone(sweep, small, database)
    times = started(database, folder / "new.duckdb", rounds)
    floor = next(each for each in times if each.command == FLOOR).cpu_seconds
    yield _shown(
        _table(
            ("command in a fresh process", "s", "CPU s", "x DuckDB alone"),
            (
                (
                    f"`{t.command}`",
                    _two(t.seconds),
                    _two(t.cpu_seconds),
                    _two(t.cpu_seconds / floor),
                )
                for t in times
            ),
        )
    )
    rows = [
        *_tasks("`paper_grid`", _study("paper_grid"), folder, rounds),
        *_tasks("`training_step_grid`, dense models", dense_grid(), folder, 1),
        *_tasks("`pipeline_bandwidth`", _study("pipeline_bandwidth"), folder, rounds),
    ]
    header = ("rows", "s", "CPU s", "rows/s", "x bare ingest", "x its CPU", "MB of memory", "B/row")
    yield _shown(_table(("study", *header), rows))
    kept = folder / "queries.duckdb"
    rows_in_all = 0
    for studies in sizes(is_large=is_large):
        found = [alone(sweep, study, kept, keep=True) for study in studies]
        stored = sum(each.rows for each in found)
        rows_in_all += stored
        seconds = sum(each.seconds for each in found)
        cpu_seconds = sum(each.cpu_seconds for each in found)
        yield _shown(
            f"{rows_in_all:,} rows, {kept.stat().st_size / 1e9:.2f} GB on disk. The"
            f" last {stored:,} rows took {seconds:.1f} s, {cpu_seconds:.1f} CPU s and up to"
            f" {max(each.peak_bytes for each in found) / 1e6:,.0f} MB. Queries have a memory limit"
            f" of {MEMORY_LIMIT}:"
        )
        yield _shown(_queries(kept))


def _tasks(words: str, study: Study, folder: Path, rounds: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each task; the tasks take turns."""
    tasks = {"evaluated, not stored": evaluate, "bare ingest": ingest, "swept": sweep}
    found: dict[str, list[Measured]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            found[name].append(alone(task, study, folder / "benchmark.duckdb"))
    bare = found["bare ingest"]
    for name, each in found.items():
        seconds = statistics.median(m.seconds for m in each)
        cpu_seconds = statistics.median(m.cpu_seconds for m in each)
        pairs = list(zip(each, bare, strict=True))
        yield (
            f"{words}: {name}",
            f"{each[0].rows:,}",
            _two(seconds),
            _two(cpu_seconds),
            f"{each[0].rows / seconds:,.0f}",
            _two(statistics.median(one.seconds / other.seconds for one, other in pairs)),
            _two(statistics.median(one.cpu_seconds / other.cpu_seconds for one, other in pairs)),
            f"{max(m.peak_bytes for m in each) / 1e6:,.0f}",
            f"{each[0].file_bytes / each[0].rows:.1f}" if each[0].file_bytes else "",
        )


def _queries(database: Path) -> str:
    found = [_answered(words, database) for words in QUERIES]
    return _table(
        ("query", "rows", "rows read", "s", "CPU s", "MB of memory"),
        (
            (
                each.words,
                f"{each.rows:,}",
                f"{each.rows_read:,}",
                _two(each.seconds),
                _two(each.cpu_seconds),
                f"{each.peak_bytes / 1e6:,.0f}",
            )
            for each in found
        ),
    )


def _answered(words: str, database: Path) -> Answered:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(answered, words, database).result()


def _two(number: float) -> str:
    return f"{number:.2f}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---", *("---:",) * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(text: str) -> str:
    print(text, end="\n\n", flush=True)
    return text


if __name__ == "__main__":
    main()
