"""Activations of layers of published models, in 16 and in 8 bits, against the programs' lists."""

from __future__ import annotations

from typing import Any

import pytest

from tests.estimators.training_step_cases import steps


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "ffn_hidden_size": 18_432,
    "num_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_head_size": 128,
    "qk_rotary_size": 64,
    "v_head_size": 128,
    "head_size": 128,
    "num_experts": 256,
    "experts_per_token": 8,
    "expert_ffn_hidden_size": 2048,
    "num_shared_experts": 1,
    "num_dense_layers": 1,
    "uses_glu": True,
    "seq_len": 4096,
    "vocab_size": 512,
    "attention": "flash",
    "ties_embedding": False,
}
"""Source of the shape: arXiv 2412.19437 section 4.2."""

LLAMA_70B = {
    "hidden_size": 8192,
    "ffn_hidden_size": 28_672,
    "num_heads": 64,
    "num_kv_heads": 8,
    "uses_glu": True,
    "seq_len": 4096,
    "vocab_size": 512,
    "attention": "flash",
    "ties_embedding": False,
}


def bytes_a_token(shape: dict[str, Any], few: dict[str, int], many: dict[str, int]) -> float:
    """Return the bytes of a token that the layers keep by which `many` has more than `few`."""
    less, more = steps({**shape, **few}, {**shape, **many})
    return float(more["activations_bytes"] - less["activations_bytes"]) / float(shape["seq_len"])


def test_layers_of_published_models_keep_what_their_programs_lists_say() -> None:
    # Latent attention: its norm's input and result 4 h; q and k of 128 heads of 192, values and
    # result of 128, 2 bytes each; latents 2 x (1536 + 1536 + 576 + 512); a statistic of 512.
    attention = 4 * 7168 + 2 * 128 * (192 + 192 + 128 + 128) + 8320 + 512
    assert attention == 201_344
    norm = 4 * 7168
    # Eight rows of 2 h, of 6 x 2048 and of 4 for a probability; the shared expert's 6 x 2048;
    # logits and scores of 256 experts and their map, 9 x 256.
    mixture = attention + norm + 8 * (2 * 7168 + 6 * 2048 + 4) + 6 * 2048 + 9 * 256
    assert mixture == 457_600 + 8 * 4
    found = bytes_a_token(DEEPSEEK_V3, {"num_layers": 4}, {"num_layers": 5})
    assert found == close(mixture)
    # A dense layer has 6 x 18,432 behind its norm.
    more = {"num_layers": 5, "num_dense_layers": 2}
    found = bytes_a_token(DEEPSEEK_V3, {"num_layers": 4, "num_dense_layers": 1}, more)
    assert found == close(attention + norm + 6 * 18_432)
    assert found == close(340_608)
    found = bytes_a_token(LLAMA_70B, {"num_layers": 4}, {"num_layers": 5})
    assert found == close(8 * 8192 + 2 * (8192 + 1024 + 1024 + 8192) + 4 * 64 + 6 * 28_672)
    assert found == close(274_688)


def test_products_in_8_bits_keep_their_inputs_in_8_bits() -> None:
    # A byte less of either norm's result, and of the activation's; the result of attention is kept
    # for its own backward pass, with a copy in 8 bits where scales are of the past.
    few, many = {"num_layers": 4}, {"num_layers": 5}
    low = {**LLAMA_70B, "precision": "fp8"}
    found = bytes_a_token({**low, "number_recipe": "tensorwise"}, few, many)
    assert found == close(274_688 - 2 * 8192 - 28_672)
    found = bytes_a_token({**low, "number_recipe": "delayed"}, few, many)
    assert found == close(274_688 - 2 * 8192 - 28_672 + 8192)
    # A scale of a byte for 32 values.
    blackwell = {**low, "number_recipe": "mxfp8", "transposes_operands": False}
    found = bytes_a_token(blackwell, few, many)
    assert found == close(274_688 - (1 - 1 / 32) * (2 * 8192 + 28_672))


def test_a_router_reads_16_bits() -> None:
    # Products keep less of the norm before attention, of both latents, of routed rows, and of
    # three activations; not of the norm that the router reads.
    few, many = {"num_layers": 4}, {"num_layers": 5}
    low = {**DEEPSEEK_V3, "precision": "fp8", "number_recipe": "tensorwise"}
    less = 7168 + 1536 + 512 + 8 * (7168 + 2048) + 2048
    assert bytes_a_token(low, few, many) == close(457_600 + 8 * 4 - less)


# ---- a rank's state, and the table of SimuMax ----


def test_a_rank_of_a_wide_mixture_has_the_state_of_its_layers() -> None:
    # Two tensor ranks, experts one by one on 64 ranks: 64 replicas of the dense part, 2 of experts.
    shape = {
        **DEEPSEEK_V3,
        "num_dense_layers": 0,
        "tensor_parallel": 2,
        "expert_tensor_parallel": 1,
        "expert_parallel": 64,
        "data_parallel": 64,
        "num_microbatches": 1,
        "zero_stage": 1,
        "uses_sequence_parallel": True,
        "uses_router_bias": True,
        "stored_weight_bytes": 2.0,
        "stored_gradient_bytes": 2.0,
        # FP32 weights, two moments, and the gradients' shard in FP32
        "stored_optimizer_bytes": 16.0,
    }
    few, many = steps({**shape, "num_layers": 4}, {**shape, "num_layers": 12})
    parts = ("weights_bytes", "gradients_bytes", "optimizer_bytes")
    found = sum(many[name] - few[name] for name in parts)
    # Latents whole, heads and shared expert halved, router with its bias, four norms' weights.
    latents = 7168 * 1536 + 1536 + 7168 * 576 + 512
    heads = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert (latents, heads // 2) == (15_140_864, 85_983_232)
    dense = latents + heads // 2 + 3 * 7168 * 2048 // 2 + 7168 * 256 + 256 + 2 * 7168
    assert dense == 124_993_792
    experts = 4 * 3 * 7168 * 2048
    assert found == close(8 * (dense * (4 + 16 / 64) + experts * (4 + 16 / 2)))
    assert round(found / 1e9, 2) == 21.16


@pytest.mark.parametrize(
    ("layout", "gib", "measured"),
    [
        ({"pipeline_parallel": 2, "data_parallel": 4, "num_microbatches": 4}, 64.4, 66.55),
        ({"tensor_parallel": 2, "data_parallel": 4, "num_microbatches": 4}, 59.6, 60.68),
        ({"tensor_parallel": 4, "data_parallel": 2, "num_microbatches": 8}, 38.4, 39.07),
        ({"tensor_parallel": 8, "data_parallel": 1, "num_microbatches": 16}, 27.9, 28.29),
    ],
)
def test_tensors_of_the_table_of_simumax(
    layout: dict[str, Any], gib: float, measured: float
) -> None:
    # Twelve layers of Llama 70B; 6 + 12 / D bytes a parameter, logits of 6. The largest allocated
    # memory of MooreThreads/SimuMax @4dcaae5 docs/b200/b200_release_v1.2_summary.json.
    shape = {
        **LLAMA_70B,
        "vocab_size": 128_256,
        "num_layers": 12,
        "zero_stage": 1,
        "stored_gradient_bytes": 4.0,
        "stored_logit_bytes": 6.0,
        "uses_sequence_parallel": layout.get("tensor_parallel", 1) > 1,
    }
    [found] = steps({**shape, **layout})
    without_gradients = found["allocated_bytes"]
    if "pipeline_parallel" in layout:
        # the list of the first stage, which has no logits, and the gradients of a layer at work
        without_gradients -= (6 * 28_672 + 8 * 8192) * 4096
    else:
        # the last norm's input and result, with the logits
        without_gradients -= 4 * 8192 * 4096 / layout["tensor_parallel"]
    assert without_gradients / 2**30 == pytest.approx(gib, abs=0.05)
    assert found["allocated_bytes"] / 2**30 == pytest.approx(measured, rel=0.025)


def test_a_layer_of_further_tokens_also_keeps_embeddings_and_norms() -> None:
    # The embeddings that its norm keeps 2 h, both norms' results 4 h, the last norm's input and
    # result 4 h.
    layers, further = {"num_layers": 5}, {"num_layers": 4, "num_mtp_layers": 1}
    found = bytes_a_token(LLAMA_70B, layers, further)
    assert found == close(10 * 8192)
    # as a product of 8 bits reads it, the projection's input has a byte an element
    low = {**LLAMA_70B, "precision": "fp8", "fp8_flops_per_second": 2e12}
    assert bytes_a_token(low, layers, further) == close(8 * 8192)
    # recomputed layers keep their input alone
    again = {**LLAMA_70B, "activation_recompute": "full"}
    assert bytes_a_token(again, layers, further) == close(2 * 8192)
