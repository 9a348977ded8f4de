"""Every layout that the rules admit, grown column by column.

A table of partial layouts gains one column at a time; each row is repeated for every value of
the column. A rule prunes as soon as all of its columns are known, so that excluded rows are never
expanded further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.contract import Array, Scalar, Values
from estimators.divisors import each_divisor, expand
from estimators.rules import Rule

Expansion = tuple[Array, Array]
"""For each new row its parent row and its value."""


@dataclass(frozen=True)
class Axis:
    """A column of a layout and its values, given the columns before it.

    Attributes
    ----------
    name
        The column.
    values
        Takes the number of rows and everything known (scalars, and columns of the axes
        before), returns parents and values.
    """

    name: str
    values: Callable[[int, Values], Expansion]


def divisors_of(number: Callable[[Values], Any]) -> Callable[[int, Values], Expansion]:
    """Return the values of an axis that takes every divisor of a number, ascending."""

    def values(size: int, known: Values) -> Expansion:
        numbers = np.broadcast_to(np.asarray(number(known), dtype=np.int64), size)
        found = each_divisor(numbers)
        return found.parent, found.value

    return values


def exactly(number: Callable[[Values], Any]) -> Callable[[int, Values], Expansion]:
    """Return the values of an axis that takes one number, such as the ranks that others leave."""

    def values(size: int, known: Values) -> Expansion:
        numbers = np.broadcast_to(np.asarray(number(known), dtype=np.int64), size)
        return np.arange(size), numbers

    return values


def left_of(whole: int, degrees: Sequence[str]) -> Callable[[Values], Any]:
    """Return the function from known degrees to the ranks of `whole` that they leave."""

    def left(known: Values) -> Any:
        used = np.ones(1, dtype=np.int64)
        for name in degrees:
            if name in known:
                used = used * known[name]
        return whole // used

    return left


def split_over(whole: int, degrees: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes of every ordered factorisation of `whole` into the degrees."""
    left = left_of(whole, degrees)
    return (
        *(Axis(name, divisors_of(left)) for name in degrees[:-1]),
        Axis(degrees[-1], exactly(left)),
    )


def each_of(numbers: Sequence[int]) -> Callable[[int, Values], Expansion]:
    """Return the values of an axis that takes each of a list, whatever the row."""

    def values(size: int, _known: Values) -> Expansion:
        parent, place = expand(np.full(size, len(numbers)))
        return parent, np.asarray(numbers, dtype=np.int64)[place]

    return values


def enumerate_layouts(
    constants: Values,
    axes: Iterable[Axis],
    rules: Iterable[Rule],
    kept: Mapping[str, Scalar] | None = None,
) -> dict[str, Array]:
    """Return every layout, one column an axis, in order of the axes and of their values.

    Parameters
    ----------
    constants
        What is known from the start: the problem and the choices.
    rules
        Named predicates. One that reads a column which is neither constant nor an axis is a
        fault of the caller and raises `KeyError`.
    kept
        Axis -> the one value that a study holds it to.
    """
    columns: dict[str, Array] = {}
    size = 1
    waiting = list(rules)
    columns, size, waiting = _applied(columns, size, waiting, constants)
    for axis in axes:
        parent, value = axis.values(size, {**constants, **columns})
        if kept and axis.name in kept:
            wanted = value == kept[axis.name]
            parent, value = parent[wanted], value[wanted]
        columns = {name: column[parent] for name, column in columns.items()}
        columns[axis.name], size = value, len(value)
        columns, size, waiting = _applied(columns, size, waiting, constants)
    if waiting:
        raise KeyError(f"rule {waiting[0].name!r} reads columns that no axis gives")
    return columns


def _applied(
    columns: dict[str, Array], size: int, waiting: list[Rule], constants: Values
) -> tuple[dict[str, Array], int, list[Rule]]:
    """Drop the rows that break a rule whose columns are known; return the other rules, too."""
    known = {**constants, **columns}
    later = []
    wanted = np.ones(size, dtype=bool)
    for rule in waiting:
        if all(name in known for name in rule.needs):
            wanted &= rule.holds(known)
        else:
            later.append(rule)
    if not wanted.all():
        columns = {name: column[wanted] for name, column in columns.items()}
        size = int(wanted.sum())
    return columns, size, later
