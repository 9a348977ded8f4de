"""Run a study: evaluate the cells that are not stored, and commit them in groups.

A cell is stored whole, together with its record. A killed sweep loses only its current group; the
next run evaluates the cells that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from estimators.contract import (
    Catalog,
    Cell,
    EmptySpaceError,
    Estimator,
    Mends,
    RefusedError,
    Relation,
    Space,
)
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_write
from warehouse.database.leading import LeadingRows
from warehouse.database.pieces import BATCH_ROWS, searched
from warehouse.database.record_batches import record_batches
from warehouse.database.sink import DuckDBSink, Sink, commit_groups
from warehouse.database.snapshot import Snapshots
from warehouse.errors import InputError
from warehouse.evaluate.profiles import (
    NO_PROFILES,
    Profiles,
    cells_of_space,
    load_profiles,
    with_profiles,
)
from warehouse.sweep.cores import default_workers, usable_cores
from warehouse.sweep.progress import Progress, ProgressFile
from warehouse.sweep.rates import LEAST_ROWS, Rate, remember_rate, used_bytes
from warehouse.sweep.record import register_study

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from warehouse.studies.study import Study

COMMIT_ROWS = 32 * BATCH_ROWS
"""Rows of a group for one or two workers, a second or two of work; more for more workers. A commit
for each cell would take ten times as long as its rows; one per million rows, a fifth longer."""

_TRIAL_ROWS = 3 * BATCH_ROWS
"""Rows of a trial, and of its largest cell unless every cell is larger: about a second."""

Sized = Sequence[tuple[Cell, int]]
"""Cells, each with its number of rows."""

OnProgress = Callable[[int, int, int, int], None]
"""Called with rows done, rows in all, cells done, cells in all."""


@dataclass(frozen=True)
class Plan:
    """The cells of a study, each with its exact number of rows."""

    estimator: Estimator
    cells: Sized
    catalog: Catalog
    """The reference tables with the study's own models and systems, and its profiles."""

    @property
    def num_rows(self) -> int:
        """Rows of all cells."""
        return _rows(self.cells)


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
    """Counts finished rows and cells, for the progress file and the listener."""

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
        self._file.update(self._rows, self._cells)
        if self._listener is not None:
            total = self._progress
            self._listener(self._rows, total.total_rows, self._cells, total.total_cells)


def plan(
    study: Study, catalog: Catalog, profiles: Callable[[], Profiles] = lambda: NO_PROFILES
) -> Plan:
    """Return the study's cells and their row counts, without evaluating anything.

    Parameters
    ----------
    profiles
        Returns the stored profiles; called only if the study names one.

    Raises
    ------
    InputError
        If the estimator refuses the space, or the catalog a definition of the study.
    """
    estimator = get(study.estimator)
    catalog = with_profiles(study.defined.added_to(catalog), profiles, estimator)
    cells: dict[int, tuple[Cell, int]] = {}
    for cell in cells_of_study(study, catalog):
        if cell.id not in cells:
            cells[cell.id] = (cell, num_layouts(estimator, cell))
    return Plan(estimator, tuple(cells.values()), catalog)


def num_layouts(estimator: Estimator, cell: Cell) -> int:
    """Return the exact number of rows of a cell."""
    assert estimator.search is not None
    return estimator.search.count(cell)


def cells_of_study(study: Study, catalog: Catalog) -> Iterator[Cell]:
    """Yield the cells of a study, one by one; spaces that overlap yield a cell twice.

    Parameters
    ----------
    catalog
        The reference tables with the study's own models and systems, and its profiles.

    Raises
    ------
    InputError
        If the estimator refuses the space.
    """
    estimator = get(study.estimator)
    if estimator.search is None:
        raise InputError(
            f"{study.file}: `estimator` {study.estimator} has no search",
            f"use `warehouse evaluate {study.estimator}` on a file of configurations",
        )
    try:
        for space in study.spaces:
            yield from _cells(estimator, space, catalog, study.mends)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None


def _cells(
    estimator: Estimator, space: Space, catalog: Catalog, variants: Sequence[Mends]
) -> Iterator[Cell]:
    """Yield the cells of a space under each variant; a variant without layouts is left out.

    Raises
    ------
    RefusedError
        If the space is faulty, or has no layout under any variant.
    """
    empty: list[EmptySpaceError] = []
    for mends in variants:
        try:
            yield from cells_of_space(estimator, space, catalog, mends)
        except EmptySpaceError as error:
            empty.append(error)
    if len(empty) == len(variants):
        raise empty[0]


def run_study(
    database: Path,
    study: Study,
    *,
    force: bool = False,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    planned: Plan | None = None,
) -> SweepReport:
    """Evaluate and store every cell of `study` that `database` does not have.

    The speed of a long sweep is kept for estimates of later ones.

    Parameters
    ----------
    force
        Also evaluate and replace stored cells.
    workers
        Processes that evaluate; 1 evaluates in this one. By default as `default_workers`.
    on_progress
        Called often, from the thread that takes the rows.
    planned
        The study's cells as `plan` returned them; None: they are planned here.

    Raises
    ------
    InputError
        If the study is refused; nothing is written.
    DatabaseError
        If the database cannot be opened for writing.
    WarehouseError
        If a worker process ends by itself. Its group of cells is not stored.
    """
    started = time.perf_counter()
    # Planned before the database is opened: a refused study leaves no trace.
    asked = planned or plan(study, packaged_catalog(), lambda: load_profiles(database))
    with Snapshots(database) as snapshots, open_for_write(database) as connection:
        stored = DuckDBSink(connection).stored()
        before = [(cell, rows) for cell, rows in asked.cells if cell.id in stored and not force]
        missing = [(cell, rows) for cell, rows in asked.cells if force or cell.id not in stored]
        register_study(connection, study, asked.cells)
        if missing:
            progress = Progress(
                study.name,
                total_rows=asked.num_rows,
                total_cells=len(asked.cells),
                rows=_rows(before),
                cells=len(before),
            )
            with ProgressFile(database, progress) as file:
                tracker = _Tracker(progress, file, on_progress)
                number = default_workers(_rows(missing)) if workers is None else workers
                rate = _timed(
                    connection,
                    asked,
                    missing,
                    tracker,
                    number,
                    replace=force,
                    publish=lambda: snapshots.publish(connection),
                )
            if workers is None and not force and _rows(missing) >= LEAST_ROWS:
                remember_rate(study.estimator, rate)
        return SweepReport(
            study.name,
            cells=len(missing),
            rows=_rows(missing),
            cells_before=len(before),
            rows_before=_rows(before),
            seconds=time.perf_counter() - started,
        )


def rate_of_trial(asked: Plan) -> Rate:
    """Return the rate of some cells of a plan, stored in a database of their own and deleted.

    Parameters
    ----------
    asked
        A plan with a row.
    """
    least = min(rows for _, rows in asked.cells if rows)
    cells: list[tuple[Cell, int]] = []
    sizes = {cell.id: (cell, rows) for cell, rows in asked.cells}
    for cell, rows in (sizes[each] for each in sorted(sizes)):  # in no order of size
        if 0 < rows <= max(least, _TRIAL_ROWS) and _rows(cells) < _TRIAL_ROWS:
            cells.append((cell, rows))
    ordered = sorted(cells, key=lambda sized: sized[1])
    # The first group also reads measured tables and plans queries. The second shows how long a
    # group takes besides its rows: the groups of a sweep are ten times as large as that of a trial.
    groups = [group for group in (ordered[:1], ordered[1:2], ordered[2:]) if group]
    with TemporaryDirectory(prefix="warehouse-") as folder:
        database = Path(folder) / "trial.duckdb"
        progress = Progress("trial", total_rows=_rows(cells), total_cells=len(cells))
        with open_for_write(database) as connection, ProgressFile(database, progress) as file:
            tracker = _Tracker(progress, file, None)
            rates = [_timed(connection, asked, group, tracker, workers=1) for group in groups]
    *_, small, large = [rates[0], *rates]
    rows, fewer = _rows(groups[-1]), _rows(groups[max(len(groups) - 2, 0)])
    seconds = rows / large.rows_per_second - fewer / small.rows_per_second
    if rows <= fewer or seconds <= 0:
        return large
    return Rate((rows - fewer) / seconds, large.bytes_per_row)


def _timed(
    connection: DuckDBPyConnection,
    asked: Plan,
    cells: Sized,
    tracker: _Tracker,
    workers: int,
    *,
    replace: bool = False,
    publish: Callable[[], object] = lambda: None,
) -> Rate:
    """Evaluate and store `cells`; return how fast that was and how much it took."""
    num_bytes, started = used_bytes(connection), time.perf_counter()
    sink = DuckDBSink(connection)
    _sweep(sink, asked, cells, tracker, workers, replace=replace, publish=publish)
    connection.execute("checkpoint")  # before it, small groups are in the log alone
    seconds = time.perf_counter() - started
    return Rate.measured(_rows(cells), seconds, used_bytes(connection) - num_bytes)


def _sweep(
    sink: Sink,
    asked: Plan,
    cells: Sized,
    tracker: _Tracker,
    workers: int,
    *,
    replace: bool,
    publish: Callable[[], object],
) -> None:
    """Evaluate and store `cells`, relation by relation, group by group.

    Between two groups `publish` is called: readers then see what is stored.
    """
    estimator = asked.estimator
    groups = [
        (relation, group)
        for relation in estimator.relations
        for group in commit_groups(
            [(cell, rows) for cell, rows in cells if cell.relation == relation.name],
            COMMIT_ROWS * -(-workers // 2),
        )
    ]
    with _evaluated(asked, groups, workers, tracker) as batches:
        for number, (relation, group) in enumerate(groups):
            leading = LeadingRows(relation) if relation.keeps_leading else None
            sink.store(
                estimator, relation, group, batches(number, leading), leading, replace=replace
            )
            tracker.add_cells(len(group))
            if number + 1 < len(groups):
                publish()


@contextmanager
def _evaluated(
    asked: Plan, groups: Sequence[tuple[Relation, Sized]], workers: int, tracker: _Tracker
) -> Iterator[Callable[[int, LeadingRows | None], Iterator[pa.RecordBatch]]]:
    """Yield a function that yields the batches of a group, given by its number."""
    estimator, catalog = asked.estimator, asked.catalog
    from warehouse.sweep.workers import Workers, can_share  # here: a plan may store nothing

    if workers > 1 and can_share([relation for relation, _ in groups]):
        with Workers(
            estimator,
            catalog,
            groups,
            workers,
            num_readers=usable_cores(),
            on_rows=tracker.add_rows,
        ) as evaluating:
            yield evaluating.batches
        return

    def batches(number: int, leading: LeadingRows | None) -> Iterator[pa.RecordBatch]:
        relation, group = groups[number]
        pieces = searched(estimator, relation, [cell for cell, _ in group], catalog)
        return record_batches(relation, pieces, tracker.add_rows, leading)

    yield batches


def _rows(cells: Sized) -> int:
    return sum(rows for _, rows in cells)
