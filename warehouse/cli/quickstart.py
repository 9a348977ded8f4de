"""`warehouse quickstart`: the whole way once, from an empty database to answers."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    count,
    fetched,
    put_for_people,
    say,
    study_path,
)
from warehouse.cli.comparison import heading, show_comparison
from warehouse.cli.database import init
from warehouse.cli.sweep import run_with_progress, summary

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

STUDIES = ("gpt3_1T_1d", "megatron")
NUM_GPUS = 4096

LAYOUT_RANK = """\
select
    model, num_gpus, num_fitting_layouts, rank_by_time, rank_in_recompute, speedup_of_best,
    best_tensor_parallel, best_pipeline_parallel, best_data_parallel, best_microbatch_size,
    best_activation_recompute
from megatron_layout_rank
where variant = 'corrected'
order by num_gpus, model"""

NEXT = (
    (
        "What limits the best layout as GPUs are added?",
        "select num_gpus, step_seconds, mfu, bubble_fraction, tensor_comm_fraction,"
        " data_comm_fraction from configuration_rank where rank_by_time = 1"
        " and variant = 'corrected' and model = 'gpt3_1T' and accelerator = 'H200'"
        " and nvlink_size = 8 order by num_gpus",
    ),
    (
        "How much does a wider NVLink domain buy?",
        "select accelerator, nvlink_size, min(step_seconds) as step_seconds"
        " from configuration where fits_memory and variant = 'corrected'"
        " and model = 'gpt3_1T' and num_gpus = 4096 group by all order by all",
    ),
    (
        "What do the mended errata change?",
        "select variant, count(*) as layouts, avg(step_seconds) as mean_step_seconds,"
        " min(step_seconds) filter (where fits_memory) as best_step_seconds from configuration"
        " where model = 'gpt3_1T' and accelerator = 'B200' and nvlink_size = 8"
        " and num_gpus = 4096 group by variant order by variant",
    ),
)
"""Questions for a user's own first queries, each with one that answers it."""


def quickstart(db: Database = DEFAULT_DATABASE) -> None:
    """Build a database, run the main searches, show the results.

    The 1T model of arXiv 2410.00273 on three generations of GPUs, and every layout around the
    ten configurations that Megatron published (arXiv 2104.04473). A second run evaluates
    nothing again.
    """
    from warehouse.connection import open_for_read
    from warehouse.studies import load_study

    started = time.perf_counter()
    init(db)
    rows = 0
    for name in STUDIES:
        report = run_with_progress(db, load_study(study_path(name)))
        rows += report.rows + report.rows_before
        say(summary(report))
    with open_for_read(db) as connection:
        _show(connection)
    _suggest(db)
    seconds = time.perf_counter() - started
    say(f"\nquickstart took {seconds:.1f} s; {db} holds {count(rows, 'row')} of these studies")


def _show(connection: DuckDBPyConnection) -> None:
    from warehouse.ranking import rank_layouts

    filters: dict[str, str | int] = {
        "estimator": "roofline",
        "variant": "corrected",
        "model": "gpt3_1T",
        "num_gpus": NUM_GPUS,
    }
    best = rank_layouts(connection, filters, top=1)
    heading(f"Best layouts of gpt3_1T on {NUM_GPUS:,} GPUs (corrected)")
    put_for_people(best.columns, best.rows, drop={*best.constants, "rank_by_time"})
    show_comparison(connection)
    heading(
        "Where Megatron's layouts rank among all that fit, and what would be faster (corrected)"
    )
    put_for_people(*fetched(connection, LAYOUT_RANK))


def _suggest(db: Path) -> None:
    heading("Try next")
    option = "" if db == DEFAULT_DATABASE else f" --db {shlex.quote(str(db))}"
    for question, query in NEXT:
        sys.stdout.write(f'# {question}\nwarehouse sql{option} "{query}"\n\n')
