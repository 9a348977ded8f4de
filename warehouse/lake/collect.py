"""Stores the finished cells of a lake in a database, and reports what is missing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import writing
from warehouse.database.record_batches import BATCH_ROWS, regrouped
from warehouse.database.sink import commit_groups, store_batches, transaction
from warehouse.errors import InputError
from warehouse.lake.folder import Lake
from warehouse.lake.jobs import Shard
from warehouse.lake.parts import cells_of_shard
from warehouse.sweep.cells import study_cells
from warehouse.sweep.record import begin_study, end_study
from warehouse.sweep.runner import COMMIT_ROWS, Missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Cell, Relation
    from warehouse.studies.study import Study
    from warehouse.sweep.cells import Sized, StudyCells


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
        Files that are not as their shard writes them; their cells count as missing.
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
    refused
        Why files of other studies are refused: their cells stay in the lake.
    """

    studies: list[Collected]
    num_foreign_cells: int
    refused: list[str]


def collect(database: Path, folder: Path) -> CollectReport:
    """Store every finished cell of a lake in a database, once each.

    A cell whose files are not as its shard writes them is set aside: the next run of the shard
    evaluates it again. Unfinished files of ended processes are removed. Nothing else in the lake
    changes. A study of many cells is read as a stream.
    """
    lake = Lake(folder)
    lake.check()
    lake.remove_abandoned()
    refused: list[InputError] = []
    studies = _studies(lake, refused)
    first = next(studies, None)
    if first is None:
        raise (
            refused[0]
            if refused
            else InputError(f"{folder}: has no study", "start one with `warehouse sweep --lake`")
        )
    unasked = lake.cells()
    with writing(database) as connection:
        done = [
            _collect_study(connection, lake, cells, unasked)
            for cells in itertools.chain([first], studies)
        ]
    foreign = 0 if refused else len(unasked)  # a study that cannot be read has cells as well
    return CollectReport(done, foreign, [str(error) for error in refused])


def _studies(lake: Lake, refused: list[InputError]) -> Iterator[StudyCells]:
    """Yield the studies of a lake with their cells; add the errors of others to `refused`."""
    for name in lake.studies():
        try:
            study = lake.study(name)
        except InputError as error:
            refused.append(error)
            continue
        try:
            cells = study_cells(study, packaged_catalog())
            cells.check()
        except InputError as error:
            refused.append(InputError(f"{lake.study_place(name)}: {error.message}", error.hint))
            continue
        yield cells


def missing_shards(lake: Lake, study: Study, missing: set[int]) -> dict[Shard, int]:
    """Return the shards of the last division that have cells of `missing`, with their number."""
    if not missing:
        return {}
    started = lake.shards(study.name)
    of = started[-1].of if started else 1
    catalog = study.defined.added_to(packaged_catalog())
    of_shards: dict[Shard, int] = {}
    left = set(missing)
    for shard in (Shard(number, of) for number in range(1, of + 1)):
        of_shard = left & {cell.id for cell in cells_of_shard(study, catalog, shard)}
        left -= of_shard
        if of_shard:
            of_shards[shard] = len(of_shard)
        if not left:
            break
    return of_shards


def _collect_study(
    connection: DuckDBPyConnection, lake: Lake, of_study: StudyCells, unasked: set[int]
) -> Collected:
    """Store the finished cells of a study, and remove its cells from `unasked`."""
    study, size = of_study.study, of_study.size()
    begin_study(connection, study, size.cells, size.rows)
    missing = Missing(connection, of_study)
    cells = rows = rows_lacking = 0
    lacking: set[int] = set()
    damaged: list[str] = []

    def sound(relation: Relation) -> Iterator[tuple[Cell, int]]:
        """Yield the cells whose files are intact."""
        nonlocal rows_lacking
        for cell, count in missing.of(relation):
            fault = lake.fault_of(relation, cell, count) if cell.id in unasked else None
            if fault is None and cell.id in unasked:
                yield cell, count
                continue
            lacking.add(cell.id)
            rows_lacking += count
            if fault is not None:
                damaged.append(f"{fault}{_set_aside(lake, cell)}")

    for relation in of_study.estimator.relations:
        for group in commit_groups(sound(relation), COMMIT_ROWS):
            with transaction(connection):
                missing.record()
                batches = _batches(lake, relation, group)
                store_batches(connection, of_study.estimator, relation, group, batches)
            connection.execute("checkpoint")  # for readers: a snapshot has no log
            cells += len(group)
            rows += sum(count for _, count in group)
    missing.record()
    end_study(connection, study, missing.seen, rows + rows_lacking + missing.rows_before)
    unasked.difference_update(missing.seen.ids().tolist())
    return Collected(
        study.name,
        cells=cells,
        rows=rows,
        cells_before=missing.cells_before,
        missing=missing_shards(lake, study, lacking),
        damaged=damaged,
    )


def _set_aside(lake: Lake, cell: Cell) -> str:
    """Mark a damaged cell as missing; return why that fails, to follow its fault."""
    try:
        lake.set_aside(cell.id)
    except InputError as error:
        return f"; {error.message}"
    return ""


def _batches(lake: Lake, relation: Relation, cells: Sized) -> Iterator[pa.RecordBatch]:
    """Yield the rows of cells in batches as long as those of a sweep."""
    return regrouped(
        _with_problem(batch, cell)
        for cell, _ in cells
        for batch in _rows(lake.rows_place(relation.table, cell))
    )


def _with_problem(batch: pa.RecordBatch, cell: Cell) -> pa.RecordBatch:
    """Return rows with the id of their problem, which lakes of older versions lack."""
    if "problem_id" in batch.schema.names:
        return batch
    ids = pa.array(np.full(len(batch), cell.problem.id))
    return batch.add_column(1, "problem_id", ids)


def _rows(place: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file whose bytes are those that were written."""
    try:
        with pq.ParquetFile(place) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}",
            "move the file out of the lake, and collect again: the cell then counts as missing",
        ) from None
