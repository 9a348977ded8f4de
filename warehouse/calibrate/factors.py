"""Factors of kinds of kernels: measured over estimated time of each kind.

The kinds of a product multiply: a factor is the median of its rows, after those of the kinds before
it. The parts of a collective add up: their factors are those with the least squares of the relative
errors, ``sum over rows of (sum over parts of factor x part / measured - 1) ^ 2``. If several
solutions are equally good, as with messages of one size, the one nearest to 1 is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import Array

if TYPE_CHECKING:
    from estimators.timings import TimedKind

LEAST_ROWS = 5
"""Rows below which a kind keeps its constant: the median of fewer rows is too uncertain."""

LEAST_FACTOR = 0.02
"""Least factor of a part of a sum. If a fit is below it, the times do not determine the part, and
it keeps its constant."""


def factors_of(
    logs: Array, kinds: Sequence[TimedKind], least_rows: Sequence[int] | None = None
) -> Array:
    """Return the logarithm of each kind's factor; 0 where it has too few rows.

    Parameters
    ----------
    logs
        Logarithms of measured over estimated seconds; NaN: a row that is not used.
    least_rows
        Rows that each kind needs, by default `LEAST_ROWS`.
    """
    least = [LEAST_ROWS] * len(kinds) if least_rows is None else least_rows
    rows = rows_of(logs, kinds)
    is_fitted = np.array([own.sum() >= n for own, n in zip(rows, least, strict=True)], dtype=bool)
    if are_sums(kinds):
        return _of_sums(logs, kinds, is_fitted)
    found = np.zeros(len(kinds))
    for place in np.flatnonzero(is_fitted).tolist():
        found[place] = np.median((logs - predicted(found, kinds))[rows[place]])
    return found


def _of_sums(logs: Array, kinds: Sequence[TimedKind], is_fitted: Array) -> Array:
    """Return the logarithms of the factors of parts that add up.

    Rows with a part that has too few of them are left out, if others remain. Such a part keeps its
    constant: where that is a ratio, its factor is that of its base.
    """
    is_used = np.isfinite(logs)
    shares = _shares(kinds)
    is_whole = is_used & ~(shares[~is_fitted] > 0).any(axis=0)
    is_used = is_whole if is_whole.any() else is_used
    # the share of each part in the measured seconds of a row
    parts = shares[:, is_used] / np.exp(logs[is_used])
    factors = np.ones(len(kinds))
    is_free = is_fitted.copy()
    while is_free.any() and is_used.any():
        missing = 1.0 - parts.sum(axis=0)
        changes, *_ = np.linalg.lstsq(parts[is_free].T, missing, rcond=1e-6)
        factors[:] = 1.0
        factors[is_free] += changes
        if factors.min() >= LEAST_FACTOR:
            break
        is_free[factors.argmin()] = False
        factors[:] = 1.0
    places = {kind.constant: place for place, kind in enumerate(kinds)}
    for place in np.flatnonzero(~is_fitted).tolist():
        if kinds[place].base:
            factors[place] = factors[places[kinds[place].base]]
    return np.asarray(np.log(factors))


def predicted(factors: Array, kinds: Sequence[TimedKind]) -> Array:
    """Return the logarithm of each row's factor: those of its kinds together."""
    if are_sums(kinds):
        return np.asarray(np.log(np.exp(factors) @ _shares(kinds)))
    scaled = np.array([kind.is_scaled for kind in kinds], dtype=np.float64)
    return np.asarray(factors @ scaled)


def rows_of(logs: Array, kinds: Sequence[TimedKind]) -> list[Array]:
    """Return for each kind the rows that its factor is fitted to.

    A factor of products is fitted to the rows of which it is the last kind; a part of a sum to all
    rows that have it.
    """
    free = np.isfinite(logs)
    if are_sums(kinds):
        return [free & kind.is_scaled for kind in kinds]
    found = []
    for kind in reversed(kinds):
        found.append(free & kind.is_scaled)
        free = free & ~kind.is_scaled
    return found[::-1]


def values_of(factors: Array, kinds: Sequence[TimedKind], defaults: Sequence[float]) -> Array:
    """Return the constants that give the kinds these factors.

    Parameters
    ----------
    factors
        Logarithms, one a kind.
    """
    own = {kind.constant: factor for kind, factor in zip(kinds, factors.tolist(), strict=True)}
    values = [
        default * np.exp(factor if kind.is_cost else own.get(kind.base, 0.0) - factor)
        for kind, factor, default in zip(kinds, factors.tolist(), defaults, strict=True)
    ]
    return np.minimum(values, [kind.highest for kind in kinds])


def are_sums(kinds: Sequence[TimedKind]) -> bool:
    """Return whether the times of kernels are sums of those of their kinds."""
    return any(kind.share is not None for kind in kinds)


def _shares(kinds: Sequence[TimedKind]) -> Array:
    return np.array([kind.share for kind in kinds], dtype=np.float64)
