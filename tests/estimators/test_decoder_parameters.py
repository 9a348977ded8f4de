"""Parameters and FLOPs of the models of the table, counted one by one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from estimators.decoder import (
    Shape,
    attended_length,
    attention_weights,
    layer_parameters,
    least_flops,
    model_flops,
    mtp_parameters,
    parameters,
    shape_of,
    unwindowed_share,
)
from warehouse.database.catalog import packaged_catalog

COUNTS = {
    # all parameters; those that a token passes, with both matrices of the vocabulary
    "deepseek_v2": (235_741_434_880, 21_375_800_320),  # arXiv 2405.04434: 236 B, 21 B
    "deepseek_v3": (671_026_419_200, 37_552_297_472),  # arXiv 2412.19437: 671 B, 37 B
    "kimi_k2": (1_026_408_232_448, 32_861_500_928),  # arXiv 2507.20534: 1.04 T, 32.6 B
    "qwen3_30B_A3B": (30_532_122_624, 3_353_032_704),  # arXiv 2505.09388: 30.5 B, 3.3 B
    "qwen3_235B_A22B": (235_093_634_560, 22_190_763_520),  # arXiv 2505.09388: 235 B, 22 B
    "mixtral_8x7B": (46_702_792_704, 12_879_925_248),  # arXiv 2401.04088: 46.7 B, 12.9 B
    "llama4_scout": (107_769_861_120, 17_172_894_720),  # 109 B with vision, 17 B
    "llama4_maverick": (400_711_848_960, 17_184_691_200),  # 400 B, 17 B
    "gpt_oss_120B": (116_829_156_672, 5_711_982_912),  # arXiv 2508.10925: 116.8 B
}


def shape(name: str, **other: Any) -> Shape:
    """Return a model's shape, its absent columns filled."""
    return shape_of({**packaged_catalog().tables["model"][name], **other})


def model_parameters(model: Shape) -> tuple[float, float]:
    """Return the parameters of a model with its vocabulary and last norm, and the active ones."""
    matrices = 1 if model.ties_embedding else 2
    rest = float((matrices * model.vocab_size + (1 if model.uses_glu else 2)) * model.hidden_size)
    whole, active = layer_parameters(model)
    return float(whole) + rest, float(active) + rest


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_models_have_the_parameters_of_their_weights(name: str, count: tuple[int, int]) -> None:
    assert model_parameters(shape(name)) == count


def test_mixtral_8x22b_has_them_with_the_vocabulary_of_its_later_file() -> None:
    found = model_parameters(shape("mixtral_8x22B", vocab_size=32768))
    assert found == (140_630_071_296, 39_161_468_928)


@pytest.mark.parametrize(
    ("name", "one"),
    [
        # h rq + rq a (dn + dr) + rq + h (rkv + dr) + rkv a (dn + dv) + rkv + a dv h
        ("deepseek_v2", 149_227_520),
        ("deepseek_v3", 187_107_328),
        ("kimi_k2", 101_124_096),
    ],
)
def test_latent_attention_has_two_projections_down_and_two_up(name: str, one: int) -> None:
    assert sum(attention_weights(shape(name))) == one


def test_latent_attention_without_a_latent_of_queries_projects_the_stream() -> None:
    # DeepSeek-V2-Lite, arXiv 2405.04434 appendix B: no compression of queries
    lite = shape("deepseek_v2", hidden_size=2048, num_heads=16, q_lora_rank=0)
    down, up = attention_weights(lite)
    assert down == 2048 * (512 + 64) + 512
    assert up == 2048 * 16 * 192 + 512 * 16 * (128 + 128) + 16 * 128 * 2048


def test_layers_of_deepseek_are_of_two_kinds() -> None:
    dense = parameters(replace(shape("deepseek_v3"), sparse_share=0.0))
    mixed = parameters(replace(shape("deepseek_v3"), sparse_share=1.0))
    assert dense.layer == 583_483_392
    assert dense.experts == 0
    assert mixed.layer + mixed.experts == 11_507_286_272
    assert mixed.layer + mixed.experts * 8 / 256 == 585_318_656


def test_ranks_have_latents_router_and_norms_whole() -> None:
    mixed = parameters(replace(shape("deepseek_v3"), sparse_share=1.0))
    # latents with their norms, router with its biases, two norms
    assert mixed.whole == 15_140_864 + 1_835_264 + 14_336
    # attention on one of two ranks, and the shared expert
    assert mixed.split / 2 == 85_983_232 + 22_020_096
    assert mixed.split / 2 + mixed.whole == 124_993_792


def test_layers_without_gates_have_the_biases_of_megatron() -> None:
    count = parameters(shape("gpt3_175B"))
    hidden, wide = 12288, 49152
    assert count.split == 4 * hidden**2 + 2 * hidden * wide + 3 * hidden + wide
    assert count.whole == 2 * hidden + 4 * hidden


def test_a_further_token_has_a_layer_a_projection_and_three_norms() -> None:
    count = mtp_parameters(shape("deepseek_v3"))
    # 11.6 B of its own; with the copies of embedding and output layer the 14 B of its README
    assert count.layer + count.experts == 11_610_068_224
    assert count.layer + count.experts + 2 * count.embedding == pytest.approx(14e9, rel=0.05)


def test_layer_parameters_leave_the_further_tokens_out() -> None:
    with_it, without = shape("deepseek_v3"), shape("deepseek_v3", num_mtp_layers=0)
    assert layer_parameters(with_it) == layer_parameters(without)


# ---- FLOPs ----


def test_deepseek_has_the_flops_of_its_report() -> None:
    model = shape("deepseek_v3", num_mtp_layers=0)
    tokens = 4096
    # 6 x 36.63e9 and causal attention: 250e9 a token
    assert least_flops(model, 1) / tokens == pytest.approx(250.4e9, rel=0.001)
    # 2.664e6 hours of H800s for 14.8e12 tokens
    rate = least_flops(model, 1) / tokens * 14.8e12 / (2.664e6 * 3600)
    assert rate == pytest.approx(386.4e12, rel=0.001)
    # scores of 192, values of 128: 4096 x 128 x 320 FLOPs a token and layer, causal
    scores = 2 * (model_flops(model, 1) - least_flops(model, 1)) / tokens / 3 / 61 / 2
    assert scores == pytest.approx(4096 * 128 * 320)


def test_a_further_token_counts_a_layer_a_projection_and_an_output_layer() -> None:
    with_it, without = shape("deepseek_v3"), shape("deepseek_v3", num_mtp_layers=0)
    more = (model_flops(with_it, 1) - model_flops(without, 1)) / 4096 / 3
    # products of a layer without its norms and the router's biases
    layer = 585_318_656 - 2 * 7168 - 1536 - 512 - 256
    scores = 2 * 4096 * 128 * 320
    assert more == pytest.approx(2 * (layer + 2 * 7168**2 + 7168 * 129280) + scores)


def test_windows_of_the_last_tokens_leave_half_of_the_attention() -> None:
    model = shape("gpt_oss_120B")
    assert unwindowed_share(model) == 0.5
    # each of 4096 queries sees 128, but the first 128 see 64 on average
    pairs = 4096 * 128 - 128**2 / 2
    assert attended_length(model) == pytest.approx(2 * pairs / 4096)
    whole = shape("gpt_oss_120B", attention_window=0, window_period=0)
    saved = model_flops(whole, 1) - model_flops(model, 1)
    assert saved == pytest.approx(3 * 18 * 4 * 64 * 64 * (4096**2 - 2 * pairs))


def test_chunks_are_short_sequences() -> None:
    model = shape("llama4_scout", seq_len=32768)
    assert attended_length(model) == 8192
    assert unwindowed_share(model) == 0.25
    # chunks as long as the sequence are no windows
    assert attended_length(shape("llama4_scout", seq_len=8192)) == 8192


def test_counts_of_a_batch_are_those_of_its_rows() -> None:
    names = ("deepseek_v3", "gpt_oss_120B", "llama4_maverick", "gpt3_175B")
    rows = [shape(name) for name in names]
    columns = [field.name for field in fields(Shape)]
    batch = Shape(**{name: np.array([getattr(row, name) for row in rows]) for name in columns})
    assert model_flops(batch, 1) == pytest.approx([model_flops(row, 1) for row in rows])
    together, alone = parameters(batch), [parameters(row) for row in rows]
    assert together.layer == pytest.approx([of_row.layer for of_row in alone])
    assert together.experts == pytest.approx([of_row.experts for of_row in alone])


@pytest.mark.parametrize(
    ("name", "length", "rate", "seconds", "gpus", "batch"),
    [
        # Megatron-Bridge @067f987d docs/performance-summary*.md: FLOP/s, seconds of a step
        ("deepseek_v3", 4096, 1276e12, 13.342019543973942, 256, 4096),
        ("qwen3_235B_A22B", 4096, 1077e12, 18.004395604395604, 256, 8192),
        ("qwen3_30B_A3B", 4096, 923e12, 6.564102564102564, 8, 512),
        ("gpt_oss_120B", 4096, 934e12, 2.857142857142857, 64, 1280),
        ("llama3_70B", 8192, 1937e12, 7.599257884972171, 64, 256),
    ],
)
def test_published_rates_count_causal_attention_windows_and_further_tokens(
    name: str, length: int, rate: float, seconds: float, gpus: int, batch: int
) -> None:
    model = shape(name, seq_len=length)
    assert rate * seconds * gpus / batch / length == pytest.approx(
        least_flops(model, 1) / length, rel=0.005
    )
