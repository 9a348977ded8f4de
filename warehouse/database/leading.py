"""Finds the leading rows of cells while their evaluation is in memory.

The leading rows of a cell are its fastest ones that fit in memory, the fastest that are likely to
fit, those that take hardly longer than these, and those that no other row beats in both time and
memory. Queries of ranks, fronts and near-optimal layouts read these few and no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.factored import distinct
from estimators.interval import fit_risk
from warehouse.database.tables import TOP
from warehouse.limits import FIT_PROBABILITY

if TYPE_CHECKING:
    from estimators.contract import Array, Relation

NEAR_RATIO = 1.05
"""Rows that take at most this multiple of the time of the best of their cell and fit as surely are
kept; the views of near-optimal layouts use the same number. Without a model of memory none are kept
(`Relation.keeps_near`)."""

MEMORY, FITS, CHANCE = "memory_bytes", "fits_memory", "fit_probability"

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


class LeadingRows:
    """The leading rows of cells, found from pieces of their rows in any order.

    Attributes
    ----------
    extra
        Results that `add` needs apart from those that are stored.
    counts
        Id of each cell -> its numbers of rows.
    """

    def __init__(self, relation: Relation, cells: Iterable[int] = ()) -> None:
        self.relation = relation
        self.extra = tuple(name for name in (MEMORY, FITS, CHANCE) if name in relation.outputs)
        self.counts = defaultdict[int, RowCounts](RowCounts, dict.fromkeys(cells, RowCounts()))
        self._pieces: defaultdict[int, list[dict[str, Array]]] = defaultdict(list)

    def add(self, cell: int, columns: Mapping[str, Array]) -> None:
        """Take rows of a cell: every stored column with the ids, and `extra`."""
        step = columns["step_seconds"]
        rows = np.flatnonzero(columns[FITS]) if FITS in columns else np.arange(len(step))
        self.counts[cell] = self.counts[cell].plus(len(step), len(rows))
        if len(rows):
            self._pieces[cell].append(_leading_among(columns, rows))

    def merge(self, others: LeadingRows) -> None:
        """Take the leading rows of further cells, or of further rows of the same cells."""
        for cell, counts in others.counts.items():
            self.counts[cell] = self.counts[cell].plus(*counts)
            self._pieces[cell] += others._pieces[cell]

    def columns(self) -> dict[str, Array]:
        """Return the columns of the leading rows of all cells; empty: there is none."""
        cells = [_joined(pieces) for pieces in self._pieces.values() if pieces]
        return _stacked(cells) if cells else {}


def _joined(pieces: list[dict[str, Array]]) -> dict[str, Array]:
    """Return the leading rows of a cell, from those of its pieces."""
    if len(pieces) == 1:
        return pieces[0]
    columns = _stacked(pieces)
    return _leading_among(columns, np.arange(len(columns["step_seconds"])))


def _stacked(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _leading_among(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    """Return the leading ones of some rows; memory is 0 where there is no model of it."""
    step, memory = columns["step_seconds"][rows], columns.get(MEMORY)
    of_rows = None if memory is None or not memory.any() else memory[rows]
    chance = columns.get(CHANCE)
    risk = None if chance is None else fit_risk(chance[rows], FIT_PROBABILITY)
    rows = rows[leading(step, of_rows, risk)]
    return {name: column[rows] for name, column in columns.items()}


def leading(step_seconds: Array, memory_bytes: Array | None, risk: Array | None = None) -> Array:
    """Return the places of the leading rows among rows that fit in memory, in order.

    These are the `TOP` fastest rows, and the first `TOP` by `risk` and time, with all that are as
    good as the last of them. With memory also those within `NEAR_RATIO` of the fastest of the least
    risk, and the `front`. Units are seconds and bytes. The risk is that of `fit_risk`; None: all
    rows are as sure.
    """
    if len(step_seconds) <= TOP:
        return np.arange(len(step_seconds))
    if np.isnan(step_seconds.min()):  # rows without a time lead nothing
        timed = np.flatnonzero(~np.isnan(step_seconds))
        of_timed = (None if each is None else each[timed] for each in (memory_bytes, risk))
        return timed[leading(step_seconds[timed], *of_timed)]
    near = 0.0 if memory_bytes is None else NEAR_RATIO
    parts = []
    if memory_bytes is not None:
        parts.append(front(step_seconds, memory_bytes))
    if risk is None or not risk.any():
        parts.append(_fastest(step_seconds, near))
    else:
        parts.append(_fastest(step_seconds, 0.0))
        parts.append(_surest(step_seconds, risk, near))
    return parts[0] if len(parts) == 1 else distinct(np.concatenate(parts))


def _fastest(step_seconds: Array, near_ratio: float) -> Array:
    """Return the places of the `TOP` fastest rows, and of all within a multiple of the fastest."""
    near = float(step_seconds.min()) * near_ratio
    place = np.flatnonzero(step_seconds <= max(_bound(step_seconds), near))
    fastest = step_seconds[place]
    places: Array = place[fastest <= max(np.partition(fastest, TOP - 1)[TOP - 1], near)]
    return places


def _surest(step_seconds: Array, risk: Array, near_ratio: float) -> Array:
    """Return the places of the first `TOP` rows by risk and time, and of those near the first."""
    surest = np.flatnonzero(risk == risk.min())
    if len(surest) > TOP:
        return surest[_fastest(step_seconds[surest], near_ratio)]
    last = np.lexsort((step_seconds, risk))[TOP - 1]
    is_before = risk < risk[last]
    is_before |= (risk == risk[last]) & (step_seconds <= step_seconds[last])
    return np.flatnonzero(is_before)


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
