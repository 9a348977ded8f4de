"""What is recomputed, counted and cast in a training step, against the papers' figures.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.estimators.training_step_cases import (
    IDEAL,
    LLAMA,
    evaluate,
    resolve,
    step,
    step_with,
    total,
)
from tests.estimators.training_step_figures import (
    CORE,
    FORWARD,
    HIDDEN,
    MIXTURE,
    REPLICAS,
    SMALL,
    close,
)
from warehouse.database.catalog import packaged_catalog

# ---- recomputation ----


def test_full_recomputation_adds_a_forward_pass_and_its_collectives() -> None:
    slow = {"tensor_parallel": 4, "nvlink_bytes_per_second": 1e9}
    none, full = step_with({**SMALL, **slow}, {}, {"activation_recompute": "full"})
    assert none["recompute_seconds"] == 0
    assert full["recompute_seconds"] == close(4 * (FORWARD + CORE) / 4)
    for name in ("gemm_seconds", "attention_seconds", "vocabulary_seconds"):
        assert full[name] == none[name]
    # Two all-reduces a layer more, of 2 x 3/4 of the volume each.
    added = full["tensor_comm_seconds"] - none["tensor_comm_seconds"]
    assert added == pytest.approx(4 * 2 * 1.5 * HIDDEN / 1e9)


def test_selective_recomputation_adds_the_core_of_attention() -> None:
    unfused = {**SMALL, "attention": "unfused"}
    none, selective, flash = step_with(
        unfused,
        {},
        {"activation_recompute": "selective"},
        {"activation_recompute": "selective", "attention": "flash"},
    )
    # 4 b s^2 h a layer (arXiv 2205.05198 section 5: the second product needs the first again).
    assert selective["recompute_seconds"] == close(4 * 4 * 1024**2 * 512 / 1e12)
    assert selective["step_seconds"] - none["step_seconds"] == pytest.approx(
        selective["recompute_seconds"], rel=1e-9
    )
    # The fused kernel is run again as well, over its blocks on and below the diagonal.
    assert flash["recompute_seconds"] == close(
        4 * 4 * 1024**2 * 512 / 1e12 * 0.5 * (1 + 128 / 1024)
    )


@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_named_parts_replace_the_core_of_attention(attention: str) -> None:
    """Megatron-LM @d98e8a64 transformer_config.py 1940-1943: core_attn where no list is given."""

    def figures(recompute: str, modules: str) -> tuple[float, ...]:
        given = {"activation_recompute": recompute, "recompute_modules": modules}
        found = step(LLAMA, attention=attention, **given)
        return tuple(found[name] for name in ("step_seconds", "recompute_seconds", "hfu"))

    assert figures("selective", "layernorm") == figures("none", "layernorm")
    assert figures("selective", "layernorm")[1] < 1e-15 < figures("selective", "none")[1]
    assert figures("selective", "core_attn") == figures("selective", "none")
    assert figures("selective", "core_attn+layernorm") == pytest.approx(
        figures("selective", "none"), rel=1e-12
    )


def test_full_recomputation_may_stop_before_its_last_matmul() -> None:
    """PyTorch's checkpoints that are not reentrant stop at the last tensor that was saved."""
    run = {**LLAMA, "activation_recompute": "full", "tensor_parallel": 2}
    for splits in (False, True):
        slow = {"nvlink_bytes_per_second": 1e9, "uses_sequence_parallel": splits}
        whole, early = (
            step(run, **slow, stops_recompute_early=stops)["step_seconds"]
            for stops in (False, True)
        )
        # 4 layers, products of 1024 tokens, 512 and half of 1024 columns, and their collective:
        # half of the results once scattered, twice if they are summed everywhere
        matmul = 2 * 1024 * 512 * (1024 / 2) / 1e12
        collective = 2 * 1024 * 512 / 2 / 1e9 * (1 if splits else 2)
        assert whole - early == pytest.approx(4 * (matmul + collective), rel=1e-9)


def test_recomputation_by_operation_repeats_half_of_the_products_and_no_attention() -> None:
    operations = {"activation_recompute": "selective", "recomputes_operations": True}
    shape = {**LLAMA, "vocab_size": 512}
    found = step(shape, **operations)
    # 2 FLOPs for each of 1024 tokens and of the weights of keys 512 x 256, behind attention
    # 512 x 512 and of the second product 512 x 1024
    products = 2 * 1024 * 512 * (256 + 512 + 1024) / 1e12
    assert found["recompute_seconds"] == close(4 * products)
    # HFU counts them
    model = 4 * 2 * 1024 * 512 * (256 + 512 + 1024)
    used = (found["hfu"] - found["mfu"]) * found["step_seconds"] * 1e12
    assert used == pytest.approx(model, rel=1e-9)
    # what lies between products is done again
    slow = step(shape, **operations, matrix_flops_per_second=1e9, hbm_bytes_per_second=1e9)
    between = 2 * 1024 * 512 * (4 + 6) + 1024 * 1024 * 6 + 1024 * (512 + 256) * 4
    assert slow["recompute_seconds"] == close(4 * (1e3 * products + between / 1e9))
    # 0.36 of the products of Llama's 70B
    large = {**PUBLISHED["llama3_70B"], "num_layers": 1}
    seventy = step(large, **operations)["recompute_seconds"]
    assert seventy / (step(large)["gemm_seconds"] / 3) == pytest.approx(0.36, abs=0.005)


def test_recomputation_by_operation_of_a_plain_layer_spares_its_last_product() -> None:
    found = step(SMALL, activation_recompute="selective", recomputes_operations=True)
    # products of keys and behind attention, 512 x 512 each
    assert found["recompute_seconds"] == close(4 * 2 * 1024 * 512 * (512 + 512) / 1e12)


# ---- counts ----


PUBLISHED: dict[str, dict[str, Any]] = {
    # arXiv 2407.21783 table 3, and the sizes it gives in the text.
    "llama3_8B": {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14_336,
        "uses_glu": True,
        "num_heads": 32,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    "llama3_70B": {
        "num_layers": 80,
        "hidden_size": 8192,
        "ffn_hidden_size": 28_672,
        "uses_glu": True,
        "num_heads": 64,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    "llama3_405B": {
        "num_layers": 126,
        "hidden_size": 16_384,
        "ffn_hidden_size": 53_248,
        "uses_glu": True,
        "num_heads": 128,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    # arXiv 2401.04088 table 1.
    "mixtral_8x7B": {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14_336,
        "uses_glu": True,
        "num_heads": 32,
        "num_kv_heads": 8,
        "seq_len": 4096,
        "vocab_size": 32_000,
        "num_experts": 8,
        "experts_per_token": 2,
    },
    # arXiv 2005.14165 table 2.1.
    "gpt3_175B": {
        "num_layers": 96,
        "hidden_size": 12_288,
        "num_heads": 96,
        "seq_len": 2048,
        "vocab_size": 50_257,
    },
}


@pytest.mark.parametrize(
    ("model", "billions", "digits"),
    [
        ("llama3_8B", 8.03, 2),
        ("llama3_70B", 70.6, 1),
        ("llama3_405B", 405.9, 1),
        ("mixtral_8x7B", 46.7, 1),
        ("gpt3_175B", 175, 0),
    ],
)
def test_parameters_are_those_of_known_models(model: str, billions: float, digits: int) -> None:
    found = step(PUBLISHED[model], stored_weight_bytes=1.0, gathered_weight_bytes=1.0)
    assert round(found["weights_bytes"] / 1e9, digits) == billions


def test_a_token_meets_the_active_parameters_of_a_mixture() -> None:
    # Mixtral has 12.9e9: model FLOPs are 6 a token and weight of a product, 12 L s h of attention;
    # the embedding is a look-up.
    shape = PUBLISHED["mixtral_8x7B"]
    found = step(shape)
    flops = found["mfu"] * 1e12 * found["step_seconds"] / 4096
    products = (flops - 12 * 32 * 4096 * 4096) / 6
    assert round((products + 32_000 * 4096) / 1e9, 1) == 12.9


def test_a_gpt_has_the_parameters_of_equation_2_but_for_positions_and_last_norm() -> None:
    # P = 12 L h^2 (1 + 13/12h + (V + s)/12Lh), arXiv 2104.04473; without s h and 2 h.
    found = step(
        {**PUBLISHED["gpt3_175B"], "stored_weight_bytes": 1.0, "gathered_weight_bytes": 1.0}
    )
    layers, h, v = 96, 12_288, 50_257
    expected = 12 * layers * h**2 + 13 * layers * h + v * h
    assert found["weights_bytes"] == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_model_and_hardware_flops_are_those_of_the_papers(recompute: str, attention: str) -> None:
    layers, h, s, v, batch = 8, 1024, 2048, 51_200, 12
    shape = {"num_layers": layers, "hidden_size": h, "num_heads": 16, "seq_len": s, "vocab_size": v}
    found = step(
        shape,
        global_batch_size=batch,
        data_parallel=2,
        pipeline_parallel=2,
        microbatch_size=3,
        activation_recompute=recompute,
        attention=attention,
        matrix_flops_per_second=3e12,
    )
    spent = found["step_seconds"] * 4 * 3e12
    # arXiv 2205.05198 equation 7.
    model = 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))
    # arXiv 2104.04473 equation 3, which is with full recomputation; arXiv 2205.05198 equation 8.
    full = 96 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    core = 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers) + s / (18 * h))
    hardware = {"none": model, "full": full, "selective": core}
    assert found["mfu"] == pytest.approx(model / spent, rel=1e-12)
    assert found["hfu"] == pytest.approx(hardware[recompute] / spent, rel=1e-12)
    tokens = batch * s / found["step_seconds"] / 4
    assert found["tokens_per_second_per_gpu"] == pytest.approx(tokens, rel=1e-12)


# ---- FP8 ----


def test_fp8_speeds_up_the_products_of_layers_alone() -> None:
    wide, low = step_with(
        SMALL, {}, {"precision": "fp8", "fp8_gemm_efficiency": 0.5, "fp8_flops_per_second": 4e12}
    )
    # Half of 4e12 is twice the rate of 1e12.
    assert low["gemm_seconds"] == close(wide["gemm_seconds"] / 2)
    assert low["attention_seconds"] == wide["attention_seconds"]
    assert low["vocabulary_seconds"] == wide["vocabulary_seconds"]
    # Utilisation is of the peak of FP8.
    assert low["mfu"] * low["step_seconds"] == close(wide["mfu"] * wide["step_seconds"] / 4)


def test_fp8_reads_and_writes_its_casts() -> None:
    slow = {"hbm_bytes_per_second": 1e9}
    wide, low = step_with({**SMALL, **slow}, {}, {"precision": "fp8"})
    # With scales of the present a cast reads 2 bytes twice and writes a value and its transpose.
    # Forward: two norms, which look for the largest value themselves, 4 T h each; attention's
    # result in one copy, 5 T h; inputs of the last product, 6 x 4 T h. Backward: gradients of two
    # outputs, 6 T h each, the result once more, 5 T h, and those of 3 T h and 4 T h, 6 each.
    casts = (2 * 4 + 5 + 6 * 4 + 2 * 6 + 5 + 6 * (3 + 4)) * 1024 * 512
    assert low["elementwise_seconds"] - wide["elementwise_seconds"] == close(4 * casts / 1e9)
    # Gated, with half as many keys as queries; the gradients of both halves of the gate are cast.
    shape = {**LLAMA, "vocab_size": 512, **slow}
    wide, low = step_with(shape, {}, {"precision": "fp8"})
    casts = (2 * 4 + 5 + 6 * 2 + 2 * 6 + 5 + 6 * (2 + 4)) * 1024 * 512
    assert low["elementwise_seconds"] - wide["elementwise_seconds"] == close(4 * casts / 1e9)
    # With scales of the past a norm writes a value in place of two, and its transpose is made of
    # it, 1 T h each; other casts read once.
    delayed = step({**shape, "precision": "fp8", "number_recipe": "delayed"})
    casts = (2 * 1 + 4 * (1 + 2) + 4 * (2 + 2 + 4)) * 1024 * 512
    assert delayed["elementwise_seconds"] - wide["elementwise_seconds"] == close(4 * casts / 1e9)


def test_a_program_of_an_older_library_computes_its_products() -> None:
    shape = {**SMALL, "accelerator": "A100 SXM 80GB", "num_gpus": 1}
    rows = [
        {**shape, "framework": "megatron_core"},
        {**shape, "framework": "megatron_lm_2021"},
        {**shape, "framework": "megatron_lm_2021", "kernels": "A100 SXM 80GB"},
    ]
    resolved, refusals = resolve(rows, packaged_catalog())
    assert not refusals
    assert resolved["kernels"].tolist() == ["A100 SXM 80GB", "formula", "A100 SXM 80GB"]


def test_fp16_is_as_fast_as_bf16() -> None:
    one, two = step_with(SMALL, {}, {"precision": "fp16"})
    assert one == two


def test_parts_add_up_in_every_case() -> None:
    rows = [SMALL, REPLICAS, MIXTURE, {**SMALL, "num_layers": 10, "pipeline_parallel": 4}]
    found = evaluate([{**IDEAL, **row} for row in rows])
    np.testing.assert_allclose(total(found), found["step_seconds"], rtol=1e-12)
