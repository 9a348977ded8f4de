"""Run a study: evaluate the cells that are not stored, and commit them in groups.

A cell is stored whole, together with its record. A killed sweep loses only its current group; the
next run evaluates the cells that are missing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from estimators.contract import Cell, Relation
from estimators.id_set import IdSet
from estimators.search import CHUNK_CELLS
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_as_it_is, open_for_write, writing
from warehouse.database.leading import LeadingRows
from warehouse.database.record_batches import BATCH_ROWS, record_batches, searched
from warehouse.database.sink import (
    MOST_CELLS,
    commit_groups,
    store_batches,
    stored_among,
    transaction,
)
from warehouse.database.stamp import is_stamped
from warehouse.evaluate.profiles import load_profiles
from warehouse.sweep.cells import OnChecked, Sized, StudyCells, study_cells
from warehouse.sweep.machine import bound_memory, default_workers, giving_back
from warehouse.sweep.progress import OnProgress, Progress, ProgressFile
from warehouse.sweep.record import add_cells, begin_study, end_study, is_recorded
from warehouse.sweep.sizes import LEAST_ROWS, Rate, remember_rate, used_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from warehouse.studies.study import Study
    from warehouse.sweep.workers import Batches

COMMIT_ROWS = 64 * BATCH_ROWS
"""Rows of a group for one or two workers, a few seconds of work; more for more workers. The last
group has up to twice as many. Commits of single cells would take ten times as long as storing their
rows; commits of a million rows make a sweep a fifth longer, of four million rows a twentieth."""

_TRIAL_ROWS = 3 * BATCH_ROWS
"""Most rows of a trial, about a second of work, and of its largest cell unless every cell is
larger."""


@dataclass(frozen=True)
class SweepReport:
    """The outcome of a run of a study: what it stored, and what was stored before it."""

    study: str
    cells: int
    rows: int
    cells_before: int
    rows_before: int
    seconds: float  # from the start of planning to the last commit

    @property
    def rows_per_second(self) -> float:
        """Rows planned, evaluated and stored in a second."""
        return self.rows / self.seconds if self.seconds else 0.0


def run_study(
    database: Path,
    study: Study,
    *,
    force: bool = False,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    on_checked: OnChecked = lambda _done, _all: None,
    cells: StudyCells | None = None,
) -> SweepReport:
    """Evaluate and store every cell of `study` that `database` does not have.

    Nothing is written if the study is refused. The speed of a long sweep is kept for the estimates
    of later sweeps.

    Parameters
    ----------
    force
        Also evaluate and replace stored cells.
    workers
        Processes that evaluate; 1 evaluates in this one. By default as `default_workers`.
    on_progress, on_checked
        Called often while rows are stored, and before that while many combinations are checked.
    cells
        The cells of the study, where they are known.
    """
    started = time.perf_counter()
    # Before the database is opened, so that a refused study leaves no trace.
    if cells is None:
        cells = study_cells(study, packaged_catalog(), lambda: load_profiles(database))
    cells.check(on_checked)
    if not force and (stored_before := _all_stored(database, cells)):
        return SweepReport(study.name, 0, 0, *stored_before, time.perf_counter() - started)
    with writing(database) as connection:
        bound_memory(connection)
        counted = [cell.id for cell, _ in cells.counted]
        size = cells.size({} if force else stored_among(connection, counted))
        begin_study(connection, study, size.cells, size.rows, cells.known)
        missing = Missing(connection, cells, force=force)
        progress = Progress(
            study.name,
            total_rows=size.rows,
            total_cells=size.cells,
            rows=size.rows - size.missing_rows,
            cells=size.cells - size.missing_cells,
        )
        with ProgressFile(database, progress, on_progress) as file:
            number = default_workers(size.missing_rows) if workers is None else workers
            rows, rate = _sweep(missing, file, number)
        if workers is None and not force and rows >= LEAST_ROWS:
            remember_rate(study.estimator, rate)
        end_study(connection, study, missing.seen, rows + missing.rows_before)
        return SweepReport(
            study.name,
            cells=len(missing.seen) - missing.cells_before,
            rows=rows,
            cells_before=missing.cells_before,
            rows_before=missing.rows_before,
            seconds=time.perf_counter() - started,
        )


def _all_stored(database: Path, cells: StudyCells) -> tuple[int, int] | None:
    """Return the numbers of cells and rows of a study if it is recorded and none is missing.

    It reads: a study that is stored needs no lock.
    """
    if not database.exists():
        return None
    seen, rows = IdSet(), 0
    with open_as_it_is(database) as connection:
        if not is_stamped(connection):
            return None
        for relation in cells.estimator.relations:
            of_relation = cells.of(relation.name)
            while some := list(itertools.islice(of_relation, CHUNK_CELLS)):
                new = [cell.id for cell in some if seen.add(cell.id)]
                stored = stored_among(connection, new)
                if len(stored) < len(new):
                    return None
                rows += sum(stored.values())
        is_whole = is_recorded(connection, cells.study, seen, rows)
        return (len(seen), rows) if is_whole else None


class Missing:
    """Iterates over the cells of a study that are not stored, and counts the others."""

    def __init__(
        self, connection: DuckDBPyConnection, cells: StudyCells, *, force: bool = False
    ) -> None:
        self.connection = connection
        self.cells = cells
        self.force = force
        self.seen = IdSet()
        self.cells_before = self.rows_before = 0
        self._unrecorded: list[int] = []

    def of(self, relation: Relation) -> Iterator[tuple[Cell, int]]:
        """Yield the missing cells of a relation, with their numbers of rows."""
        cells = self.cells.of(relation.name)
        while some := list(itertools.islice(cells, CHUNK_CELLS)):
            new = [cell for cell in some if self.seen.add(cell.id)]
            ids = [cell.id for cell in new]
            stored = {} if self.force else stored_among(self.connection, ids)
            if self.cells.is_sampled:  # the study began with those of a list
                self._unrecorded += ids
            if len(self._unrecorded) > MOST_CELLS:
                self.record()
            for cell in new:
                if cell.id in stored:
                    self.cells_before += 1
                    self.rows_before += stored[cell.id]
                else:
                    yield cell, self.cells.count(cell)

    def store(
        self,
        relation: Relation,
        group: Sized,
        batches: Iterator[pa.RecordBatch],
        leading: LeadingRows | None = None,
    ) -> None:
        """Store a group of the cells in one transaction."""
        with transaction(self.connection):
            self.record()
            estimator, replaces = self.cells.estimator, self.force
            store_batches(
                *(self.connection, estimator, relation, group, batches, leading), replace=replaces
            )
        # Before a checkpoint, small groups are only in the log, and in no snapshot.
        self.connection.execute("checkpoint")

    def record(self) -> None:
        """Record the seen cells as cells of the study."""
        if self._unrecorded:
            add_cells(self.connection, self.cells.study.name, self._unrecorded)
            self._unrecorded.clear()


def rate_of_trial(cells: StudyCells) -> Rate:
    """Return the rate of some counted cells, from a trial in a temporary database."""
    least = min(rows for _, rows in cells.counted if rows)
    chosen: list[tuple[Cell, int]] = []
    sizes = {cell.id: (cell, rows) for cell, rows in cells.counted}
    for cell, rows in (sizes[cell_id] for cell_id in sorted(sizes)):  # not sorted by size
        if 0 < rows <= max(least, _TRIAL_ROWS) and _rows(chosen) < _TRIAL_ROWS:
            chosen.append((cell, rows))
    ordered = sorted(chosen, key=lambda sized: sized[1])
    # The first group also reads measured tables and plans queries. The second shows the fixed time
    # of a group: groups of a sweep are ten times as large as that of a trial.
    groups = [group for group in (ordered[:1], ordered[1:2], ordered[2:]) if group]
    with TemporaryDirectory(prefix="warehouse-") as folder:
        database = Path(folder) / "trial.duckdb"
        progress = Progress("trial", total_rows=_rows(chosen), total_cells=len(chosen))
        with open_for_write(database) as connection, ProgressFile(database, progress) as file:
            parts = (replace(cells, counted=group, sample_share=None) for group in groups)
            rates = [_sweep(Missing(connection, part), file, workers=1)[1] for part in parts]
    *_, small, large = [rates[0], *rates]
    rows, fewer = _rows(groups[-1]), _rows(groups[max(len(groups) - 2, 0)])
    seconds = rows / large.rows_per_second - fewer / small.rows_per_second
    if rows <= fewer or seconds <= 0:
        return large
    return Rate((rows - fewer) / seconds, large.bytes_per_row)


def _sweep(missing: Missing, progress: ProgressFile, workers: int) -> tuple[int, Rate]:
    """Evaluate and store missing cells, group by group; return how many rows, and their rate."""
    connection, estimator = missing.connection, missing.cells.estimator
    num_bytes, started = used_bytes(connection), time.perf_counter()
    rows = 0
    for relation in estimator.relations:
        groups = commit_groups(missing.of(relation), COMMIT_ROWS * -(-workers // 2))
        first = next(groups, None)
        if first is None:
            continue
        groups = itertools.chain([first], groups)
        with _evaluated(missing.cells, relation, groups, workers, progress) as evaluated:
            for group, batches in evaluated:
                leading = LeadingRows(relation) if relation.keeps_leading else None
                rows_of_group = giving_back(connection.cursor(), batches(leading))
                missing.store(relation, group, rows_of_group, leading)
                progress.add_cells(len(group))
                rows += _rows(group)
    missing.record()
    seconds = time.perf_counter() - started
    return rows, Rate.measured(rows, seconds, used_bytes(connection) - num_bytes)


@contextmanager
def _evaluated(
    cells: StudyCells,
    relation: Relation,
    groups: Iterator[Sized],
    workers: int,
    progress: ProgressFile,
) -> Iterator[Iterator[tuple[Sized, Batches]]]:
    """Yield groups of cells of a relation, each with its rows, which are evaluated lazily."""
    estimator, catalog = cells.estimator, cells.catalog
    if workers > 1:
        from warehouse.sweep.workers import Workers  # here: one process needs none

        with Workers(estimator, catalog, relation, workers) as processes:
            yield processes.evaluated(groups, progress.add_rows)
        return

    def rows_of(group: Sized) -> Batches:
        pieces = searched(estimator, relation, [cell for cell, _ in group], catalog)
        return partial(record_batches, relation, pieces, progress.add_rows)

    try:
        yield ((group, rows_of(group)) for group in groups)
    finally:
        estimator.forget()


def _rows(cells: Sized) -> int:
    return sum(rows for _, rows in cells)
