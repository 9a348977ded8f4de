"""`warehouse plan`: a run's best layouts, time, dollars, energy, and what would change them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, count, say, title_line
from warehouse.cli.options import ElectricityPrice as Electricity
from warehouse.cli.options import Goodput, Pue, Watts
from warehouse.cli.plan_question import question_lines

if TYPE_CHECKING:
    from warehouse.plan.question import Run
    from warehouse.plan_sweep import Wanted
    from warehouse.studies.study import Study
    from warehouse.sweep.runner import SweepReport

DEFAULT_MAX_GPUS = 16_384
BASES = ("on_demand", "one_year", "three_year", "owned")


def plan(
    tokens: Annotated[float, typer.Option(metavar="N", help="Tokens of the run, such as 15e12.")],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="A shape, attributes of the system, and what every layout is to have, as `why` "
            "takes them: num_layers=48, hbm_bytes=120e9, tensor_parallel=8.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The model to train, of table model; or give a shape instead."
        ),
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME", help="The accelerator, by any of its names.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, metavar="N", help="On so many GPUs.")
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Instead: for so many dollars at most.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Instead: in so many days at most.")
    ] = None,
    max_mw: Annotated[
        float | None, typer.Option(metavar="MW", help="Instead: with so many megawatts at most.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Sequences of a step.",
            show_default="2,048^2 tokens at 1e25 FLOPs, growing with their sixth root, rounded to "
            "a power of two of sequences",
        ),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Tokens of a sequence.", show_default="the model's"),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Program whose choices are taken, of table framework.",
            show_default="megatron_core",
        ),
    ] = None,
    nvlink_size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="GPUs in one NVLink domain.", show_default="as it is sold"
        ),
    ] = None,
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Whose estimates: training_step or roofline.")
    ] = "training_step",
    goodput: Goodput = None,
    price: Annotated[
        float | None,
        typer.Option(metavar="USD", help="Price of an hour of one GPU, instead of published ones."),
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(BASES),
            help="Which published price a budget is held against.",
            show_default="on_demand",
        ),
    ] = None,
    electricity_price: Electricity = None,
    pue: Pue = None,
    watts: Watts = None,
    carbon: Annotated[
        str | None,
        typer.Option(
            metavar="KG|NAME", help="kg CO2e of a kWh, or one of table grid_carbon; default: all."
        ),
    ] = None,
    headroom_gb: Annotated[
        float,
        typer.Option(metavar="GB", help="Memory that a layout must leave to be a candidate."),
    ] = 0.0,
    max_gpus: Annotated[
        int, typer.Option(min=1, metavar="N", help="GPUs that are tried at most.")
    ] = DEFAULT_MAX_GPUS,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Layouts to show.")] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be swept; write nothing.")
    ] = False,
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the queries that gave the figures as well.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, in base units.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Plan a run: its best layouts, days, dollars, energy.

    With --gpus the run has so many. With limits instead, one or several, powers of two are tried,
    then three counts between the best and the next: without --days the fastest run within the
    limits is taken, with it the cheapest. What is not stored yet is swept, every layout of every
    count, after saying how much; asked again, nothing is. Prices and power are the published ones
    unless given; where none was published the figure is missing and the note names the option
    that gives it. Every figure is the result of a query: --show-sql.

    A model of one's own is given by its shape instead of --model: num_layers, hidden_size,
    num_heads and seq_len at least. What names a degree, a ZeRO stage, recomputation or another
    choice holds every layout to it.
    """
    from warehouse.errors import UsageError
    from warehouse.plan.answer import make_plan
    from warehouse.plan.question import Asked, Limits, resolve
    from warehouse.plan_question import Given, asked_of, given_inputs, reference_tables

    limits = Limits(budget_usd, days, max_mw)
    if gpus is not None and limits:
        raise UsageError(
            "`--gpus` cannot stand beside a limit", "leave it out: the limits decide on the GPUs"
        )
    if gpus is None and not limits:
        raise UsageError(
            "neither a number of GPUs nor a limit is given",
            "give --gpus, or --budget-usd, --days, --max-mw or several of them",
        )
    if basis is not None and basis not in BASES:
        raise UsageError(f"`--basis` {basis} is not known", f"use {', '.join(BASES)}")
    if basis is not None and price is not None:
        raise UsageError("`--basis` cannot stand beside --price", "use one of them")
    options = {"model": model, "accelerator": accelerator, "seq_len": seq_len}
    options |= {"framework": framework, "nvlink_size": nvlink_size}
    given = given_inputs(estimator, options, pairs or [])
    if given.accelerator is None:
        raise UsageError("no accelerator is given", "give --accelerator, such as H100")
    terms = Given(
        goodput, price, pue, electricity_price, carbon, watts, basis or BASES[0], headroom_gb
    )
    bare = Asked(
        estimator,
        given.model,
        given.accelerator,
        tokens,
        gpus,
        limits,
        given.problem,
        given.held,
        batch=batch,
        max_gpus=max_gpus,
    )
    with reference_tables(db) as reference:
        run = resolve(asked_of(reference, bare, terms))
        say(title_line(estimator))
        for line in question_lines(run):
            say(line)
        answer = make_plan(
            run,
            db,
            reference,
            top=top,
            dry_run=dry_run,
            tell=lambda wanted: _tell(wanted, run, dry_run=dry_run),
            sweep=_sweep,
        )
    if answer is None:
        return
    from warehouse.cli.plan_document import document
    from warehouse.cli.plan_report import put_answer

    grid = terms.grid
    if as_json:
        sys.stdout.write(json.dumps(document(answer, top, grid), indent=1) + "\n")
    else:
        put_answer(answer, top, grid)
        if show_sql:
            for name, query in answer.queries.items():
                sys.stdout.write(f"\n-- {name}\n{query};\n")


def _tell(wanted: Wanted, run: Run, *, dry_run: bool) -> None:
    """Say what a sweep will take, before it does."""
    counts = ", ".join(f"{n:,}" for n in sorted(wanted.problems))
    rows, cells = count(wanted.plan.num_rows, "layout"), count(len(wanted.plan.cells), "cell")
    say(f"on {counts} GPUs: {rows} in {cells}")
    if not wanted.missing_cells:
        say("all of them are stored already")
        return
    verb = "would be evaluated and stored" if dry_run else "to evaluate and store"
    missing = f"{count(wanted.missing_rows, 'row')} of {count(wanted.missing_cells, 'cell')}"
    say(f"{missing} {verb}")
    if dry_run and run.asked.limits:
        say("then those of up to three counts between the best of these and the next")


def _sweep(database: Path, study: Study) -> SweepReport:
    from warehouse.cli.sweep import run_with_progress, summary

    report = run_with_progress(database, study, force=False)
    say(summary(report))
    return report
