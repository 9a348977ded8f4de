"""The numeric limits of a column, from the data dictionary, each with its reason for refusing.

The same limits serve one value of a study and a whole column of a batch: each is a test that
takes a float or an array of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from estimators.columns import Column

LARGEST_WHOLE = 2**53 - 1
"""Largest whole number up to which float64, the type of all inputs, has no gaps."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `is_broken` takes a float or an array and returns a bool or an array."""

    is_broken: Callable[[Any], Any]
    reason: str


@cache
def limits_of(column: Column) -> tuple[Limit, ...]:
    """Return the limits of a numeric column, in the order of reporting."""
    found = [Limit(lambda x: np.logical_not(np.isfinite(x)), "is not a finite number")]
    if column.kind == "int":
        found.append(Limit(lambda x: np.not_equal(x, np.floor(x)), "must be a whole number"))
    low, above, high = column.minimum, column.above, column.maximum
    if low is not None:
        found.append(Limit(lambda x: np.less(x, low), f"must be at least {_plain(low)}"))
    if above is not None:
        found.append(Limit(lambda x: np.less_equal(x, above), f"must be more than {_plain(above)}"))
    if high is not None:
        found.append(Limit(lambda x: np.greater(x, high), f"must be at most {_plain(high)}"))
    if column.kind == "int":
        stored = np.iinfo(column.stored_dtype)
        most, least = min(stored.max, LARGEST_WHOLE), max(stored.min, -LARGEST_WHOLE)
        found.append(Limit(lambda x: np.greater(x, most), f"must be at most {most}"))
        found.append(Limit(lambda x: np.less(x, least), f"must be at least {least}"))
    return tuple(found)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else f"{number:g}"
