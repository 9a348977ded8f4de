"""The event simulation of pipeline schedules, against figures of the sources and one by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.estimators.pipeline_schedule import simulate

INTERLEAVED = [(2, 2, 4), (4, 4, 2), (8, 40, 3), (12, 24, 2)]
"""Stages, microbatches and chunks a stage."""


@pytest.mark.parametrize(("blocking", "makespan"), [(False, 11.0), (True, 12.0)])
def test_two_stages_and_two_microbatches_take_as_long_as_by_hand(
    blocking: bool, makespan: float
) -> None:
    # Stage 1 computes 2..5, then 5..8 (not blocking) or 6..9, after sending its gradient 5..6.
    step = simulate([1, 1], [2, 2], 2, transfer=1.0, blocking_transfer=blocking)
    assert step.makespan == makespan
    assert step.busy.tolist() == [6, 6]
    assert step.sending.tolist() == ([2, 2] if blocking else [0, 0])
    assert step.idle.tolist() == [makespan - 6 - (2 if blocking else 0)] * 2


@pytest.mark.parametrize(("p", "m", "v"), [(1, 3, 1), (4, 2, 1), (6, 18, 1), *INTERLEAVED])
def test_the_bubble_of_even_stages_is_that_of_2104_04473(p: int, m: int, v: int) -> None:
    # Sections 2.2.1 and 2.2.2: (p - 1) / (m v) of the arithmetic
    step = simulate(np.ones(p), 2 * np.ones(p), m, v)
    assert step.idle / step.busy == pytest.approx((p - 1) / (m * v))


@pytest.mark.parametrize(("p", "m"), [(1, 3), (4, 2), (6, 18)])
def test_1f1b_holds_a_microbatch_for_each_stage_from_here_to_the_last(p: int, m: int) -> None:
    in_flight = simulate(np.ones(p), np.ones(p), m).in_flight
    assert in_flight.tolist() == np.minimum(np.arange(p, 0, -1), m).tolist()


@pytest.mark.parametrize(("p", "m", "v"), INTERLEAVED)
def test_interleaving_holds_two_chunks_more_for_each_later_stage(p: int, m: int, v: int) -> None:
    # The first stage holds 1 + (p - 1) / (p v) times its share of one microbatch: 2205.05198
    in_flight = simulate(np.ones(p), np.ones(p), m, v).in_flight
    later = np.arange(p - 1, -1, -1)
    assert in_flight.tolist() == np.minimum(2 * later + (v - 1) * p + 1, m * v).tolist()


def test_interleaving_leaves_no_small_rest_of_microbatches() -> None:
    with pytest.raises(ValueError, match="6 microbatches leave a rest of fewer than 4"):
        simulate(np.ones(4), np.ones(4), 6, 2)
