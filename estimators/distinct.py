"""The distinct values of a column, without the import that `numpy.unique` needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from estimators.values import Array


def distinct(values: Any) -> Array:
    """Return the distinct values in order.

    `numpy.unique` would import masked arrays, which takes longer than most commands compute.
    """
    found = np.sort(values, axis=None)
    is_new = np.ones(len(found), dtype=bool)
    is_new[1:] = found[1:] != found[:-1]
    if found.dtype.kind == "f":  # missing values are last, and count as one
        is_new[1:] &= ~np.isnan(found[:-1])
    result: Array = found[is_new]
    return result
