"""Every layout that the rules admit, in a table that grows column by column.

Each new column repeats every row for each value of the column. A rule drops rows as soon as all
columns that it reads are known, so that these rows are not expanded further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.contract import Array, Scalar, Values
from estimators.divisors import each_divisor, expand
from estimators.rules import Rule

Expansion = tuple[Array, Array]
"""For each new row its parent row and its value."""

Expand = Callable[[int, Values], Expansion]
"""Takes the number of rows and everything known: scalars, and columns of earlier axes."""

WholeNumber = Callable[[Values], "int | Array"]
"""Returns a whole number, or one a row, from everything known."""


@dataclass(frozen=True)
class Axis:
    """A column of a layout and its values, given the columns before it."""

    name: str
    values: Expand


def divisors_of(number: WholeNumber) -> Expand:
    """Return the values of an axis that takes every divisor of a number, ascending."""

    def values(size: int, known: Values) -> Expansion:
        numbers = np.broadcast_to(np.asarray(number(known), dtype=np.int64), size)
        parent, value, _ = each_divisor(numbers)
        return parent, value

    return values


def exactly(number: WholeNumber) -> Expand:
    """Return the values of an axis that takes one number, such as the ranks that others leave."""

    def values(size: int, known: Values) -> Expansion:
        numbers = np.broadcast_to(np.asarray(number(known), dtype=np.int64), size)
        return np.arange(size), numbers

    return values


def left_of(whole: int, degrees: Sequence[str]) -> WholeNumber:
    """Return the function from known degrees to the ranks of `whole` that they leave."""

    def left(known: Values) -> Array:
        used: Array = np.ones(1, dtype=np.int64)
        for name in degrees:
            if name in known:
                used = used * known[name]
        return whole // used

    return left


def split_over(whole: int, degrees: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes that enumerate every ordered factorisation of `whole` into the degrees."""
    left = left_of(whole, degrees)
    return (
        *(Axis(name, divisors_of(left)) for name in degrees[:-1]),
        Axis(degrees[-1], exactly(left)),
    )


def each_of(numbers: Sequence[int]) -> Expand:
    """Return the values of an axis that takes each of a list, whatever the row."""

    def values(size: int, _known: Values) -> Expansion:
        parent, place = expand(np.full(size, len(numbers)))
        return parent, np.asarray(numbers, dtype=np.int64)[place]

    return values


def enumerate_layouts(
    constants: Values,
    axes: Iterable[Axis],
    rules: Iterable[Rule],
    fixed: Mapping[str, Scalar] | None = None,
) -> dict[str, Array]:
    """Return every layout, one column an axis, in order of the axes and of their values.

    Parameters
    ----------
    constants
        Values that are known from the start: the problem and the choices.
    rules
        Named predicates. One that reads a column which is neither constant nor an axis is a
        fault of the caller and raises `KeyError`.
    fixed
        Axis -> the one value that a study holds it to.
    """
    columns: dict[str, Array] = {}
    size = 1
    waiting = list(rules)
    for axis in (None, *axes):
        known = _Expanded(constants, columns, np.zeros(1, dtype=np.int64))
        if axis is not None:
            parent, value = axis.values(size, {**constants, **columns})
            if fixed and axis.name in fixed:
                held = np.flatnonzero(value == fixed[axis.name])
                parent, value = parent.take(held), value.take(held)
            known = _Expanded(constants, columns, parent)
            known.gathered[axis.name], size = value, len(value)
        waiting, wanted = _applied(waiting, known, size)
        columns = known.rows(wanted)
        size = size if wanted is None else len(wanted)
    if waiting:
        raise KeyError(f"rule {waiting[0].name!r} reads columns that no axis gives")
    return columns


class _Expanded(Mapping[str, Any]):
    """Constants, and the columns of an expanded table, gathered when a rule reads them.

    No rule reads most columns: these are gathered later, for the remaining rows only.

    Attributes
    ----------
    gathered
        Columns of the expanded rows.
    """

    def __init__(self, constants: Values, columns: Mapping[str, Array], parent: Array) -> None:
        self._constants, self._columns, self._parent = constants, columns, parent
        self.gathered: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Any:
        """Return a constant, or one element a row."""
        if name in self.gathered:
            return self.gathered[name]
        if name not in self._columns:
            return self._constants[name]
        column = self.gathered[name] = self._columns[name].take(self._parent)
        return column

    def __contains__(self, name: object) -> bool:
        """Return whether a constant or column is known."""
        return name in self.gathered or name in self._columns or name in self._constants

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names."""
        return iter({**self._constants, **self._columns, **self.gathered})

    def __len__(self) -> int:
        """Return the number of names."""
        return len({**self._constants, **self._columns, **self.gathered})

    def rows(self, wanted: Array | None) -> dict[str, Array]:
        """Return the columns of the expanded rows of the given places; None: of all."""
        names = (*self._columns, *(name for name in self.gathered if name not in self._columns))
        if wanted is None:
            return {name: self[name] for name in names}
        parent = self._parent.take(wanted)
        return {
            name: self.gathered[name].take(wanted)
            if name in self.gathered
            else self._columns[name].take(parent)
            for name in names
        }


def _applied(waiting: list[Rule], known: _Expanded, size: int) -> tuple[list[Rule], Array | None]:
    """Apply the rules whose columns are known.

    Returns
    -------
    The other rules, and the places of the rows that keep all applied ones; None: every row does.
    """
    later = []
    keeps = np.ones(size, dtype=bool)
    for rule in waiting:
        if all(name in known for name in rule.needs):
            keeps &= rule.holds(known)
        else:
            later.append(rule)
    return later, None if keeps.all() else np.flatnonzero(keeps)
