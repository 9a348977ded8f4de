"""Measured tables: thousands of rows that estimators read as columns of numbers.

They are reference tables without a key, such as rates of kernels by shape. A table is loaded when
an estimator asks for it. Objects that an estimator makes from it are cached with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TypeVar, cast

from estimators.values import Columns

Made = TypeVar("Made")


class MeasuredTables:
    """Tables by name, as one-dimensional arrays by column name.

    Parameters
    ----------
    load
        Table name -> a function that returns its columns. Each is called once at most.
    """

    def __init__(self, load: Mapping[str, Callable[[], Columns]] | None = None) -> None:
        self._load = dict(load or {})
        self._made: dict[Hashable, object] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether there is a table called `name`."""
        return name in self._load

    def __getitem__(self, name: str) -> Columns:
        """Return the columns of a table; raise `KeyError` if there is none of that name."""
        load = self._load[name]
        return self.made(("table", name), load)

    def __reduce__(self) -> tuple[Callable[..., MeasuredTables], tuple[dict[str, Columns]]]:
        """Return the loaded tables, for another process."""
        return _of_columns, ({name: self[name] for name in self._load},)

    def made(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, computed at the first request for `key`."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])


def _of_columns(tables: Mapping[str, Columns]) -> MeasuredTables:
    return MeasuredTables({name: partial(_as_it_is, table) for name, table in tables.items()})


def _as_it_is(table: Columns) -> Columns:
    return table
