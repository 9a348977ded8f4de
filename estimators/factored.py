"""Columns kept as small tables with indices into them: work is done once per distinct row.

A search space is a product: a layout is a split, a microbatch and a placement, and most figures
depend on one of them. `Factored` presents such a product as ordinary columns. A kernel that knows
the tables computes figures there and gathers them. `runs` and `distinct_rows` make such a table
from columns whose rows repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from estimators.values import Array, Columns, Flag, Real

Part = TypeVar("Part")
"""Numbers of a table, one for all of its rows, or a dictionary or named tuple of such parts."""

_LARGEST_CODE = 2**62
"""Codes of combinations stay below this, so that none overflows 64 bits."""


@dataclass(frozen=True)
class Factored(Mapping[str, Array]):
    """Columns that are gathered from tables when they are read.

    Attributes
    ----------
    tables
        Table name -> its columns. A column name occurs in one table only.
    index
        Table name -> for each row the row of that table. None: the table's rows are the rows.
    """

    tables: Mapping[str, Columns]
    index: Mapping[str, Array | None]

    def __getitem__(self, name: str) -> Array:
        """Return the column `name`, one element a row."""
        for table, columns in self.tables.items():
            if name in columns:
                column: Array = take(columns[name], self.index[table])
                return column
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all columns."""
        for columns in self.tables.values():
            yield from columns

    def __len__(self) -> int:
        """Return the number of columns."""
        return sum(len(columns) for columns in self.tables.values())

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        for table, index in self.index.items():
            if index is not None:
                return len(index)
            for column in self.tables[table].values():
                return len(column)
        return 0


class Gathered(NamedTuple):
    """A column as a table, and the place of each row in it; None: the table's rows are the rows."""

    table: Real | Flag
    place: Array | None

    @property
    def rows(self) -> Array:
        """One element a row."""
        return np.asarray(take(self.table, self.place))

    def write(self, column: Array) -> None:
        """Write the rows to `column`."""
        table = np.asarray(self.table)
        if self.place is None or table.ndim == 0:
            column[:] = table
        elif table.dtype == column.dtype:
            table.take(self.place, out=column, mode="clip")
        else:
            column[:] = table.take(self.place, mode="clip")


def take(part: Part, index: Array | None) -> Part:
    """Return ``part[..., index]``; `part` itself where it is a number or there is no index.

    Of a dictionary or a named tuple it takes each member.
    """
    taken: Any = part
    if index is None:
        return part
    if isinstance(taken, dict):
        taken = {name: take(member, index) for name, member in taken.items()}
    elif isinstance(taken, tuple):
        taken = type(taken)(*(take(member, index) for member in taken))
    elif np.ndim(taken):
        taken = taken.take(index, axis=-1, mode="clip")
    return cast("Part", taken)


def runs(columns: Mapping[str, Array], names: Sequence[str]) -> tuple[dict[str, Array], Array]:
    """Return the first row of each run that agrees in `names`, and the run of each row."""
    changes = np.zeros(len(columns[names[0]]), dtype=bool)
    changes[:1] = True
    for name in names:
        changes[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.flatnonzero(changes)
    return {n: columns[n][starts].astype(np.float64) for n in names}, np.cumsum(changes) - 1


def distinct_rows(
    columns: Mapping[str, Array], names: Sequence[str]
) -> tuple[dict[str, Array], Array]:
    """Return the distinct rows of `names`, whole numbers from 0 on, and the place of each row."""
    code, span = np.zeros(len(columns[names[0]]), dtype=np.int64), 1
    for name in names:
        values = columns[name].astype(np.int64)
        base = int(values.max(initial=0)) + 1
        if span * base > _LARGEST_CODE:  # number the combinations so far anew
            numbers, code = np.unique(code, return_inverse=True)
            span = len(numbers)
        code, span = code * base + values, span * base
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    return {name: columns[name][first] for name in names}, place


def distinct(values: ArrayLike) -> Array:
    """Return the distinct values in order.

    `numpy.unique` would import masked arrays, which takes longer than most commands compute.
    """
    ordered = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    if ordered.dtype.kind == "f":  # missing values are last, and count as one
        is_new[1:] &= ~np.isnan(ordered[:-1])
    return np.asarray(ordered[is_new])


def stacked(tables: Sequence[Real], size: int) -> Array:
    """Return tables of `size` rows, or numbers that are the same in all of them, in one."""
    return np.concatenate(
        [part if np.shape(part) == (size,) else np.broadcast_to(part, size) for part in tables]
    )
