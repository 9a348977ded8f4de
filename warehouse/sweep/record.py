"""Studies in the database: stores, records and drops the cells of each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from estimators import registry
from estimators.contract import Cell, variant_name
from estimators.id_set import IdSet
from warehouse.database import derived
from warehouse.database.connection import writing
from warehouse.database.copies import MIN_FREE_BYTES, free_bytes
from warehouse.database.facts import STUDY
from warehouse.database.paths import refuse_missing
from warehouse.database.recording import record
from warehouse.database.sink import delete_cells, store_cells, transaction
from warehouse.database.sql_text import registered
from warehouse.errors import InputError
from warehouse.evaluate.profiles import DEFAULT
from warehouse.studies.definitions import Definitions
from warehouse.studies.stored import find_study, nearest_in_words
from warehouse.studies.study import Study

if TYPE_CHECKING:
    from estimators.contract import Columns, Mends, Relation
    from estimators.estimator import Estimator

MEASURE = "measure "
"""Start of the name of a study that holds measured runs; their own name follows."""


def is_recorded(
    connection: duckdb.DuckDBPyConnection, study: Study, cells: IdSet, num_rows: int
) -> bool:
    """Return whether a study is stored with this definition and exactly these cells."""
    record_of_study = connection.execute(
        "select definition, num_cells, num_rows from study where study = ?", [study.name]
    ).fetchall()
    definition = json.dumps(study.definition, sort_keys=True)
    if record_of_study != [(definition, len(cells), num_rows)]:
        return False
    query = "select cell_id from study_cell where study = ? order by cell_id"
    stored = connection.execute(query, [study.name]).fetchnumpy()["cell_id"]
    return list(stored) == list(cells.ids())


def begin_study(
    connection: duckdb.DuckDBPyConnection,
    study: Study,
    num_cells: int,
    num_rows: int,
    cells: Sequence[int],
) -> bool:
    """Record a study with the ids of its known cells, in place of another of its name.

    `add_cells` adds other cells, and `end_study` sets their exact numbers. The record of the same
    definition stays as it is; return whether there was none. Cells that only the former definition
    needs stay stored until a study is dropped.
    """
    definition = json.dumps(study.definition, sort_keys=True)
    query = "select definition from study where study = ?"
    if connection.execute(query, [study.name]).fetchall() == [(definition,)]:
        add_cells(connection, study.name, cells)
        return False
    with transaction(connection):
        connection.execute(
            "insert or replace into study by name select ? as study, ? as study_file,"
            " ? as estimator, ? as definition, ? as num_cells, ? as num_rows, ? as created_at",
            [
                *(study.name, study.file, study.estimator, definition, num_cells, num_rows),
                datetime.now(UTC).replace(tzinfo=None),
            ],
        )
        connection.execute("delete from study_cell where study = ?", [study.name])
        add_cells(connection, study.name, cells)
        if "spaces" in study.definition:
            record(connection, STUDY, study.name)
    return True


def add_cells(connection: duckdb.DuckDBPyConnection, study: str, cells: Sequence[int]) -> None:
    """Record that a study needs the cells with these ids; known ones stay."""
    connection.execute(
        "insert into study_cell by name select ? as study, cell_id"
        " from (select unnest(?::bigint[]) as cell_id)"
        " where cell_id not in (select cell_id from study_cell where study = ?)",
        [study, list(cells), study],
    )


def end_study(
    connection: duckdb.DuckDBPyConnection, study: Study, cells: IdSet, num_rows: int
) -> bool:
    """Set the exact numbers of a study with all cells recorded, and remove its other cells.

    Nothing is written if the record is the same; return whether it was not.
    """
    known = connection.execute(
        "select num_cells, num_rows, count(cell_id) from study left join study_cell using (study)"
        " where study = ? group by all",
        [study.name],
    ).fetchall()
    if known == [(len(cells), num_rows, len(cells))]:
        return False
    import pyarrow as pa  # here: commands that store nothing start without it

    ids = pa.table({"cell_id": pa.array(cells.ids(), type=pa.int64())})
    with transaction(connection), registered(connection, "cells_of_study", ids):
        [(removed,)] = connection.execute(
            "delete from study_cell where study = ?"
            " and cell_id not in (select cell_id from cells_of_study)",
            [study.name],
        ).fetchall()
        connection.execute(
            "update study set num_cells = ?, num_rows = ? where study = ?",
            [len(cells), num_rows, study.name],
        )
        if removed and "spaces" in study.definition:  # another version of its estimator
            record(connection, STUDY, study.name)
    return True


def store_evaluated(
    connection: duckdb.DuckDBPyConnection,
    relation: Relation,
    cells: Sequence[tuple[Cell, Columns]],
    study: Study,
) -> int:
    """Store evaluated cells as a study without spaces; return how many were new.

    The configurations become a fact: no study can enumerate them again. So do the definitions of
    models and systems that they name.
    """
    if not cells:
        return 0
    names = {value for cell, _ in cells for value in cell.problem.values.values()}
    used = study.defined.needed_by(names).as_data()
    study = replace(study, definition={**study.definition, **used})
    ids = [cell.id for cell, _ in cells]
    num_rows = sum(len(next(iter(columns.values()))) for _, columns in cells)
    with transaction(connection):
        has_changed = begin_study(connection, study, len(ids), num_rows, ids)
        has_changed |= end_study(connection, study, IdSet(ids), num_rows)
        new = store_cells(connection, registry.get(study.estimator), relation, cells)
        if new or has_changed:
            record(connection, STUDY, study.name)
    return len(new)


def evaluated_study(
    estimator: Estimator,
    relation: Relation,
    mends: Mends,
    configs: str | Path,
    *,
    profile: str | None = None,
    name: str | None = None,
    defined: Definitions | None = None,
) -> Study:
    """Return the study of evaluated configurations, from a file or a frame named `configs`.

    Its name is by default "evaluate FILE VARIANT PROFILE" without a default profile. FILE is the
    path that the user gave: equal names in two directories are two studies.
    """
    if name is None:
        name = f"evaluate {configs} {variant_name(mends, estimator.mends)}"
        name += "" if profile in (None, DEFAULT) else f" {profile}"
    definition = {
        "name": name,
        "estimator": estimator.name,
        "relation": relation.name,
        "mends": [[mend for mend in estimator.mends if mend in mends]],
        "file": str(configs),
    }
    return Study(
        *(name, estimator.name, (mends,), (), definition, str(configs)),
        defined or Definitions(),
    )


@dataclass(frozen=True)
class DropReport:
    """The outcome of a drop: removed cells and rows, and the free bytes of the file after it."""

    study: str
    cells: int
    rows: int
    free_bytes: int

    @property
    def free_in_words(self) -> str:
        """How much of the file is free, and the command that shrinks it."""
        return free_in_words(self.free_bytes)


def drop_study(database: Path, name: str) -> DropReport:
    """Remove a study, found as `find_study` finds it; the file keeps its size.

    Cells that no study needs any more go with it. An unknown name is refused before anything is
    written.
    """
    refuse_missing(database)  # opening for write would make one
    with writing(database) as connection:
        studies = [row[0] for row in connection.execute("from study select study").fetchall()]
        name = find_study(name, studies) or name
        if name not in studies:
            raise _no_such_study(connection, name, studies, database)
        _refuse_needed(connection, name)
        sizes = delete_study(connection, name)
        return DropReport(name, len(sizes), sum(sizes), free_bytes(connection))


def free_in_words(free: int) -> str:
    """Return how many bytes of a file are free, and the command that shrinks it."""
    if free < MIN_FREE_BYTES:
        return "the file has no space to give back"
    return f"{free / 1e6:,.1f} MB of the file are free for new rows: `warehouse compact` shrinks it"


def _no_such_study(
    connection: duckdb.DuckDBPyConnection, name: str, studies: Sequence[str], database: Path
) -> InputError:
    hint = nearest_in_words(name, sorted(studies))
    query = "select 1 from measurement where reference = ? limit 1"
    if connection.execute(query, [name]).fetchall():
        hint = f"it names measurements: `warehouse measure --drop {shlex.quote(name)}`"
    if (free := free_bytes(connection)) >= MIN_FREE_BYTES:  # left by a former drop
        hint += f"\n{free_in_words(free)}"
    return InputError(f'`study` "{name}" is not in {database}', hint)


def _refuse_needed(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Refuse if measurements would lose their study, or all estimates of a problem."""
    rows = connection.execute(
        "select distinct reference from measurement where ? || reference = ? or problem_id in ("
        "select problem_id from cell where cell_id in"
        " (select cell_id from study_cell where study = ?)) and problem_id not in ("
        "select problem_id from cell where cell_id in"
        " (select cell_id from study_cell where study <> ?)) order by 1",
        [MEASURE, name, name, name],
    ).fetchall()
    if needing := [reference for (reference,) in rows]:
        commands = " and ".join(f"`warehouse measure --drop {shlex.quote(n)}`" for n in needing)
        takes = "takes them out with it" if name.startswith(MEASURE) else "first"
        raise InputError(
            f'`study` "{name}": the measurements {", ".join(needing)} need rows that it evaluated',
            f"{commands} {takes}",
        )


def delete_study(connection: duckdb.DuckDBPyConnection, name: str) -> list[int]:
    """Delete a study and the cells that no other needs; return the number of rows of each cell."""
    cells = connection.execute(
        "select cell_id, num_rows from cell"
        " where cell_id not in (select cell_id from study_cell where study <> ?)",
        [name],
    ).fetchall()
    delete_studies(connection, [name], [cell for cell, _ in cells])
    return [rows for _, rows in cells]


def delete_studies(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], cells: Sequence[int]
) -> None:
    """Delete studies, and cells that no other study needs, in one transaction."""
    with transaction(connection):
        delete_cells(connection, cells)
        for table in ("study_cell", "study"):
            connection.execute(f"delete from {table} where list_contains(?, study)", [names])
        connection.execute(
            "delete from problem where problem_id not in (select problem_id from cell)"
        )
        derived.refresh(connection)
        for name in names:
            record(connection, STUDY, name, is_removed=True)
