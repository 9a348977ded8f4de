"""One shard of a sweep: its size, and its cells, evaluated and written to the lake."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.record_batches import BATCH_ROWS, record_batches, schema_of, searched
from warehouse.errors import InputError
from warehouse.evaluate.profiles import COLUMN, DEFAULT
from warehouse.lake.folder import Lake, complete_or_absent
from warehouse.lake.jobs import ShardReport
from warehouse.lake.parts import cells_of_shard
from warehouse.sweep.cells import StudySize
from warehouse.sweep.estimate import Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from estimators.contract import Catalog, Cell
    from estimators.estimator import Estimator
    from warehouse.lake.jobs import Shard
    from warehouse.studies.study import Study

    OnCells = Callable[[int, int], None]


def prepare_lake(folder: Path, study: Study) -> Lake:
    """Make a folder a lake and record the study in it, unless that is done already."""
    lake = _lake_for(folder, study)
    lake.prepare()
    lake.add_study(study)
    return lake


def _lake_for(folder: Path, study: Study) -> Lake:
    """Return the lake of a folder, which need not be one yet; refuse what no lake takes."""
    profiles = {str(name) for space in study.spaces for name in space.get(COLUMN, ())} - {DEFAULT}
    if profiles:
        raise InputError(
            f'{study.file}: `profile` "{min(profiles)}": profiles are in a database, which shards'
            " do not share",
            "sweep into the database, without --lake",
        )
    lake = Lake(folder)
    lake.refuse_long_name(study)
    return lake


def estimate_shard(folder: Path, study: Study, shard: Shard) -> Estimate:
    """Return the size of a shard, and of what the lake lacks of it; writes nothing.

    If only a sample of the cells is counted, every shard and every finished cell counts as average.
    """
    lake = _lake_for(folder, study)
    whole = estimate(study, folder / "lake.json", force=True)  # a shard reads no database
    if whole.is_sampled:
        cells, rows = whole.size.cells // shard.of, whole.size.rows // shard.of
        missing_cells = max(cells - lake.num_cells() // shard.of, 0)
        missing_rows = rows * missing_cells // cells if cells else 0
        return replace(whole, size=StudySize(cells, rows, missing_cells, missing_rows))
    of_shard = {cell.id for cell in cells_of_shard(study, whole.cells.catalog, shard)}
    counted = tuple(sized for sized in whole.cells.counted if sized[0].id in of_shard)
    part = replace(whole.cells, counted=counted)
    finished = {cell.id for cell, _ in counted if lake.has(cell)}
    return replace(whole, cells=part, size=part.size(finished))


def run_shard(
    folder: Path, study: str, shard: Shard, on_cells: OnCells | None = None
) -> ShardReport:
    """Evaluate the cells of a shard that the lake does not have, and write them.

    Shards share only the folder. A killed shard continues where it stopped. Two runs of one shard
    at the same time do the work twice, without harm.
    """
    started = time.perf_counter()
    lake = Lake(folder)
    lake.check()
    loaded = lake.study(study)
    estimator = get(loaded.estimator)
    catalog = loaded.defined.added_to(packaged_catalog())
    lake.begin_shard(study, shard)
    cells = rows = before = 0
    for cell in cells_of_shard(loaded, catalog, shard):
        if lake.has(cell):
            before += 1
            continue
        try:
            rows += _write_cell(lake, estimator, cell, catalog)
        except OSError as error:
            raise InputError(
                f"{error.filename or folder}: cannot be written: {error.strerror or error}",
                "free some space; the same command goes on with the rest",
            ) from None
        cells += 1
        if on_cells is not None:
            on_cells(cells, rows)
    lake.remove_abandoned()
    return ShardReport(study, shard, cells, rows, before, time.perf_counter() - started)


def _write_cell(lake: Lake, estimator: Estimator, cell: Cell, catalog: Catalog) -> int:
    """Evaluate a cell and write it; return its number of rows."""
    relation = next(known for known in estimator.relations if known.name == cell.relation)
    place = lake.rows_place(relation.table, cell)
    rows = 0
    pieces = searched(estimator, relation, [cell], catalog)
    with (
        complete_or_absent(place) as partial,
        pq.ParquetWriter(partial, schema_of(relation), compression="zstd") as writer,
    ):
        for batch in record_batches(relation, pieces, lambda _rows: None):
            writer.write_batch(batch, row_group_size=BATCH_ROWS)
            rows += batch.num_rows
    lake.add_cell(estimator, cell, place, rows)
    return rows
