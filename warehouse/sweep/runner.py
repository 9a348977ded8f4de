"""Run a study: evaluate the cells that are not stored, and commit them in groups.

A cell is stored whole, together with its record. A killed sweep loses only its current group; the
next run evaluates the cells that are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from estimators.contract import (
    Catalog,
    Cell,
    EmptySpaceError,
    Estimator,
    Mends,
    RefusedError,
    Space,
)
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_write
from warehouse.database.leading import LeadingRows
from warehouse.database.record_batches import BATCH_ROWS, record_batches, searched
from warehouse.database.sink import DuckDBSink, Sink, commit_groups
from warehouse.errors import InputError
from warehouse.evaluate.profiles import (
    NO_PROFILES,
    Profiles,
    cells_of_space,
    load_profiles,
    with_profiles,
)
from warehouse.sweep.progress import Progress, ProgressFile
from warehouse.sweep.record import register_study

if TYPE_CHECKING:
    from warehouse.studies.study import Study

COMMIT_ROWS = 32 * BATCH_ROWS
"""Rows of a group, a second or two of work. A commit for each cell would take ten times as long as
its rows; one for each million rows, a fifth longer."""

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
    search = estimator.search
    if search is None:
        raise InputError(
            f"{study.file}: `estimator` {study.estimator} has no search",
            f"use `warehouse evaluate {study.estimator}` on a file of configurations",
        )
    catalog = with_profiles(study.defined.added_to(catalog), profiles, estimator)
    cells: dict[int, tuple[Cell, int]] = {}
    try:
        for space in study.spaces:
            for cell in _cells(estimator, space, catalog, study.mends):
                cells.setdefault(cell.id, (cell, search.count(cell)))
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None
    return Plan(estimator, tuple(cells.values()), catalog)


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
    on_progress: OnProgress | None = None,
) -> SweepReport:
    """Evaluate and store every cell of `study` that `database` does not have.

    Parameters
    ----------
    force
        Also evaluate and replace stored cells.
    on_progress
        Called often, from the thread that evaluates.

    Raises
    ------
    InputError
        If the study is refused; nothing is written.
    DatabaseError
        If the database cannot be opened for writing.
    """
    started = time.perf_counter()
    # Planned before the database is opened: a refused study leaves no trace.
    asked = plan(study, packaged_catalog(), lambda: load_profiles(database))
    with open_for_write(database) as connection:
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
                _sweep(DuckDBSink(connection), asked, missing, tracker, replace=force)
        return SweepReport(
            study.name,
            cells=len(missing),
            rows=_rows(missing),
            cells_before=len(before),
            rows_before=_rows(before),
            seconds=time.perf_counter() - started,
        )


def _sweep(sink: Sink, asked: Plan, cells: Sized, tracker: _Tracker, *, replace: bool) -> None:
    """Evaluate and store `cells`, relation by relation, group by group."""
    estimator, catalog = asked.estimator, asked.catalog
    for relation in estimator.relations:
        own = [(cell, rows) for cell, rows in cells if cell.relation == relation.name]
        for group in commit_groups(own, COMMIT_ROWS):
            pieces = searched(estimator, relation, [cell for cell, _ in group], catalog)
            leading = LeadingRows(relation) if relation.keeps_leading else None
            batches = record_batches(relation, pieces, tracker.add_rows, leading)
            sink.store(estimator, relation, group, batches, leading, replace=replace)
            tracker.add_cells(len(group))


def _rows(cells: Sized) -> int:
    return sum(rows for _, rows in cells)
