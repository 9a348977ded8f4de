"""Seconds that each view takes on the whole-grid database, for one model and over everything.

``python -m benchmarks.views [DATABASE]`` sweeps the whole grid and the grid of training_step first
where the database does not have them: 33 million rows, half a minute on two cores. A figure is the
median of three runs after a first one, every column of every row fetched. The last column is the
same over everything in the shell of DuckDB 1.5, its start included, the rows written to nowhere.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from warehouse.studies.study import Study

STUDIES = ("paper_grid", "training_step_grid", "megatron", "training_step_published")
MODELS = ("gpt3_1T", "llama3_405B")
RUNS = 3
SHELL = Path(sys.executable).parent / "duckdb"


class Question(NamedTuple):
    """A query over everything, and how one model is asked for; nothing where it cannot be."""

    query: str
    of_model: str = "{query} where model = '{model}'"

    def sql(self, model: str) -> str:
        """Return the query, of one model if there is one."""
        query = self.query if not model else self.of_model
        return query.format(query=self.query, model=model)


QUESTIONS = (
    *(
        Question(f"from {view}")
        for view in (
            *("configuration_pareto", "strong_scaling", "bottleneck", "strategy_comparison"),
            *("system_comparison", "what_would_fit", "near_optimal", "estimator_disagreement"),
            *("erratum_effect", "hardware_sensitivity", "training_cost", "published_comparison"),
            *("megatron_layout_rank", "measurement_comparison", "published_accuracy"),
            *("training_time_comparison", "estimated_run"),
        )
    ),
    *(
        Question(f"from {view} where {rank} = 1", "{query} and model = '{model}'")
        for view, rank in (
            ("configuration_rank", "rank_by_time"),
            ("strategy_rank", "rank_in_strategy"),
        )
    ),
    Question("from best_of_cell", ""),
    Question("from training_cost_for(1e12)"),
    Question("from best('gpt3_1T', null)", "from best('{model}', null)"),
    Question("from compare('A100', 'B200')", "from compare('{model}', 'vit_era5')"),
    Question(
        "from training_run('gpt3_1T', 20e12, null)", "from training_run('{model}', 20e12, null)"
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.views", description=__doc__)
    parser.add_argument("database", nargs="?", type=Path, default=Path("db/benchmark.duckdb"))
    parser.add_argument("--cores", type=int, default=2, help="cores to use (default 2)")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])

    from warehouse.database.connection import open_for_read
    from warehouse.database.resources import studies_directory
    from warehouse.studies.study import load_study
    from warehouse.sweep.runner import run_study

    for name in STUDIES:
        for study in _variants(load_study(studies_directory() / f"{name}.toml")):
            run_study(options.database, study)
    with open_for_read(options.database) as connection:
        [(rows, cells)] = connection.execute("select sum(num_rows), count(*) from cell").fetchall()
        print(f"{rows:,} rows of {cells:,} cells, {options.cores} cores, median of {RUNS} runs\n")
        models = " | ".join(f"{model}, s" for model in MODELS)
        print(f"| view | everything, s | rows | {models} | DuckDB 1.5, s |")
        print("| --- | ---: | ---: |" + " ---: |" * (len(MODELS) + 1))
        for question in QUESTIONS:
            cells_of_row = [f"`{_name(question)}`"]
            for model in ("", *MODELS):
                sql = question.sql(model)
                seconds, num_rows = _timed(connection, sql) if sql else (None, 0)
                cells_of_row.append("" if seconds is None else f"{seconds:.2f}")
                if not model:
                    cells_of_row.append(f"{num_rows:,}")
            cells_of_row.append(f"{_timed_in_shell(options.database, question.sql('')):.2f}")
            print(f"| {' | '.join(cells_of_row)} |", flush=True)


def _variants(study: Study) -> Iterator[Study]:
    """Yield the study as it is, and the grid of the paper with its mends as well."""
    from dataclasses import replace

    from estimators.registry import get

    yield study
    if study.name == "paper_grid":
        mends = frozenset(get(study.estimator).mends)
        yield replace(study, name="paper_grid corrected", mends=(mends,))


def _name(question: Question) -> str:
    words = question.query.split("from ")[1].split(" where")[0]
    return words.replace("|", "")


def _timed(connection: DuckDBPyConnection, sql: str) -> tuple[float | None, int]:
    """Return the median of the runs and the number of rows; nothing where it has no such column."""
    import duckdb

    seconds = []
    try:
        for _ in range(1 + RUNS):
            started = time.perf_counter()
            rows = connection.sql(sql).fetchall()
            seconds.append(time.perf_counter() - started)
    except duckdb.BinderException as error:
        print(f"{sql}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        return None, 0
    return statistics.median(seconds[1:]), len(rows)


def _timed_in_shell(database: Path, sql: str) -> float:
    """Return the median of the runs in the shell of DuckDB 1.5, on as many cores."""
    threads = len(os.sched_getaffinity(0))
    script = f"set threads = {threads}; {sql};"
    command = [str(SHELL), "-readonly", "-csv", "-bail", str(database), script]
    seconds = []
    for _ in range(1 + RUNS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
