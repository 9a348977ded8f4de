"""Stages that a program balances by their products, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.decoder import Shape
from estimators.training_step.pipelines import stage_layers
from estimators.training_step.placement import balanced
from estimators.training_step.problem import Layout
from tests.estimators.training_step_cases import FREE, step, step_with
from tests.estimators.training_step_figures import CORE, FORWARD, OUTPUT, SMALL, close

LLAMA_1B = {
    "num_layers": 16.0,
    "hidden_size": 2048.0,
    "num_heads": 32.0,
    "head_size": 64.0,
    "ffn_hidden_size": 8192.0,
    "vocab_size": 131072.0,
    "num_dense_layers": 0,
    "num_experts": 1,
}
"""A layer has 4 x 2048^2 + 3 x 8192 x 2048 = 67,108,864 weights, the output layer 131072 x 2048 =
268,435,456, four times as many: 20 in all."""


@pytest.mark.parametrize(
    ("stages", "most", "last"),
    [
        (1, 16, 16),
        # a stage takes layers until more than 10 are placed: 11; 5 and the output layer remain
        (2, 11, 5),
        # more than 5, 10, 15: 6, 5 and 5; the output layer is alone
        (4, 6, 0),
        # more than 2.5, 5, 7.5 ...: 3, 3, 2, 3, 2, 3
        (8, 3, 0),
    ],
)
def test_a_stage_takes_layers_until_its_share_is_exceeded(
    stages: int, most: int, last: int
) -> None:
    shape, layout = Shape.of(LLAMA_1B), Layout.of({"pipeline_parallel": stages})
    assert [*map(float, stage_layers(shape, np.bool_(True), layout))] == [most, last]
    even = stage_layers(shape, np.bool_(False), layout)
    assert [*map(float, even)] == [16 / stages, 16 / stages]


def test_a_whole_number_of_layers_does_not_exceed_an_equal_share() -> None:
    # 4 x 4096^2 + 3 x 14336 x 4096 = 243,269,632 weights a layer, the output layer has 131072 x
    # 4096 = 536,870,912. 29 of 32 shares are 29 / 32 x 8,321,499,136 = 31 x 243,269,632: the stage
    # that has the 31st layer has the 32nd as well, and the output layer is alone.
    shape = {
        **LLAMA_1B,
        "num_layers": 32.0,
        "hidden_size": 4096.0,
        "head_size": 128.0,
        "ffn_hidden_size": 14336.0,
    }
    layout = Layout.of({"pipeline_parallel": 32})
    found = stage_layers(Shape.of(shape), np.bool_(True), layout)
    assert [*map(float, found)] == [2, 0]
    sizes, output = balanced(32, 32, 536_870_912 / 243_269_632)
    assert (sizes[28], sizes[29:], output) == (2, [0, 0, 0], 29)


def test_the_slowest_of_balanced_stages_sets_the_pace() -> None:
    # 4 x 512^2 + 3 x 2048 x 512 weights a layer, of 8,192 words as many: 5 in all, 2.5 a stage;
    # three layers, and one with the output layer
    shape = {**SMALL, "vocab_size": 8192, "balances_stages": True}
    found = step(shape, pipeline_parallel=2, global_batch_size=8, data_parallel=1)
    layer, output = 3 * FORWARD + 3.5 * CORE, 16 * OUTPUT
    assert found["step_seconds"] == close(8 * 3 * layer + output + layer)
    assert found["bubble_seconds"] == close(output + layer)
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
