"""`warehouse sweep`: evaluate a study and store every row."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warehouse.cli import completion
from warehouse.cli.common import put_for_people, say
from warehouse.cli.interrupts import interruptible
from warehouse.cli.lake import Sharing, estimate_of_shards, sweep_into_lake
from warehouse.cli.options import DEFAULT_DATABASE, Database, DryRun, Mending, Yes
from warehouse.cli.output import Output
from warehouse.cli.waiting import LogLines, working
from warehouse.options import CatalogFile, Profile, whole_option
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warehouse.studies.study import Study
    from warehouse.sweep.cells import OnChecked, StudyCells
    from warehouse.sweep.estimate import Estimate
    from warehouse.sweep.progress import OnProgress
    from warehouse.sweep.runner import SweepReport

SIZES = (
    *("study", "shard", "cells", "rows", "missing_cells", "missing_rows"),
    *("sweep_seconds", "stored_bytes", "is_sampled"),
)
"""Columns of `--dry-run`: a study of a lake has shards, one of a database has bytes."""


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
    catalog: CatalogFile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Evaluate stored cells again and replace them.")
    ] = False,
    workers: Annotated[
        int | None,
        whole_option(
            "--workers", "Processes that evaluate; by default by the cores, 1 on two cores."
        ),
    ] = None,
    sharing: Sharing,
    output: Output,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Evaluate every layout of a study and store each as a row.

    Stored cells are not evaluated again, and an interrupted sweep resumes where it stopped.
    --variant replaces the study's own; in addition to the usual names, `both` sweeps published and
    corrected, and `each` also mends every erratum alone. Under another variant or a profile, the
    study is stored next to the original, under a name that ends in the variant or profile.

    With --lake, parts of a study run on machines that share a folder and nothing else:
    --shard evaluates one part, --engine starts all of them. STUDY may then be the name of a study
    of the lake. `warehouse collect` takes finished cells into a database.
    """
    from warehouse.errors import UsageError
    from warehouse.sweep.study import study_under_options

    output.expect(SIZES)
    sharing.check(force=force, workers=workers)
    if not dry_run and output != Output():
        raise UsageError("--format, --out and --json need `--dry-run`", "a sweep prints no rows")
    asked = (mending.variant, mending.mend, profile, catalog)
    is_as_recorded = asked == (None,) * len(asked)
    loaded = sharing.study(study) if is_as_recorded else None
    loaded = loaded or study_under_options(study, db, *asked)
    if sharing.lake is not None:
        if dry_run:
            _put(*estimate_of_shards(loaded, sharing.lake, sharing.chosen_shard()), output)
        else:
            sweep_into_lake(loaded, sharing.lake, sharing, db)
        return
    from warehouse.database.copies import back_up_before_sweep
    from warehouse.sweep.estimate import estimate
    from warehouse.sweep.sizes import LEAST_ROWS

    with working("counting cells and layouts"):
        expected = estimate(loaded, db, force=force)
    if dry_run:
        say(expected.in_words())
        _put(expected, {"study": loaded.name}, output, has_bytes=True)
        return
    if expected.size.missing_rows >= LEAST_ROWS:
        say(expected.in_words())
    if not yes:
        expected.refuse_too_large(db)
    if expected.size.missing_rows:
        with working("copying the database"):
            copy = back_up_before_sweep(db)
        if copy is not None:
            say(f"{copy}: the database before the sweep")
    report = run_with_progress(db, loaded, force=force, workers=workers, cells=expected.cells)
    say(summary(report))


def run_with_progress(
    db: Path,
    study: Study,
    *,
    force: bool = False,
    workers: int | None = None,
    cells: StudyCells | None = None,
) -> SweepReport:
    """Run a study and show its progress: as a bar on a terminal, as a line now and then elsewhere.

    `cells` are those of the study, where they are known.
    """
    from warehouse.sweep.runner import run_study

    try:
        with interruptible(), _progress(study.name) as (on_progress, on_checked):
            return run_study(
                db,
                study,
                force=force,
                workers=workers,
                on_progress=on_progress,
                on_checked=on_checked,
                cells=cells,
            )
    except KeyboardInterrupt:
        say(f"{study.name}: stopped; stored rows stay, the same command resumes")
        raise


def summary(report: SweepReport) -> str:
    """Return the outcome of a sweep in one line."""
    before = f"{count(report.cells_before, 'cell')} ({count(report.rows_before, 'row')})"
    if not report.cells:
        return f"{report.study}: nothing to do, all {before} are stored already"
    text = (
        f"{report.study}: {count(report.rows, 'row')} of {count(report.cells, 'cell')} evaluated "
        f"and stored in {report.seconds:.1f} s ({report.rows_per_second:,.0f} rows/s)"
    )
    return f"{text}; {before} were stored already" if report.cells_before else text


def _put(
    expected: Estimate, names: dict[str, str], output: Output, *, has_bytes: bool = False
) -> None:
    """Print the size of a sweep; a lake has other bytes than a database."""
    said: dict[str, object] = {"sweep_seconds": expected.cost.seconds}  # in a line above
    if has_bytes:
        said["stored_bytes"] = expected.cost.num_bytes
    said["is_sampled"] = expected.is_sampled
    sizes = {**names, **vars(expected.size), **said}
    with output.opened():
        put_for_people(tuple(sizes), [list(sizes.values())], drop=said)


@contextmanager
def _progress(name: str) -> Iterator[tuple[OnProgress, OnChecked]]:
    if not sys.stderr.isatty():
        yield _log_lines(name)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        # a long name is cut, so that the figures fit on 80 columns
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(bar_width=12, table_column=Column(width=12)),
        TextColumn("{task.fields[rows]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(name, total=1, start=False, visible=False, rows="")
        first: tuple[float, int] | None = None

        def on_progress(rows: int, total_rows: int, _cells: int, _total_cells: int) -> None:
            nonlocal first
            if first is None:  # the speed leaves out rows of an earlier run
                first = (time.monotonic(), rows)
                bar.reset(task, total=total_rows, completed=rows, visible=True)
            seconds = time.monotonic() - first[0]
            speed = (rows - first[1]) / seconds if seconds else 0.0
            bar.update(task, completed=rows, rows=_in_short(rows, total_rows, speed))

        def on_checked(done: int, total: int) -> None:
            said = f"{done:,} of {total:,} combinations checked"
            bar.update(task, total=total, completed=done, rows=said, visible=True)

        yield on_progress, on_checked


def _in_short(rows: int, total_rows: int, rows_per_second: float) -> str:
    """Return rows and speed in at most 40 characters."""
    if total_rows < 1_000_000:
        return f"{rows:,} of {total_rows:,} rows, {rows_per_second:,.0f}/s"
    done, total, speed = rows / 1e6, total_rows / 1e6, rows_per_second / 1e6
    return f"{done:,.1f} of {total:,.1f} M rows, {speed:.2f} M/s"


def _log_lines(name: str) -> tuple[OnProgress, OnChecked]:
    """Return functions that print the progress of a long sweep, a line each minute."""
    lines = LogLines()
    first: tuple[float, int] | None = None

    def on_progress(rows: int, total_rows: int, _cells: int, _total_cells: int) -> None:
        nonlocal first
        # the speed leaves out rows of an earlier run
        started, first_row = first = first or (time.monotonic(), rows)
        if rows > first_row and lines.is_due():
            from warehouse.show.units import sweep_time_in_words

            left = (total_rows - rows) * (time.monotonic() - started) / (rows - first_row)
            say(f"{name}: {rows:,} of {total_rows:,} rows, {sweep_time_in_words(left)} left")

    def on_checked(done: int, total: int) -> None:
        if lines.is_due():
            say(f"{name}: {done:,} of {total:,} combinations checked")

    return on_progress, on_checked
