"""`warehouse report`: a plan as one page to hand over."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Yes
from warehouse.cli.plan import store_and_say
from warehouse.cli.waiting import working
from warehouse.options import DEFAULT_PLANNER, EstimatorName, PlanOptions


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

    The options are those of `warehouse plan`. The page has the answer and its uncertainty, the
    limits of the run and the constants that matter most, near-optimal layouts, the accuracy on
    published runs, assumptions, sources, and the command and queries that made it. It needs no
    network. Needs the extra `plots`.
    """
    from warehouse.database.connection import open_once
    from warehouse.errors import UsageError
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
        store = partial(store_and_say, is_confirmed=yes)
        answer = answer_plan(run, sweep, db, LAYOUTS, store)
    with working("drawing the page"):
        page = page_of(answer, shlex.join(["warehouse", *sys.argv[1:]]))
    with written_whole(out) as file:
        file.write_text(page, encoding="utf-8")
    say(f"{out}: {len(page.encode()) / 1e6:.1f} MB")
