"""Closed forms of pipeline schedules, against every pass of the schedule run one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.estimators.pipeline_schedule import simulate
from tests.examples import examples

Array = NDArray[np.float64]

GRID = [(p, m) for p in (1, 2, 3, 4, 6, 8, 12, 16) for m in {1, 2, max(1, p - 1), p, p + 1, 3 * p}]
INTERLEAVED = [(p, p * groups, v) for p in (2, 3, 4, 8, 12) for groups in (1, 2, 5) for v in (2, 4)]
FEW_PASSES = [
    pytest.param(p, m, v, marks=[pytest.mark.long] if p * m * v > 1000 else [])
    for p, m, v in INTERLEAVED
]
"""The long ones are run pass by pass for twenty pairs of excess and transfer."""
EXCESS = (0.0, 0.02, 0.05, 0.3, 1.0)
TRANSFER = (0.0, 0.003, 0.01, 0.03)


def stages_of(least: int, more: list[bool], logits: float) -> Array:
    stages = np.array(more, dtype=np.float64) + least
    stages[-1] += logits
    return stages


layouts = st.builds(
    stages_of,
    st.integers(1, 12),
    st.lists(st.booleans(), min_size=1, max_size=16),
    st.sampled_from((0.0, 0.1, 0.4, 1.0, 3.0)),
)
"""Layers of each stage, some having one more, and the logits on the last, in layers."""
shares = st.sampled_from((1 / 4, 1 / 3, 1 / 2))


def positive(value: float) -> float:
    return max(0.0, value)


def plain(forward: Array, backward: Array, m: int, x: float = 0.0) -> float:
    """1F1B, stages a layer apart, blocking transfers: a stage's sends count as its passes do."""
    p = len(forward)
    sends = np.arange(p) < p - 1
    f, b = forward + x * sends, backward + x * sends[::-1]
    best = 0.0
    for stage in range(p):
        before = (f + b)[:stage].sum()
        behind = (f + b)[stage + 1 :].sum()
        ahead = p - 1 - stage
        if m > ahead:
            waits = positive(behind - ahead * f[stage]) + positive(behind - ahead * b[stage])
        else:
            waits = positive(behind - (m - 1) * min(f[stage], b[stage]))
        best = max(best, m * (f + b)[stage] + before + waits)
    return best


def plain_slow_last(t: float, slow: float, p: int, m: int, x: float, blocking: bool) -> float:
    """1F1B, `p - 1` stages of `t` and a last one of `slow >= t`."""
    fill = (p - 1) * (t + 2 * x) + slow
    if blocking:
        return fill + (m - 1) * max(slow + x * (p > 1), t + x * min(2, p - 1))
    rounds, rest = divmod(m - 1, p)
    loop = rounds * fill + (slow + (rest - 1) * (t + 2 * x) if rest else 0.0)
    return fill + max((m - 1) * slow, loop)


def interleaved(
    t: float, slow: float, p: int, m: int, v: int, x: float = 0.0, blocking: bool = True
) -> float:
    """Interleaved 1F1B, even chunks, and `slow - t` more in the last chunk of all."""
    fill = (p - 1) * t / v
    if blocking:
        paced = max(m * (slow + (2 * v - 1) * x), m * (t + 2 * v * x) - 4 * x)
        return fill + paced + 2 * (p - 1) * x
    return fill + m * slow + 2 * (p * v - 1) * x


def slow_last_stage(p: int, excess: float) -> Array:
    stages = np.ones(p)
    stages[-1] += excess
    return stages


def slow_last_chunk(p: int, v: int, excess: float) -> Array:
    chunks = np.full((p, v), 1 / v)
    chunks[-1, -1] += excess
    return chunks


@pytest.mark.parametrize(("blocking", "makespan"), [(False, 11.0), (True, 12.0)])
def test_two_stages_and_two_microbatches_take_as_long_as_by_hand(
    blocking: bool, makespan: float
) -> None:
    # Stage 1 computes 2..5, then 5..8 (not blocking) or 6..9, after sending its gradient 5..6.
    found = simulate([1, 1], [2, 2], 2, transfer=1.0, blocking_transfer=blocking)
    assert found.makespan == makespan
    assert found.busy.tolist() == [6, 6]
    assert found.sending.tolist() == ([2, 2] if blocking else [0, 0])
    assert found.idle.tolist() == [makespan - 6 - (2 if blocking else 0)] * 2


@pytest.mark.parametrize(("p", "m"), GRID)
def test_the_bubble_of_even_stages_is_that_of_the_paper(p: int, m: int) -> None:
    found = simulate(np.ones(p), 2 * np.ones(p), m)
    assert found.idle / found.busy == pytest.approx((p - 1) / m)


@pytest.mark.parametrize(("p", "m", "v"), INTERLEAVED)
@pytest.mark.parametrize("blocking", [False, True])
def test_interleaving_divides_the_bubble_by_its_chunks(
    p: int, m: int, v: int, blocking: bool
) -> None:
    found = simulate(np.ones(p), 2 * np.ones(p), m, v, blocking_transfer=blocking)
    assert found.idle / found.busy == pytest.approx((p - 1) / (m * v))


@examples(150)
@given(layout=layouts, m=st.integers(1, 40), share=shares, x=st.sampled_from(TRANSFER))
def test_1f1b_is_exact_wherever_the_stages_with_one_more_layer_are(
    layout: Array, m: int, share: float, x: float
) -> None:
    forward, backward = share * layout, (1 - share) * layout
    found = simulate(forward, backward, m, transfer=x)
    assert plain(forward, backward, m, x) == pytest.approx(found.makespan)


@examples(100)
@given(layout=layouts, m=st.integers(1, 40), share=shares)
def test_slowest_stage_times_the_rest_plus_all_stages_is_never_too_fast(
    layout: Array, m: int, share: float
) -> None:
    simple = (m - 1) * layout.max() + layout.sum()
    found = simulate(share * layout, (1 - share) * layout, m).makespan
    assert simple >= found * (1 - 1e-9)
    if layout[-1] == layout.max():
        assert simple == pytest.approx(found)


@pytest.mark.parametrize(("p", "m"), GRID)
@pytest.mark.parametrize("blocking", [False, True])
def test_1f1b_with_a_slow_last_stage_is_exact_or_within_a_quarter_of_a_blocking_transfer(
    p: int, m: int, blocking: bool
) -> None:
    for excess in EXCESS:
        for x in TRANSFER:
            stages = slow_last_stage(p, excess)
            found = simulate(stages / 3, stages * 2 / 3, m, 1, x, blocking).makespan
            formula = plain_slow_last(1.0, 1 + excess, p, m, x, blocking)
            assert formula == pytest.approx(found, rel=1e-9 + 0.25 * x * blocking)


@pytest.mark.parametrize(("p", "m", "v"), FEW_PASSES)
def test_interleaved_with_slow_logits_is_exact_with_transfers_during_work(
    p: int, m: int, v: int
) -> None:
    for excess in EXCESS:
        chunks = slow_last_chunk(p, v, excess)
        for x in np.array(TRANSFER) / v:
            found = simulate(chunks / 3, chunks * 2 / 3, m, v, x, False).makespan
            assert interleaved(1.0, 1 + excess, p, m, v, x, False) == pytest.approx(found)


@pytest.mark.parametrize(("p", "m", "v"), FEW_PASSES)
def test_interleaved_with_slow_logits_is_close_with_blocking_transfers(
    p: int, m: int, v: int
) -> None:
    for excess in EXCESS:
        chunks = slow_last_chunk(p, v, excess)
        for share in TRANSFER:
            found = simulate(chunks / 3, chunks * 2 / 3, m, v, share / v).makespan
            formula = interleaved(1.0, 1 + excess, p, m, v, share / v)
            assert formula == pytest.approx(found, rel=0.2 * share + 1e-9)


@examples(60)
@given(
    p=st.integers(2, 16),
    groups=st.integers(1, 4),
    v=st.integers(2, 4),
    excess=st.floats(0, 2),
    share=shares,
)
def test_interleaved_with_slow_logits_is_exact_without_transfers(
    p: int, groups: int, v: int, excess: float, share: float
) -> None:
    chunks = slow_last_chunk(p, v, excess)
    found = simulate(share * chunks, (1 - share) * chunks, p * groups, v).makespan
    assert interleaved(1.0, 1 + excess, p, p * groups, v) == pytest.approx(found)


@pytest.mark.parametrize(("p", "m"), GRID)
def test_a_stage_of_1f1b_holds_as_many_microbatches_as_stages_follow_and_its_own(
    p: int, m: int
) -> None:
    found = simulate(np.ones(p), np.ones(p), m).in_flight
    assert found.tolist() == np.minimum(np.arange(p, 0, -1), m).tolist()


@pytest.mark.parametrize(("p", "m", "v"), INTERLEAVED)
def test_interleaving_holds_two_more_chunks_for_each_stage_that_follows(
    p: int, m: int, v: int
) -> None:
    found = simulate(np.ones(p), np.ones(p), m, v).in_flight
    behind = np.arange(p - 1, -1, -1)
    assert found.tolist() == np.minimum(2 * behind + (v - 1) * p + 1, m * v).tolist()
    assert found[0] == min(p * v + p - 1, m * v)


def test_a_first_stage_holds_the_layers_that_2205_05198_says() -> None:
    # As if it held L (1 + (p - 1) / (p v)) layers of one microbatch.
    p, v, layers = 8, 3, 96
    chunks = simulate(np.ones(p), np.ones(p), 64, v).in_flight[0]
    assert chunks * layers / (p * v) == layers * (1 + (p - 1) / (p * v))


def test_interleaving_leaves_no_small_rest_of_microbatches() -> None:
    with pytest.raises(ValueError, match="6 microbatches leave a rest of fewer than 4"):
        simulate(np.ones(4), np.ones(4), 6, 2)
