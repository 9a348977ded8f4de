"""The interval of a step: hand-made steps, whose ends are known."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from estimators.contract import PUBLISHED, Array, Catalog, Columns, Mends, Relation, Scalar, Values
from estimators.estimator import Constants, Estimator
from estimators.interval import (
    QUANTILE,
    Interval,
    constant_spreads,
    interval,
    middle,
    moved,
    normal_cumulative,
    normal_quantile,
)

RELATION = Relation("one", "one row", keys=("data_parallel",), measures=("step_seconds",))


class Sum(Estimator):
    """A step of 100 s, and one second for each unit of a constant."""

    name = "sum"
    version = 1
    title = "A sum"
    relations: tuple[Relation, ...] = (RELATION,)
    constants = Constants(
        names=("launch_seconds", "collective_seconds", "gemm_half_depth", "uses_dropout"),
        places=lambda _catalog, framework, _accelerator: (f"@{framework}", ""),
    )
    problem_columns = (*constants.names, "framework", "accelerator")

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        del relation, layouts, mends, wanted, catalog
        # the best depth is 10: more and less are slower
        depth = np.square(values["gemm_half_depth"] - 10.0)
        sums = values["launch_seconds"] + values["collective_seconds"] + depth
        return {"step_seconds": 100.0 + sums + 20.0 * values["uses_dropout"]}


SUM = Sum()
DEFAULTS = {
    "launch_seconds": 0.0,
    "collective_seconds": 0.0,
    "gemm_half_depth": 10.0,
    "uses_dropout": False,
}


def catalog(
    ranges: Mapping[str, tuple[float, float, float]],
    causes: Mapping[str, tuple[str, float | None]] | None = None,
    terms: Mapping[str, tuple[float, float, float]] | None = None,
) -> Catalog:
    """Return tables with ranges (value, lowest, highest), causes with shares, and terms."""

    def rows(of: Mapping[str, tuple[float, float, float]]) -> dict[str, dict[str, Scalar]]:
        names = ("constant_value", "lowest_value", "highest_value")
        return {key: dict(zip(names, values, strict=True)) for key, values in of.items()}

    table = {
        key: {"cause": cause, "other_share": share}
        for key, (cause, share) in (causes or {}).items()
    }
    return Catalog(
        {
            "step_constant": rows(ranges),
            "step_constant_cause": table,
            "interval_term": rows(terms or {}),
        }
    )


def columns(**changed: Any) -> dict[str, Array]:
    """Return one row, or as many as the changed columns have."""
    size = max((len(v) for v in changed.values() if isinstance(v, list)), default=1)
    values: dict[str, Any] = {**DEFAULTS, "framework": "ours", "data_parallel": 1, **changed}
    values["accelerator"] = None
    return {
        name: np.array(v if isinstance(v, list) else [v] * size, object if v is None else None)
        for name, v in values.items()
    }


def ends(of: Catalog, pinned: Collection[str] = (), **changed: Any) -> Interval:
    return interval(SUM, RELATION, columns(**changed), PUBLISHED, of, pinned)


def test_one_constant_moves_the_step_to_the_ends_of_its_range() -> None:
    found = ends(catalog({"launch_seconds": (2.0, 1.0, 7.0)}), launch_seconds=2.0)
    assert (found.low[0], found.high[0]) == pytest.approx((101.0, 107.0))


def test_constants_of_different_causes_add_up_as_squares() -> None:
    ranges = {"launch_seconds": (0.0, 0.0, 3.0), "collective_seconds": (0.0, 0.0, 4.0)}
    found = ends(catalog(ranges))
    expected = 100 * math.exp(math.hypot(math.log(1.03), math.log(1.04)))
    assert (found.low[0], found.high[0]) == pytest.approx((100.0, expected))


def test_constants_of_one_cause_are_added() -> None:
    ranges = {"launch_seconds": (0.0, 0.0, 3.0), "collective_seconds": (0.0, 0.0, 4.0)}
    causes = dict.fromkeys(ranges, ("host", None))
    found = ends(catalog(ranges, causes))
    assert found.high[0] == pytest.approx(100 * 1.03 * 1.04)


def test_where_both_ends_are_slower_the_slower_one_counts_and_no_end_is_faster() -> None:
    # 3 below and 5 above the best depth: 9 s and 25 s
    found = ends(catalog({"gemm_half_depth": (10.0, 7.0, 15.0)}))
    assert (found.low[0], found.high[0]) == pytest.approx((100.0, 125.0))


def test_a_constant_that_is_not_the_default_of_its_place_is_known() -> None:
    of = catalog({"launch_seconds": (2.0, 1.0, 7.0), "launch_seconds@theirs": (4.0, 4.0, 9.0)})
    found = ends(of, launch_seconds=[2.0, 4.0, 2.0], framework=["ours", "theirs", "theirs"])
    assert found.low == pytest.approx([101.0, 104.0, 102.0])
    assert found.high == pytest.approx([107.0, 109.0, 102.0])


def test_a_constant_that_is_pinned_has_no_range() -> None:
    found = ends(
        catalog({"launch_seconds": (2.0, 1.0, 7.0)}), {"launch_seconds"}, launch_seconds=2.0
    )
    assert (found.low[0], found.high[0]) == pytest.approx((102.0, 102.0))


def test_a_choice_that_one_run_in_fifty_makes_lies_beyond_the_interval() -> None:
    of = catalog({"uses_dropout": (0, 0, 1)}, {"uses_dropout": ("dropout", 0.02)})
    assert ends(of).high[0] == pytest.approx(100.0, abs=1e-4)


def test_a_choice_that_one_run_in_ten_makes_is_within_the_interval() -> None:
    of = catalog({"uses_dropout": (0, 0, 1)}, {"uses_dropout": ("dropout", 0.1)})
    found = ends(of)
    assert (found.low[0], found.high[0]) == pytest.approx((100.0, 120.0), abs=1e-3)


def test_a_flag_without_a_share_is_certain() -> None:
    of = catalog({"uses_dropout": (0, 0, 1)})
    assert constant_spreads(SUM, columns(), of) == []
    found = ends(of)
    assert (found.low[0], found.high[0]) == pytest.approx((100.0, 100.0))


def test_the_share_of_a_program_replaces_that_of_all() -> None:
    of = catalog(
        {"uses_dropout": (0, 0, 1), "uses_dropout@theirs": (0, 0, 1)},
        {"uses_dropout": ("dropout", 0.1), "uses_dropout@theirs": ("dropout", 0.0)},
    )
    found = ends(of, framework=["ours", "theirs"])
    assert found.high == pytest.approx([120.0, 100.0], abs=1e-3)


def test_what_is_left_out_makes_the_step_longer_and_the_interval_holds_the_estimate() -> None:
    of = catalog({"launch_seconds": (0, 0, 0)}, terms={"left_out": (0.02, 0.0, 0.08)})
    found = ends(of)
    assert (found.low[0], found.high[0]) == pytest.approx((100.0, 108.0))


def test_a_move_says_which_end_is_slower() -> None:
    of = catalog({"launch_seconds": (2.0, 1.0, 7.0)})
    rows = columns(launch_seconds=2.0)
    step, [move] = moved(SUM, RELATION, rows, PUBLISHED, of, constant_spreads(SUM, rows, of))
    assert step == pytest.approx([102.0])
    assert np.exp([move.up[0], -move.down[0]]) * 102 == pytest.approx([107.0, 101.0])


# ---- the distribution ----


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
