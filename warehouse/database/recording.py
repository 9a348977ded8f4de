"""Ties an open database to its folder of facts.

A writer first compares both (`attend`). Then each transaction that stores or removes a fact calls
`record` before it commits, and `settle` afterwards.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from estimators.registry import ESTIMATORS, get
from warehouse.database.access import current_access
from warehouse.database.facts import (
    ASIDE,
    CALIBRATION,
    COMMITTED,
    MEASUREMENT,
    OPEN,
    REMOVAL,
    STUDY,
    WITHDRAWN,
    append_entry,
    append_outcome,
    aside,
    facts_of,
    flushed_digest,
    folder_of,
    free_name,
    inputs_path,
    is_folder,
    named_errors,
    new_entry,
    new_folder,
    read_facts,
    rebuild_command,
    remove_dead_inputs,
)
from warehouse.database.sql_text import IN_MAIN, literal, quoted
from warehouse.database.stamp import FACTS_ID, FACTS_LAST, META, last_fact
from warehouse.database.tables import MEASUREMENTS
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from estimators.estimator import Estimator
    from warehouse.database.facts import Entry, Facts

PARTS = {
    CALIBRATION: ("profile", "calibration"),
    MEASUREMENT: ("reference", "measurement"),
    STUDY: ("study", "study"),
}
"""Kind of a fact -> the column with its name, and its table."""

_FITTED_TO = "calibration_row"
"""Table of the published steps that a profile was fitted to."""

_PAUSED: ContextVar[bool] = ContextVar("paused", default=False)

_PENDING: dict[int, Path] = {}
"""Connection -> the folder that its running transaction has appended to."""


@contextmanager
def unrecorded() -> Iterator[None]:
    """Store facts that a folder has already: none is appended until the block ends."""
    token = _PAUSED.set(True)
    try:
        yield
    finally:
        _PAUSED.reset(token)


def attend(connection: DuckDBPyConnection, database: Path) -> None:
    """Compare a database that this process may write to with its folder of facts.

    Open entries get their outcome. A database without a folder gets one with the facts that it has:
    it was copied alone, or an older package made it. A folder of another database, or with facts
    that the database lacks, is refused.
    """
    if _PAUSED.get():
        return
    folder, facts = folder_of(database), facts_of(database)
    if facts is not None and (lacking := lacking_facts(connection, database, facts)):
        raise DatabaseError(
            f"{database}: lacks {len(lacking)} facts that {folder} has, such as "
            f"{' '.join(lacking[0].subject)}: it is older than the folder",
            f"`{rebuild_command(database)}` stores them; to go on without them, {aside(folder)}",
        )
    if facts is None or not is_intact(connection, facts):
        _make_folder(connection, folder)
    else:
        settle_by(connection, facts)


def lacking_facts(connection: DuckDBPyConnection, database: Path, facts: Facts) -> list[Entry]:
    """Return the committed entries of a folder that its database lacks: it is a former state.

    Raises `DatabaseError` if it is the folder of another database.
    """
    name, number, checksum = last_fact(connection)
    same = next((entry for entry in facts.entries if entry.number == number), None)
    is_other = facts.id not in ("", name) and facts.last is not None
    is_other &= bool(name) or _has_facts(connection)
    if is_other or (same is not None and same.checksum != checksum):
        raise DatabaseError(
            f"{facts.folder}: has the facts of another database than {database}",
            f"put the folder of this database there; or {aside(facts.folder)}, and the next "
            "command that writes makes one from the database",
        )
    return [e for e in facts.entries if e.outcome == COMMITTED and e.number > number]


def is_intact(connection: DuckDBPyConnection, facts: Facts) -> bool:
    """Return whether a folder is whole and has every entry that its database has committed."""
    name, number, _ = last_fact(connection)
    if not name and facts.last is None:  # no transaction that stores a fact has ended well
        return facts.is_whole and not _has_facts(connection)
    return facts.is_whole and (number == 0 or any(e.number == number for e in facts.entries))


def settle_by(connection: DuckDBPyConnection, facts: Facts) -> None:
    """Give open entries the outcome that their database shows."""
    _, number, _ = last_fact(connection)
    unsettled = [entry for entry in facts.entries if entry.outcome == OPEN]
    if not unsettled:
        return
    append_outcome(facts.folder, [e for e in unsettled if e.number <= number], COMMITTED)
    if facts.last is None or facts.last.number <= number:
        append_outcome(facts.folder, [e for e in unsettled if e.number > number], WITHDRAWN)


def adopt(connection: DuckDBPyConnection, facts: Facts) -> None:
    """Note that a database has all facts of a folder, and give open entries their outcome."""
    stored = [entry for entry in facts.entries if entry.outcome != WITHDRAWN]
    unsettled = [entry for entry in stored if entry.outcome == OPEN]
    append_outcome(facts.folder, [e for e in unsettled if e.kind == REMOVAL], WITHDRAWN)
    append_outcome(facts.folder, [e for e in unsettled if e.kind != REMOVAL], COMMITTED)
    _note(connection, facts.id, stored[-1] if stored else None)


def record(
    connection: DuckDBPyConnection, kind: str, name: str, *, is_removed: bool = False
) -> None:
    """Append a fact that the running transaction has stored or removed; call it before the commit.

    If the folder cannot be written, a `DatabaseError` rolls the transaction back.
    """
    folder = _folder_for(connection)
    if folder is None:
        return
    facts = read_facts(folder)
    number = facts.entries[-1].number + 1 if facts.entries else 1
    if is_removed:
        entry = new_entry(number, REMOVAL, name, {"kind": kind})
    else:
        entry = _written(connection, folder, number, kind, name)
    append_entry(folder, entry)
    _PENDING[id(connection)] = folder
    _note(connection, facts.id, entry)


def settle(connection: DuckDBPyConnection, *, is_known: bool) -> None:
    """Append the outcome of the entries of a transaction that has ended.

    It is not known if the commit failed: the database may have it all the same, and the next writer
    sees whether it has.
    """
    folder = _PENDING.pop(id(connection), None)
    if folder is not None and is_known:
        with suppress(duckdb.Error):  # a fault has closed the database
            settle_by(connection, read_facts(folder))
        remove_dead_inputs(folder)


def write_facts(connection: DuckDBPyConnection, folder: Path) -> None:
    """Write all facts that a database of any version has to a folder without entries.

    Profiles come first: studies and runs may name them.
    """
    present = _tables(connection)
    number = 0
    for kind, (column, table) in PARTS.items():
        query = f"select {column} from {table} group by 1 order by min(created_at), 1"
        for (name,) in connection.execute(query).fetchall() if table in present else ():
            number += 1
            append_entry(folder, _written(connection, folder, number, kind, name), COMMITTED)


def move_aside(folder: Path) -> Path | None:
    """Rename a folder that does not have the facts of its database; return the new name, if any."""
    if not os.path.lexists(folder):
        return None
    if not folder.is_dir():
        raise DatabaseError(
            f"{folder}: is a file, and the facts of the database belong in a folder of this name",
            aside(folder),
        )
    with named_errors(folder):
        return folder.rename(free_name(folder, ASIDE))


def _make_folder(connection: DuckDBPyConnection, folder: Path) -> None:
    """Make the folder of a database that has none, if the database has facts.

    The database names the new folder before that has its place: a killed process leaves a database
    without a folder, which the next one makes.
    """
    former = move_aside(folder)
    if former is not None:
        current_access().say(
            f"{folder}: does not have the facts of the database; kept as {former.name}"
        )
    if not _has_facts(connection):
        if last_fact(connection)[0]:
            _note(connection, "", None)
        return
    with new_folder(folder) as new:
        write_facts(connection, new)
        facts = read_facts(new)
        _note(connection, facts.id, facts.last)


def _has_facts(connection: DuckDBPyConnection) -> bool:
    present = _tables(connection)
    return any(
        connection.execute(f"select 1 from {table} limit 1").fetchall()
        for _, table in PARTS.values()
        if table in present
    )


def _folder_for(connection: DuckDBPyConnection) -> Path | None:
    """Return the folder for facts of a database, made if there is none; None: none are recorded."""
    query = "select path from duckdb_databases() where database_name = current_database()"
    [(path,)] = connection.execute(query).fetchall()
    if _PAUSED.get() or path is None:
        return None
    folder = folder_of(Path(path))
    if not is_folder(folder):
        if last_fact(connection)[0]:
            raise DatabaseError(
                f"{folder}: is gone since the database was opened",
                "run the command again: it makes the folder from the database",
            )
        with new_folder(folder):
            pass
    return folder


def _written(
    connection: DuckDBPyConnection, folder: Path, number: int, kind: str, name: str
) -> Entry:
    """Return the entry of a stored fact; the configurations that belong to it are written."""
    if kind == STUDY:
        return _study(connection, folder, number, name)
    content = {"rows": _records(connection, *PARTS[kind], name)}
    if kind == CALIBRATION and _FITTED_TO in _tables(connection):
        content["fitted_to"] = _records(connection, "profile", _FITTED_TO, name)
    return new_entry(number, kind, name, content)


def _study(connection: DuckDBPyConnection, folder: Path, number: int, name: str) -> Entry:
    [row] = _records(connection, *PARTS[STUDY], name)
    definition = json.loads(row["definition"])
    evaluated = connection.execute(
        "select relation, max(estimator_version) from cell"
        " semi join (from study_cell where study = ?) using (cell_id) group by 1",
        [name],
    ).fetchall()
    estimator = get(row["estimator"]) if row["estimator"] in ESTIMATORS else None
    version = max((version for _, version in evaluated), default=estimator and estimator.version)
    content = {
        "estimator": row["estimator"],
        "estimator_version": version,
        "study_file": row.get("study_file"),
        "created_at": row.get("created_at"),
        "definition": definition,
    }
    digest = None
    is_published = definition.get("file") == MEASUREMENTS
    if "spaces" not in definition and not is_published and evaluated and estimator is not None:
        [(relation, _)] = evaluated
        content["relation"] = relation
        path = inputs_path(folder, number)
        digest = _write_inputs(connection, estimator, relation, name, path)
    return new_entry(number, STUDY, name, content, digest)


def _write_inputs(
    connection: DuckDBPyConnection, estimator: Estimator, relation: str, study: str, path: Path
) -> str:
    """Write the configurations of an evaluated file: problems, choices and layouts."""
    table, keys = next((r.table, r.keys) for r in estimator.relations if r.name == relation)
    wanted = {
        "problem": ("problem_id", *estimator.problem_columns),
        "cell": estimator.choice_columns,
        table: keys,
    }
    names = []
    for source, columns in wanted.items():
        present = set(connection.sql(f"from {quoted(source)}").columns)
        names += [f"{quoted(source)}.{quoted(name)}" for name in columns if name in present]
    query = (
        f"select {', '.join(names)} from study_cell inner join cell using (cell_id)"
        f" inner join problem using (problem_id) inner join {quoted(table)} using (cell_id)"
        f" where study = {literal(study)} order by all"
    )
    options = "format parquet, compression zstd"
    with named_errors(path):
        try:
            connection.execute(f"copy ({query}) to {literal(str(path))} ({options})")
        except duckdb.IOException as error:
            raise OSError(str(error).partition("\n")[0]) from error
    return flushed_digest(path)


def _records(
    connection: DuckDBPyConnection, column: str, table: str, name: str
) -> list[dict[str, Any]]:
    """Return the rows of a name as records, without the name and without missing values."""
    query = f"from {table} where {column} = $name order by all"
    rows = connection.sql(query, params={"name": name})
    records = (dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall())
    return [
        {key: value for key, value in record.items() if value is not None and key != column}
        for record in records
    ]


def _tables(connection: DuckDBPyConnection) -> set[str]:
    query = f"select table_name from duckdb_tables() where {IN_MAIN}"
    return {name for (name,) in connection.execute(query).fetchall()}


def _note(connection: DuckDBPyConnection, folder: str, last: Entry | None) -> None:
    connection.execute(f"delete from {META} where key in (?, ?)", [FACTS_ID, FACTS_LAST])
    if folder:
        values = [FACTS_ID, folder, FACTS_LAST, f"{last.number} {last.checksum}" if last else "0 "]
        connection.execute(f"insert into {META} values (?, ?), (?, ?)", values)
