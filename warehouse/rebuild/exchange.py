"""Facts of one database for another: a copy of its folder, and the import of such a copy."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.facts import (
    CALIBRATION,
    STUDY,
    begin_folder,
    facts_of,
    read_facts,
)
from warehouse.database.recording import is_intact, lacking_facts, settle_by, write_facts
from warehouse.errors import InputError
from warehouse.files import partial_path, remove_abandoned
from warehouse.rebuild.first_format import MANIFEST, opened
from warehouse.rebuild.replay import Replayed, replay
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warehouse.database.facts import Entry, Facts
    from warehouse.rebuild.replay import Sweep

_PROBLEMS = ("problem_id", "profiled_problem_id")

_ORIGINS = ("created_at", "study_file", "measurement_file", "estimator_version", *_PROBLEMS)
"""Keys with time and origin, and what follows from configurations: facts that differ only in these
are equal."""


_UNFINISHED = """\
select study
from study left join study_cell using (study) left join cell using (cell_id)
group by study, study.num_cells having count(cell.cell_id) < study.num_cells"""
"""Studies whose sweep was interrupted."""


@dataclass(frozen=True)
class ExportReport:
    """The numbers of the facts in force, and of the bytes of the folder."""

    num_facts: int
    num_bytes: int


def export_facts(database: Path, folder: Path) -> ExportReport:
    """Copy the facts of a database to a new folder, whole or not at all."""
    _refuse_folder(folder)
    remove_abandoned(folder)
    new = partial_path(folder)
    with open_for_read(database) as connection:  # which keeps writers out
        facts = facts_of(database)
        if facts is not None:
            lacking_facts(connection, database, facts)  # refuses the folder of another database
        try:
            if facts is not None and is_intact(connection, facts.with_inputs()):
                shutil.copytree(facts.folder, new)
                settle_by(connection, read_facts(new))
            else:
                begin_folder(new)
                write_facts(connection, new)
            if folder.exists():
                folder.rmdir()  # an empty folder
            new.rename(folder)
        except (OSError, duckdb.IOException) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise InputError(
                f"{folder}: cannot be written: {reason}", "free some space, or name another folder"
            ) from None
        finally:
            shutil.rmtree(new, ignore_errors=True)
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return ExportReport(len(read_facts(folder).live(with_open=True)), sum(sizes))


def _refuse_folder(folder: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        if not folder.is_dir() or any(folder.iterdir()):
            folder.stat()
            raise InputError(f"{folder}: exists already", "name a new or an empty folder")
    if not folder.absolute().parent.is_dir():
        raise InputError(
            f"{folder}: the directory {folder.parent} does not exist", hint="make it first"
        )


@dataclass(frozen=True)
class ImportReport:
    """What was stored, and the number of facts that the database had before."""

    replayed: Replayed
    num_known: int


def import_facts(database: Path, folder: Path, sweep: Sweep = run_study) -> ImportReport:
    """Store the facts of a folder that a database lacks, and evaluate what follows from them.

    Each fact is stored whole or not at all. After an interruption the same call stores the others.
    The folder is a copy of a folder of facts, or one that an older package exported with all rows.
    Nothing is stored if it is damaged, or if the database has another fact of the same name.
    """
    with _facts_in(folder) as facts:
        if facts.damage:
            raise InputError(f"{folder}: {facts.damage}", "copy the folder again")
        given = facts.live(with_open=True)
        for entry in given:
            if entry.inputs is not None:
                facts.inputs_of(entry)  # refuses a damaged file before anything is stored
        with open_for_write(database) as connection:
            unfinished = {study for (study,) in connection.execute(_UNFINISHED).fetchall()}
        stored = facts_of(database) or replace(facts, entries=())
        known = {entry.subject: entry for entry in stored.live()}
        others = [
            f"{entry.kind} {entry.name!r}"
            for entry in given
            if entry.subject in known and not _is_same(stored, known[entry.subject], facts, entry)
        ]
        if others:
            raise InputError(
                f"{folder}: the database has other facts of these names: {', '.join(others)}",
                "import the folder into a new database: name its file with --db",
            )
        new = [
            entry
            for entry in given
            if entry.subject not in known or (entry.kind == STUDY and entry.name in unfinished)
        ]
        # a study may name a profile that was replaced or dropped since
        needed = tuple(
            entry
            for entry in facts.entries
            if entry in new or (entry.subject[0] == CALIBRATION and entry.subject not in known)
        )
        done = replay(database, replace(facts, entries=needed), new, sweep)
    return ImportReport(done, len(given) - len(new))


@contextmanager
def _facts_in(folder: Path) -> Iterator[Facts]:
    """Yield the facts of a folder of either format."""
    if not (folder / MANIFEST).is_file():
        yield read_facts(folder)
        return
    with TemporaryDirectory(prefix="warehouse-") as temporary:
        made = Path(temporary) / "facts"
        begin_folder(made)
        with opened(folder) as connection:
            write_facts(connection, made)
        yield read_facts(made)


def _without_origins(content: Any) -> Any:
    if isinstance(content, dict):
        values = content.items()
        return {key: _without_origins(value) for key, value in values if key not in _ORIGINS}
    return list(map(_without_origins, content)) if isinstance(content, list) else content


def _is_same(stored: Facts, present: Entry, facts: Facts, entry: Entry) -> bool:
    """Return whether two facts are equal but for their time and origin."""
    if _without_origins(present.content) != _without_origins(entry.content):
        return False
    if present.inputs == entry.inputs:
        return True
    if present.inputs is None or entry.inputs is None:
        return False
    before = pl.read_parquet(stored.inputs_of(present), glob=False)
    after = pl.read_parquet(facts.inputs_of(entry), glob=False)
    shared = sorted((set(before.columns) & set(after.columns)) - set(_PROBLEMS))
    return before.select(shared).sort(shared).equals(after.select(shared).sort(shared))
