"""Hints of the rules of layouts: the nearest values that would be allowed, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from estimators.roofline import rules as roofline
from estimators.rules import Rule, nearest
from estimators.training_step import rules as step
from tests.estimators.training_step_cases import GPT, IDEAL, resolve

STEP = {r.name: r for r in (*step.PROBLEM_RULES, *step.LAYER_RULES, *step.SPLIT_RULES)}
STEP[step.SHARDING_NEEDS_REPLICAS.name] = step.SHARDING_NEEDS_REPLICAS
ROOFLINE = {
    rule.name: rule
    for rule in (
        *roofline.PROBLEM_RULES,
        *roofline.split_rules(frozenset({"R4"})),
        *roofline.row_rules(frozenset({"R11"})),
        *roofline.BATCH_RULES,
    )
}

PLAIN = {
    **dict.fromkeys(("pipeline_layout", "layers_in_first_stage", "layers_in_last_stage")),
    "schedule": "1f1b",
    "counts_embedding": False,
    "counts_loss": False,
    "uses_sequence_parallel": True,
    "balances_stages": False,
    "microbatch_group": None,
}
"""Values that place no layers."""


def test_the_nearest_are_one_to_either_side() -> None:
    assert nearest([1, 2, 4, 8], 3) == "2 or 4"
    assert nearest([1, 2, 4, 8], 9) == "8"
    assert nearest([4, 8], 1) == "4"
    # the value itself did not do
    assert nearest([1, 2, 4], 2) == "1 or 4"
    assert nearest([2], 2) == "another"


@pytest.mark.parametrize(
    ("name", "row", "hint"),
    [
        (
            "key heads divide heads",
            {"num_kv_heads": 5, "num_heads": 64},
            "use 1, 2, 4, 8, 16, 32 or 64",
        ),
        (
            "no more experts a token than experts",
            {"experts_per_token": 9, "num_experts": 8},
            "use at most 8",
        ),
        (
            "no more dense layers than layers",
            {"num_dense_layers": 9, "num_layers": 8},
            "use at most 8",
        ),
        (
            "shared experts are split over tensors",
            {"tensor_parallel": 16, "shared_ffn_hidden_size": 1400, "num_experts": 8},
            # 1,400 = 2^3 x 5^2 x 7
            "use 14 or 20",
        ),
        # a group of eight: shares of 1, 2, 4, 8, or copies on 16, 24 ...
        (
            "key heads are split or copied evenly",
            {"tensor_parallel": 6, "num_kv_heads": 8},
            "use 4 or 8",
        ),
        (
            "key heads are split or copied evenly",
            {"tensor_parallel": 20, "num_kv_heads": 8},
            "use 16 or 24",
        ),
        # 8,192 tokens are 32 ranks with two blocks of 128 each
        (
            "shares of a sequence fill blocks of attention",
            {"context_parallel": 128, "seq_len": 8192},
            "use 32",
        ),
        (
            "shares of a sequence fill blocks of attention",
            {"context_parallel": 3, "seq_len": 8192},
            "use 2 or 4",
        ),
        ("experts are split evenly", {"expert_parallel": 3, "num_experts": 8}, "use 1, 2, 4 or 8"),
        (
            "sequence parallelism splits over tensors",
            {"tensor_parallel": 1, "context_parallel": 1, "seq_len": 2048},
            "use false, or `tensor_parallel` 2",
        ),
        (
            "degrees multiply to the GPUs",
            {
                "num_gpus": 64,
                "tensor_parallel": 4,
                "context_parallel": 1,
                "pipeline_parallel": 2,
                "data_parallel": 4,
            },
            "use 32, or `data_parallel` 8",
        ),
        (
            "degrees multiply to the GPUs",
            {
                "num_gpus": 64,
                "tensor_parallel": 3,
                "context_parallel": 1,
                "pipeline_parallel": 1,
                "data_parallel": 21,
            },
            "use 63",
        ),
        ("stages have a layer each", {"pipeline_parallel": 90, "num_layers": 80}, "use at most 80"),
        # ten layers a stage
        (
            "chunks are even and interleaved over stages",
            {"virtual_pipeline": 4, "pipeline_parallel": 8, "num_layers": 80},
            "use 2 or 5, or `pipeline_parallel` 7 or 10",
        ),
        (
            "chunks are even and interleaved over stages",
            {"virtual_pipeline": 2, "pipeline_parallel": 1, "num_layers": 80},
            "use 1, or `pipeline_parallel` 2",
        ),
        (
            "chunks are even and interleaved over stages",
            {"virtual_pipeline": 2, "pipeline_parallel": 3, "num_layers": 80},
            "use 1 or 3, or `pipeline_parallel` 2 or 4",
        ),
        (
            "chunks are even and interleaved over stages",
            {"virtual_pipeline": 2, "pipeline_parallel": 48, "num_layers": 80},
            # on 41 stages the fullest have two layers; on 80, one that no chunks divide
            "use 1, or `pipeline_parallel` 41",
        ),
        (
            "expert groups fill a stage",
            {"expert_parallel": 8, "data_parallel": 3, "context_parallel": 2}
            | {"tensor_parallel": 2, "expert_tensor_parallel": 1},
            "use 6 or 12",
        ),
        (
            "expert groups fill a stage",
            {"expert_parallel": 1, "data_parallel": 3, "context_parallel": 1}
            | {"tensor_parallel": 4, "expert_tensor_parallel": 8},
            "use `expert_tensor_parallel` 6 or 12",
        ),
        (
            "the tensor degree of experts divides their width",
            {"expert_tensor_parallel": 2, "expert_ffn_hidden_size": 512, "num_experts": 1},
            "use 1",
        ),
        # two sequences a replica
        (
            "replicas divide the batch",
            {"global_batch_size": 512, "data_parallel": 256, "microbatch_size": 4},
            "use at most 2, or `global_batch_size` 1024, or `data_parallel` 128",
        ),
        (
            "replicas divide the batch",
            {"global_batch_size": 512, "data_parallel": 48, "microbatch_size": 1},
            "use `global_batch_size` 480 or 528, or `data_parallel` 32 or 64",
        ),
    ],
)
def test_a_hint_has_the_nearest_values_that_keep_the_rule(
    name: str, row: dict[str, int], hint: str
) -> None:
    assert STEP[name].hint({**PLAIN, **row}) == hint


@pytest.mark.parametrize(
    ("name", "row", "hint"),
    [
        (
            "tensor_parallel divides the tokens of a microbatch (tensor_1d)",
            {"tensor_parallel": 3, "microbatch_size": 1, "seq_len": 32},
            "use 1, 2, 4, 8, 16 or 32",
        ),
        # 2,048 tokens over a tensor axis of 2 leave 1,024
        (
            "both axes divide the tokens of a microbatch (context_2d)",
            {"context_parallel": 3, "tensor_parallel": 2, "microbatch_size": 1, "seq_len": 2048}
            | {"strategy": "context_2d"},
            "use 2 or 4",
        ),
        (
            "both axes divide `seq_len` (context_2d)",
            {"context_parallel": 2, "tensor_parallel": 3, "microbatch_size": 1, "seq_len": 2048}
            | {"strategy": "context_2d"},
            "use `tensor_parallel` 2 or 4",
        ),
    ],
)
def test_the_roofline_says_what_divides_the_tokens(
    name: str, row: dict[str, int], hint: str
) -> None:
    assert ROOFLINE[name].hint(row) == hint


ROW = {
    "precision": "fp8",
    "fp8_flops_per_second": None,
    "fp4_flops_per_second": None,
    "number_recipe": "nvfp4",
    "transposes_operands": True,
    "num_bf16_layers_start": 6,
    "num_bf16_layers_end": 6,
    "power_limit_watts": 100.0,
    "gpu_idle_watts": 126.0,
    "num_kv_heads": 5,
    "num_heads": 64,
    "experts_per_token": 9,
    "num_experts": 8,
    "num_dense_layers": 9,
    "num_layers": 8,
    "moe_period": 2,
    "num_shared_experts": 1,
    "uses_chunked_attention": True,
    "route_groups": 3,
    "route_groups_kept": 4,
    "attention_window": 0,
    "window_period": 2,
    "kv_lora_rank": 0,
    "q_lora_rank": 0,
    "head_size": 64,
    "qk_head_size": 64,
    "qk_rotary_size": 32,
    "v_head_size": 64,
    "tensor_parallel": 3,
    "tensor_parallel_2": 3,
    "context_parallel": 3,
    "attention": "flash",
    "expert_parallel": 3,
    "expert_tensor_parallel": 3,
    "shared_ffn_hidden_size": 512,
    "expert_ffn_hidden_size": 512,
    "ffn_hidden_size": 512,
    "seq_len": 2048,
    "hidden_size": 512,
    "pipeline_parallel": 9,
    "virtual_pipeline": 2,
    "data_parallel": 7,
    "num_gpus": 64,
    "global_batch_size": 32,
    "microbatch_size": 3,
    "zero_stage": 1,
    "uses_sequence_parallel": True,
    "strategy": "tensor_1d",
    "summa_panels": 3,
    "nvlink_size": 8,
    "nvlink_tensor_parallel": 2,
    "nvlink_tensor_parallel_2": 2,
    "nvlink_context_parallel": 2,
    "nvlink_data_parallel": 2,
    "nvlink_pipeline_parallel": 2,
    "schedule": "dualpipe",
    "pipeline_layout": "Et|tL",
    "layers_in_first_stage": 3,
    "layers_in_last_stage": 3,
    "counts_embedding": True,
    "counts_loss": True,
    "microbatch_group": 4,
    "num_mtp_layers": 0,
    "recompute_modules": "mlp",
    "overlaps_expert_comm": True,
    "dispatcher": "flex",
    "overlaps_shared_experts": True,
    "balances_stages": True,
    "vocab_size": 512,
}


@pytest.mark.parametrize("rule", [*STEP.values(), *ROOFLINE.values()], ids=lambda rule: rule.name)
def test_no_rule_is_without_a_hint(rule: Rule) -> None:
    assert rule.hint({name: ROW[name] for name in rule.needs})


def test_a_hint_is_tried_and_says_where_every_value_on_a_side_does() -> None:
    needs = ("tensor_parallel", "num_heads", "schedule")
    tried = Rule("few", needs[0], needs, lambda v: v[needs[0]] * 2 <= v[needs[1]], str)
    assert tried.hint({needs[0]: 9, needs[1]: 8, needs[2]: "1f1b"}) == "use at most 4"
    either = replace(tried, varies=needs[:2])
    assert either.hint({needs[0]: 9, needs[1]: 8, needs[2]: "1f1b"}) == (
        "use at most 4, or `num_heads` 18 or more"
    )
    text = replace(tried, holds=lambda v: np.equal(v["schedule"], "zb_h1"), varies=needs[2:])
    assert text.hint({needs[0]: 9, needs[1]: 8, needs[2]: "1f1b"}) == "use `schedule` zb_h1"
    none = replace(tried, holds=lambda v: np.less(v[needs[0]], 0))
    assert none.hint({needs[0]: 9, needs[1]: 8, needs[2]: "1f1b"}) == (
        "use another `tensor_parallel` or `num_heads` or `schedule`"
    )


@pytest.mark.parametrize(("fp8", "others"), [(None, "bf16"), (2e12, "fp8 or bf16")])
def test_a_format_without_a_rate_has_a_hint_of_those_with_one(fp8: Any, others: str) -> None:
    rates = {"fp8_flops_per_second": fp8, "fp4_flops_per_second": None}
    [refusal] = resolve([{**IDEAL, **GPT, **rates, "precision": "fp4"}])[1]
    # the recipe that FP4 takes by default needs tensor cores that apply scales: a rate is no help
    assert refusal.hint == f"use {others}, and leave `number_recipe` out"


def test_few_rows_of_a_rule_get_a_hint() -> None:
    # trying values for each row of a large file would take ten times as long as its evaluation
    rows = [{**IDEAL, **GPT, "tensor_parallel": 3} for _ in range(150)]
    _, refusals = resolve(rows)
    assert [refusal.row for refusal in refusals] == list(range(150))
    assert all(refusal.hint for refusal in refusals[:100])
    assert not any(refusal.hint for refusal in refusals[100:])
