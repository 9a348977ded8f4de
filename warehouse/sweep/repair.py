"""Repairs a damaged database: copies readable rows and evaluates damaged cells again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from estimators.registry import ESTIMATORS, all_estimators
from warehouse.database import stored_best
from warehouse.database.connection import open_file, open_for_write
from warehouse.database.deep_check import deep_check, good_spans
from warehouse.database.failures import database_error
from warehouse.database.file_format import CONFIG
from warehouse.database.leftovers import REPAIRED
from warehouse.database.meta import is_stamped
from warehouse.database.schema import is_current
from warehouse.database.sink import transaction
from warehouse.database.sql_text import literal, quoted
from warehouse.database.tables import DERIVED, PUBLISHED_ESTIMATE_TABLE, all_tables
from warehouse.errors import DatabaseError
from warehouse.studies.definitions import SECTIONS, Definitions
from warehouse.studies.study import Study
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from warehouse.database.deep_check import Damage
    from warehouse.database.tables import Table

DAMAGED = ".damaged"
"""Suffix of the damaged file, which is kept."""


@dataclass(frozen=True)
class RepairReport:
    """The outcome of a repair.

    Attributes
    ----------
    damage
        The unreadable parts of the tables.
    cells, rows
        Damaged cells that were evaluated again, and their rows.
    lost
        Study -> the number of its damaged cells that cannot be evaluated again, because they came
        from a file. They are no longer stored.
    kept
        The damaged file under its new name; None: nothing was damaged.
    """

    damage: tuple[Damage, ...]
    cells: int = 0
    rows: int = 0
    lost: tuple[tuple[str, int], ...] = ()
    kept: Path | None = None


def repair(database: Path) -> RepairReport:
    """Replace a damaged database by an undamaged one; keep the damaged file.

    Readable cells are copied. The others are evaluated again for their studies. Reference tables
    and views come from the package. A killed process leaves the damaged database in its place.

    Raises
    ------
    DatabaseError
        If the file cannot be opened, is locked or is of another version of the package, or a table
        is damaged that cannot be made again: studies, cells, problems, measured runs or profiles.
    """
    open_file(database).close()  # refuses a file that cannot be opened
    file = database.resolve()
    new = file.with_name(file.name + REPAIRED)
    _remove(new)
    try:
        with duckdb.connect(config=CONFIG) as connection:
            connection.execute(f"attach {literal(str(file))} as damaged (read_only)")
            connection.execute("use damaged")
            _refuse_other_version(connection, database)
            damage = tuple(deep_check(connection))
            if not damage:
                return RepairReport(())
            _refuse_lost_tables(database, damage)
            cells = damaged_cells(damage)
            open_for_write(new).close()  # tables, reference tables and views
            _copy(connection, new, damage, cells)
            again, rows = _evaluate(new)
            lost = _lost(new, cells)
            # The read lock still keeps writers out: their commits would be lost now.
            kept = _replace(file, new)
    except duckdb.Error as error:
        raise database_error(error, database) from error
    finally:
        _remove(new)
    return RepairReport(damage, again, rows, tuple(lost), kept)


def damaged_cells(damage: Sequence[Damage]) -> frozenset[int]:
    """Return the cells with unreadable rows; tables derived from rows do not count."""
    facts = {relation.table for each in all_estimators() for relation in each.relations}
    return frozenset(cell for each in damage if each.table in facts for cell in each.cells)


def _derived() -> set[str]:
    """Return the tables that are derived from others: `stored_best.refresh` fills them."""
    relations = [relation for each in all_estimators() for relation in each.relations]
    leading = {relation.leading_table for relation in relations if relation.keeps_leading}
    return {*DERIVED, *leading}


def _own_tables() -> dict[str, Table]:
    """Return the tables whose content does not come with the package, by name."""
    return {table.name: table for table in all_tables(all_estimators())}


def _refuse_other_version(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    if not (is_stamped(connection) or is_current(connection)):
        raise DatabaseError(
            f"{database}: was made by another version of this package",
            "repair it with that version, or run `warehouse init` first: it brings it up to date",
        )


def _refuse_lost_tables(database: Path, damage: Sequence[Damage]) -> None:
    """Raise if a table is damaged that neither evaluation nor the package can restore."""
    facts = {relation.table for each in all_estimators() for relation in each.relations}
    needed = _own_tables().keys() - facts - _derived() - {PUBLISHED_ESTIMATE_TABLE.name}
    lost = [each for each in damage if each.table in needed and each.spans]
    if lost:
        names = ", ".join(each.table for each in lost)
        raise DatabaseError(
            f"{database}: rows of {names} cannot be read: {lost[0].reason}",
            "no evaluation brings them back: put a backup in the place of the file, and keep the "
            "damaged file. The other tables can still be read with `warehouse sql`",
        )


def _copy(
    connection: duckdb.DuckDBPyConnection,
    new: Path,
    damage: Sequence[Damage],
    cells: frozenset[int],
) -> None:
    """Copy the readable rows of all tables but those of the package, without damaged cells."""
    damaged = {each.table: each for each in damage}
    derived = _derived()
    connection.execute(f"attach {literal(str(new))} as repaired")
    connection.execute("create temporary table hurt (cell_id bigint)")
    if cells:
        connection.execute(f"insert into hurt values {', '.join(f'({cell})' for cell in cells)}")
    skipped = {PUBLISHED_ESTIMATE_TABLE.name}  # a cache that `plan` fills
    if derived & damaged.keys():
        skipped |= derived
    for name, table in _own_tables().items():
        if name in skipped:
            continue
        spans = good_spans(connection, damaged[name]) if name in damaged else [None]
        whole = "cell_id" in table.columns and name != "study_cell"
        for span in spans:
            where = ["cell_id not in (from hurt)"] if whole else []
            where += [f"rowid between {span[0]} and {span[1]}"] if span else []
            connection.execute(
                f"insert into repaired.{quoted(name)} by name select * from damaged.{quoted(name)}"
                + (f" where {' and '.join(where)}" if where else "")
            )
    connection.execute("checkpoint repaired")
    connection.execute("detach repaired")


def _evaluate(database: Path) -> tuple[int, int]:
    """Evaluate the cells that the stored studies lack; return the number of cells and rows."""
    with open_for_write(database) as connection:
        with transaction(connection):
            stored_best.refresh(connection)
        studies = connection.execute(
            "select study, study_file, estimator, definition from study"
            " where study in (select study from study_cell anti join cell using (cell_id))"
        ).fetchall()
    cells = rows = 0
    for name, file, estimator, text in studies:
        study = study_of_record(name, file, estimator, json.loads(text))
        if study is not None:
            report = run_study(database, study, workers=1)
            cells, rows = cells + report.cells, rows + report.rows
    return cells, rows


def study_of_record(
    name: str, file: str, estimator: str, definition: Mapping[str, Any]
) -> Study | None:
    """Return a study as the database has it; None for one that holds rows of a file."""
    if "spaces" not in definition or estimator not in ESTIMATORS:
        return None
    sections = {each: definition[each] for each in SECTIONS if each in definition}
    return Study(
        name,
        estimator,
        tuple(frozenset(mends) for mends in definition["mends"]),
        tuple(definition["spaces"]),
        dict(definition),
        file or name,
        Definitions(**sections, file=f"study {name}"),
    )


def _lost(database: Path, cells: frozenset[int]) -> list[tuple[str, int]]:
    """Return study -> the number of its damaged cells that are not stored."""
    with open_for_write(database) as connection:
        found = connection.execute(
            "select study, count(*) from study_cell anti join cell using (cell_id)"
            " where cell_id in (select unnest(?)) group by 1 order by 1",
            [sorted(cells)],
        ).fetchall()
        connection.execute("checkpoint")
    return [(str(name), int(number)) for name, number in found]


def _replace(file: Path, new: Path) -> Path:
    """Put `new` in the place of a damaged database; return the name that this one has from now on.

    There is always a database with its log: both files get the second name before they lose the
    first.
    """
    kept = _free_name(file)
    log, kept_log = (path.with_name(f"{path.name}.wal") for path in (file, kept))
    try:
        for path, name in ((file, kept), (log, kept_log)):
            with suppress(
                FileNotFoundError, FileExistsError
            ):  # no log, or a repair that was killed
                os.link(path, name)
    except OSError:  # a file system without hard links
        file.rename(kept)
        with suppress(FileNotFoundError):
            log.rename(kept_log)
    new.replace(file)
    log.unlink(missing_ok=True)
    return kept


def _free_name(file: Path) -> Path:
    """Return a free name, also for the log, or the one that a killed repair gave to the files."""
    number = 1
    while True:
        kept = file.with_name(f"{file.name}{DAMAGED}{number if number > 1 else ''}")
        logs = (path.with_name(f"{path.name}.wal") for path in (kept, file))
        if _is_free(kept, file) and _is_free(*logs):
            return kept
        number += 1


def _is_free(name: Path, file: Path) -> bool:
    """Return whether a name is free or belongs to `file` itself."""
    return not name.exists() or (file.exists() and name.samefile(file))


def _remove(new: Path) -> None:
    for path in (new, new.with_name(f"{new.name}.wal")):
        path.unlink(missing_ok=True)
