"""`warehouse sweep`: evaluate a study and store every row."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli import completion
from warehouse.cli.common import put_for_people, say
from warehouse.cli.interrupts import interruptible
from warehouse.cli.options import (
    DEFAULT_DATABASE,
    Database,
    DryRun,
    Mending,
    Output,
    Profile,
)
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warehouse.show.formats import Format
    from warehouse.studies.study import Study
    from warehouse.sweep.runner import OnProgress, SweepReport


def sweep(
    *,
    study: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.studies,
            metavar="STUDY",
            help="A TOML file, or the name of a study that comes with the package.",
        ),
    ],
    mending: Mending,
    profile: Profile = None,
    dry_run: DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Evaluate stored cells again and replace them.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Processes that evaluate; by default by the cores, 1 on two cores.",
        ),
    ] = None,
    output: Output,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Evaluate every layout of a study and store each as a row.

    Stored cells are not evaluated again, and an interrupted sweep resumes where it stopped.
    --variant takes the place of the study's own; besides the usual names, `both` sweeps published
    and corrected, and `each` mends every erratum alone as well. A study that is swept under another
    variant or a profile is stored under a name that ends in it, next to the original.
    """
    from warehouse.errors import UsageError
    from warehouse.sweep.asked import asked_study

    if not dry_run and output != Output():
        raise UsageError("--format, --out and --json need `--dry-run`", "a sweep prints no rows")
    loaded = asked_study(study, db, mending.variant, mending.mend, profile)
    if dry_run:
        with output.opened():
            _count_rows(loaded, db, output.form)
        return
    say(summary(run_with_progress(db, loaded, force=force, workers=workers)))


def run_with_progress(
    db: Path, study: Study, *, force: bool = False, workers: int | None = None
) -> SweepReport:
    """Run a study, with a progress bar where stderr is a terminal."""
    from warehouse.sweep.runner import run_study

    try:
        with interruptible(), _progress_bar(study.name) as on_progress:
            return run_study(db, study, force=force, workers=workers, on_progress=on_progress)
    except KeyboardInterrupt:
        say(f"{study.name}: stopped; what is stored stays, the same command resumes")
        raise


def summary(report: SweepReport) -> str:
    """Return what a sweep did, in one line."""
    before = f"{count(report.cells_before, 'cell')} ({count(report.rows_before, 'row')})"
    if not report.cells:
        return f"{report.study}: nothing to do, all {before} are stored already"
    text = (
        f"{report.study}: {count(report.rows, 'row')} of {count(report.cells, 'cell')} evaluated "
        f"and stored in {report.seconds:.1f} s ({report.rows_per_second:,.0f} rows/s)"
    )
    return f"{text}; {before} were stored already" if report.cells_before else text


def _count_rows(study: Study, db: Path, form: Format) -> None:
    from warehouse.database.catalog import packaged_catalog
    from warehouse.evaluate.profiles import load_profiles
    from warehouse.sweep.runner import plan

    planned = plan(study, packaged_catalog(), lambda: load_profiles(db))
    put_for_people(
        ("study", "cells", "rows"), [[study.name, len(planned.cells), planned.num_rows]], form
    )


@contextmanager
def _progress_bar(name: str) -> Iterator[OnProgress | None]:
    if not sys.stderr.isatty():
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=1, start=False, visible=False, rate="")
        first: tuple[float, int] | None = None

        def on_progress(rows: int, total_rows: int, _cells: int, _total_cells: int) -> None:
            nonlocal first
            if first is None:  # rows of an earlier run are no part of this one's speed
                first = (time.monotonic(), rows)
                bar.reset(task, total=total_rows, completed=rows, visible=True)
                return
            seconds = time.monotonic() - first[0]
            speed = (rows - first[1]) / seconds if seconds else 0.0
            bar.update(task, completed=rows, rate=f"{speed:,.0f} rows/s")

        yield on_progress
