"""`warehouse plan` and `report`: the best layouts of a run, its time, dollars, energy and error."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse import settings
from warehouse.cli.common import put, put_page, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, DryRun, Top, Yes
from warehouse.cli.output import Output
from warehouse.cli.waiting import working
from warehouse.errors import UsageError
from warehouse.options import DEFAULT_PLANNER, EstimatorName, PlanOptions, arguments_of, text_option
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.plan.question import TrainingRun
    from warehouse.plan.search import Sweep
    from warehouse.plan.several import Question

DEFAULT_TOP = 3

STEPS = ("stage", "action")


@dataclass(frozen=True)
class ShownOptions:
    """Options of the page."""

    top: Top = DEFAULT_TOP
    details: Annotated[
        bool, typer.Option("--details", help="Print the tables behind the answer as well.")
    ] = False
    dry_run: DryRun = False
    yes: Yes = False
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the query of each figure as well.")
    ] = False
    program: Annotated[
        str | None,
        text_option(
            "--launch",
            "PROGRAM",
            "Print the launch file of the best layout alone, for megatron, bridge or torchtitan; "
            "the plan goes to stderr or --out.",
        ),
    ] = None
    slurm: Annotated[
        bool, typer.Option("--slurm", help="With --launch: as a batch script of Slurm.")
    ] = False

    def __post_init__(self) -> None:
        if self.slurm and self.program is None:
            raise UsageError("`--slurm` is for a launch file", "add --launch megatron")
        if self.program is not None:
            from warehouse.launch.write import check_program

            check_program(self.program)


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

    Give a GPU count, or one or several limits. Of N GPUs a plan uses as many as are fastest; the
    others are idle, and paid for. Within limits, plan tries a count between each two powers of two,
    then others that may be better. It takes the fastest within the limits, or the cheapest if
    --days is one of them. Without --batch it takes the usual batch of a run of this size, or, where
    no count meets the limits with it, the smallest published one with which a count does. It first
    prints how many layouts are not stored yet, then evaluates and stores them.

    Prices and power are published ones unless given. If none is published, the figure is missing
    and its note names the option that gives it. --show-sql prints the query of each figure.

    --accelerator, --gpus and --tokens repeat, and --accelerator all takes every product whose
    servers have fast links, and the systems of --catalog: one table, a row each, the best first;
    what has no answer or misses a limit is last, with its reason.

    A shape can replace --model: num_layers, hidden_size, num_heads and seq_len at least. By
    default, sequences are as long as the model's, NVLink domains are as large as those in which the
    accelerator is sold, and the batch follows from the tokens and the model.
    """
    from warehouse.database.connection import open_once

    options = replace(question, estimator=estimator or DEFAULT_PLANNER, pairs=pairs or ())
    with open_once(db):
        _answer(options, shown, output, db)


def _answer(options: PlanOptions, shown: ShownOptions, output: Output, db: Path) -> None:
    """Read the question, and print the steps of the plan or its answer."""
    from warehouse.plan.several import asks_several

    launch = shown.program
    if launch is not None and (shown.dry_run or asks_several(options)):
        reason = "starts one layout, which follows from one question without --dry-run"
        raise UsageError(f"`--launch` {launch} {reason}", "ask that question alone")
    if asks_several(options):
        _answer_several(options, shown, output, db)
        return
    from warehouse.plan.page import LAYOUTS, TABLES, plan_page
    from warehouse.plan.question_words import question_lines
    from warehouse.plan.run import answer_plan, first_sweep, steps_in_words

    if shown.dry_run:
        output.expect(STEPS)
    else:
        output.expect(TABLES, csv=LAYOUTS)

    def say_question(run: TrainingRun) -> None:
        # a page begins with the question
        for line in question_lines(run) if shown.dry_run or not output.is_for_people else ():
            say(line)

    top = shown.top or DEFAULT_TOP
    run, sweep = first_sweep(options, db, say_question)
    _say_silent(run)
    if shown.dry_run:
        with output.opened():
            _put_steps(steps_in_words(run, sweep, top), output.form)
        return
    answer = answer_plan(run, sweep, db, top, partial(_store, is_confirmed=shown.yes))
    plan_aside = nullcontext() if launch is None or output.out else redirect_stdout(sys.stderr)
    with output.opened(), plan_aside:
        # a choice of columns is one of tables
        has_details = shown.details or bool(output.chosen)
        put_page(plan_page(answer, top, has_details=has_details))
        if shown.show_sql and output.is_for_people:
            begin, end = ("```sql\n", "```\n") if output.form is Format.MARKDOWN else ("", "")
            for name, query in answer.queries.items():
                sys.stdout.write(f"\n{begin}-- {name}\n{query};\n{end}")
    if launch is not None:
        from warehouse.plan.launched import launch_of_plan

        sys.stdout.write(launch_of_plan(answer, launch, slurm=shown.slurm))


def _answer_several(options: PlanOptions, shown: ShownOptions, output: Output, db: Path) -> None:
    """Read several questions, and print their first sweeps or one table of their answers."""
    from warehouse.plan.run import store_sweep
    from warehouse.plan.several import COLUMNS, answer_all, none_answered, read_questions
    from warehouse.plan.several_page import TABLE, several_page

    for option, is_given in (("--details", shown.details), ("--show-sql", shown.show_sql)):
        if is_given:
            raise UsageError(
                f"`{option}` is for one question, and several are asked",
                "ask the one that you want to see in full alone",
            )
    if shown.dry_run:
        output.expect(STEPS)
    else:
        output.expect(TABLE, csv=COLUMNS)
    questions = read_questions(options, db)
    _say_silent(questions[0].run)
    if shown.dry_run:
        steps = [f"{one.in_words}: {one.first_step}" for one in questions]
        with output.opened():
            _put_steps(steps, output.form)
        return

    def say_question(number: int, question: Question) -> None:
        say(f"{number} of {len(questions)}: {question.in_words}")

    top = shown.top or DEFAULT_TOP

    def store(sweep: Sweep, database: Path) -> None:
        with working(f"evaluating {sweep.missing_rows:,} rows"):
            store_sweep(sweep, database, allow_large=shown.yes)

    answered = answer_all(questions, db, top, store, say_question)
    command = f"warehouse plan {arguments_of(answered[0].question.options)}"
    if db != settings.database():
        command += f" --db {shlex.quote(str(db))}"
    with output.opened():
        put_page(several_page(answered, top, command))
    if answered[0].answer is None:
        raise none_answered(answered)


def _put_steps(steps: Sequence[str], form: Format) -> None:
    """Print the steps of a plan: numbered lines on a terminal, rows in other formats."""
    rows = list(enumerate(steps, start=1))
    if form is not Format.TABLE:
        put(STEPS, [rows])
        return
    for number, action in rows:
        sys.stdout.write(f"{number}. {action}\n")


def _say_silent(run: TrainingRun) -> None:
    """Print which arguments of a launch file change nothing here."""
    for line in () if run.request.launch is None else run.request.launch.silent():
        say(line)


def report(
    question: PlanOptions,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            readable=False,
            help="The page, ending in .html; an existing one is replaced.",
        ),
    ],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="As `warehouse plan` takes them."),
    ] = None,
    estimator: EstimatorName = DEFAULT_PLANNER,
    yes: Yes = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write a plan as one page that opens offline.

    It takes the options of `warehouse plan`. The page has the answer and its uncertainty, the
    limits of the run and the constants that matter most, near-optimal layouts, the accuracy on
    published runs, assumptions, sources, and the command and queries that made it. It needs no
    network. Needs the extra `plots`.
    """
    from warehouse.database.connection import open_once
    from warehouse.files import check_target, written_whole
    from warehouse.plan.run import answer_plan, first_sweep
    from warehouse.plot.draw import require_packages

    require_packages()
    if out.suffix.lower() != ".html":
        raise UsageError(f"`--out` {out} must end in .html", "a report is one page")
    check_target(out)
    from warehouse.report.content import LAYOUTS
    from warehouse.report.page import page_of

    options = replace(question, estimator=estimator or DEFAULT_PLANNER, pairs=pairs or ())
    with open_once(db):
        run, sweep = first_sweep(options, db)
        _say_silent(run)
        answer = answer_plan(run, sweep, db, LAYOUTS, partial(_store, is_confirmed=yes))
    with working("drawing the page"):
        page = page_of(answer, shlex.join(["warehouse", *sys.argv[1:]]))
    with written_whole(out) as file:
        file.write_text(page, encoding="utf-8")
    say(f"{out}: {len(page.encode()) / 1e6:.1f} MB")


def _store(sweep: Sweep, database: Path, *, is_confirmed: bool) -> None:
    """Print the size of a sweep, then run it and show its progress."""
    from warehouse.cli.sweep import run_with_progress, summary
    from warehouse.sweep.estimate import cost_in_words, cost_of
    from warehouse.sweep.sizes import LEAST_ROWS, refuse_too_large

    if not sweep.missing_cells:
        return
    if sweep.missing_rows < LEAST_ROWS:
        say(sweep.in_words())
    else:
        cost = cost_of(sweep.cells, sweep.missing_rows)
        say(f"{sweep.in_words()}, {cost_in_words(cost)}")
        if not is_confirmed:
            refuse_too_large(sweep.study.name, sweep.missing_rows, cost.num_bytes, database)
    if sweep.is_needed(database):
        say(summary(run_with_progress(database, sweep.study, cells=sweep.cells)))
