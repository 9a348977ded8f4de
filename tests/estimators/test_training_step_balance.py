"""Stages that a program balances by their products, worked out by hand."""

from __future__ import annotations

import pytest

from estimators.training_step.placement import balanced
from tests.estimators.training_step_cases import FREE, step, step_with
from tests.estimators.training_step_figures import CORE, FORWARD, OUTPUT, SMALL, close


@pytest.mark.parametrize(
    ("stages", "sizes", "output"),
    [
        # a layer has 4 x 2048^2 + 3 x 8192 x 2048 = 67,108,864 weights, the output layer 131072 x
        # 2048 = 268,435,456, four times as many: 20 in all
        (1, [16], 0),
        # a stage takes layers until more than 10 are placed: 11; 5 and the output layer remain
        (2, [11, 5], 1),
        # more than 5, 10, 15: 6, 5 and 5; the output layer is alone
        (4, [6, 5, 5, 0], 3),
        # more than 2.5, 5, 7.5 ...
        (8, [3, 3, 2, 3, 2, 3, 0, 0], 6),
    ],
)
def test_a_stage_takes_layers_until_its_share_is_exceeded(
    stages: int, sizes: list[int], output: int
) -> None:
    assert balanced(16, stages, 268_435_456 / 67_108_864) == (sizes, output)


def test_a_whole_number_of_layers_does_not_exceed_an_equal_share() -> None:
    # 4 x 4096^2 + 3 x 14336 x 4096 = 243,269,632 weights a layer, the output layer has 131072 x
    # 4096 = 536,870,912. 29 of 32 shares are 29 / 32 x 8,321,499,136 = 31 x 243,269,632: the stage
    # that has the 31st layer has the 32nd as well, and the output layer is alone.
    sizes, output = balanced(32, 32, 536_870_912 / 243_269_632)
    assert (sizes[28], sizes[29:], output) == (2, [0, 0, 0], 29)


def test_the_slowest_of_balanced_stages_sets_the_pace() -> None:
    # 4 x 512^2 + 3 x 2048 x 512 weights a layer, of 8,192 words as many: 5 in all, 2.5 a stage;
    # three layers, and one with the output layer
    shape = {**SMALL, "vocab_size": 8192, "balances_stages": True}
    found = step(shape, pipeline_parallel=2, global_batch_size=8, data_parallel=1)
    forward, backward = FORWARD + CORE, 2 * FORWARD + 2.5 * CORE
    # the first stage works on the second microbatch while the first one is in the last stage, and
    # on the last but one's backward pass while the last one is there
    last = forward + backward + 16 * OUTPUT
    waits = max(last - 3 * forward, 0) + max(last - 3 * backward, 0)
    assert found["bubble_seconds"] == close(waits)
    assert found["step_seconds"] == close(8 * 3 * (forward + backward) + waits)
    assert found["vocabulary_seconds"] == pytest.approx(0, abs=1e-20)


def test_memory_is_that_of_the_fuller_stage() -> None:
    shape = {**SMALL, "vocab_size": 8192, "pipeline_parallel": 2, "stored_weight_bytes": 2.0}
    even, own = step_with(shape, {}, {"balances_stages": True})
    # 12 x 512^2 + 13 x 512 a layer; the first stage has a layer more
    assert own["weights_bytes"] - even["weights_bytes"] == close(2 * (12 * 512**2 + 13 * 512))


def test_one_stage_has_all_layers() -> None:
    slow = {**SMALL, "hbm_bytes_per_second": 1e9, "matrix_flops_per_second": FREE}
    even, own = step_with(slow, {}, {"balances_stages": True})
    assert even == own
