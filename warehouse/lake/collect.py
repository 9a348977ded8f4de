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
from warehouse.database.sink import commit_groups
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
    """The outcome for one study: what this run and earlier ones stored, and what is left."""

    study: str
    cells: int
    rows: int
    cells_before: int
    missing: dict[Shard, int]  # shards that have unfinished cells -> how many
    damaged: list[str]  # files that are not as their shard writes them: their cells are missing


@dataclass(frozen=True)
class CollectReport:
    """The outcome for each study of the lake, and what stays in the lake."""

    studies: list[Collected]
    num_foreign_cells: int  # another version of an estimator evaluated them
    refused: list[str]  # why files of studies are refused


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
        nothing = InputError(f"{folder}: has no study", "start one with `warehouse sweep --lake`")
        raise next(iter(refused), nothing)
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
        place = ""
        try:
            study = lake.study(name)
            place = f"{lake.study_place(name)}: "
            cells = study_cells(study, packaged_catalog())
            cells.check()
        except InputError as error:
            refused.append(InputError(f"{place}{error.message}", error.hint))
        else:
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
    begin_study(connection, study, size.cells, size.rows, of_study.known)
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
                damaged.append(fault)
                try:
                    lake.set_aside(cell.id)
                except InputError as error:
                    damaged[-1] += f"; {error.message}"

    for relation in of_study.estimator.relations:
        for group in commit_groups(sound(relation), COMMIT_ROWS):
            missing.store(relation, group, _batches(lake, relation, group))
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


def _batches(lake: Lake, relation: Relation, cells: Sized) -> Iterator[pa.RecordBatch]:
    """Yield the rows of cells in batches as long as those of a sweep."""
    return regrouped(
        batch
        for cell, _ in cells
        for batch in _rows_of_cell(lake.rows_place(relation.table, cell), cell)
    )


def _rows_of_cell(place: Path, cell: Cell) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cell with the id of their problem, which lakes of older versions lack."""
    try:
        with pq.ParquetFile(place) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                if "problem_id" in batch.schema.names:
                    yield batch
                else:
                    ids = pa.array(np.full(len(batch), cell.problem.id))
                    yield batch.add_column(1, "problem_id", ids)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}",
            "move the file out of the lake, and collect again: the cell then counts as missing",
        ) from None
