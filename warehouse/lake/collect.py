"""Stores the finished cells of a lake in a database, and reports what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import writing
from warehouse.database.pieces import BATCH_ROWS
from warehouse.database.record_batches import schema_of
from warehouse.database.sink import DuckDBSink, commit_groups
from warehouse.errors import InputError
from warehouse.lake.folder import Lake
from warehouse.lake.names import Shard
from warehouse.lake.shard import own_cells, relation_of
from warehouse.sweep.planned import plan
from warehouse.sweep.record import register_study
from warehouse.sweep.runner import COMMIT_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Cell, Estimator, Relation
    from warehouse.studies.study import Study

    Sized = Sequence[tuple[Cell, int]]


@dataclass(frozen=True)
class Collected:
    """The outcome for one study.

    Attributes
    ----------
    cells, rows
        Stored by this run.
    cells_before
        Stored before this run.
    missing
        Shards that have unfinished cells, each with their number.
    damaged
        Files that changed after they were written; their cells count as missing.
    """

    study: str
    cells: int
    rows: int
    cells_before: int
    missing: dict[Shard, int]
    damaged: list[str]


@dataclass(frozen=True)
class CollectReport:
    """The outcome: each study of the lake, and cells of other versions.

    Attributes
    ----------
    num_foreign_cells
        Cells that another version of an estimator evaluated.
    """

    studies: list[Collected]
    num_foreign_cells: int


def collect(database: Path, folder: Path) -> CollectReport:
    """Store every finished cell of a lake in a database, once each.

    A file that changed after it was written is set aside: the next run of its shard evaluates the
    cell again. Unfinished files of ended processes are removed. Nothing else in the lake changes.

    Raises
    ------
    InputError
        If the folder is no lake, has no study, or a cell of it is not as this package has it.
    DatabaseError
        If the database cannot be opened for writing.
    """
    lake = Lake(folder)
    lake.check()
    lake.remove_abandoned()
    studies = lake.studies()
    if not studies:
        raise InputError(f"{folder}: has no study", "start one with `warehouse sweep --lake`")
    planned = [(study, plan(study, packaged_catalog()).cells) for study in studies]
    with writing(database) as connection:
        done = [_collect_study(connection, lake, study, cells) for study, cells in planned]
    known = {cell.id for _, cells in planned for cell, _ in cells}
    return CollectReport(done, len(lake.cells() - known))


def missing_shards(lake: Lake, study: Study, missing: set[int]) -> dict[Shard, int]:
    """Return the shards of the last division that have cells of `missing`, with their number."""
    if not missing:
        return {}
    started = lake.shards(study.name)
    of = started[-1].of if started else 1
    catalog = study.defined.added_to(packaged_catalog())
    found: dict[Shard, int] = {}
    left = set(missing)
    for shard in (Shard(number, of) for number in range(1, of + 1)):
        own = left & {cell.id for cell in own_cells(study, catalog, shard)}
        left -= own
        if own:
            found[shard] = len(own)
        if not left:
            break
    return found


def _collect_study(
    connection: DuckDBPyConnection, lake: Lake, study: Study, cells: Sized
) -> Collected:
    estimator = get(study.estimator)
    sink = DuckDBSink(connection)
    stored, finished = sink.stored(), lake.cells()
    register_study(connection, study, cells)
    new = [(cell, rows) for cell, rows in cells if cell.id not in stored and cell.id in finished]
    sound, damaged = _sound(lake, estimator, new)
    for relation in estimator.relations:
        own = [(cell, rows) for cell, rows in sound if cell.relation == relation.name]
        for group in commit_groups(own, COMMIT_ROWS):
            sink.store(estimator, relation, group, _batches(lake, estimator, relation, group))
            connection.execute("checkpoint")  # for readers: a snapshot has no log
    lacking = {cell.id for cell, _ in cells} - stored - {cell.id for cell, _ in sound}
    return Collected(
        study.name,
        cells=len(sound),
        rows=sum(rows for _, rows in sound),
        cells_before=sum(cell.id in stored for cell, _ in cells),
        missing=missing_shards(lake, study, lacking),
        damaged=damaged,
    )


def _sound(lake: Lake, estimator: Estimator, cells: Sized) -> tuple[Sized, list[str]]:
    """Return the cells whose files are intact; set the other files aside."""
    tables = {relation.name: relation.table for relation in estimator.relations}
    sound, damaged = [], []
    for cell, rows in cells:
        fault = lake.fault_of(tables[cell.relation], cell, rows)
        if fault is None:
            sound.append((cell, rows))
        else:
            lake.set_aside(cell.id)
            damaged.append(fault)
    return sound, damaged


def _batches(
    lake: Lake, estimator: Estimator, relation: Relation, cells: Sized
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of cells in batches as long as those of a sweep."""
    schema = schema_of(relation)
    waiting: list[pa.RecordBatch] = []
    for cell, _ in cells:
        assert relation_of(estimator, cell) is relation
        place = lake.rows_place(relation.table, cell)
        with pq.ParquetFile(place) as file:
            if not file.schema_arrow.equals(schema):
                raise InputError(
                    f"{place}: its columns are not those of table {relation.table}",
                    "run the shards and `collect` with one version of the package",
                )
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                waiting.append(batch)
                while sum(map(len, waiting)) >= BATCH_ROWS:
                    whole = pa.concat_batches(waiting)
                    yield whole.slice(0, BATCH_ROWS)
                    waiting = [whole.slice(BATCH_ROWS)]
    if sum(map(len, waiting)):
        yield pa.concat_batches(waiting)
