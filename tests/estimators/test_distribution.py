"""Quantiles of a quantity that is normal on either side of its median, under several programs."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from estimators.interval import QUANTILE, middle, normal_cumulative, normal_quantile


def test_the_cumulative_normal_distribution_is_that_of_the_standard_library() -> None:
    z = np.linspace(-5, 5, 101)
    expected = [NormalDist().cdf(one) for one in z]
    assert normal_cumulative(z) == pytest.approx(expected, abs=1e-7)


def test_a_quantile_of_95_percent_is_one_half_width() -> None:
    assert normal_quantile(0.95) == pytest.approx(1)
    assert normal_quantile(0.5) == pytest.approx(0)


def test_without_alternatives_the_half_widths_are_the_interval() -> None:
    low, high = middle(np.array([0.1, 0.0]), np.array([0.3, 0.2]), [], [])
    assert low == pytest.approx([-0.1, 0.0], abs=1e-9)
    assert high == pytest.approx([0.3, 0.2])


def test_the_interval_of_a_mixture_has_a_twentieth_beyond_each_end() -> None:
    # 30 % of the runs are slower by 0.5, 20 % faster by 0.2
    down, up, shifts, shares = 0.05, 0.1, (0.5, -0.2), (0.3, 0.2)
    low, high = middle(
        np.array([down]),
        np.array([up]),
        [np.array([s]) for s in shifts],
        [np.array([s]) for s in shares],
    )

    def below(x: float) -> float:
        total = 0.0
        for slower in (False, True):
            for faster in (False, True):
                weight = (0.3 if slower else 0.7) * (0.2 if faster else 0.8)
                distance = x - 0.5 * slower + 0.2 * faster
                width = down if distance < 0 else up
                total += weight * NormalDist().cdf(QUANTILE * distance / width)
        return total

    assert below(float(low[0])) == pytest.approx(0.05, abs=1e-6)
    assert below(float(high[0])) == pytest.approx(0.95, abs=1e-6)


def test_an_alternative_that_no_run_takes_changes_nothing() -> None:
    down, up = np.array([0.1]), np.array([0.2])
    low, high = middle(down, up, [np.array([1.0])], [np.array([0.0])])
    assert (float(low[0]), float(high[0])) == pytest.approx((-0.1, 0.2), abs=1e-6)


def test_a_fifth_alternative_counts_by_its_variance() -> None:
    moves = [np.array([size]) for size in (0.02, 0.02, 0.02, 0.02, 0.01)]
    shares = [np.array([share]) for share in (0.6, 0.6, 0.6, 0.6, 0.5)]
    _, high = middle(np.array([0.0]), np.array([0.0]), moves, shares)
    # all four strong ones are taken by 0.6^4 of the runs; a twentieth of all runs is beyond the
    # quantile, 0.386 of those; the fifth has a standard deviation of 0.01 x 0.5
    z = NormalDist().inv_cdf(1 - 0.05 / 0.6**4)
    assert float(high[0]) == pytest.approx(0.08 + 0.005 * z, abs=1e-6)
