"""What rows, searches and spaces of training steps are refused for, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.contract import PUBLISHED, Catalog, RefusedError
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.rules import (
    LAYER_RULES,
    PROBLEM_RULES,
    SHARDING_NEEDS_REPLICAS,
    SPLIT_RULES,
)
from tests.estimators.training_step_cases import (
    GPT,
    IDEAL,
    cells_of,
    resolve,
)
from warehouse.calibrate.published import published_steps
from warehouse.evaluate.inputs import resolve_rows

# ---- refusals ----


WIDE = {**GPT, "num_heads": 8, "vocab_size": 512}
MIXED: dict[str, Any] = {
    "num_experts": 4,
    "experts_per_token": 2,
    "expert_ffn_hidden_size": 512,
    "shared_ffn_hidden_size": 512,
    "expert_parallel": 2,
    "data_parallel": 2,
}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "fp8 has a rate",
        {"precision": "fp8", "fp8_flops_per_second": None},
        "precision",
        '"fp8" has no published peak rate on this accelerator',
    ),
    (
        "fp4 has a rate",
        {"precision": "fp4", "fp4_flops_per_second": None},
        "precision",
        '"fp4" has no published peak rate on this accelerator',
    ),
    (
        "a recipe makes its precision",
        {"precision": "fp8", "number_recipe": "none"},
        "number_recipe",
        '"none" does not make `precision` fp8',
    ),
    (
        "no more layers in 16 bits than layers",
        {"num_bf16_layers_start": 3, "num_bf16_layers_end": 2},
        "num_bf16_layers_end",
        "2 and `num_bf16_layers_start` 3 are more than `num_layers` 4",
    ),
    (
        "scales of past steps hold for all layers",
        {"precision": "fp8", "number_recipe": "delayed", "num_bf16_layers_start": 1},
        "num_bf16_layers_start",
        "1 and layers at the end in 16 bits are not possible with delayed scales",
    ),
    (
        "tensor cores apply scales of small blocks",
        {"precision": "fp8", "number_recipe": "mxfp8"},
        "number_recipe",
        '"mxfp8" has scales that the tensor cores of this accelerator do not apply',
    ),
    (
        "recomputed parts are known",
        {"recompute_modules": "mlp+ffn"},
        "recompute_modules",
        '"mlp+ffn" has no part ffn',
    ),
    (
        "only latent attention recomputes latents",
        {"recompute_modules": "mla_up_proj"},
        "recompute_modules",
        '"mla_up_proj" recomputes latents, but the model has none',
    ),
    (
        "only mixtures recompute experts",
        {"recompute_modules": "mlp+moe"},
        "recompute_modules",
        '"mlp+moe" recomputes experts, but the model has none',
    ),
    (
        "only models with shared experts recompute them",
        {"recompute_modules": "shared_experts"},
        "recompute_modules",
        '"shared_experts" recomputes shared experts, but the model has none',
    ),
    (
        "scales of past steps are read once a step",
        {"recompute_modules": "layernorm", "precision": "fp8", "number_recipe": "delayed"},
        "recompute_modules",
        '"layernorm" makes operands of `number_recipe` delayed twice, with different scales',
    ),
    (
        "an all-to-all during another microbatch is not repeated",
        {
            "recompute_modules": "moe",
            "overlaps_expert_comm": True,
            "num_experts": 4,
            "expert_parallel": 2,
            "data_parallel": 2,
        },
        "recompute_modules",
        '"moe" repeats the all-to-all of experts, which `overlaps_expert_comm` hides',
    ),
    (
        "an all-to-all behind a microbatch is not an all-gather",
        {**MIXED, "overlaps_expert_comm": True, "dispatcher": "allgather"},
        "overlaps_expert_comm",
        "True hides the all-to-all of `dispatcher` alltoall and flex, not the all-gather",
    ),
    (
        "an all-to-all behind a microbatch allows one further token",
        {**MIXED, "overlaps_expert_comm": True, "num_mtp_layers": 2},
        "overlaps_expert_comm",
        "True needs `num_mtp_layers` 1 at most, not 2",
    ),
    (
        "an all-to-all hides behind a microbatch or shared experts, not both",
        {**MIXED, "overlaps_expert_comm": True, "overlaps_shared_experts": True},
        "overlaps_shared_experts",
        "True hides what `overlaps_expert_comm` hides behind another microbatch",
    ),
    (
        "an all-to-all behind shared experts is not an all-gather",
        {**MIXED, "overlaps_shared_experts": True, "dispatcher": "allgather"},
        "overlaps_shared_experts",
        "True hides the all-to-all of `dispatcher` alltoall and flex, not the all-gather",
    ),
    (
        "a model that overlaps shared experts has some",
        {**MIXED, "overlaps_shared_experts": True, "shared_ffn_hidden_size": 0},
        "overlaps_shared_experts",
        "True needs shared experts, but the model has none",
    ),
    (
        "shared experts that hide an all-to-all are not recomputed",
        {**MIXED, "overlaps_shared_experts": True, "recompute_modules": "shared_experts"},
        "overlaps_shared_experts",
        "True does not go with `recompute_modules` shared_experts",
    ),
    (
        "a power limit leaves room for work",
        {"power_limit_watts": 126.0, "gpu_idle_watts": 126.0},
        "power_limit_watts",
        "126.0 is not above `gpu_idle_watts` 126",
    ),
    (
        "key heads divide heads",
        {"num_kv_heads": 3},
        "num_kv_heads",
        "3 does not divide `num_heads` 8",
    ),
    (
        "no more experts a token than experts",
        {"num_experts": 4, "experts_per_token": 5},
        "experts_per_token",
        "5 is more than `num_experts` 4",
    ),
    (
        "no more dense layers than layers",
        {"num_dense_layers": 5},
        "num_dense_layers",
        "5 is more than `num_layers` 4",
    ),
    (
        "only latent attention has heads of two widths",
        {"qk_rotary_size": 64},
        "kv_lora_rank",
        "0 has no latent, and `q_lora_rank` 0, `qk_head_size` 64, `qk_rotary_size` 64 or "
        "`v_head_size` 64 is that of latent attention",
    ),
    (
        "each period of a mixture has one layer with experts",
        {"num_experts": 4, "moe_period": 2, "num_dense_layers": 1},
        "num_dense_layers",
        "1 is not what `moe_period` 2 leaves of `num_layers` 4",
    ),
    (
        "route_groups divides num_experts",
        {"num_experts": 4, "route_groups": 3},
        "route_groups",
        "3 does not divide `num_experts` 4",
    ),
    (
        "no more kept groups than groups",
        {"num_experts": 4, "route_groups": 2, "route_groups_kept": 3},
        "route_groups_kept",
        "3 is more than `route_groups` 2",
    ),
    (
        "latent attention has a rotary part",
        {"kv_lora_rank": 16},
        "kv_lora_rank",
        "16 is a size of latent attention, and the model has no other one",
    ),
    (
        "only mixtures have inputs of experts",
        {"moe_period": 2},
        "num_experts",
        "1 makes a dense model, which has no `moe_period` 2",
    ),
    (
        "chunks of attention need a window",
        {"uses_chunked_attention": True},
        "uses_chunked_attention",
        "True needs `attention_window`, which is 0",
    ),
    (
        "a window period needs a window",
        {"window_period": 2},
        "window_period",
        "2 needs `attention_window`, which is 0",
    ),
    (
        "tensor_parallel divides num_heads",
        {"tensor_parallel": 16},
        "tensor_parallel",
        "16 does not divide `num_heads` 8",
    ),
    (
        "tensor_parallel divides ffn_hidden_size",
        {"tensor_parallel": 8, "ffn_hidden_size": 1028},
        "tensor_parallel",
        "8 does not divide `ffn_hidden_size` 1028",
    ),
    (
        "key heads are split or copied evenly",
        {"tensor_parallel": 4, "num_heads": 12, "head_size": 64, "num_kv_heads": 6},
        "tensor_parallel",
        "4 neither divides `num_kv_heads` 6 nor is divided by it",
    ),
    (
        "context parallelism needs fused attention",
        {"context_parallel": 2, "attention": "unfused"},
        "context_parallel",
        "2 needs fused attention, not unfused",
    ),
    (
        "shares of a sequence fill blocks of attention",
        {"context_parallel": 8},
        "context_parallel",
        "8 does not split `seq_len` 1024 into two shares a rank of 128 tokens or more",
    ),
    (
        "shared experts are split over tensors",
        {"num_experts": 4, "expert_ffn_hidden_size": 51, "tensor_parallel": 4}
        | {"uses_sequence_parallel": True, "num_shared_experts": 2},
        "tensor_parallel",
        "4 does not divide `shared_ffn_hidden_size` 102",
    ),
    (
        "the tensor degree of experts divides their width",
        {"num_experts": 4, "expert_ffn_hidden_size": 102, "tensor_parallel": 4}
        | {"uses_sequence_parallel": True, "expert_tensor_parallel": 4},
        "expert_tensor_parallel",
        "4 does not divide `expert_ffn_hidden_size` 102",
    ),
    (
        "the tensor degree of experts divides their width",
        {"tensor_parallel": 4, "expert_tensor_parallel": 4},
        "expert_tensor_parallel",
        "4 splits experts, and the model has none",
    ),
    (
        "experts are split evenly",
        {"num_experts": 4, "expert_parallel": 3, "data_parallel": 3},
        "expert_parallel",
        "3 does not divide `num_experts` 4",
    ),
    (
        "sequence parallelism splits over tensors",
        {"uses_sequence_parallel": True, "tensor_parallel": 4, "seq_len": 1022},
        "uses_sequence_parallel",
        "True needs `tensor_parallel` above 1 that splits `seq_len` 1022 evenly; it is 4",
    ),
    (
        "sequence parallelism splits over tensors",
        {"uses_sequence_parallel": True, "tensor_parallel": 4, "seq_len": 1022},
        "uses_sequence_parallel",
        "True needs `tensor_parallel` above 1 that splits `seq_len` 1022 evenly; it is 4",
    ),
    (
        "experts over tensors need sequence parallelism",
        {"num_experts": 4, "tensor_parallel": 2, "uses_sequence_parallel": False},
        "uses_sequence_parallel",
        "False is needed by a mixture of experts under tensor parallelism",
    ),
    (
        "degrees multiply to the GPUs",
        {"num_gpus": 16, "tensor_parallel": 2, "data_parallel": 4},
        "num_gpus",
        "16 is not the product of the degrees, 8",
    ),
    (
        "stages have a layer each",
        {"pipeline_parallel": 5},
        "pipeline_parallel",
        "5 is more than `num_layers` 4",
    ),
    (
        "chunks are even and interleaved over stages",
        {"virtual_pipeline": 2},
        "virtual_pipeline",
        "2 does not split `num_layers` 4 into even chunks on 1 stages",
    ),
    (
        "chunks are even and interleaved over stages",
        {"virtual_pipeline": 4, "pipeline_parallel": 2},
        "virtual_pipeline",
        "4 does not split `num_layers` 4 into even chunks on 2 stages",
    ),
    (
        "a pipeline layout places all layers",
        {"pipeline_layout": "Ett|t|tt|L", "pipeline_parallel": 3},
        "pipeline_layout",
        '"Ett|t|tt|L" has 4 stages, which 3 ranks do not divide',
    ),
    (
        "ends leave even stages between them",
        {"layers_in_first_stage": 1, "pipeline_parallel": 3},
        "layers_in_first_stage",
        "1 does not split the 3 layers of the 2 other ranks evenly",
    ),
    (
        "stages are even with embedding and loss",
        {"counts_loss": True, "pipeline_parallel": 2},
        "pipeline_parallel",
        "2 does not split 5 layers, embedding and loss among them, over 2 stages",
    ),
    (
        "stages are even with embedding and loss",
        # a V has two stages on the rank
        {"counts_loss": True, "schedule": "zbv"},
        "pipeline_parallel",
        "1 does not split 5 layers, embedding and loss among them, over 2 stages",
    ),
    (
        "only 1f1b interleaves chunks",
        {"schedule": "zb_h1", "pipeline_parallel": 2, "virtual_pipeline": 2},
        "virtual_pipeline",
        "2 interleaves chunks, which `schedule` zb_h1 does not",
    ),
    (
        "a schedule in a V has two chunks a stage",
        {"schedule": "zbv", "pipeline_parallel": 3},
        "schedule",
        '"zbv" needs two layers a stage; `num_layers` is 4, `pipeline_parallel` 3',
    ),
    (
        "a dual pipe has an even number of stages",
        {"schedule": "dualpipe", "pipeline_parallel": 3, "num_microbatches": 6},
        "schedule",
        '"dualpipe" needs an even `pipeline_parallel`, not 3',
    ),
    (
        "a dual pipe has enough microbatches",
        {"schedule": "dualpipe", "pipeline_parallel": 2, "num_microbatches": 5},
        "schedule",
        '"dualpipe" needs an even number of microbatches, twice `pipeline_parallel` or more; '
        "they are 5",
    ),
    (
        "a group of microbatches fills the stages",
        {
            "pipeline_parallel": 2,
            "virtual_pipeline": 2,
            "num_microbatches": 7,
            "microbatch_group": 3,
        },
        "microbatch_group",
        "3 must lie between `pipeline_parallel` 2 and the 7 microbatches, and leave a rest of "
        "none or of 2 or more",
    ),
    (
        # the output layer has as many products as 98,304 / (4 x 512 + 3 x 2,048) = 12 layers: one
        # stage of four takes all layers and the output layer, one the cast, one the loss
        "the last used stage has the loss",
        {
            "balances_stages": True,
            "vocab_size": 98_304,
            "pipeline_parallel": 4,
            "data_parallel": 2,
            "num_microbatches": 4,
        },
        "pipeline_parallel",
        "4 leaves 3 stages behind the output layer; this program reports from the last one in use, "
        "which has no loss then",
    ),
    (
        "expert groups fill a stage",
        {"num_experts": 4, "expert_parallel": 4, "expert_tensor_parallel": 2}
        | {"tensor_parallel": 2, "uses_sequence_parallel": True, "data_parallel": 2},
        "expert_parallel",
        "4 times `expert_tensor_parallel` 2 does not divide the 4 GPUs of a stage",
    ),
    (
        "replicas divide the batch",
        {"data_parallel": 4, "microbatch_size": 3, "global_batch_size": 16},
        "microbatch_size",
        "3 times `data_parallel` 4 does not divide `global_batch_size` 16",
    ),
]
SEARCHED_ONLY: dict[str, tuple[dict[str, Any], str]] = {
    # A batch may have what a search leaves out: a stage that shards nothing.
    "sharding needs replicas": (
        {"zero_stage": 1, "data_parallel": 1, "context_parallel": 1},
        "`zero_stage` 1 has nothing to shard over: there is one replica",
    ),
}


def test_every_rule_has_a_case_that_breaks_it() -> None:
    rules = (*PROBLEM_RULES, *LAYER_RULES, *SPLIT_RULES, SHARDING_NEEDS_REPLICAS)
    assert {name for name, *_ in REFUSED} | set(SEARCHED_ONLY) == {rule.name for rule in rules}


@pytest.mark.parametrize(("rule", "change", "column", "message"), REFUSED)
def test_a_faulty_row_is_refused_by_its_value_and_the_others_are_not(
    rule: str, change: dict[str, Any], column: str, message: str
) -> None:
    _, refusals = resolve([{**IDEAL, **WIDE}, {**IDEAL, **WIDE, **change}])
    assert [refusal.row for refusal in refusals] == [1], rule
    assert str(refusals[0]).split("\n")[0] == f"`{column}` {message}"


@pytest.mark.parametrize(
    "change",
    [
        # 90,112 / 8,192 = 11 layers: a stage takes 3.75, so the fourth layer is on the second stage
        {"vocab_size": 90_112},
        {"data_parallel": 1},
        {"balances_stages": False},
        {"num_microbatches": 3},
    ],
)
def test_a_loss_on_the_last_stage_in_use_is_not_refused(change: dict[str, Any]) -> None:
    row = {"balances_stages": True, "vocab_size": 98_304, "pipeline_parallel": 4}
    row |= {"data_parallel": 2, "num_microbatches": 4, **change}
    if change.get("num_microbatches"):
        row["vocab_size"] = 90_112
    assert not resolve([{**IDEAL, **WIDE, **row}])[1]


@pytest.mark.parametrize("rule", SEARCHED_ONLY)
def test_a_search_leaves_out_what_a_batch_may_have(rule: str) -> None:
    change, message = SEARCHED_ONLY[rule]
    # Six sequences: three microbatches of two.
    base = {**IDEAL, **WIDE, "global_batch_size": 6}
    gpus = change.get("pipeline_parallel", 1)
    assert not resolve([{**base, **change}])[1]
    with pytest.raises(RefusedError) as caught:
        cells_of({**base, **change, "num_gpus": gpus})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor_parallel": 3}, "`tensor_parallel` 3 does not divide `num_heads` 8"),
        ({"pipeline_parallel": 8}, "`pipeline_parallel` 8 is more than `num_layers` 4"),
        ({"microbatch_size": 5}, "`microbatch_size` 5 times `data_parallel` 1 does not divide"),
        ({"num_gpus": 7}, "`num_gpus` 7 leaves no layout in the whole space"),
        ({"num_gpus": None}, "`num_gpus` is missing"),
        ({"global_batch_size": None}, "`global_batch_size` is missing"),
        ({"num_sms": None}, "`num_sms` is missing"),
        ({"framework": "gavin"}, '`framework` "gavin" is not in the `framework` table'),
        (
            {"accelerator": "chip"},
            '`accelerator` "chip" is neither in the `accelerator` nor in the `system` table',
        ),
        ({"attention": "sparse"}, '`attention` "sparse" is not known'),
        ({"precision": "fp6"}, '`precision` "fp6" is not known'),
        ({"gemm_efficiency": 1.5}, "`gemm_efficiency` 1.5 must be at most 1"),
        ({"tensor_overlap_fraction": -0.1}, "`tensor_overlap_fraction` -0.1 must be at least 0"),
    ],
)
def test_a_faulty_space_is_refused_with_its_value(change: dict[str, Any], message: str) -> None:
    base = {**IDEAL, **WIDE, "num_gpus": 8, "global_batch_size": 8}
    space = {name: value for name, value in {**base, **change}.items() if value is not None}
    with pytest.raises(RefusedError) as caught:
        cells_of(space)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zero_stage": 4}, "`zero_stage` 4 must be at most 3"),
        ({"tensor_parallel": 0}, "`tensor_parallel` 0 must be at least 1"),
        ({"microbatch_size": 1.5}, "`microbatch_size` 1.5 must be a whole number"),
        ({"num_layers": None}, "`num_layers` is missing"),
        ({"nvlink_bytes_per_second": None}, "`nvlink_bytes_per_second` is missing"),
        ({"hbm_bytes": -1.0}, "`hbm_bytes` -1.0 must be at least 1"),
    ],
)
def test_values_outside_their_limits_are_refused(change: dict[str, Any], message: str) -> None:
    _, refusals = resolve([{**IDEAL, **WIDE, **change}])
    assert message in "\n".join(map(str, refusals))


@pytest.mark.parametrize(
    ("heads", "hint"), [(50, "32 or 56"), (7169, "7168"), (3, "2 or 4"), (5000, "3584 or 7168")]
)
def test_heads_that_do_not_share_the_width_need_a_size(heads: int, hint: str) -> None:
    row = {**IDEAL, **GPT, "hidden_size": 7168, "num_heads": heads}
    [refusal] = resolve([row, {**row, "head_size": 128}])[1]
    assert (refusal.column, refusal.value, refusal.row) == ("num_heads", heads, 0)
    assert refusal.reason == "does not divide `hidden_size` 7168, and no `head_size` is given"
    assert refusal.hint == f"give `head_size`, or use `num_heads` {hint}"


def test_no_published_shape_has_heads_without_a_size(catalog: Catalog) -> None:
    steps = published_steps()
    found = resolve_rows(TRAINING_STEP, RELATION, steps, catalog, PUBLISHED).refusals
    models = [
        {**IDEAL, **{key: value for key, value in shape.items() if value is not None}}
        for shape in (dict(row) for row in catalog.tables["model"].values())
    ]
    assert len(models) > 30
    assert steps.height > 700
    for refusal in (*found, *resolve(models, catalog)[1]):
        assert "no `head_size`" not in refusal.reason
