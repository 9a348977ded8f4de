"""`warehouse quickstart`: the whole way once, from an empty database to answers."""

from __future__ import annotations

import csv
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import Section, fetched, put_sections, say, study_path
from warehouse.cli.comparison import comparison
from warehouse.cli.database import init
from warehouse.cli.options import DEFAULT_DATABASE, Database
from warehouse.cli.sweep import run_with_progress, summary, under_options
from warehouse.show.formats import count

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NUM_GPUS = 4096

STUDIES = "quickstart.csv"
"""File of the packaged studies that lists those of the quickstart, in their order."""

BEST = f"""\
select
    accelerator, nvlink_size, strategy, rank_by_time,
    data_parallel, tensor_parallel, tensor_parallel_2, context_parallel, pipeline_parallel,
    microbatch_size, summa_panels, nvlink_data_parallel, nvlink_tensor_parallel,
    nvlink_tensor_parallel_2, nvlink_context_parallel, nvlink_pipeline_parallel,
    step_seconds, tokens_per_second, mfu, memory_bytes
from configuration_rank
where variant = 'corrected' and model = 'gpt3_1T' and num_gpus = {NUM_GPUS}
qualify row_number() over (partition by problem_id, strategy order by rank_by_time) = 1
order by accelerator, nvlink_size, rank_by_time"""

ERRATA = f"""\
select
    accelerator, nvlink_size, published_best_layout, published_best_step_seconds, best_layout,
    best_step_seconds
from erratum_effect
where strategy = 'all' and variant = 'corrected' and model = 'gpt3_1T' and num_gpus = {NUM_GPUS}
order by accelerator, nvlink_size"""

LAYOUT_RANK = """\
select
    model, num_gpus, num_fitting_layouts, rank_by_time, rank_in_recompute, speedup_of_best,
    best_tensor_parallel, best_pipeline_parallel, best_data_parallel, best_microbatch_size,
    best_activation_recompute
from megatron_layout_rank
where variant = 'corrected' and reference = 'published_megatron_scaling'
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
        "select num_gpus, strategy, is_best_changed, best_step_ratio, same_layout_step_ratio"
        " from erratum_effect where variant = 'corrected' and model = 'gpt3_1T'"
        " and accelerator = 'B200' and nvlink_size = 8 order by num_gpus, strategy",
    ),
)
"""Questions to try next, each with the query that answers it."""


def quickstart(
    small: Annotated[
        bool, typer.Option("--small", help="One model, one-dimensional tensor parallelism only.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Build a database, run the main searches, show the results.

    Sweeps the whole grid of arXiv 2410.00273, as published and corrected: two models, three
    strategies, three generations of GPUs, three sizes of NVLink domains, 4 to 16,384 GPUs. Then
    every layout of the ten configurations that Megatron published (arXiv 2104.04473), and every
    published step by each estimator that can represent it. A second run evaluates nothing again.
    """
    from warehouse.database.connection import open_for_read
    from warehouse.studies.study import load_study

    started = time.perf_counter()
    init(db)
    rows = 0
    for name, variant in studies(small=small):
        study = under_options(load_study(study_path(name)), variant, None)
        report = run_with_progress(db, study)
        rows += report.rows + report.rows_before
        say(summary(report))
    _evaluate_published(db)
    with open_for_read(db) as connection:
        put_sections(_sections(connection))
    _suggest(db)
    seconds = time.perf_counter() - started
    say(f"\nquickstart took {seconds:.1f} s; {db} holds {count(rows, 'row')} of these studies")


def studies(*, small: bool) -> list[tuple[str, str | None]]:
    """Return the studies to sweep in order, each with the variant that replaces its own."""
    from warehouse.database import resources

    text = (resources.studies_directory() / STUDIES).read_text(encoding="utf-8")
    flag = "in_small" if small else "in_whole"
    lines = csv.DictReader(text.splitlines())
    return [(line["study"], line["variant"] or None) for line in lines if line[flag] == "true"]


def _evaluate_published(db: Path) -> None:
    """Store the estimates of table `published_measurement`."""
    from estimators import registry
    from warehouse.calibrate.published import MEASUREMENTS
    from warehouse.database.catalog import load_catalog
    from warehouse.database.connection import open_for_write
    from warehouse.measure.published import store_published

    with open_for_write(db) as connection:
        catalog = load_catalog(connection)
        for name in registry.with_capability("takes_published_steps"):
            report = store_published(connection, registry.get(name), catalog)
            say(
                f"{MEASUREMENTS}: {count(report.num_rows, 'measurement')} evaluated by {name}, "
                f"{report.num_refused:,} of them refused; {count(report.num_new_cells, 'new cell')}"
            )


def _sections(connection: DuckDBPyConnection) -> list[Section]:
    """Return the tables that the quickstart shows."""
    gpus = f"gpt3_1T on {NUM_GPUS:,} GPUs"
    best = f"Best layout of each strategy, {gpus} (corrected)"
    errata = f"The best layout as published and corrected, {gpus}"
    ranks = "Where Megatron's layouts rank among all that fit, and what would be faster (corrected)"
    return [
        Section(best, *fetched(connection, BEST)),
        Section(errata, *fetched(connection, ERRATA)),
        *comparison(connection),
        Section(ranks, *fetched(connection, LAYOUT_RANK)),
    ]


def _suggest(db: Path) -> None:
    """Print queries to try next."""
    sys.stdout.write("\nTry next\n\n")
    option = "" if db == DEFAULT_DATABASE else f" --db {shlex.quote(str(db))}"
    for question, query in NEXT:
        sys.stdout.write(f'# {question}\nwarehouse sql{option} "{query}"\n\n')
