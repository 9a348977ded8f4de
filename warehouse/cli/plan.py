"""`warehouse plan`: the best layouts of a run, its time, dollars and energy, and their error."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import put_document, say, title_line
from warehouse.cli.options import DEFAULT_DATABASE, Database, DryRun, Top, Yes
from warehouse.cli.output import Output
from warehouse.options import DEFAULT_PLANNER, EstimatorName, PlanOptions
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep
    from warehouse.plan.stages import Stage

DEFAULT_TOP = 3


@dataclass(frozen=True)
class ShownOptions:
    """Options of the report."""

    top: Top = DEFAULT_TOP
    dry_run: DryRun = False
    yes: Yes = False
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the query of each figure as well.")
    ] = False


def plan(
    question: PlanOptions,
    shown: ShownOptions,
    output: Output,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="A shape, attributes of the system, or columns that every layout must have: "
            "num_layers=48, hbm_bytes=120e9, tensor_parallel=8.",
        ),
    ] = None,
    estimator: EstimatorName = DEFAULT_PLANNER,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Plan a run: its best layouts, days, dollars and energy.

    Give a GPU count, or one or several limits. Within limits, plan tries powers of two, then three
    counts between the best and the next. Of the counts that it tried, it takes the fastest within
    the limits, or the cheapest if --days is one of them. It first prints how many layouts are not
    stored yet, then evaluates and stores them.

    Prices and power are published ones unless given. If none is published, the figure is missing
    and its note names the option that gives it. --show-sql prints the query of each figure.

    A shape can replace --model: num_layers, hidden_size, num_heads and seq_len at least. By
    default, sequences are as long as the model's, NVLink domains are as large as those in which the
    accelerator is sold, and the batch follows from the tokens and the model.
    """
    from warehouse.database.connection import kept_open

    options = replace(question, estimator=estimator or DEFAULT_PLANNER, pairs=pairs or ())
    with kept_open(db):
        _answer(options, shown, output, db)


def _answer(options: PlanOptions, shown: ShownOptions, output: Output, db: Path) -> None:
    """Read the question, build the stages, and explain or run them."""
    from warehouse.cli.plan_columns import check_columns
    from warehouse.cli.plan_question import question_lines
    from warehouse.cli.plan_report import put_report
    from warehouse.plan.document import document
    from warehouse.plan.stages import asked_stages, run_stages

    check_columns(output.chosen, output.form, is_dry_run=shown.dry_run)

    def say_question(run: TrainingRun) -> None:
        say(title_line(run.request.estimator))
        # a report begins with the question
        for line in question_lines(run) if shown.dry_run or not output.is_for_people else ():
            say(line)

    run, stages = asked_stages(options, db, shown.top or DEFAULT_TOP, say_question)
    if shown.dry_run:
        with output.opened():
            _put_stages(stages, output)
        return
    answer = run_stages(run, stages, db, partial(store_and_say, is_confirmed=shown.yes))
    with output.opened():
        if output.is_json:
            put_document(document(answer, shown.top or DEFAULT_TOP))
            return
        put_report(answer, shown.top or DEFAULT_TOP, output.form)
        if shown.show_sql and output.is_for_people:
            begin, end = ("```sql\n", "```\n") if output.form is Format.MARKDOWN else ("", "")
            for name, query in answer.queries.items():
                sys.stdout.write(f"\n{begin}-- {name}\n{query};\n{end}")


def _put_stages(stages: Sequence[Stage], output: Output) -> None:
    """Print the stages of a plan: numbered lines for people, rows for programs."""
    from warehouse.cli.common import put
    from warehouse.plan.stages import explain_stage

    rows = [(number, explain_stage(stage)) for number, stage in enumerate(stages, start=1)]
    if output.form is not Format.TABLE:
        put(("stage", "action"), [rows], output.form)
        return
    for number, action in rows:
        sys.stdout.write(f"{number}. {action}\n")


def store_and_say(sweep: Sweep, database: Path, *, is_confirmed: bool) -> None:
    """Print the size of a sweep, then run it and show its progress."""
    from warehouse.cli.sweep import run_with_progress, summary
    from warehouse.sweep.estimate import cost_in_words, cost_of
    from warehouse.sweep.size_limits import LEAST_ROWS, refuse_too_large

    if sweep.missing_rows < LEAST_ROWS:
        say(sweep.in_words())
    else:
        cost = cost_of(sweep.plan, sweep.missing_rows)
        say(f"{sweep.in_words()}, {cost_in_words(cost)}")
        if not is_confirmed:
            refuse_too_large(sweep.study.name, sweep.missing_rows, cost.num_bytes, database)
    if sweep.is_needed(database):
        say(summary(run_with_progress(database, sweep.study, asked=sweep.plan)))
