"""Building blocks of search spaces: divisors, expansion of tables, NVLink placements.

All functions work on whole columns. A table is expanded into a larger one by saying for each
row which values a new column takes; ``parent`` then tells which row a new one came from.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from estimators.contract import Array

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
    lists = [divisors(int(number)) for number in distinct]
    counts = np.array([len(found) for found in lists], dtype=np.int64)
    parent, place = expand(counts[which])
    flat = np.concatenate(lists) if lists else np.empty(0, dtype=np.int64)
    following = np.concatenate([np.append(found[1:], _NONE_LARGER) for found in lists] or [flat])
    at = starts(counts)[which[parent]] + place
    return Children(parent, flat[at], following[at])


class Placements(NamedTuple):
    """Placements of a table of splits: parent split, and one column a degree."""

    parent: Array
    members: list[Array]


def placements(degrees: list[Array], domain_size: int, *, exact: bool) -> Placements:
    """Enumerate how many members of each group share one fast domain.

    Parameters
    ----------
    degrees
        One column a parallel axis, one element a split.
    domain_size
        GPUs in one fast domain.
    exact
        True: the members' product is exactly the domain (or all GPUs where they fit in one),
        the source's rule, under which a domain of 72 has no placement of powers of two.
        False: maximal placements, those in which no axis can grow to another divisor of its
        degree without leaving the domain (mend R9).

    Returns
    -------
    Placements
        In order of split, then of members axis by axis.

    Notes
    -----
    Source: arXiv 2410.00273, search space; every placement divides its degree.
    """
    total = np.prod(np.stack(degrees), axis=0)
    target = np.minimum(total, domain_size)
    parent = np.arange(len(total))
    product = np.ones(len(total), dtype=np.int64)
    members: list[Array] = []
    room: list[Array] = []
    for degree in degrees:
        child = each_divisor(degree[parent])
        grown = product[child.parent] * child.value
        limit = target[parent[child.parent]]
        keep = (limit % grown == 0) if exact else (grown <= limit)
        origin = child.parent[keep]
        parent, product = parent[origin], grown[keep]
        members = [column[origin] for column in members] + [child.value[keep]]
        room = [column[origin] for column in room] + [child.following[keep]]
    if exact:
        wanted = product == target[parent]
    else:
        wanted = np.ones(len(parent), dtype=bool)
        for chosen, following in zip(members, room, strict=True):
            wanted &= product // chosen * following > target[parent]
    return Placements(parent[wanted], [column[wanted] for column in members])
