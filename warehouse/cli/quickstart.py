"""`warehouse quickstart`: from an empty database to an answer."""

from __future__ import annotations

import csv
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse import settings
from warehouse.cli.common import say
from warehouse.cli.database import bring_up_to_date
from warehouse.cli.options import DEFAULT_DATABASE, Database
from warehouse.cli.sweep import run_with_progress, summary
from warehouse.show.formats import count

if TYPE_CHECKING:
    from pathlib import Path

STUDIES = "quickstart.csv"
"""File of the packaged studies that lists those of the quickstart, in their order."""

TRY_NEXT = (
    "plan --model llama3_70B --tokens 15T --accelerator H100 --gpus 1024",
    "rank --model gpt3_1T --num-gpus 4096 --nvlink-size 8",
    "validate",
)
"""Commands to try next."""


def quickstart(
    small: Annotated[
        bool, typer.Option("--small", help="One model, one-dimensional tensor parallelism only.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Build a database, run the main searches, print an answer.

    Sweeps the whole grid of arXiv 2410.00273, as published and corrected: two models, three
    strategies, three generations of GPUs, three sizes of NVLink domains, 4 to 16,384 GPUs. Then
    every layout of the ten configurations that Megatron published (arXiv 2104.04473), and every
    published step by each estimator that can represent it. A second run evaluates nothing again.
    """
    from warehouse.cli.flagship import flagship_lines
    from warehouse.sweep.study import study_under_options

    started = time.perf_counter()
    bring_up_to_date(db)
    for name, variant in studies(small=small):
        report = run_with_progress(db, study_under_options(name, db, variant))
        say(summary(report))
    _evaluate_published(db)
    lines = flagship_lines(db, small=small)
    sys.stdout.write("\n".join(lines) + "\n")
    _suggest(db)
    say(f"\nquickstart took {time.perf_counter() - started:.1f} s")


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
    from warehouse.calibrate import MEASUREMENTS
    from warehouse.database.catalog import load_catalog
    from warehouse.database.connection import writing
    from warehouse.measure.published import store_published

    with writing(db) as connection:
        catalog = load_catalog(connection)
        for name in registry.with_capability("takes_published_steps"):
            report = store_published(connection, registry.get(name), catalog)
            say(
                f"{MEASUREMENTS}: {count(report.num_rows, 'measurement')} evaluated by {name}, "
                f"{report.num_refused:,} of them refused; {count(report.num_new_cells, 'new cell')}"
            )


def _suggest(db: Path) -> None:
    """Print commands to try next."""
    option = "" if db == settings.database() else f" --db {shlex.quote(str(db))}"
    sys.stdout.write("\nTry next:\n")
    for command in TRY_NEXT:
        sys.stdout.write(f"  warehouse {command}{option}\n")
