"""Columns as small tables and places in them: what depends on few distinct values is found once.

The rows of a cell are a product. Those that follow one another split layers alike; splits that do
not follow one another spread parameters over GPUs alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array

_LARGEST_CODE = 2**62
"""Codes of combinations stay below, so that none overflows 64 bits."""


class Gathered(NamedTuple):
    """A column as a table and each row's place in it; no place: the table's rows are the rows."""

    table: Any
    place: Array | None

    @property
    def rows(self) -> Any:
        """One element a row."""
        return taken(self.table, self.place)

    def write(self, column: Array) -> None:
        """Write the rows to `column`."""
        if self.place is None or np.ndim(self.table) == 0:
            column[:] = self.table
        elif self.table.dtype == column.dtype:
            self.table.take(self.place, out=column, mode="clip")
        else:
            column[:] = self.table.take(self.place, mode="clip")


def taken(part: Any, place: Array | None) -> Any:
    """Return the elements of `part` at each row's place; a number is the same in all rows."""
    if place is None or np.ndim(part) == 0:
        return part
    return part.take(place, mode="clip")


def runs(columns: Mapping[str, Array], names: Sequence[str]) -> tuple[dict[str, Array], Array]:
    """Return the first of all successive rows that agree in `names`, and the place of each row."""
    changes = np.zeros(len(columns[names[0]]), dtype=bool)
    changes[:1] = True
    for name in names:
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.flatnonzero(changes)
    return {n: columns[n][starts].astype(np.float64) for n in names}, np.cumsum(changes) - 1


def distinct(columns: Mapping[str, Array], names: Sequence[str]) -> tuple[dict[str, Array], Array]:
    """Return the distinct rows of `names`, whole numbers from 0 on, and the place of each row."""
    code, span = np.zeros(len(columns[names[0]]), dtype=np.int64), 1
    for name in names:
        values = columns[name].astype(np.int64)
        base = int(values.max(initial=0)) + 1
        if span * base > _LARGEST_CODE:  # number the combinations so far anew
            found, code = np.unique(code, return_inverse=True)
            span = len(found)
        code, span = code * base + values, span * base
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return {name: columns[name][first] for name in names}, place


def stacked(tables: Sequence[Any], size: int) -> Array:
    """Return tables of `size` rows, or numbers that are the same in all of them, in one."""
    return np.concatenate([np.broadcast_to(each, size) for each in tables])
