"""Quantiles of a quantity that is normal on either side of its median, under several programs.

The half-width of the middle nine tenths is 1.645 standard deviations. It may differ above and below
the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from estimators.contract import Array

COVERAGE = 0.9
"""Share of the probability within an interval."""

QUANTILE = 1.6448536269514722
"""Standard deviations from the median to the 95 % quantile of a normal distribution."""

EXACT = 4
"""Largest number of alternatives that are enumerated; weaker ones add their variance."""

_HALVINGS = 40
_NARROW = 1e-12


def normal_cumulative(z: Array) -> Array:
    """Return the cumulative normal distribution, within 1e-7.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
    """
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(z < 0, tail, 1 - tail))


def normal_quantile(share: float) -> float:
    """Return a quantile of the normal distribution in half-widths: 1 at 0.95."""
    return NormalDist().inv_cdf(share) / QUANTILE


def middle(
    down: Array, up: Array, shifts: Sequence[Array], shares: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the middle nine tenths of a quantity around 0, one element a row.

    Parameters
    ----------
    down, up
        Half-widths below and above the median.
    shifts
        Moves of the median, each by an alternative that is independent of the others.
    shares
        Probability of each alternative.
    """
    down, up = np.maximum(down, _NARROW), np.maximum(up, _NARROW)
    if not shifts:
        return -down, up
    moves, weights = np.array(shifts), np.array(shares)
    order = np.argsort(-np.abs(moves * np.sqrt(weights * (1 - weights))), axis=0)
    moves = np.take_along_axis(moves, order, axis=0)
    weights = np.take_along_axis(weights, order, axis=0)
    # half-width of a move that is made or not, by its variance
    rest = QUANTILE * moves[EXACT:] * np.sqrt(weights[EXACT:] * (1 - weights[EXACT:]))
    up = np.sqrt(up**2 + (np.maximum(rest, 0) ** 2).sum(axis=0))
    down = np.sqrt(down**2 + (np.minimum(rest, 0) ** 2).sum(axis=0))
    centres, masses = _programs(moves[:EXACT], weights[:EXACT])
    tail = (1 - COVERAGE) / 2
    return (
        _quantile(tail, down, up, centres, masses),
        _quantile(1 - tail, down, up, centres, masses),
    )


def _programs(moves: Array, weights: Array) -> tuple[Array, Array]:
    """Return median and probability of every combination of alternatives."""
    centres, masses = np.zeros((1, moves.shape[1])), np.ones((1, moves.shape[1]))
    for move, weight in zip(moves, weights, strict=True):
        centres = np.concatenate([centres, centres + move])
        masses = np.concatenate([masses * (1 - weight), masses * weight])
    return centres, masses


def _quantile(share: float, down: Array, up: Array, centres: Array, masses: Array) -> Array:
    """Return a quantile of the mixture, by halving."""
    low = centres.min(axis=0) - 4 * down
    high = centres.max(axis=0) + 4 * up
    for _ in range(_HALVINGS):
        half = (low + high) / 2
        distance = half - centres
        z = QUANTILE * distance / np.where(distance < 0, down, up)
        is_below = (masses * normal_cumulative(z)).sum(axis=0) < share
        low, high = np.where(is_below, half, low), np.where(is_below, high, half)
    return np.asarray((low + high) / 2)
