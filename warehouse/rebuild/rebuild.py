"""Makes a database again from its facts, in the place of one that is damaged, older or gone."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from warehouse.database.connection import open_file, open_for_write
from warehouse.database.facts import (
    WITHDRAWN,
    append_copies,
    begin_folder,
    facts_of,
    folder_of,
    free_name,
    is_folder,
    named_errors,
    read_facts,
)
from warehouse.database.failures import database_error
from warehouse.database.paths import CONFIG, REBUILT, file_of, is_database, log_of, remove_database
from warehouse.database.problem_facts import find_problems
from warehouse.database.recording import (
    adopt,
    is_intact,
    lacking_facts,
    move_aside,
    settle_by,
    unrecorded,
    write_facts,
)
from warehouse.database.sql_text import literal
from warehouse.database.stamp import last_fact, read_meta
from warehouse.database.views import checks
from warehouse.errors import CheckError, DatabaseError, LockedError
from warehouse.rebuild.others import contents_without_facts, copy_own_objects
from warehouse.rebuild.replay import Replayed, replay
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from warehouse.database.facts import Facts
    from warehouse.rebuild.replay import Sweep

OLD = ".old"
"""Suffix of the former file, where it is kept."""

_FORMER, _NEW = "former", "rebuilt"
"""Names of both databases while objects are copied from one to the other."""


@dataclass
class RebuildReport:
    """The outcome.

    Attributes
    ----------
    copied
        Tables, views and macros of the user that the new database has too.
    missing
        Contents of the former database that no fact has, in words.
    damage
        Lost parts of the folder, in words.
    reason
        Why the former file could not be opened; empty if it could, or if there was none.
    former_file
        The former file under its new name; None: the new one has all of it, or there was none.
    former_folder
        The former folder of facts under its new name, where it was damaged or older than the file.
    """

    replayed: Replayed = field(default_factory=Replayed)
    copied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    damage: str = ""
    reason: str = ""
    former_file: Path | None = None
    former_folder: Path | None = None


def rebuild(database: Path, sweep: Sweep = run_study) -> RebuildReport:
    """Make a database again from its folder of facts, and put it in the place of the former file.

    The new file is complete, and has passed every check, before it gets the name. A killed process,
    or a check that fails, leaves the former file in its place. `sweep` evaluates each study.

    Raises
    ------
    DatabaseError
        If there are no facts, another process has the database open, or the folder belongs to
        another one.
    """
    file = file_of(database)
    folder = folder_of(file)
    if not file.exists() and not is_folder(folder):
        raise _without_facts(database, f"{database}: there is no such database")
    new = file.with_name(file.name + REBUILT)
    report = RebuildReport()
    with (
        _alone(file),
        _former(database, report) as former,
        TemporaryDirectory(prefix="warehouse-") as temporary,
    ):
        facts = _facts(database, former, Path(temporary) / "facts", report)
        folder_stays = facts.is_whole and facts.folder == folder
        remove_database(new)
        try:
            with unrecorded():
                open_for_write(new).close()
                report.replayed = replay(new, facts, facts.live(with_open=True), sweep)
            if former is not None:
                _take_over(former, new, report)
            with unrecorded(), open_for_write(new) as connection:
                if folder_stays:
                    adopt(connection, facts)
                _refuse_failed_checks(connection, new)
                connection.execute("checkpoint")
            if not folder_stays:
                report.former_folder = move_aside(folder)
            needs_former = report.reason or report.missing or report.replayed.lost
            report.former_file = _replace(file, new, keeps=bool(needs_former))
        finally:
            remove_database(new)
    if not folder_stays:
        open_for_write(database).close()  # makes a folder from the database
    if facts.missing or set(facts.damaged) - {1}:
        report.damage = facts.damage
    return report


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other processes from rebuilding the same database until the block ends."""
    path = file.with_name(f"{file.name}{REBUILT}.lock")
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with named_errors(path):
        opened = path.open("wb")
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(path.stat(), os.fstat(opened.fileno())):
                raise FileNotFoundError  # a rebuild has ended since the file was opened
        except OSError:
            raise LockedError(f"{file}: another process rebuilds it", "wait for its end") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _former(database: Path, report: RebuildReport) -> Iterator[DuckDBPyConnection | None]:
    """Yield a connection with the former database, which keeps writers out; None: it does not open.

    One that is in use, of another package or of a newer version is refused.
    """
    if database.exists() and not database.is_file():
        is_database(database)  # says what it is
    try:
        connection = open_file(database)
    except LockedError:
        raise
    except DatabaseError as error:
        report.reason = error.message if database.exists() else ""
        yield None
        return
    with connection, suppress(duckdb.Error):  # damage is reported where values are taken from it
        read_meta(connection)
    with duckdb.connect(config=CONFIG) as connection:
        try:
            path = literal(str(file_of(database)))
            connection.execute(f"attach {path} as {_FORMER} (read_only)")
            connection.execute(f"use {_FORMER}")
        except duckdb.Error as error:
            raise database_error(error, database, is_opening=True) from error
        yield connection


def _facts(
    database: Path, former: DuckDBPyConnection | None, new: Path, report: RebuildReport
) -> Facts:
    """Return the facts of a database: those of its folder, or of its file if the folder lacks some.

    The latter are in the folder `new`.
    """
    facts = facts_of(database)
    if facts is not None:
        facts = facts.with_inputs()
    if former is not None:
        try:
            return _compared(database, former, facts, new, report)
        except duckdb.Error as error:
            if facts is None:
                raise database_error(error, database) from error
            report.reason = str(error).partition("\n")[0]
    if facts is None:
        raise _without_facts(database, report.reason)
    return facts


def _compared(
    database: Path,
    former: DuckDBPyConnection,
    facts: Facts | None,
    new: Path,
    report: RebuildReport,
) -> Facts:
    """Return the facts of a folder that is whole; otherwise those of the file, and later ones."""
    lacking = [] if facts is None else lacking_facts(former, database, facts)
    if facts is not None and facts.is_whole and (lacking or is_intact(former, facts)):
        settle_by(former, facts)
        return read_facts(facts.folder)
    begin_folder(new)
    write_facts(former, new)
    if facts is not None and lacking:
        _, number, _ = last_fact(former)
        later = [entry for entry in facts.entries if entry.number > number]
        append_copies(new, facts, [entry for entry in later if entry.outcome != WITHDRAWN])
        lost = (*facts.missing, *facts.lost_inputs)
        is_later = any(lost_number > number for lost_number in lost)
        if is_later or any(line > facts.lines[later[0].number] for line in facts.damaged):
            report.damage = facts.damage
    return read_facts(new)


def _without_facts(database: Path, reason: str) -> DatabaseError:
    return DatabaseError(
        f"{reason}; nor is there a folder {folder_of(database)} with its facts",
        "name the database with --db, or put a backup in the place of the file",
    )


def _take_over(former: DuckDBPyConnection, new: Path, report: RebuildReport) -> None:
    """Copy the user's own objects; note what else the former database has alone."""
    try:
        former.execute(f"attach {literal(str(new))} as {_NEW}")
        try:
            copied, left = copy_own_objects(former, _FORMER, _NEW)
            report.copied = tuple(copied)
            report.missing = (*left, *contents_without_facts(former, _FORMER, _NEW))
            former.execute(f"checkpoint {_NEW}")
        finally:
            former.execute(f"detach {_NEW}")
    except duckdb.Error as error:  # such as damage in the former file
        report.reason = str(error).partition("\n")[0]


def _refuse_failed_checks(connection: DuckDBPyConnection, new: Path) -> None:
    find_problems(connection)
    failed = [
        check.name
        for check in checks()
        if connection.execute(f"from ({check.sql}) limit 1").fetchall()
    ]
    if failed:
        raise CheckError(
            f"{new}: checks of the new database found rows: {', '.join(failed)}",
            "the former database is as it was; report this fault",
        )


def _replace(file: Path, new: Path, *, keeps: bool) -> Path | None:
    """Put `new` in the place of a database; return the name that this one has from now on, if any.

    There is always a database with its log: both files get their second names before they lose the
    first.
    """
    former = None
    if keeps and os.path.lexists(file):
        former = free_name(file, OLD)
        for path, name in ((file, former), (log_of(file), log_of(former))):
            with suppress(FileNotFoundError):
                try:
                    os.link(path, name)
                except FileNotFoundError:
                    raise
                except OSError:  # a file system without hard links
                    path.rename(name)
    new.replace(file)
    log_of(file).unlink(missing_ok=True)
    return former
