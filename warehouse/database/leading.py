"""Finds the leading rows of cells while their evaluation is in memory.

The leading rows of a cell are its fastest ones that fit in memory, those that take hardly longer,
and those that no other row beats in both time and memory. Queries of ranks, fronts and near-optimal
layouts read these few and no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.distinct import distinct
from warehouse.database.tables import ROW_IDS, TOP

if TYPE_CHECKING:
    from estimators.contract import Array, Cell, Relation

NEAR_RATIO = 1.05
"""Rows that take at most this multiple of the least time of their cell are kept; the views of
near-optimal layouts use the same number. Without a model of memory none are kept
(`Relation.keeps_near`)."""

MEMORY, FITS = "memory_bytes", "fits_memory"

_ENOUGH = 64
"""Number of rows that are sorted at once: sorting fewer takes as long."""

_SAMPLE = 512
"""Rows of a sample that rules out most other rows."""

_POWERS = ((1, 1), (1, 4), (4, 1))
"""Powers of time and memory. The row with the least product is on the front and rules out many
others."""


class RowCounts(NamedTuple):
    """Numbers of rows of a cell: all rows, and rows that fit in memory."""

    num_layouts: int = 0
    num_fitting_layouts: int = 0

    def plus(self, rows: int, fitting: int) -> RowCounts:
        """Return the numbers with those of further rows."""
        return RowCounts(self.num_layouts + int(rows), self.num_fitting_layouts + int(fitting))


class Leading(NamedTuple):
    """Leading rows of cells, as `LeadingRows` returns them."""

    counts: dict[int, RowCounts]
    pieces: list[dict[str, Array]]  # columns of the rows of each cell that has some, with its id


class LeadingRows:
    """The leading rows of cells that are evaluated one after the other, piece by piece.

    Attributes
    ----------
    extra
        Results that `add` needs apart from those that are stored.
    counts
        Id of each cell that was added -> its numbers of rows.
    """

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self.extra = tuple(name for name in (MEMORY, FITS) if name in relation.outputs)
        self.counts = defaultdict[int, RowCounts](RowCounts)
        self._cell: int | None = None
        self._pieces: list[dict[str, Array]] = []
        self._cells: list[dict[str, Array]] = []

    def add(self, cell: Cell, columns: Mapping[str, Array]) -> None:
        """Take the next rows of a cell: every stored column, and `extra`."""
        if cell.id != self._cell:
            self._end_cell()
            self._cell = cell.id
        step, memory = columns["step_seconds"], columns.get(MEMORY)
        place = np.flatnonzero(columns[FITS]) if FITS in columns else np.arange(len(step))
        self.counts[cell.id] = self.counts[cell.id].plus(len(step), len(place))
        if len(place):
            place = place[leading(step[place], None if memory is None else memory[place])]
            self._pieces.append(
                {name: column[place] for name, column in columns.items()}
                | {
                    "cell_id": np.full(len(place), cell.id),
                    "problem_id": np.full(len(place), cell.problem.id),
                }
            )

    def taken(self) -> Leading:
        """Return the state for `merge` of another object."""
        self._end_cell()
        return Leading(self.counts, self._cells)

    def merge(self, leading: Leading) -> None:
        """Take the leading rows of the next cells, or of the next rows of the last cell."""
        for cell, counts in leading.counts.items():
            self.counts[cell] = self.counts[cell].plus(*counts)
        for piece in leading.pieces:
            cell = int(piece["cell_id"][0])
            if cell != self._cell:
                self._end_cell()
                self._cell = cell
            self._pieces.append(piece)

    def columns(self) -> dict[str, Array]:
        """Return the leading rows of all cells, with their ids; empty: there is none."""
        self._end_cell()
        if not self._cells:
            return {}
        return _stacked(self._cells, (*ROW_IDS, *self.relation.stored))

    def _end_cell(self) -> None:
        """Keep the leading rows among those of the pieces of a cell."""
        if len(self._pieces) > 1:
            whole = _stacked(self._pieces, tuple(self._pieces[0]))
            place = leading(whole["step_seconds"], whole.get(MEMORY))
            self._pieces = [{name: column[place] for name, column in whole.items()}]
        self._cells += self._pieces
        self._cell, self._pieces = None, []


class LeadingTimes:
    """Step times and memory of the leading rows of cells whose rows come in any order."""

    def __init__(self, cells: Collection[int]) -> None:
        self.counts = dict.fromkeys(cells, RowCounts())
        self._pieces: defaultdict[int, list[tuple[Array, Array]]] = defaultdict(list)

    def add(self, cells: Array, step_seconds: Array, memory_bytes: Array, fits: Array) -> None:
        """Take rows: the id of their cell, time, memory, and whether they fit.

        Memory is 0 where an estimator has no model of it.
        """
        starts = np.flatnonzero(np.diff(cells, prepend=cells[:1] - 1))
        for start, end in zip(starts, [*starts[1:], len(cells)], strict=True):
            cell = int(cells[start])
            place = start + np.flatnonzero(fits[start:end])
            before = self.counts.get(cell, RowCounts())
            self.counts[cell] = before.plus(end - start, len(place))
            if len(place):
                place = place[_leading_places(step_seconds[place], memory_bytes[place])]
                self._pieces[cell].append((step_seconds[place], memory_bytes[place]))

    def columns(self) -> dict[str, Array]:
        """Return ``cell_id``, ``step_seconds`` and ``memory_bytes`` of each leading row."""
        cells, times, memories = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], [np.zeros(0)]
        for cell, pieces in self._pieces.items():
            step, memory = (np.concatenate(part) for part in zip(*pieces, strict=True))
            place = _leading_places(step, memory)
            times.append(step[place])
            memories.append(memory[place])
            cells.append(np.full(len(place), cell))
        return {
            "cell_id": np.concatenate(cells),
            "step_seconds": np.concatenate(times),
            MEMORY: np.concatenate(memories),
        }


def _stacked(parts: list[dict[str, Array]], names: tuple[str, ...]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def leading(step_seconds: Array, memory_bytes: Array | None) -> Array:
    """Return the places of the leading rows among rows that fit in memory, in order.

    These are the `TOP` fastest rows with all that are as fast as the last of them. With memory also
    those within `NEAR_RATIO` of the fastest, and the `front`. Units are seconds and bytes.
    """
    if len(step_seconds) <= TOP:
        return np.arange(len(step_seconds))
    if np.isnan(step_seconds.min()):  # rows without a time lead nothing
        timed = np.flatnonzero(~np.isnan(step_seconds))
        memory = None if memory_bytes is None else memory_bytes[timed]
        return timed[leading(step_seconds[timed], memory)]
    near = 0.0 if memory_bytes is None else float(step_seconds.min()) * NEAR_RATIO
    place = np.flatnonzero(step_seconds <= max(_bound(step_seconds), near))
    fastest = step_seconds[place]
    places: Array = place[fastest <= max(np.partition(fastest, TOP - 1)[TOP - 1], near)]
    if memory_bytes is not None:
        places = distinct(np.concatenate((places, front(step_seconds, memory_bytes))))
    return places


def _leading_places(step_seconds: Array, memory_bytes: Array) -> Array:
    """Return the places of the leading rows; memory is 0 where there is no model of it."""
    return leading(step_seconds, memory_bytes if memory_bytes.any() else None)


def _bound(step_seconds: Array) -> float:
    """Return a time, from a sample, within which at least `TOP` rows and few more lie."""
    sample = step_seconds[:: max(len(step_seconds) // _SAMPLE, 1)]
    return float(np.partition(sample, TOP - 1)[TOP - 1])


def front(step_seconds: Array, memory_bytes: Array) -> Array:
    """Return the places of the rows that no other row beats in time and memory.

    A row beats another if it is as good in both and better in one. Of rows equal in both, either
    all are on the front or none.
    """
    place, step, memory = np.arange(len(step_seconds)), step_seconds, memory_bytes
    for of_step, of_memory in _POWERS:
        if len(step) <= _ENOUGH:
            break
        pivot = np.argmin(_power(step, of_step) * _power(memory, of_memory))
        # As good as the pivot in time or memory: rows equal to the pivot stay.
        left = np.flatnonzero((step <= step[pivot]) | (memory <= memory[pivot]))
        place, step, memory = place[left], step[left], memory[left]
    order = np.lexsort((memory, step))
    place, step, memory = place[order], step[order], memory[order]
    # Of equals the first is compared: with the least memory before it.
    is_first = np.ones(len(place), dtype=bool)
    is_first[1:] = (step[1:] != step[:-1]) | (memory[1:] != memory[:-1])
    is_best = np.ones(len(place), dtype=bool)
    is_best[1:] = memory[1:] < np.minimum.accumulate(memory)[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(place)), 0))
    places: Array = np.sort(place[is_best[first]])
    return places


def _power(values: Array, power: int) -> Array:
    """Return a power of 2 of the values: `numpy.power` takes ten times as long."""
    for _ in range(power.bit_length() - 1):
        values = values * values
    return values
