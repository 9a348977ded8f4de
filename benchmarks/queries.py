"""Queries over a database of one size: time, processor time, memory and rows that the scans gave.

Each runs in a process of its own, with a memory limit of 2 GB, and fetches every column of every
row, in blocks: as tuples, as `warehouse sql` does, or where there are many as Arrow batches.
"""

from __future__ import annotations

import json
import time
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.tasks import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "2GB"
_PROBLEM = (
    "select min(problem_id) from cell inner join problem using (problem_id)"
    " where estimator = 'roofline' and model = 'gpt3_1T' and num_gpus = 4096"
)
_RANK = "from configuration_rank where rank_by_time"
QUERIES = {
    "one column of every row of table `roofline`": "select sum(step_seconds) from roofline",
    "best layout of each problem of one model": f"{_RANK} = 1 and model = 'gpt3_1T'",
    "best layout of each problem": f"{_RANK} = 1",
    "ten best of one problem": f"{_RANK} <= 10 and problem_id = {{problem}}",
    "ten best, `problem_id = (select ...)`": f"{_RANK} <= 10 and problem_id = ({_PROBLEM})",
    "ten best of each problem": f"{_RANK} <= 10",
    "twenty best of one problem": f"{_RANK} <= 20 and problem_id = {{problem}}",
    "Pareto front of one problem": "from configuration_pareto where problem_id = {problem}",
    "Pareto fronts of one model": "from configuration_pareto where model = 'gpt3_1T'",
    "near-optimal layouts of one model": "from near_optimal where model = 'gpt3_1T'",
    "all layouts of one problem": "from configuration where problem_id = {problem}",
    "all layouts, `problem_id = (select ...)`": (
        f"from configuration where problem_id = ({_PROBLEM})"
    ),
    "strong scaling of one model": "from strong_scaling where model = 'gpt3_1T'",
}
"""Words -> the query; `{problem}` is the id of a problem."""

_LONG = ("all layouts of one problem", "all layouts, `problem_id = (select ...)`")
"""Queries whose results are too long for tuples: people take them as frames or files."""

_BLOCK_ROWS = 10_240


WANTED_OF_QUERIES = {
    "best layout of each problem of one model": "0.3; 1 at 100 M rows",
    "ten best of one problem": "0.1",
    "ten best, `problem_id = (select ...)`": "as the ten best",
    "ten best of each problem": "0.5",
    "Pareto front of one problem": "0.05",
    "Pareto fronts of one model": "0.3; 1 and 1,000 MB at 100 M rows",
    "all layouts, `problem_id = (select ...)`": "as all layouts",
}
"""Words -> the seconds that the query may take."""


class Answered(NamedTuple):
    """One figure: what a query took, and what it read."""

    words: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    rows: int
    rows_read: int


def answered(words: str, database: Path) -> Answered:
    """Run one query, then count what it reads; run this in a process of its own."""
    from warehouse.database.connection import open_for_read

    with open_for_read(database) as connection:
        connection.execute(f"set memory_limit = '{MEMORY_LIMIT}'")
        [(problem,)] = connection.execute(_PROBLEM).fetchall()
        query = QUERIES[words].format(problem=problem)
        used, at = _cpu_seconds(), time.perf_counter()
        rows = sum(_blocks(connection, query, is_long=words in _LONG))
        seconds, cpu_seconds = time.perf_counter() - at, _cpu_seconds() - used
        peak = peak_bytes()
        [(_, plan)] = connection.execute(f"explain (analyze, format json) {query}").fetchall()
    read = _rows_read(json.loads(plan))
    return Answered(words, seconds, cpu_seconds, peak, rows, read)


def _blocks(connection: DuckDBPyConnection, query: str, *, is_long: bool) -> Iterator[int]:
    """Yield the numbers of rows of the blocks of a result, and keep none of them."""
    if is_long:  # a relation gives them while it runs, but is planned twice
        for batch in connection.sql(query).to_arrow_reader(_BLOCK_ROWS):
            yield batch.num_rows
        return
    result = connection.execute(query)
    while block := result.fetchmany(_BLOCK_ROWS):
        yield len(block)


def stored_rows(database: Path) -> int:
    """Return the number of configurations that a database has."""
    from warehouse.database.connection import open_for_read

    with open_for_read(database) as connection:
        [(rows,)] = connection.execute("select sum(num_rows) from cell").fetchall()
    return int(rows)


def _rows_read(node: dict[str, Any]) -> int:
    """Return the rows that the scans of stored tables gave."""
    found = node["intermediate_rows"] if node.get("extra_info", {}).get("Table") else 0
    below = [*node.get("children", []), *node.get("operator", [])]
    return int(found) + sum(map(_rows_read, below))


def _cpu_seconds() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
