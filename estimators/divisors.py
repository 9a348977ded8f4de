"""Divisors, and tables expanded by them.

All functions work on whole columns. A table is expanded by the number of rows that each of its
rows becomes; ``parent`` is the old row of each new one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from estimators.values import Array

_NONE_LARGER = np.iinfo(np.int64).max // 2**32

_TABLE_ROWS = 8
"""Rows of a table of numbers for each number that is looked up in it, at most."""


@lru_cache(maxsize=4096)
def divisors(number: int) -> Array:
    """Return the divisors of a positive `number`, ascending (read-only)."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    large = [number // d for d in reversed(small) if d * d != number]
    numbers = np.array(small + large, dtype=np.int64)
    numbers.flags.writeable = False
    return numbers


def starts(counts: Array) -> Array:
    """Return where each of consecutive runs of `counts` rows begins."""
    return np.cumsum(counts) - counts


def expand(counts: Array) -> tuple[Array, Array]:
    """Return for ``sum(counts)`` new rows their parent row and their place among its children.

    Examples
    --------
    >>> parent, place = expand(np.array([2, 0, 1]))
    >>> parent.tolist(), place.tolist()
    ([0, 0, 2], [0, 1, 0])
    """
    counts = np.asarray(counts, dtype=np.int64)
    parent = np.repeat(np.arange(len(counts)), counts)
    return parent, np.arange(len(parent)) - starts(counts)[parent]


class Children(NamedTuple):
    """Rows of an expanded table: parent row, value, and the next larger divisor if any."""

    parent: Array
    value: Array
    following: Array


def each_divisor(numbers: Array) -> Children:
    """Expand a table by one row for every divisor, ascending, of the row's number."""
    distinct, which = _numbered(numbers)
    counts, flat, following = _divisors_of_each(tuple(distinct.tolist()))
    of_each = counts.take(which)
    parent = np.repeat(np.arange(len(numbers)), of_each)
    at = np.arange(len(parent)) + np.repeat(starts(counts).take(which) - starts(of_each), of_each)
    return Children(parent, flat.take(at), following.take(at))


def _numbered(numbers: Array) -> tuple[Array, Array]:
    """Return the distinct numbers in order, and the place of each number among them.

    For many small numbers a table of all numbers up to the largest is faster than a sort.
    """
    largest = int(numbers.max(initial=0))
    if largest > _TABLE_ROWS * max(len(numbers), 1):
        return np.unique(numbers, return_inverse=True)
    occurs = np.zeros(largest + 1, dtype=bool)
    occurs[numbers] = True
    distinct = np.flatnonzero(occurs)
    place = np.empty(largest + 1, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place.take(numbers)


@lru_cache(maxsize=4096)
def _divisors_of_each(numbers: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return how many divisors each number has, the divisors, and the next larger one of each.

    Results are cached, because tables of layouts repeat a few sets of numbers.
    """
    lists = [divisors(int(number)) for number in numbers]
    none = np.empty(0, dtype=np.int64)
    return (
        np.array(list(map(len, lists)), dtype=np.int64),
        np.concatenate([none, *lists]),
        np.concatenate([none, *(np.append(some[1:], _NONE_LARGER) for some in lists)]),
    )
