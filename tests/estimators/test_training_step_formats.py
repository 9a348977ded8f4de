"""Number formats: recipes by precision and accelerator."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from estimators.kernels.gemms import FORMATS
from estimators.own_tables import rows_of
from estimators.training_step import formats, recipes, streams
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.recipes import RECIPES, Recipe
from estimators.training_step.sizes import Size
from estimators.values import Real
from tests.estimators.training_step_cases import (
    FREE,
    LLAMA,
    MOE,
    problem_with,
    resolve,
    step,
    step_with,
)
from warehouse.database.catalog import packaged_catalog

SHAPE = {"num_layers": 8, "hidden_size": 1024, "num_heads": 8, "seq_len": 1024, "num_gpus": 1}


def resolved(**given: Any) -> Any:
    """Return the resolved row of a small model on an accelerator as sold."""
    return resolve([{**SHAPE, **given}], packaged_catalog())


@pytest.mark.parametrize(
    ("accelerator", "precision", "recipe"),
    [
        ("H100", "bf16", "none"),
        ("H100", "fp16", "none"),
        ("H100", "fp8", "tensorwise"),
        ("H800", "fp8", "tensorwise"),
        ("H200", "fp8", "tensorwise"),
        ("B200", "fp8", "mxfp8"),
        ("GB200", "fp8", "mxfp8"),
        ("GB300", "fp8", "mxfp8"),
        ("B300", "fp4", "nvfp4"),
    ],
)
def test_a_precision_has_the_recipe_of_its_accelerator(
    accelerator: str, precision: str, recipe: str
) -> None:
    found, refusals = resolved(accelerator=accelerator, precision=precision)
    assert not refusals
    assert found["number_recipe"][0] == recipe


def test_a_recipe_makes_its_precision() -> None:
    found, refusals = resolved(accelerator="GB200", number_recipe="tensorwise")
    assert not refusals
    assert found["precision"][0] == "fp8"
    assert resolved(accelerator="GB200", number_recipe="nvfp4")[0]["precision"][0] == "fp4"


@pytest.mark.parametrize(
    ("given", "column", "hint"),
    [
        (
            {"accelerator": "H100", "precision": "fp4"},
            "precision",
            "use fp8 or bf16, and leave `number_recipe` out",
        ),
        (
            {"accelerator": "A100", "precision": "fp8"},
            "precision",
            "use bf16, and leave `number_recipe` out; or give `fp8_flops_per_second`",
        ),
        (
            {"accelerator": "H100", "precision": "fp8", "number_recipe": "nvfp4"},
            "number_recipe",
            "use delayed, tensorwise or blockwise",
        ),
        (
            {"accelerator": "GB200", "precision": "fp4", "number_recipe": "mxfp8"},
            "number_recipe",
            "use nvfp4",
        ),
        (
            {"accelerator": "GB200", "precision": "fp8", "number_recipe": "none"},
            "number_recipe",
            "use delayed, tensorwise, blockwise or mxfp8",
        ),
        (
            {"accelerator": "H800", "number_recipe": "mxfp8"},
            "number_recipe",
            "use tensorwise, delayed or blockwise",
        ),
    ],
)
def test_a_format_that_an_accelerator_lacks_is_refused(
    given: dict[str, Any], column: str, hint: str
) -> None:
    _, refusals = resolved(**given)
    [refusal] = refusals
    assert refusal.column == column
    assert hint in refusal.hint


def test_the_hint_of_a_recipe_of_newer_tensor_cores_leads_to_one_that_runs() -> None:
    [refusal] = resolved(accelerator="H100", number_recipe="nvfp4")[1]
    assert refusal.hint == "use fp8 or bf16, and leave `number_recipe` out"
    for precision in ("fp8", "bf16"):
        assert not resolved(accelerator="H100", precision=precision)[1]


def test_blocks_of_128_values_have_kernels_of_their_own_on_hopper_alone() -> None:
    values = {
        "number_recipe": np.array(
            ["none", "delayed", "tensorwise", "blockwise", "blockwise", "mxfp8", "nvfp4"],
            dtype=object,
        ),
        "transposes_operands": np.array([True, True, False, True, False, False, False]),
    }
    found = [FORMATS[place] for place in np.asarray(recipes.format_places(values))]
    assert found == ["bf16", "fp8", "fp8", "fp8_block", "fp8", "fp8", "nvfp4"]


def test_memory_is_what_the_driver_shows() -> None:
    assert resolved(accelerator="H100")[0]["hbm_bytes"][0] == 81_559 * 2**20
    assert resolved(accelerator="GB300")[0]["hbm_bytes"][0] == 284_208 * 2**20
    assert resolved(accelerator="V100")[0]["hbm_bytes"][0] == 32_510 * 2**20
    assert resolved(accelerator="H100 PCIe 80GB")[0]["hbm_bytes"][0] == 81_559 * 2**20
    assert resolved(accelerator="MI300X")[0]["hbm_bytes"][0] == 206_141_652_992
    assert resolved(accelerator="H100", hbm_bytes=80e9)[0]["hbm_bytes"][0] == 80e9


def test_an_h800_is_an_h100_with_less_nvlink() -> None:
    (one, _), (other, _) = resolved(accelerator="H800"), resolved(accelerator="H100")
    differ = {name for name in one if name in other and str(one[name][0]) != str(other[name][0])}
    assert differ == {"accelerator", "nvlink_bytes_per_second", "nvlink_efficiency"}
    rate = one["nvlink_bytes_per_second"][0] * one["nvlink_efficiency"][0]
    assert rate == pytest.approx(160e9)


# ---- casts ----


def problem_of(recipe: str, transposes: bool, sparse_share: float = 0.0, **given: Any) -> Problem:
    """Return what bytes of a recipe depend on, of a model of eight layers."""
    columns = {
        "number_recipe": recipe,
        "transposes_operands": transposes,
        "num_layers": 8,
        "num_bf16_layers_start": 0,
        "num_bf16_layers_end": 0,
        "captures_whole_steps": False,
        "attention_program": "cudnn",
        "keeps_quantized_weights": True,
        "gathered_weight_bytes": 2.0,
        **dict.fromkeys(("num_experts", "experts_per_token"), 1),
        **dict.fromkeys(("route_groups", "route_groups_kept"), 1),
        **given,
    }
    return problem_with(**columns).with_sparse_share(sparse_share)


def size_of(tensor: int = 1, **given: float) -> Size:
    """Return 1,024 tokens of a layer 512 wide, with half as wide keys and twice as wide a gate."""
    sizes: dict[str, Any] = {
        "tokens": 1024.0,
        "rows": 1024.0 / tensor,
        "hidden": 512.0,
        "heads": 4.0 / tensor,
        "query": 512.0 / tensor,
        "key": 256.0 / tensor,
        "value": 256.0 / tensor,
        "result": 512.0 / tensor,
        "query_latent": 0.0,
        "key_latent": 0.0,
        "rotary": 0.0,
        "ffn": 1024.0 / tensor,
        "experts": 0.0,
        "expert_tokens": 0.0,
        "expert_ffn": 0.0,
        "shared_ffn": 0.0,
        "gates": 2.0,
        **given,
    }
    return Size(**sizes)


CASTS = tuple(kernel for kernel in streams.KERNELS if "low" in kernel.conditions)


def casts(size: Size, problem: Problem) -> tuple[Real, Real]:
    """Return the bytes of a layer's casts, forward and backward."""
    traffic = streams.Traffic(size, problem, Layout.of({"expert_parallel": 1.0}))
    forward, backward = traffic.work(CASTS)
    return forward.moved, backward.moved


B = 1024 * 512
"""Elements of the stream of the layer: as many as attention returns; queries, keys and values
are 2 B, and so is the input of the last product. The gate's gradient is 4 B."""


@pytest.mark.parametrize(
    ("recipe", "transposes", "forward", "backward"),
    [
        # 2 norms: 1 written for 2, read and written to transpose; others: 2 read, 2 written
        ("delayed", True, 2 * (-1 + 2) + 4 * (1 + 2), 4 * (2 + 2 + 4)),
        # norms: 2 read, 2 written; others: 2 read twice; of attention's result one copy each way
        ("tensorwise", True, 2 * 4 + 5 + 6 * 2, 6 * 2 + 5 + 6 * (2 + 4)),
        ("tensorwise", False, 2 * 3 + 5 + 5 * 2, 5 * 2 + 5 + 5 * (2 + 4)),
        # 33/32 a copy, and two of them
        ("blockwise", True, 2 * 4.0625 + 3.03125 + 4.0625 * 2, 4.0625 * 8 + 3.03125),
        ("mxfp8", False, 2 * 4.0625 + 3.03125 + 4.0625 * 2, 4.0625 * 8 + 3.03125),
        # 9/16 a copy, 2 read twice
        ("nvfp4", False, 2 * 5.125 + 4.5625 + 5.125 * 2, 5.125 * 8 + 4.5625),
    ],
)
def test_casts_read_16_bits_and_write_a_copy_or_two(
    recipe: str, transposes: bool, forward: float, backward: float
) -> None:
    there, back = casts(size_of(), problem_of(recipe, transposes))
    assert there == pytest.approx(forward * B)
    assert back == pytest.approx(backward * B)


def test_what_is_gathered_is_transposed_behind_the_gathering() -> None:
    # half of the rows, of queries and of the gate on each of two GPUs; 1 read and 1 written of
    # two gathered inputs and two gathered gradients
    there, back = casts(size_of(2), problem_of("tensorwise", True))
    assert there == pytest.approx((2 * 3 / 2 + 5 / 2 + 6) * B)
    assert back == pytest.approx((2 * 5 / 2 + 4 * 2 + 5 / 2 + 6 * (1 + 2)) * B)
    # copies by columns of blocks travel as they are
    there, back = casts(size_of(2), problem_of("mxfp8", False))
    assert back == pytest.approx((4.0625 * (1 + 1 + 2) + 3.03125 / 2) * B)


def test_tokens_are_cast_for_each_of_their_experts() -> None:
    # 8 x 256 tokens are 2 B wide before an expert and B inside; one norm is next to attention
    size = size_of(experts=8.0, expert_tokens=256.0, expert_ffn=256.0)
    there, back = casts(size, problem_of("mxfp8", False, sparse_share=1.0))
    assert there == pytest.approx((4.0625 * (1 + 2 + 1) + 3.03125) * B)
    assert back == pytest.approx((4.0625 * (1 + 2 + 2 + 2) + 3.03125) * B)


def test_fused_products_of_experts_write_their_operands_in_8_bits() -> None:
    # B elements inside experts forward and 2 B of their gradients backward need no kernel
    size = size_of(experts=8.0, expert_tokens=256.0, expert_ffn=256.0)
    there, back = casts(
        size, problem_of("mxfp8", False, sparse_share=1.0, captures_whole_steps=True)
    )
    assert there == pytest.approx((4.0625 * (1 + 2) + 3.03125) * B)
    assert back == pytest.approx((4.0625 * (1 + 2 + 2) + 3.03125) * B)


def test_attention_in_8_bits_casts_its_inputs_and_the_gradient_of_its_result() -> None:
    usual, usual_back = casts(size_of(), problem_of("mxfp8", False))
    there, back = casts(size_of(), problem_of("mxfp8", False, attention_program="cudnn_mxfp8"))
    assert there - usual == pytest.approx(4.0625 * 2 * B)
    assert back - usual_back == pytest.approx(4.0625 * B)


@pytest.mark.parametrize(
    ("recipe", "transposes", "element"),
    [("none", True, 0.0), ("mxfp8", False, 4.0625), ("delayed", True, 4.0), ("delayed", False, 3)],
)
def test_an_output_layer_casts_its_input_and_the_gradients_of_its_logits(
    recipe: str, transposes: bool, element: float
) -> None:
    problem = problem_of(recipe, transposes, quantizes_output_layer=True)
    assert formats.output_cast_bytes(1024.0, 512.0, 3e6, problem) == pytest.approx(
        element * (1024 * 512 + 3e6)
    )
    problem = problem_of(recipe, transposes, quantizes_output_layer=False)
    assert formats.output_cast_bytes(1024.0, 512.0, 3e6, problem) == 0


def test_layers_in_16_bits_have_no_casts() -> None:
    there, back = casts(size_of(), problem_of("none", True))
    assert (there, back) == (0.0, 0.0)
    assert formats.cast_kernels(size_of(), problem_of("none", True)) == (0.0, 0.0)
    whole, _ = casts(size_of(), problem_of("mxfp8", False))
    ends = problem_of("mxfp8", False, num_bf16_layers_start=1, num_bf16_layers_end=1)
    assert casts(size_of(), ends)[0] == pytest.approx(0.75 * whole)


# ---- bytes ----


@pytest.mark.parametrize(
    ("recipe", "transposes", "keeps", "stored", "gathered", "cast"),
    [
        ("none", True, False, 2.0, 2.0, 0.0),
        # a copy and its transpose; the transpose is made: 1 read, 1 written
        ("tensorwise", True, True, 2.0, 1.0, 2.0),
        ("tensorwise", False, True, 1.0, 1.0, 0.0),
        ("delayed", True, True, 2.0, 1.0, 2.0),
        # 2 read twice, 2 written
        ("tensorwise", True, False, 4.0, 2.0, 6.0),
        ("delayed", True, False, 4.0, 2.0, 4.0),
        # scales of 4 bytes for 128 x 128
        ("blockwise", True, False, 2 + 2 * (1 + 4 / 16384), 2.0, 2 + 2 * (1 + 4 / 16384)),
        ("mxfp8", False, True, 2.0625, 2.0, 4.0625),
        ("mxfp8", False, False, 4.0625, 2.0, 4.0625),
        ("nvfp4", False, True, 1.125, 0.5, 1.125),
        ("nvfp4", False, False, 3.125, 2.0, 5.125),
    ],
)
def test_a_weight_has_one_or_two_copies_with_or_without_16_bits(
    recipe: str, transposes: bool, keeps: bool, stored: float, gathered: float, cast: float
) -> None:
    problem = problem_of(recipe, transposes, keeps_quantized_weights=keeps)
    assert formats.stored_weight_bytes(problem, 2.0, is_sharded=False) == pytest.approx(stored)
    assert formats.gathered_weight_bytes(problem) == gathered
    assert formats.weight_cast_bytes(problem) == pytest.approx(cast)


def test_sharded_weights_have_no_transposed_copy() -> None:
    hopper, blackwell = problem_of("tensorwise", True), problem_of("mxfp8", False)
    assert formats.stored_weight_bytes(hopper, 2.0, is_sharded=True) == 1.0
    assert formats.stored_weight_bytes(blackwell, 2.0, is_sharded=True) == 2.0625
    # a program that keeps no weights in 16 bits has no copies either
    other = problem_of("tensorwise", True, keeps_quantized_weights=False)
    assert formats.stored_weight_bytes(other, 0.0, is_sharded=True) == 0.0


@pytest.mark.parametrize(
    ("recipe", "kept", "core"),
    [
        ("none", 2.0, 2.0),
        ("delayed", 1.0, 3.0),
        ("tensorwise", 1.0, 2.0),
        ("blockwise", 1.03125, 2.0),
        ("mxfp8", 1.03125, 2.0),
        ("nvfp4", 0.5625, 2.0),
    ],
)
def test_a_product_keeps_one_copy_of_its_input(recipe: str, kept: float, core: float) -> None:
    problem = problem_of(recipe, recipe in ("delayed", "blockwise"))
    assert formats.input_bytes(problem) == kept
    assert formats.core_bytes(problem) == core
    half = problem_of(recipe, recipe in ("delayed", "blockwise"), num_bf16_layers_end=4)
    assert formats.input_bytes(half) == (kept + 2.0) / 2


# ---- a step ----


def test_a_router_keeps_its_product_in_16_bits() -> None:
    # products in FP8 take no time
    free = {"precision": "fp8", "fp8_flops_per_second": FREE}
    found = step({**MOE, **free, "vocab_size": 512})
    # 4 layers, 1,024 tokens by 512 by 8 experts at 1e12 FLOP/s; a tile of 128 columns has 8 of the
    # result and of the gradient of the weights
    router = 4 * 2 * 1024 * 512 * 8 * (16 + 1 + 16) / 1e12
    assert found["gemm_seconds"] == pytest.approx(router)


def test_layers_at_the_ends_may_stay_in_16_bits() -> None:
    shape = {**LLAMA, "vocab_size": 512, "precision": "fp8", "hbm_bytes_per_second": 1e9}
    some = {"num_bf16_layers_start": 1, "num_bf16_layers_end": 2}
    wide, low, ends = step_with(shape, {"precision": "bf16"}, {}, some)
    for name in ("gemm_seconds", "elementwise_seconds"):
        # one of four layers is in FP8
        assert ends[name] == pytest.approx(wide[name] + (low[name] - wide[name]) / 4)


def test_an_output_layer_may_be_quantized() -> None:
    shape = {**LLAMA, "vocab_size": 512, "precision": "fp8"}
    wide, low = step_with(shape, {}, {"quantizes_output_layer": True})
    assert low["vocabulary_seconds"] == pytest.approx(wide["vocabulary_seconds"] / 2)


def test_tensors_are_gathered_in_8_bits_and_scattered_in_16() -> None:
    slow = {
        "nvlink_bytes_per_second": 1e9,
        "tensor_parallel": 2,
        "num_gpus": 2,
        "uses_sequence_parallel": True,
    }
    wide, low = step_with({**LLAMA, **slow, "vocab_size": None}, {}, {"precision": "fp8"})
    # one way of a layer moves half of 2 x 1,024 x 512 bytes to the other GPU; attention and
    # feed-forward layer gather once forward and once backward: once more is during a product
    once = 1024 * 512 / 1e9
    saved = wide["tensor_comm_seconds"] - low["tensor_comm_seconds"]
    assert saved == pytest.approx(4 * 2 * 2 * once / 2)


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        # a layer has 2,360,320 weights, kept with a transposed copy; embedding and output 2 bytes
        ({}, 4 * 2_360_320 * 2 + 2 * 512 * 512 * 2),
        ({"transposes_operands": False}, 4 * 2_360_320 * 2.0625 + 2 * 512 * 512 * 2),
        ({"keeps_quantized_weights": False}, 4 * 2_360_320 * 4 + 2 * 512 * 512 * 2),
    ],
)
def test_weights_in_few_bits_are_kept(given: dict[str, Any], weights: float) -> None:
    shape = {**LLAMA, "vocab_size": 512, "precision": "fp8", "keeps_quantized_weights": True}
    assert step({**shape, **given})["weights_bytes"] == weights


# ---- gradients and the optimizer ----


def test_a_recipe_sets_the_bytes_of_gradients_and_optimizer() -> None:
    given = {"accelerator": "GB200", "zero_stage": 1}
    names = ("reduced_gradient_bytes", "stored_gradient_bytes", "stored_optimizer_bytes")
    wide, _ = resolved(**given)
    assert [wide[name][0] for name in names] == [4, 4, 12]
    for recipe in ("delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"):
        low, _ = resolved(**given, number_recipe=recipe)
        # NVIDIA/Megatron-LM docs: 4 + 16/d with parameters and gradients in 16 bits
        assert [low[name][0] for name in names] == [2, 2, 16]
    asked, _ = resolved(**given, precision="fp8", reduced_gradient_bytes=4.0)
    assert [asked[name][0] for name in names] == [4, 2, 16]
    other, _ = resolved(**given, precision="fp8", framework="fsdp")
    assert other["reduced_gradient_bytes"][0] == 4


@pytest.mark.parametrize(
    ("given", "stored", "traffic"),
    [
        # FP32 weights and moments in 16 bits: moments are read and written, 2 bytes less each way
        ({"moment_bytes": 2.0}, 8.0, 38.0 - 8.0),
        # remainders of 16 bits with them
        ({"moment_bytes": 2.0, "main_weight_bytes": 2.0}, 6.0, 38.0 - 8.0 - 6.0),
        ({"moment_bytes": 1.0}, 6.0, 38.0 - 12.0),
        ({"moment_bytes": 2.0, "stored_optimizer_bytes": 9.0}, 9.0, 38.0 - 8.0),
    ],
)
def test_an_optimizer_may_keep_less_than_32_bits(
    given: dict[str, Any], stored: float, traffic: float
) -> None:
    found, refusals = resolved(accelerator="H100", **given)
    assert not refusals
    assert found["stored_optimizer_bytes"][0] == stored
    assert found["optimizer_traffic_bytes"][0] == traffic


def test_each_figure_of_a_recipe_has_a_meaning_and_a_source() -> None:
    rows = {row["figure"]: row for row in rows_of("training_step/recipe")}
    figures = {field.name: field.type for field in fields(Recipe)}
    assert {*figures} == {*rows}
    for name, row in rows.items():
        assert row["meaning"], name
        assert re.search(r"@[0-9a-f]{7}| v\d", row["source"]), name
        if figures[name] == "Flag":
            assert {row[recipe] for recipe in RECIPES} == {"true", "false"}, name


def test_the_figures_of_rows_are_those_of_their_recipes() -> None:
    rows = Recipe.named(np.array(["nvfp4", "none", "nvfp4"], dtype=object))
    assert np.asarray(rows.copy_bytes).tolist() == [0.5625, 2.0, 0.5625]
    assert np.asarray(rows.makes_both_copies).tolist() == [True, False, True]
    assert Recipe.named("nvfp4").copy_bytes == 0.5625
    assert np.shape(Recipe.named(np.array([], dtype=object)).copy_bytes) == (0,)  # all are refused
