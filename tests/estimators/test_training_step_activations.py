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
