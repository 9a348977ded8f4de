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


@lru_cache(maxsize=4096)
def divisors(number: int) -> Array:
    """Return the divisors of a positive `number`, ascending (read-only)."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    large = [number // d for d in reversed(small) if d * d != number]
    found = np.array(small + large, dtype=np.int64)
    found.flags.writeable = False
    return found


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
    distinct, which = np.unique(numbers, return_inverse=True)
    counts, flat, following = _divisors_of_each(tuple(distinct.tolist()))
    parent, place = expand(counts[which])
    at = starts(counts)[which[parent]] + place
    return Children(parent, flat[at], following[at])


@lru_cache(maxsize=4096)
def _divisors_of_each(numbers: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Return how many divisors each number has, the divisors, and the next larger one of each.

    Tables of layouts repeat the same few sets of numbers.
    """
    lists = [divisors(int(number)) for number in numbers]
    none = np.empty(0, dtype=np.int64)
    return (
        np.array([len(found) for found in lists], dtype=np.int64),
        np.concatenate([none, *lists]),
        np.concatenate([none, *(np.append(found[1:], _NONE_LARGER) for found in lists)]),
    )
