"""Make every generated page and picture anew, or those that are named.

Pages are made side by side, each in an empty directory, by the commands that they show.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import chdir
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rivals.page import make_anew
from docs.build import accuracy, calibration, gallery, references, report_picture
from docs.build.console import filled, printed, with_sessions, write_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DATABASE = Path("db") / "warehouse.duckdb"
"""Where commands find the database, in the directory in which they run."""

Job = Callable[[Path], str | None]
"""Makes pages in an empty folder; returns a warning, if it has one."""


def make_references(_folder: Path) -> None:
    """Write the pages about columns, errata and lineage."""
    for name, text in references.PAGES.items():
        (DOCS / name).write_text(text(), encoding="utf-8")


def make_pages(folder: Path, paths: tuple[Path, ...], setup: str = "") -> None:
    """Write pages anew whose commands run in one folder, after the command `setup`."""
    said = {setup: printed(setup, folder)} if setup else {}

    def ask(command: str, place: Path, database: Path | None) -> str:
        return said.get(command) or printed(command, place, database)

    for path in paths:
        page = path.read_text("utf-8")
        write_files(page, folder)
        page = filled(page, folder, ask=ask)
        with chdir(folder):
            path.write_text(with_sessions(page), encoding="utf-8")


def make_planning(folder: Path) -> str | None:
    """Write the page about plans, and draw the report of one of its plans."""
    make_pages(folder, (DOCS / "planning.md",))
    drawn = report_picture.draw(folder)
    return None if drawn else f"{report_picture.PICTURE.name} stays as it is: no Chromium"


def make_gallery(folder: Path) -> None:
    """Write the gallery and draw its pictures."""
    gallery.PAGE.write_text(gallery.gallery(folder), encoding="utf-8")


def make_calibration(_folder: Path) -> None:
    """Write the page about calibrations."""
    text = calibration.PAGE.read_text("utf-8")
    calibration.PAGE.write_text(calibration.filled(text), encoding="utf-8")


def make_rivals(_folder: Path) -> None:
    """Write the page about programs of others from the answers that they gave."""
    make_anew()


def make_small(folder: Path) -> None:
    """Write the pages whose reader has the database of the small quickstart."""
    printed("warehouse quickstart --small", folder)
    for path in (DOCS / "python.md", DOCS / "sql-clients.md"):
        place = folder / path.stem
        (place / "db").mkdir(parents=True)
        shutil.copyfile(folder / DATABASE, place / DATABASE)
        make_pages(place, (path,))
    text = accuracy.PAGE.read_text("utf-8")
    accuracy.PAGE.write_text(accuracy.filled(text, folder / DATABASE), encoding="utf-8")


JOBS: Mapping[tuple[str, ...], Job] = {
    ("gallery.md",): make_gallery,
    ("README.md", "tour.md"): partial(
        make_pages, paths=(ROOT / "README.md", DOCS / "tour.md"), setup="warehouse quickstart"
    ),
    ("planning.md",): make_planning,
    ("launch_files.md",): partial(make_pages, paths=(DOCS / "launch_files.md",)),
    ("questions.md",): partial(make_pages, paths=(DOCS / "questions.md",)),
    ("python.md", "sql-clients.md", "accuracy.md"): make_small,
    ("calibration.md",): make_calibration,
    ("agents.md",): partial(make_pages, paths=(DOCS / "agents.md",)),
    ("rivals.md",): make_rivals,
    tuple(references.PAGES): make_references,
}
"""The pages that a job makes together -> the job. Long jobs come first."""


def run_in_folder(job: Job) -> str | None:
    """Run a job in a new folder, with no database named."""
    os.environ.pop("WAREHOUSE_DB", None)
    with TemporaryDirectory() as folder:
        return job(Path(folder))


def main() -> None:
    """Make the pages that the command line names; all, if it names none."""
    known = [name for names in JOBS for name in names]
    parser = argparse.ArgumentParser(prog="python -m docs.build.pages", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(known)}")
    wanted = parser.parse_args().pages
    if unknown := sorted(set(wanted) - set(known)):
        parser.error(f"no generated page: {', '.join(unknown)}; choose from {', '.join(known)}")
    chosen = {names: job for names, job in JOBS.items() if not wanted or set(names) & set(wanted)}
    failed = False
    # a process a job: each has a directory and an environment of its own
    with ProcessPoolExecutor(mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(run_in_folder, job): names for names, job in chosen.items()}
        for done in as_completed(running):
            names = ", ".join(running[done])
            if error := done.exception():
                failed = True
                print(f"error: {names}: {error}", file=sys.stderr)
            else:
                print(f"{names}: made", file=sys.stderr)
                if warning := done.result():
                    print(f"warning: {warning}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
