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
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.queries import (
    MEMORY_LIMIT,
    QUERIES,
    WANTED_OF_QUERIES,
    Answered,
    answered,
    stored_rows,
)
from benchmarks.startup import EMPTY, FLOOR, WANTED, started
from benchmarks.tasks import Measured, alone, evaluate, ingest, sweep
from estimators.registry import get
from warehouse.database.resources import studies_directory
from warehouse.studies.study import Study, load_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
_MADE = re.compile(r"(<!-- benchmark -->\n).*?(<!-- end of benchmark -->)", re.DOTALL)

_WANTED_OF_SWEEPS = {
    "`paper_grid`": "1.9, 15 B/row, 600 MB",
    "`training_step_grid`, dense models": "7 for the whole grid",
    "`pipeline_bandwidth`": "2.5",
}

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
    blocks: list[str] = []
    failed = False
    with tempfile.TemporaryDirectory() as name:
        for part in _parts(Path(name), options.rounds, len(cores), is_large=is_large):
            try:
                blocks.extend(map(_shown, part()))
            except (Exception, SystemExit) as error:  # the parts that are measured must not be lost
                failed = True
                traceback.print_exc()
                blocks.append(_shown(f"Not measured: {type(error).__name__}"))
            if not options.only_print:
                _write_page(blocks)
    if failed:
        raise SystemExit(1)


def _write_page(blocks: list[str]) -> None:
    """Write the parts that are measured into the page."""
    text = "\n\n".join(blocks)
    page = PAGE.read_text("utf-8")
    page = _MADE.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
    PAGE.write_text(page, encoding="utf-8")


def _parts(
    folder: Path, rounds: int, cores: int, *, is_large: bool
) -> Iterator[Callable[[], Iterable[str]]]:
    """Yield the parts of the page: functions that measure, and return text."""
    load = os.getloadavg()[0]
    about = (
        f"{cores} cores, load at the start {load:.1f}. Seconds are medians of {rounds} rounds, for"
        " the larger grid and for queries of one. CPU is processor seconds of all cores. Wanted are"
        " seconds, if no other unit is named."
    )
    yield lambda: [about]
    yield lambda: [_startup(folder, rounds)]
    for words, study, times in (
        ("`paper_grid`", _study("paper_grid"), rounds),
        ("`training_step_grid`, dense models", dense_grid(), 1),
        ("`pipeline_bandwidth`", _study("pipeline_bandwidth"), rounds),
    ):
        yield partial(_study_table, words, study, folder, times)
    kept = folder / "queries.duckdb"
    for studies in sizes(is_large=is_large):
        yield partial(_sized, studies, kept)


def _startup(folder: Path, rounds: int) -> str:
    small = load_study(studies_directory() / "gpt3_1T_1d.toml")
    database = folder / "small.duckdb"
    alone(sweep, small, database)
    times = started(database, folder / "new.duckdb", rounds)
    used = {each.command: each.cpu_seconds for each in times}
    return _table(
        ("command in a fresh process", "s", "CPU s", "x `pass`", "x DuckDB alone", "wanted"),
        (
            (
                f"`{t.command}`",
                _two(t.seconds),
                _two(t.cpu_seconds),
                _two(t.cpu_seconds / used[EMPTY]),
                _two(t.cpu_seconds / used[FLOOR]),
                WANTED.get(t.command, ""),
            )
            for t in times
        ),
    )


def _study_table(words: str, study: Study, folder: Path, rounds: int) -> list[str]:
    header = ("rows", "s", "CPU s", "rows/s", "x bare ingest", "x its CPU", "MB of memory", "B/row")
    return [_table(("study", *header, "wanted"), _tasks(words, study, folder, rounds))]


def _sized(studies: Iterable[Study], kept: Path) -> Iterator[str]:
    """Yield what storing the studies took, then what queries take."""
    found = [alone(sweep, study, kept, keep=True) for study in studies]
    rows = sum(each.rows for each in found)
    seconds = sum(each.seconds for each in found)
    cpu_seconds = sum(each.cpu_seconds for each in found)
    yield (
        f"{stored_rows(kept):,} rows, {kept.stat().st_size / 1e9:.2f} GB on disk. The"
        f" last {rows:,} rows took {seconds:.1f} s, {cpu_seconds:.1f} CPU s and up to"
        f" {max(each.peak_bytes for each in found) / 1e6:,.0f} MB. Queries have a memory limit"
        f" of {MEMORY_LIMIT}:"
    )
    yield _queries(kept)


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
            _WANTED_OF_SWEEPS.get(words, "") if name == "swept" else "",
        )


def _queries(database: Path) -> str:
    found = [_answered(words, database) for words in QUERIES]
    return _table(
        ("query", "rows", "rows read", "s", "CPU s", "MB of memory", "wanted"),
        (
            (
                each.words,
                f"{each.rows:,}",
                f"{each.rows_read:,}",
                _two(each.seconds),
                _two(each.cpu_seconds),
                f"{each.peak_bytes / 1e6:,.0f}",
                WANTED_OF_QUERIES.get(each.words, ""),
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
