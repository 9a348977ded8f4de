"""Multi-head latent attention and windows in a training step, worked out by hand.

Two layers of 512: 4 heads with keys of 64 + 128 and values of 64; latents of 256 and 128.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from estimators.decoder import shape_of
from estimators.training_step.matmuls import attention_flops
from estimators.training_step.problem import Layout
from estimators.training_step.sizes import Size, size_of
from estimators.training_step.transfers import gathered_width
from tests.estimators.training_step_cases import IDEAL, problem_with, step
from warehouse.database.catalog import packaged_catalog

PEAK = 1e12
TOKENS = 1024.0
FFN = 3 * 512 * 1024
SHAPE: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 512,
    "ffn_hidden_size": 1024,
    "uses_glu": True,
    "num_heads": 4,
    "head_size": 64,
    "seq_len": 1024,
}
LATENT: dict[str, Any] = {
    **SHAPE,
    "q_lora_rank": 256,
    "kv_lora_rank": 128,
    "qk_head_size": 64,
    "qk_rotary_size": 128,
    "v_head_size": 64,
}
DOWN = 512 * 256 + 512 * (128 + 128)
UP = 256 * 4 * 192 + 128 * 4 * (64 + 64)
OUT = 4 * 64 * 512


def near(number: float) -> Any:
    return pytest.approx(number, rel=1e-9)


def deepseek(**layout: Any) -> Size:
    """Return one GPU's part of a layer of DeepSeek-V3, one token a microbatch."""
    shape = shape_of({**packaged_catalog().tables["model"]["deepseek_v3"], "seq_len": 1})
    problem = problem_with(expert_load_ratio=1.0, expert_routing="balanced")
    alone = {
        "tensor_parallel": 1,
        "context_parallel": 1,
        "expert_tensor_parallel": 1,
        "expert_parallel": 1,
        "uses_sequence_parallel": False,
        "microbatch_size": 1,
    }
    return size_of(replace(problem, shape=shape), Layout.of({**alone, **layout}))


def test_products_lead_down_to_the_latents_and_up_to_heads() -> None:
    found = step(LATENT)
    # three passes over every weight
    assert found["gemm_seconds"] == near(2 * 3 * 2 * TOKENS * (DOWN + UP + OUT + FFN) / PEAK)


def test_tensor_ranks_do_the_products_down_for_their_own_rows() -> None:
    layout = {"tensor_parallel": 2, "uses_sequence_parallel": True}
    # the weights are whole, the rows a half: as if they were split
    split = step(LATENT, **layout)["gemm_seconds"]
    assert split == near(2 * 3 * 2 * TOKENS * (DOWN + UP + OUT + FFN) / 2 / PEAK)
    # each rank does all of the rows
    whole = step(LATENT, tensor_parallel=2)["gemm_seconds"]
    assert whole == near(2 * 3 * 2 * TOKENS * (DOWN + (UP + OUT + FFN) / 2) / PEAK)


def test_queries_without_a_latent_come_from_the_stream() -> None:
    found = step({**LATENT, "q_lora_rank": 0})
    products = 512 * (128 + 128) + 512 * 4 * 192 + 128 * 4 * (64 + 64) + OUT + FFN
    assert found["gemm_seconds"] == near(2 * 3 * 2 * TOKENS * products / PEAK)


def test_scores_are_as_wide_as_keys_and_results_as_values() -> None:
    found = step(LATENT)
    # half of the square, and half of the blocks of 128 on the diagonal
    square = 2 * TOKENS * 1024 * 4 * (192 + 64) * (1 + 128 / 1024) / 2
    # backward: scores again and gradients of queries and keys, 3 x 192; 2 x 64
    backward = (3 * 192 + 2 * 64) / (192 + 64)
    assert backward == 2.75
    assert found["attention_seconds"] == near(2 * square * (1 + backward) / PEAK)


def test_tensor_ranks_gather_latents_in_place_of_the_stream() -> None:
    layout = {"tensor_parallel": 2, "uses_sequence_parallel": True}
    slow = {"nvlink_bytes_per_second": 1e11}
    found = step({**LATENT, **slow}, **layout)["tensor_comm_seconds"]
    of_half = 2 * TOKENS / 2 / 1e11
    # latents gathered, sums scattered; backward the reverse; what is gathered again is hidden
    attention = 2 * (256 + 128 + 128) + 2 * 512
    assert found == near(2 * of_half * (attention + 4 * 512))
    assert step({**LATENT, **slow, "q_lora_rank": 0}, **layout)["tensor_comm_seconds"] == near(
        2 * of_half * (2 * (512 + 128 + 128) + 6 * 512)
    )


def test_norms_and_rotary_embedding_of_latents_move_bytes() -> None:
    slow = {"hbm_bytes_per_second": 1e9}
    plain = {**SHAPE, "num_kv_heads": 4}
    found = step({**IDEAL, **LATENT, **slow})["elementwise_seconds"]
    usual = step({**IDEAL, **plain, **slow})["elementwise_seconds"]
    # a norm reads and writes 2 bytes, backward 6; rotary queries are turned in place; keys are
    # read without their rotary part and written with it
    norms = (4 + 6) * (256 + 128)
    heads = 2 * (4 * 4 * 128 + 2 * (4 * (64 + 64) + 128 + 4 * 192 + 4 * 64))
    turned = 2 * 4 * (256 + 256)
    assert found - usual == near(2 * TOKENS * (norms + heads - turned) / 1e9)


@pytest.mark.parametrize(
    ("layout", "heads", "rows"),
    [
        ({}, 1, 1),
        # without sequence parallelism latents are whole
        ({"tensor_parallel": 4}, 4, 1),
        ({"tensor_parallel": 4, "uses_sequence_parallel": True}, 4, 4),
    ],
)
def test_latents_are_kept_before_and_behind_their_norms(
    layout: dict[str, Any], heads: int, rows: int
) -> None:
    plain = {**SHAPE, "num_kv_heads": 4}
    kept = [
        step({**shape, **layout, "attention": "flash", "num_layers": layers})["activations_bytes"]
        for shape in (LATENT, plain)
        for layers in (2, 3)
    ]
    found = (kept[1] - kept[0]) - (kept[3] - kept[2])
    # queries and keys 4 x 192 instead of 4 x 64; latents of 256 and 128 twice, and rotary keys
    inside = 2 * 2 * 4 * (192 - 64)
    latents = 4 * (256 + 128) + 2 * 128
    assert found == near(TOKENS * (inside / heads + latents / rows))


# ---- DeepSeek-V3 ----


def test_ranks_gather_2112_of_7168() -> None:
    assert gathered_width(deepseek(tensor_parallel=2)) == 1536 + 512 + 64


def test_products_of_deepseeks_attention_have_374_million_flops_a_token() -> None:
    # twice the 187,107,328 parameters less norms of 2,048
    assert attention_flops(deepseek()) == 2 * (187_107_328 - 2_048)


# ---- windows ----


def test_windowed_layers_attend_to_the_last_tokens() -> None:
    windows = {"attention_window": 256, "window_period": 2}
    whole = step(SHAPE)["attention_seconds"]
    found = step({**SHAPE, **windows})["attention_seconds"]
    # pairs of a window: 1024 x 256 - 256^2 / 2, as sequences of 448 have
    length = 2 * (1024 * 256 - 256**2 / 2) / 1024
    assert length == 448
    share = length * (1 + 128 / length) / (1024 * (1 + 128 / 1024))
    assert found == near(whole / 2 * (1 + share))


def test_chunked_layers_attend_within_their_chunk() -> None:
    chunks = {"attention_window": 256, "uses_chunked_attention": True}
    found = step({**SHAPE, **chunks})["attention_seconds"]
    # as four times as many sequences of a quarter
    short = step({**SHAPE, "seq_len": 256}, microbatch_size=4)["attention_seconds"]
    assert found == near(short)


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    whole, none = step({**SHAPE, "attention_window": 1024}), step(SHAPE)
    assert np.isclose(whole["step_seconds"], none["step_seconds"], rtol=1e-12)


# ---- further tokens ----


def test_a_further_token_costs_a_layer_a_projection_and_an_output_layer() -> None:
    words = {**SHAPE, "vocab_size": 1024, "ties_embedding": False}
    one, three = step(words), step({**words, "num_layers": 3})
    found = step({**words, "num_mtp_layers": 1})
    layer = three["step_seconds"] - one["step_seconds"]
    products = 3 * 2 * TOKENS * (2 * 512 * 512 + 512 * 1024) / PEAK
    assert found["step_seconds"] - one["step_seconds"] == near(layer + products)
    again = step({**words, "num_mtp_layers": 2})
    assert again["step_seconds"] - found["step_seconds"] == near(layer + products)


def test_a_further_token_is_predicted_by_a_layer_with_experts() -> None:
    mixture = {**SHAPE, "num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 512}
    words = {**mixture, "vocab_size": 1024, "num_dense_layers": 1}
    one, three = step(words), step({**words, "num_layers": 3})
    found = step({**words, "num_mtp_layers": 1})
    products = 3 * 2 * TOKENS * (2 * 512 * 512 + 512 * 1024) / PEAK
    more = three["step_seconds"] - one["step_seconds"] + products
    assert found["step_seconds"] - one["step_seconds"] == near(more)


# ---- parts that few models have ----

SLOW = {"hbm_bytes_per_second": 1e9}


def test_norms_of_queries_and_keys_move_and_keep_their_bytes() -> None:
    shape = {**SHAPE, "num_kv_heads": 2, **SLOW}
    usual, normed = step(shape), step({**shape, "uses_qk_norm": True})
    elements = 2 * TOKENS * (4 + 2) * 64
    found = normed["elementwise_seconds"] - usual["elementwise_seconds"]
    # read 2 and written 2, backward 6
    assert found == near(10 * elements / 1e9)
    assert normed["activations_bytes"] - usual["activations_bytes"] == near(2 * elements)


def test_norms_behind_the_blocks_are_two_more_norms_of_the_stream() -> None:
    shape = {**SHAPE, **SLOW, "host_seconds_per_launch": 1.0}
    usual, normed = step(shape), step({**shape, "uses_post_norm": True})
    stream = 2 * TOKENS * 512
    moved = normed["elementwise_seconds"] - usual["elementwise_seconds"]
    assert moved == near(2 * stream * 10 / 1e9)
    assert normed["activations_bytes"] - usual["activations_bytes"] == near(2 * 2 * stream)
    # the ideal machine launches nothing else, and the GPU waits for these
    assert normed["step_seconds"] == near(2 * (2 + 4))


def test_other_parameters_of_a_layer_are_held_by_every_rank() -> None:
    for ranks in (1, 2):
        usual, more = (
            step({**SHAPE, "other_layer_parameters": number}, tensor_parallel=ranks)
            for number in (None, 1000)
        )
        assert more["weights_bytes"] - usual["weights_bytes"] == near(2 * 2 * 1000)


def test_biases_and_clamps_of_experts_are_kernels_of_their_own_unless_products_are_fused() -> None:
    mixture = {**SHAPE, **SLOW, "num_experts": 4, "experts_per_token": 2}
    mixture |= {"expert_ffn_hidden_size": 512, "host_seconds_per_launch": 1.0}
    biased = {**mixture, "uses_linear_bias": True, "uses_gate_clamp": True}
    usual, found = step(mixture), step(biased)
    # two rows a token: 28 bytes of a bias; of a clamp 16 forward, and backward 3 + 5 for the gate,
    # 3 + 3 + 3 + 5 for the other half, 8 to join them; 2 of the biases of the stream
    routed, stream = 2 * 2 * TOKENS * (28 * 512 + 46 * 512), 2 * TOKENS * 2 * 2 * 512
    seconds = found["elementwise_seconds"] - usual["elementwise_seconds"]
    assert seconds == near((routed + stream) / 1e9)
    # probabilities in 32 bits widen the products
    wide = step({**biased, "dispatcher": "flex"})["elementwise_seconds"]
    assert wide - step({**mixture, "dispatcher": "flex"})["elementwise_seconds"] == near(
        seconds + 2 * 2 * TOKENS * (68 - 28) * 512 / 1e9
    )
    # two operations forward and four backward for each of four experts, four and nine of the clamp:
    # a sixth of a launch each
    waits = found["host_seconds"] - usual["host_seconds"] + seconds
    assert waits == near(2 * (4 * (2 + 4) + 4 + 9) / 6)
    low = {"precision": "fp8", "number_recipe": "mxfp8", "transposes_operands": False}
    whole = {**low, "captures_whole_steps": True}
    fused = step({**mixture, **whole})["elementwise_seconds"]
    assert step({**biased, **whole})["elementwise_seconds"] - fused == near(stream / 1e9)
    # nor are the activation, 6 forward and 10 backward, and the casts behind it, three of 4 1/16
    apart = step({**mixture, **low})["elementwise_seconds"]
    assert apart - fused == near(2 * 2 * TOKENS * 512 * (16 + 3 * 4.0625) / 1e9)


def test_kernels_of_pytorch_take_a_multiprocessor_its_time_for_each_element() -> None:
    mixture = {**SHAPE, "num_experts": 4, "experts_per_token": 2, "expert_ffn_hidden_size": 512}
    mixture |= {"unvectorized_seconds": 1e-9}
    biased, clamped, turned = (
        {**mixture, name: True} for name in ("uses_linear_bias", "uses_gate_clamp", "uses_yarn")
    )
    rows = 2 * 2 * TOKENS * 512 / 1e9
    assert step(mixture)["elementwise_seconds"] == pytest.approx(0, abs=1e-15)
    # a bias times a probability, and backward two products; in 32 bits two and three
    assert step(biased)["elementwise_seconds"] == near(3 * rows)
    assert step({**biased, "dispatcher": "flex"})["elementwise_seconds"] == near(5 * rows)
    # two halves clamped; backward three comparisons and two choices
    assert step(clamped)["elementwise_seconds"] == near(7 * rows)
    again = step({**clamped, "recompute_modules": "moe_act"})
    assert again["recompute_seconds"] - step(mixture)["recompute_seconds"] == near(2 * rows)
    # two products and half a negation each way, of queries and keys
    assert step(turned)["elementwise_seconds"] == near(2 * TOKENS * (4 + 4) * 64 * 5 / 1e9)
    # more multiprocessors take less, and memory at least its own time
    many = step({**clamped, "num_sms": 4, "small_tile_efficiency": 1.0})
    assert many["elementwise_seconds"] == near(7 * rows / 4)
    slow = step({**clamped, "hbm_bytes_per_second": 1e9})["elementwise_seconds"]
    usual = step({**mixture, "hbm_bytes_per_second": 1e9})["elementwise_seconds"]
    assert slow - usual == near(2 * 2 * TOKENS * 512 * 46 / 1e9)


def test_an_activation_that_is_made_again_is_clamped_again() -> None:
    mixture = {**SHAPE, **SLOW, "num_experts": 4, "experts_per_token": 2}
    mixture |= {"expert_ffn_hidden_size": 512, "recompute_modules": "moe_act"}
    usual, clamped = step(mixture), step({**mixture, "uses_gate_clamp": True})
    more = clamped["recompute_seconds"] - usual["recompute_seconds"]
    assert more == near(2 * 2 * TOKENS * 16 * 512 / 1e9)


def test_yarn_turns_queries_and_keys_in_kernels_of_pytorch() -> None:
    slow = {**SHAPE, **SLOW, "num_experts": 4, "experts_per_token": 2}
    slow |= {"expert_ffn_hidden_size": 512, "host_seconds_per_launch": 1.0}
    usual, found = step(slow), step({**slow, "uses_yarn": True})
    # forward 24 bytes an element in place of 4, backward 28 in place of 4, in each of two layers
    elements = 2 * TOKENS * (4 + 4) * 64
    seconds = found["elementwise_seconds"] - usual["elementwise_seconds"]
    assert seconds == near(elements * (20 + 24) / 1e9)
    # 22 and 12 operations more, a sixth of a launch each
    waits = found["host_seconds"] - usual["host_seconds"] + seconds
    assert waits == near(2 * (22 + 12) / 6)
    # programs that fuse nothing turn without a factor already, latent heads in one kernel with it
    eager = {**slow, "fuses_elementwise": False}
    assert step({**eager, "uses_yarn": True}) == step(eager)
    heads = {**slow, **LATENT}
    assert step({**heads, "uses_yarn": True}) == step(heads)
