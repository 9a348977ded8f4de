"""`warehouse quickstart`: from an empty database to an answer."""

from __future__ import annotations

import csv
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse import settings
from warehouse.cli.common import PAPER, fetched, records, say
from warehouse.cli.database import bring_up_to_date
from warehouse.cli.options import DEFAULT_DATABASE, Database
from warehouse.cli.sweep import run_with_progress, summary
from warehouse.options import PlanOptions
from warehouse.show.formats import count, entry_lines

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.plan.answer import PlanAnswer
    from warehouse.plan.search import Sweep
    from warehouse.show.page import Entry

STUDIES = "quickstart.csv"
"""File of the packaged studies that lists those of the quickstart, in their order."""

TRY_NEXT = (
    "plan --model llama3_70B --tokens 15T --accelerator H100 --gpus 1024",
    "rank --model gpt3_1T --num-gpus 4096 --nvlink-size 8",
    "validate",
)
"""Commands to try next."""

PAPER_OF_RUN = "arXiv 2104.04473"
ACCELERATOR = "A100 SXM 80GB"
FRAMEWORK = "megatron_lm_2021"
"""The program of the paper, for a plan to compare with what it measured."""

LARGEST = PlanOptions([450e9], "megatron_1T", [ACCELERATOR], [3072], [3072], framework=FRAMEWORK)
"""The largest run of the paper (table 1), with the tokens of section 5.1."""

SMALLEST = PlanOptions([300e9], "megatron_1.7B", [ACCELERATOR], [32], [512], framework=FRAMEWORK)
"""The smallest run of that table, with the tokens of GPT-3 (arXiv 2005.14165)."""

_PUBLISHED = """\
select
    step.data_parallel, step.tensor_parallel, step.pipeline_parallel, step.microbatch_size,
    step.uses_sequence_parallel, step.activation_recompute,
    step.published_step_seconds, step.step_seconds, step.time_relative_error,
    accuracy.num_timed, accuracy.time_mean_absolute_relative_error as mean_error,
    (select sum(num_rows)::bigint from cell) as num_stored
from published_comparison as step
inner join published_accuracy as accuracy using (reference, estimator)
where
    reference = 'published_megatron_scaling'
    and accuracy.grouped_by = 'reference'
    and step.published_row = $row
    and estimator = $estimator"""


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
    from warehouse.sweep.study import study_under_options

    started = time.perf_counter()
    bring_up_to_date(db)
    for name, variant in studies(small=small):
        report = run_with_progress(db, study_under_options(name, db, variant))
        say(summary(report))
    _evaluate_published(db)
    lines = _answer_lines(db, SMALLEST if small else LARGEST)
    option = "" if db == settings.database() else f" --db {shlex.quote(str(db))}"
    lines += ["", "Try next:", *(f"  warehouse {command}{option}" for command in TRY_NEXT)]
    sys.stdout.write("\n".join(lines) + "\n")
    say(f"\nquickstart took {time.perf_counter() - started:.1f} s")


def studies(*, small: bool) -> list[tuple[str, str | None]]:
    """Return the studies to sweep in order, each with the variant that replaces its own."""
    from warehouse.database import resources

    text = (resources.studies_directory() / STUDIES).read_text(encoding="utf-8")
    flag = "in_small" if small else "in_whole"
    lines = csv.DictReader(text.splitlines())
    return [(line["study"], line["variant"] or None) for line in lines if line[flag] == "true"]


def _evaluate_published(db: Path) -> None:
    """Store the estimates of view `published_measurement`."""
    from estimators import registry
    from warehouse.database.catalog import packaged_catalog
    from warehouse.database.connection import writing
    from warehouse.database.tables import MEASUREMENTS
    from warehouse.measure.published import store_published

    catalog = packaged_catalog()
    with writing(db) as connection:
        for name in registry.with_capability("source.takes_published_steps"):
            report = store_published(connection, registry.get(name), catalog)
            say(
                f"{MEASUREMENTS}: {count(report.num_rows, 'measurement')} evaluated by {name}, "
                f"{report.num_refused:,} of them refused; {count(report.num_new_cells, 'new cell')}"
            )


def _answer_lines(db: Path, options: PlanOptions) -> list[str]:
    """Plan a published run, store its layouts, and return the answer next to what was measured."""
    from warehouse.database.connection import open_for_read, open_once
    from warehouse.plan.run import answer_plan, first_sweep
    from warehouse.plan.words import answer_entries

    with open_once(db):
        answer = answer_plan(*first_sweep(options, db), db, store=_store)
    asked = answer.run.request
    row = str(options.model).removeprefix("megatron_")
    names = {"row": row, "estimator": asked.estimator}
    with open_for_read(db) as connection:
        [published] = records(fetched(connection, _PUBLISHED, names))
    return [
        "",
        f"Best layout of {options.model}: {asked.tokens / 1e9:,.0f} G tokens on "
        f"{asked.num_gpus:,} {asked.accelerator}, nothing fitted",
        "",
        *entry_lines([*answer_entries(answer), _as_measured(answer, published)], PAPER),
        "",
        f"{db} holds {count(published['num_stored'], 'configuration')} "
        f"({db.stat().st_size / 1e6:,.0f} MB)",
    ]


def _store(sweep: Sweep, database: Path) -> None:
    say(summary(run_with_progress(database, sweep.study)))


def _as_measured(answer: PlanAnswer, published: dict[str, Any]) -> Entry:
    """Return the time of the published layout, measured and predicted."""
    from warehouse.show.units import run_time_in_words

    steps = answer.best["training_seconds"] / answer.best["step_seconds"]
    measured, predicted = (
        run_time_in_words(steps * published[name])
        for name in ("published_step_seconds", "step_seconds")
    )
    return (
        "published",
        f"{answer.in_words(published)}: {measured} at the measured step, predicted {predicted} "
        f"({100 * published['time_relative_error']:+.1f} %); {100 * published['mean_error']:.1f} % "
        f"mean error on the {published['num_timed']} steps of its table ({PAPER_OF_RUN})",
    )
