"""Parts of a layer that are recomputed one by one: what is not kept, and the time it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.estimators.test_training_step_activations import DEEPSEEK_V3, LLAMA_70B, bytes_a_token
from tests.estimators.training_step_cases import FREE, IDEAL, resolve, steps

FEW, MANY = {"num_layers": 4}, {"num_layers": 5}
NORM = 2 * 7168
ROUTED = 8 * (2 * 7168 + 6 * 2048 + 4)
SHARED, ROUTER = 6 * 2048, 9 * 256


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("modules", "dropped"),
    [
        ("none", 0),
        # a fused core keeps no scores
        ("core_attn", 0),
        ("layernorm", 2 * NORM),
        ("moe_act", 8 * 2 * 2048),
        ("shared_experts", SHARED),
        # queries and keys of 192, values of 128, of 128 heads
        ("mla_up_proj", 2 * 128 * (192 + 192 + 128)),
        ("moe", ROUTED + SHARED + ROUTER),
        ("moe+moe_act+shared_experts", ROUTED + SHARED + ROUTER),
        ("layernorm+moe_act", 2 * NORM + 8 * 2 * 2048),
        # no dense layer is more
        ("mlp", 0),
    ],
)
def test_a_mixture_keeps_less_by_what_its_parts_make_again(modules: str, dropped: int) -> None:
    shape = {**DEEPSEEK_V3, "recompute_modules": modules}
    assert bytes_a_token(shape, FEW, MANY) == close(457_600 + 8 * 4 - dropped)


def test_a_dense_layer_makes_its_feed_forward_part_again() -> None:
    shape = {**LLAMA_70B, "recompute_modules": "mlp"}
    assert bytes_a_token(shape, FEW, MANY) == close(274_688 - 6 * 28_672)
    # Full recomputation keeps only the input; the parts named then change nothing.
    full = {**shape, "activation_recompute": "full"}
    assert bytes_a_token(full, FEW, MANY) == close(2 * 8192)


def test_scores_are_made_again_where_they_are_kept() -> None:
    unfused = {**LLAMA_70B, "attention": "unfused"}
    scores = 2 * 64 * 4096
    whole = bytes_a_token(unfused, FEW, MANY)
    again = bytes_a_token({**unfused, "recompute_modules": "core_attn"}, FEW, MANY)
    assert whole - again == close(scores)
    selective = {**unfused, "activation_recompute": "selective"}
    assert again == close(bytes_a_token(selective, FEW, MANY))


def test_recomputed_tensors_are_in_memory_with_the_gradients_of_their_layer() -> None:
    rows = [{**LLAMA_70B, **FEW, "recompute_modules": modules} for modules in ("none", "mlp")]
    plain, again = steps(*rows)
    saved = plain["activations_bytes"] - again["activations_bytes"]
    assert saved == close((4 - 1) * 6 * 28_672 * 4096)


def recomputed(shape: dict[str, Any], **changes: Any) -> float:
    """Return the seconds that one layer more makes again of a microbatch."""
    few, many = steps({**shape, **FEW, **changes}, {**shape, **MANY, **changes})
    return float(many["recompute_seconds"] - few["recompute_seconds"])


@pytest.mark.parametrize(
    ("modules", "products"),
    [
        # three matrices of 8 experts a token and of the shared one, and the router
        ("moe", 9 * 3 * 7168 * 2048 + 7168 * 256),
        ("shared_experts", 3 * 7168 * 2048),
        # from latents of 1536 and 512 to 128 heads
        ("mla_up_proj", 1536 * 128 * 192 + 512 * 128 * 256),
        ("moe_act", 0),
        ("layernorm", 0),
    ],
)
def test_products_of_a_part_are_done_once_more(modules: str, products: int) -> None:
    # 2 FLOPs for each of 4,096 tokens, at a peak of 1e12; memory is free.
    found = recomputed(DEEPSEEK_V3, recompute_modules=modules)
    assert found == pytest.approx(2 * 4096 * products / 1e12, rel=1e-6, abs=1e-9)


def test_a_dense_part_repeats_two_products_and_half_of_the_exchanges() -> None:
    found = recomputed(LLAMA_70B, recompute_modules="mlp")
    assert found == close(2 * 4096 * 3 * 8192 * 28_672 / 1e12)
    alone = recomputed(LLAMA_70B, recompute_modules="mlp", tensor_parallel=2)
    assert alone == pytest.approx(found / 2, rel=1e-6)
    # Over two ranks forward and backward have two all-reduces of a layer each; one is repeated.
    pair = {**LLAMA_70B, "tensor_parallel": 2, "nvlink_bytes_per_second": 1e10}
    rows = [
        {**pair, **size, "recompute_modules": m} for m in ("none", "mlp") for size in (FEW, MANY)
    ]
    few, many, with_few, with_many = (each["tensor_comm_seconds"] for each in steps(*rows))
    assert with_many - with_few == pytest.approx(5 / 4 * (many - few), rel=1e-6)


def test_norms_and_activations_are_streamed_once_more() -> None:
    # Two norms read and write 2 bytes of 8192; the gate moves 6 of each of 28,672.
    slow = {"hbm_bytes_per_second": 1e9, "matrix_flops_per_second": FREE}
    found = recomputed(LLAMA_70B, recompute_modules="layernorm", **slow)
    assert found == pytest.approx(4096 * 2 * 4 * 8192 / 1e9, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"recompute_modules": "mlp+ffn"}, "has no part ffn"),
        ({"recompute_modules": "mla_up_proj"}, "recomputes latents, but the model has none"),
        ({"recompute_modules": "moe"}, "recomputes experts, but the model has none"),
        ({"recompute_modules": "shared_experts"}, "recomputes shared experts"),
        (
            {"recompute_modules": "layernorm", "precision": "fp8", "number_recipe": "delayed"},
            "makes operands of `number_recipe` delayed twice, with different scales",
        ),
    ],
)
def test_parts_that_are_not_there_are_refused(changes: dict[str, Any], reason: str) -> None:
    _, refusals = resolve([{**IDEAL, **LLAMA_70B, **FEW, **changes}])
    assert [one.column for one in refusals] == ["recompute_modules"]
    assert reason in refusals[0].reason


def test_rows_of_a_batch_have_parts_of_their_own() -> None:
    texts = ("none", "mlp", "layernorm+mlp")
    found = steps(*({**LLAMA_70B, **FEW, "recompute_modules": text} for text in texts))
    kept = np.array([each["activations_bytes"] for each in found])
    assert np.all(np.diff(kept) < 0)
