"""What the host launches, and how long the GPU waits for it, worked out by hand.

A launch takes 1e-3 s. A layer of `SMALL` takes the GPU 7.6e-3 s forward and 15.9e-3 s backward, the
output layer 1.6e-3 s both ways.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.estimators.training_step_cases import FREE, step
from tests.estimators.training_step_figures import CORE, FORWARD, MIXTURE, OUTPUT, SMALL, close

LAUNCHES: dict[str, Any] = {
    "host_seconds_per_launch": 1e-3,
    "forward_launches": 20.0,
    "backward_launches": 30.0,
}
NOTHING = {"matrix_flops_per_second": FREE, "fp8_flops_per_second": FREE}
"""The GPU takes no time: what remains is the host's."""

LAYERS = 4


def host(**changes: Any) -> float:
    """Return the host's seconds for a layer and microbatch where the GPU takes none."""
    shape = {**SMALL, **LAUNCHES, **NOTHING, **changes}
    return float(step(shape)["host_seconds"]) / LAYERS


def test_a_pass_takes_as_long_as_its_launches() -> None:
    assert host() == close(50e-3)
    assert host(host_seconds_per_launch=2e-3) == close(100e-3)


def test_the_gpu_works_while_the_host_launches() -> None:
    # one stage alone: all launches, 4 x 50 and 10 of the vocabulary, less all work of the GPU
    found = step({**SMALL, **LAUNCHES, "vocabulary_launches": 10.0})
    work = 4 * (3 * FORWARD + 3.5 * CORE) + OUTPUT
    assert found["host_seconds"] == close(210e-3 - work)
    assert found["step_seconds"] == close(210e-3)


def test_a_host_that_is_ahead_in_one_pass_makes_up_for_the_other() -> None:
    # forward 10 launches are 2.4e-3 s slower than the GPU, backward 5 are 10.9e-3 s faster
    few = {**SMALL, **LAUNCHES, "forward_launches": 10.0, "backward_launches": 5.0}
    assert step(few)["host_seconds"] == 0
    # two stages synchronize between passes: the forward pass waits, the backward pass does not
    several = step(few, pipeline_parallel=2)
    assert several["host_seconds"] == close(2 * (10e-3 - FORWARD - CORE))


def test_the_host_is_ahead_by_a_queue_at_most() -> None:
    # 400 layers of 15 launches: 6,000, a pass has 3,000 of them, the queue holds 1,024
    deep = {**SMALL, **LAUNCHES, "forward_launches": 10.0, "backward_launches": 5.0}
    found = step(deep, num_layers=400)
    alone = 400 * (10e-3 - FORWARD - CORE)
    assert found["host_seconds"] == close(alone * (1 - 1024 / 3000))


def test_tensor_parallelism_adds_its_collectives() -> None:
    # two all-reduces a pass, or two gathers and two scatters, and two gathers more backward
    assert host(tensor_parallel=2) == close(54e-3)
    assert host(tensor_parallel=2, uses_sequence_parallel=True) == close(60e-3)


@pytest.mark.parametrize(("recompute", "again"), [("full", 20e-3), ("selective", 1e-3)])
def test_recomputation_launches_again(recompute: str, again: float) -> None:
    assert host(activation_recompute=recompute) == close(50e-3 + again)


def test_casts_to_fp8_are_launched() -> None:
    assert host(precision="fp8") == close(50e-3 + 10e-3 + 11e-3)


def test_a_mixture_launches_routing_and_its_experts() -> None:
    # 36 and 22 of routing; eight experts of 2 and 4 products at a ninth of a launch
    assert host(**MIXTURE) == close((50 + 36 + 22 + 8 * (2 + 4) / 9) * 1e-3)
    # four ranks: two experts each
    spread = host(**MIXTURE, expert_parallel=4, data_parallel=4)
    assert spread == close((50 + 36 + 22 + 2 * (2 + 4) / 9) * 1e-3)


@pytest.mark.parametrize(
    ("recipe", "kernels"),
    [
        # clear, find, scale and cast of two products; one cast of each; one cast of all experts
        *(("tensorwise", 8), ("blockwise", 2), ("delayed", 0)),
    ],
)
def test_the_experts_inputs_are_cast_one_by_one(recipe: str, kernels: int) -> None:
    # kernels at a ninth and two tensors at a sixth, each way for each of eight experts; 10 and 11
    # of a layer's four products, of which a mixture's has two
    low = host(**MIXTURE, precision="fp8", number_recipe=recipe)
    casts = (10 + 11) / 2 + 2 * 8 * (kernels / 9 + 2 / 6)
    assert low - host(**MIXTURE) == close(casts * 1e-3)


def test_a_mixture_waits_in_each_pass() -> None:
    # a token passes 512 x 1024 and 512 x 512 weights of attention, two experts of 3 x 512 x 256,
    # and the router's 512 x 8, in a tile 128 wide
    weights = 512 * 1024 + 512 * 512 + 2 * 3 * 512 * 256 + 512 * 128
    forward = 2 * 1024 * weights / 1e11 + CORE * 10
    slow = {"matrix_flops_per_second": 1e11, "forward_launches": 60.0}
    found = step({**MIXTURE, **slow, "host_seconds_per_launch": 1e-3})
    # backward, 22 + 8 x 4/9 launches are fewer than twice that, and do not make up for it
    assert found["host_seconds"] == close(LAYERS * ((60 + 36 + 8 * 2 / 9) * 1e-3 - forward))


def test_experts_are_launched_when_their_tokens_are_counted() -> None:
    # 16 launches that move tokens, and 8 x 2 products at a ninth, follow the host's wait; the GPU
    # takes 16.1e-3 s for a token's two experts of 3 x 512 x 256 weights
    slow = {"matrix_flops_per_second": 1e11, "forward_launches": 5.0, "backward_launches": 5.0}
    row = {**MIXTURE, **slow, "host_seconds_per_launch": 1e-3}
    wait = (16 + 8 * 2 / 9) * 1e-3 - 2 * 1024 * 2 * 3 * 512 * 256 / 1e11
    assert 1e-3 < wait < 2e-3
    # what comes before, 5 and 20 launches, takes the GPU longer, and does not make up for it
    assert step(row)["host_seconds"] == close(LAYERS * wait)
    # during another microbatch it does
    assert step(row, overlaps_expert_comm=True)["host_seconds"] == 0


def test_a_graph_of_whole_steps_leaves_nothing_to_launch() -> None:
    assert host(**MIXTURE, captures_whole_steps=True) == 0
    assert host(**MIXTURE, captures_whole_steps=True, precision="fp8") == 0


def test_a_graph_is_one_launch_but_for_the_experts() -> None:
    graphs = {"uses_cuda_graphs": True}
    assert host(**graphs) == close(2e-3)
    assert host(**graphs, activation_recompute="full", precision="fp8") == close(2e-3)
    # the router is captured, too; kernels that move tokens are not
    assert host(**MIXTURE, **graphs) == close((2 + 16 + 16 + 8 * (2 + 4) / 9) * 1e-3)


def test_a_graph_of_the_router_leaves_attention_to_launch() -> None:
    # 50 launches of the layer, and one graph a pass in place of the other 20 and 6 of routing
    router = {"uses_cuda_graphs": True, "captures_attention": False}
    own = 16 + 16 + 8 * (2 + 4) / 9
    assert host(**MIXTURE, **router) == close((50 + 2 + own) * 1e-3)
    again = host(**MIXTURE, **router, activation_recompute="full")
    assert again > host(**MIXTURE, **router)
    # a dense layer has no router
    assert host(**router) == close(2e-3)


def test_transfers_are_part_of_what_the_gpu_does() -> None:
    # each of two all-reduces a pass moves 2 x 1024 x 512 bytes over 1e8 B/s: 21e-3 s a pass
    slow = {"tensor_parallel": 2, "nvlink_bytes_per_second": 1e8}
    found = step({**SMALL, **LAUNCHES, **NOTHING, **slow})
    assert found["tensor_comm_seconds"] > LAYERS * 40e-3
    assert found["host_seconds"] == close(LAYERS * 54e-3 - found["tensor_comm_seconds"])


def test_the_optimizer_is_launched_layer_by_layer() -> None:
    launches = {"optimizer_launches": 18.0, "host_seconds_per_launch": 1e-3}
    assert step(SMALL, **launches)["optimizer_seconds"] == close(4 * 18e-3)
    # 12.8 million parameters of 1,000 bytes at 1e9 B/s take longer
    slow = step(SMALL, **launches, hbm_bytes_per_second=1e9, optimizer_traffic_bytes=1e3)
    assert slow["optimizer_seconds"] > 12.5
