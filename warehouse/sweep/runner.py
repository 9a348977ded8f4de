"""Run a study: evaluate the cells that are not stored, and commit them in groups.

A cell is stored whole, together with its record. A killed sweep loses only its current group; the
next run evaluates the cells that are missing.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
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
from warehouse.sweep.progress import Progress, ProgressFile
from warehouse.sweep.record import add_cells, begin_study, end_study, is_recorded
from warehouse.sweep.sizes import LEAST_ROWS, Rate, remember_rate, used_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from warehouse.studies.study import Study

COMMIT_ROWS = 64 * BATCH_ROWS
"""Rows of a group for one or two workers, a few seconds of work; more for more workers. The last
group has up to twice as many. Commits of single cells would take ten times as long as storing their
rows; commits of a million rows make a sweep a fifth longer, of four million rows a twentieth."""

_TRIAL_ROWS = 3 * BATCH_ROWS
"""Most rows of a trial, about a second of work, and of its largest cell unless every cell is
larger."""

OnProgress = Callable[[int, int, int, int], None]
"""Called with rows done, rows in all, cells done, cells in all."""


@dataclass(frozen=True)
class SweepReport:
    """The outcome of a run of a study.

    Attributes
    ----------
    cells, rows
        Evaluated and stored by this run.
    cells_before, rows_before
        Stored before this run.
    seconds
        Time from the start of planning to the last commit.
    """

    study: str
    cells: int
    rows: int
    cells_before: int
    rows_before: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows planned, evaluated and stored in a second."""
        return self.rows / self.seconds if self.seconds else 0.0


class _Tracker:
    """Counts finished rows and cells for the progress file and the listener."""

    def __init__(self, progress: Progress, file: ProgressFile, listener: OnProgress | None) -> None:
        self._progress = progress
        self._file = file
        self._listener = listener
        self._rows, self._cells = progress.rows, progress.cells
        self._report()

    def add_rows(self, rows: int) -> None:
        self._rows += rows
        self._report()

    def add_cells(self, cells: int) -> None:
        self._cells += cells
        self._report()

    def _report(self) -> None:
        total = self._progress
        total.total_rows = max(total.total_rows, self._rows)  # the total may be an estimate
        total.total_cells = max(total.total_cells, self._cells)
        self._file.update(self._rows, self._cells)
        if self._listener is not None:
            self._listener(self._rows, total.total_rows, self._cells, total.total_cells)


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
        ids = [cell.id for cell, _ in cells.counted]
        stored = {} if force else stored_among(connection, ids)
        size = cells.size(stored)
        begin_study(connection, study, size.cells, size.rows)
        missing = Missing(cells, connection, force=force)
        progress = Progress(
            study.name,
            total_rows=size.rows,
            total_cells=size.cells,
            rows=size.rows - size.missing_rows,
            cells=size.cells - size.missing_cells,
        )
        with ProgressFile(database, progress) as file:
            tracker = _Tracker(progress, file, on_progress)
            number = default_workers(size.missing_rows) if workers is None else workers
            rows, rate = _timed(connection, cells, missing, tracker, number, replace=force)
        if workers is None and not force and rows >= LEAST_ROWS:
            remember_rate(study.estimator, rate)
        end_study(connection, study.name, missing.seen, rows + missing.rows_before)
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
        self, cells: StudyCells, connection: DuckDBPyConnection, *, force: bool = False
    ) -> None:
        self._cells = cells
        self._connection = connection
        self._force = force
        self._unrecorded: list[int] = []
        self.seen = IdSet()
        self.cells_before = self.rows_before = 0

    def of(self, relation: Relation) -> Iterator[tuple[Cell, int]]:
        """Yield the missing cells of a relation, with their numbers of rows."""
        cells = self._cells.of(relation.name)
        while some := list(itertools.islice(cells, CHUNK_CELLS)):
            new = [cell for cell in some if self.seen.add(cell.id)]
            ids = [cell.id for cell in new]
            stored = {} if self._force else stored_among(self._connection, ids)
            self._unrecorded += ids
            if len(self._unrecorded) > MOST_CELLS:
                self.record()
            for cell in new:
                if cell.id in stored:
                    self.cells_before += 1
                    self.rows_before += stored[cell.id]
                else:
                    yield cell, self._cells.count(cell)

    def record(self) -> None:
        """Record the seen cells as cells of the study."""
        if self._unrecorded:
            add_cells(self._connection, self._cells.study.name, self._unrecorded)
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
            tracker = _Tracker(progress, file, None)
            rates = []
            for group in groups:
                part = replace(cells, counted=group, sample_share=None)
                missing = Missing(part, connection)
                rates.append(_timed(connection, part, missing, tracker, workers=1)[1])
    *_, small, large = [rates[0], *rates]
    rows, fewer = _rows(groups[-1]), _rows(groups[max(len(groups) - 2, 0)])
    seconds = rows / large.rows_per_second - fewer / small.rows_per_second
    if rows <= fewer or seconds <= 0:
        return large
    return Rate((rows - fewer) / seconds, large.bytes_per_row)


def _timed(
    connection: DuckDBPyConnection,
    cells: StudyCells,
    missing: Missing,
    tracker: _Tracker,
    workers: int,
    *,
    replace: bool = False,
) -> tuple[int, Rate]:
    """Evaluate and store missing cells; return their number of rows and their rate."""
    num_bytes, started = used_bytes(connection), time.perf_counter()
    rows = _sweep(connection, cells, missing, tracker, workers, replace=replace)
    seconds = time.perf_counter() - started
    return rows, Rate.measured(rows, seconds, used_bytes(connection) - num_bytes)


def _sweep(
    connection: DuckDBPyConnection,
    cells: StudyCells,
    missing: Missing,
    tracker: _Tracker,
    workers: int,
    *,
    replace: bool,
) -> int:
    """Evaluate and store missing cells, relation by relation, group by group; return their rows."""
    done = 0
    for relation in cells.estimator.relations:
        groups = commit_groups(missing.of(relation), COMMIT_ROWS * -(-workers // 2))
        first = next(groups, None)
        if first is None:
            continue
        with _evaluated(cells, relation, workers, tracker) as evaluating:
            for group, batches in evaluating(itertools.chain([first], groups)):
                leading = LeadingRows(relation) if relation.keeps_leading else None
                with transaction(connection):
                    missing.record()
                    store_batches(
                        *(connection, cells.estimator, relation, group),
                        giving_back(connection, batches(leading)),
                        leading,
                        replace=replace,
                    )
                # Before a checkpoint, small groups are only in the log, and in no snapshot.
                connection.execute("checkpoint")
                tracker.add_cells(len(group))
                done += _rows(group)
    missing.record()
    return done


Batches = Callable[["LeadingRows | None"], "Iterator[pa.RecordBatch]"]
"""Returns the rows of a group, given the collector of its leading rows."""

Evaluating = Callable[[Iterator["Sized"]], Iterator[tuple["Sized", Batches]]]
"""Takes groups in order; yields each with its rows, which are evaluated lazily."""


@contextmanager
def _evaluated(
    cells: StudyCells, relation: Relation, workers: int, tracker: _Tracker
) -> Iterator[Evaluating]:
    """Yield a function that evaluates groups of cells of a relation."""
    estimator, catalog = cells.estimator, cells.catalog

    def alone(groups: Iterator[Sized]) -> Iterator[tuple[Sized, Batches]]:
        for group in groups:
            pieces = searched(estimator, relation, [cell for cell, _ in group], catalog)
            yield group, partial(record_batches, relation, pieces, tracker.add_rows)

    if workers == 1:
        try:
            yield alone
        finally:
            estimator.forget()
        return
    from warehouse.sweep.workers import Workers  # here: one process needs none

    with Workers(estimator, catalog, relation, workers) as evaluating:

        def together(groups: Iterator[Sized]) -> Iterator[tuple[Sized, Batches]]:
            waiting = [(group, evaluating.add(group)) for group in itertools.islice(groups, 1)]
            for following in groups:  # workers evaluate it while the previous group is stored
                waiting.append((following, evaluating.add(following)))
                group, tasks = waiting.pop(0)
                yield group, partial(evaluating.batches, tasks, tracker.add_rows)
            for group, tasks in waiting:
                yield group, partial(evaluating.batches, tasks, tracker.add_rows)

        yield together


def _rows(cells: Sized) -> int:
    return sum(rows for _, rows in cells)
