"""Makes a database again from its facts, in the place of one that is damaged, older or gone."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from warehouse.database.connection import open_file, open_for_write
from warehouse.database.facts import (
    OPEN,
    WITHDRAWN,
    append_copies,
    facts_of,
    folder_of,
    free_name,
    is_folder,
    named_errors,
    new_folder,
    read_facts,
)
from warehouse.database.failures import database_error
from warehouse.database.paths import CONFIG, REBUILT, file_of, is_database, log_of, remove_database
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
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from warehouse.database.facts import Facts
    from warehouse.rebuild.replay import Sweep

OLD = ".old"
"""Suffix of the former file, where it is kept."""

_FORMER, _NEW = "former", "rebuilt"
"""Names of both databases while objects are copied from one to the other."""


@dataclass(frozen=True)
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

    replayed: Replayed
    copied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    damage: str = ""
    reason: str = ""
    former_file: Path | None = None
    former_folder: Path | None = None


@dataclass
class _Former:
    """The database that is replaced; the texts are those of `RebuildReport`."""

    connection: DuckDBPyConnection | None = None  # keeps writers out; None: it cannot be opened
    reason: str = ""
    missing: list[str] = field(default_factory=list)
    damage: str = ""


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
    if not file.exists() and not is_folder(folder_of(file)):
        raise _without_facts(database, f"{database}: there is no such database")
    new = file.with_name(file.name + REBUILT)
    with _alone(file), _former(database) as former, _facts(database, former) as facts:
        remove_database(new)
        try:
            with unrecorded():
                open_for_write(new).close()
                replayed = replay(new, facts, facts.live(with_open=True), sweep)
            copied = _take_over(former, new)
            with unrecorded(), open_for_write(new) as connection:
                if facts.is_whole:
                    adopt(connection, facts)
                _refuse_failed_checks(connection, new)
                connection.execute("checkpoint")
            stays = facts.is_whole and facts.folder == folder_of(file)
            former_folder = None if stays else move_aside(folder_of(file))
            needs_former = former.reason or former.missing or replayed.lost
            former_file = _replace(file, new, keeps=bool(needs_former))
        finally:
            remove_database(new)
    if not facts.is_whole:
        open_for_write(database).close()  # makes a folder from the database
    damage = facts.damage if facts.missing or set(facts.damaged) - {1} else former.damage
    return RebuildReport(
        *(replayed, tuple(copied), tuple(former.missing), damage, former.reason),
        former_file,
        former_folder,
    )


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
def _former(database: Path) -> Iterator[_Former]:
    """Yield the database that is replaced, attached for reading where it can be opened.

    One that is in use, of another package or of a newer version is refused.
    """
    former = _Former()
    if database.exists() and not database.is_file():
        is_database(database)  # says what it is
    try:
        connection = open_file(database)
    except LockedError:
        raise
    except DatabaseError as error:
        former.reason = error.message if database.exists() else ""
        yield former
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
        former.connection = connection
        yield former


@contextmanager
def _facts(database: Path, former: _Former) -> Iterator[Facts]:
    """Yield the facts of a database, taken from the file where it has no intact folder.

    Such facts are in a folder that gets its place when the block ends: the former database must
    not meet it, since it does not name it.
    """
    facts = facts_of(database)
    facts = None if facts is None else facts.with_inputs()
    connection = former.connection
    with ExitStack() as stack:
        if connection is not None:
            try:
                facts = _compared(connection, database, facts, former, stack)
            except duckdb.Error as error:
                if facts is None:
                    raise database_error(error, database) from error
                former.reason = str(error).partition("\n")[0]
        if facts is None:
            raise _without_facts(database, former.reason)
        yield facts


def _compared(
    connection: DuckDBPyConnection,
    database: Path,
    facts: Facts | None,
    former: _Former,
    stack: ExitStack,
) -> Facts:
    """Return the facts of a folder that is whole; otherwise those of the file, and later ones."""
    lacking = [] if facts is None else lacking_facts(connection, database, facts)
    if facts is not None and facts.is_whole and (lacking or is_intact(connection, facts)):
        settle_by(connection, facts)
        return read_facts(facts.folder)
    with ExitStack() as made:
        new = made.enter_context(new_folder(folder_of(database)))
        write_facts(connection, new)
        if facts is not None and lacking:
            _, number, _ = last_fact(connection)
            later = [e for e in facts.entries if e.number > number and e.outcome != WITHDRAWN]
            append_copies(new, facts, later)
            if _is_lost(facts, number):
                former.damage = facts.damage
        stack.push(made.pop_all())
    return read_facts(new)


def _is_lost(facts: Facts, number: int) -> bool:
    """Return whether damage may be of entries later than the last one that the file has."""
    if any(later > number for later in (*facts.missing, *facts.lost_inputs)):
        return True
    known = [entry for entry in facts.entries if entry.number <= number]
    last, line = (known[-1].number, facts.lines[known[-1].number]) if known else (0, 1)
    # each entry that the file has, too, takes a line and one for its outcome
    expected = 2 * (number - last) + (bool(known) and known[-1].outcome == OPEN)
    return sum(damaged > line for damaged in facts.damaged) > expected


def _without_facts(database: Path, reason: str) -> DatabaseError:
    return DatabaseError(
        f"{reason}; nor is there a folder {folder_of(database)} with its facts",
        "name the database with --db, or put a backup in the place of the file",
    )


def _take_over(former: _Former, new: Path) -> list[str]:
    """Copy the user's own objects; note what else the former database has alone."""
    connection = former.connection
    if connection is None:
        return []
    try:
        connection.execute(f"attach {literal(str(new))} as {_NEW}")
        try:
            copied, left = copy_own_objects(connection, _FORMER, _NEW)
            former.missing += [*left, *contents_without_facts(connection, _FORMER, _NEW)]
            connection.execute(f"checkpoint {_NEW}")
        finally:
            connection.execute(f"detach {_NEW}")
    except duckdb.Error as error:  # such as damage in the former file
        former.reason = str(error).partition("\n")[0]
        return []
    return copied


def _refuse_failed_checks(connection: DuckDBPyConnection, new: Path) -> None:
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
