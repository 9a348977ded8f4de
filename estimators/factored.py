"""Columns kept as small tables and indices into them, so that work is done once per distinct row.

A search space is a product: a layout is a split, a microbatch and a placement, and most of
what a layout costs depends on one of them. `Factored` presents such a product as ordinary
columns, and lets a kernel that knows the tables compute there and gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from estimators.contract import Array, Columns


@dataclass(frozen=True)
class Factored(Mapping[str, Array]):
    """Columns that are gathered from tables when asked for.

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
                return take(columns[name], self.index[table])
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


def take(column: Array, index: Array | None) -> Array:
    """Return ``column[..., index]``, or the column itself where there is no index."""
    return column if index is None else column.take(index, axis=-1, mode="clip")
