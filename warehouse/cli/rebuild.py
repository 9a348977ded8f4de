"""`warehouse rebuild`: make the database again from its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.rebuild.replay import Replayed
    from warehouse.studies.study import Study


def rebuild(db: Database = DEFAULT_DATABASE) -> None:
    """Make the database again from its facts.

    It works where the file is damaged, of an older version, or gone: the facts are in the folder
    FILE.facts beside it. Studies, questions of `plan` and evaluated files are evaluated again, by
    this version. Measured runs and profiles are stored as they were. Your own tables, views and
    macros are copied if the former file opens; values that a shell changed in tables of this
    package are not. The new file takes the name once every check has passed. The former file is
    kept as FILE.old if it does not open, or has contents that the new one lacks.
    """
    from warehouse.errors import CheckError
    from warehouse.rebuild.rebuild import rebuild as rebuilt

    report = rebuilt(db, sweep_aloud)
    say_replayed(report.replayed)
    for what in report.copied:
        say(f"copied {what}")
    for what in report.missing:
        say(f"warning: only the former file has {what}")
    if report.reason:
        say(f"the former file: {report.reason}")
    if report.former_file is not None:
        say(f"{report.former_file} is the former file; remove it when you need it no more")
    if report.former_folder is not None:
        say(f"{report.former_folder} is the former folder of facts, which was damaged or too old")
    if report.damage:
        say(f"warning: in its folder of facts {report.damage}")
    if lost := [*report.replayed.lost, *(["damaged facts"] if report.damage else [])]:
        raise CheckError(
            f"{db}: was made again without {' and '.join(lost)}",
            "the reasons are above; everything else is stored",
        )
    say(f"{db}: made again, every check passed")


def repair(db: Database = DEFAULT_DATABASE) -> None:
    """Make the database again: the former name of `rebuild`."""
    say("`warehouse repair` is now `warehouse rebuild`; this name goes with the next version")
    rebuild(db)


def say_replayed(done: Replayed) -> None:
    """Print what was stored, what another version had evaluated, and what could not be stored."""
    words = {"calibration": "profiles", "measurement": "measured runs", "study": "studies"}
    for kind, names in done.names.items():
        say(f"{words[kind]}: {', '.join(names)}")
    for study, (estimator, then, now) in done.other_versions.items():
        say(f"{study}: version {then} of {estimator} had evaluated it, version {now} has now")
    for what, reason in done.lost.items():
        say(f"warning: {what} could not be stored: {reason}")


def sweep_aloud(db: Path, study: Study) -> None:
    """Run a study, show its progress, and print its outcome."""
    from warehouse.cli.sweep import run_with_progress, summary

    say(summary(run_with_progress(db, study)))
