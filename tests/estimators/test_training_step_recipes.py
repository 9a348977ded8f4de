"""How tokens are exchanged by default: as Megatron-Bridge's recipe of the model and format does."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.training_step.estimator import TRAINING_STEP
from tests.estimators.training_step_cases import IDEAL, MOE, resolve, steps
from warehouse.database.catalog import packaged_catalog

CATALOG = packaged_catalog()


def resolved(row: dict[str, Any]) -> dict[str, Any]:
    """Return the completed row."""
    found, refusals = resolve([{"num_gpus": 64, **row}], CATALOG)
    assert not refusals
    return {name: column[0] for name, column in found.items()}


@pytest.mark.parametrize(
    ("row", "dispatcher", "overlaps", "hidden"),
    [
        ({"model": "qwen3_30B_A3B", "precision": "fp8"}, "flex", True, 0.37),
        ({"model": "Qwen3-30B-A3B", "number_recipe": "tensorwise"}, "flex", False, 0.37),
        ({"model": "qwen3_30B_A3B"}, "flex", False, 0.37),
        ({"model": "gpt_oss_120B"}, "alltoall", True, 0.37),
        ({"model": "gpt_oss_120B", "dispatcher": "flex"}, "flex", True, 0.37),
        ({"model": "gpt_oss_120B", "accelerator": "H100 SXM 80GB"}, "alltoall", False, 0.37),
        ({"model": "deepseek_v3", "accelerator": "H800 SXM 80GB"}, "flex", True, 1.0),
        (
            {
                "model": "deepseek_v3",
                "accelerator": "H800 SXM 80GB",
                "overlapped_expert_fraction": 0.5,
            },
            *("flex", True, 0.5),
        ),
    ],
)
def test_defaults_are_those_of_the_recipe(
    row: dict[str, Any], dispatcher: str, overlaps: bool, hidden: float
) -> None:
    found = resolved({"accelerator": "GB200 (per GPU)", **row})
    assert found["dispatcher"] == dispatcher
    assert found["overlaps_expert_comm"] == overlaps
    assert found["overlapped_expert_fraction"] == hidden


def test_all_recomputations_of_a_recipe_are_one_problem() -> None:
    """A search has a cell for each recomputation, and ranks the layouts of one problem."""
    cases = [key for key in CATALOG.tables["expert_default"] if " until " not in key]
    names = ("framework", "accelerator", "model", "number_recipe")
    rows = [
        {
            **dict(zip(names, case.split("@"), strict=False)),
            "num_gpus": 64,
            "activation_recompute": recompute,
        }
        for case in cases
        if case.count("@") > 1
        for recompute in ("none", "selective", "full")
    ]
    found, refusals = resolve(rows, CATALOG)
    assert not refusals
    assert len(set(found["overlaps_expert_comm"].tolist())) == 2
    for name in sorted(found.keys() & {*TRAINING_STEP.problem_columns}):
        none, selective, full = (found[name][row::3].tolist() for row in range(3))
        assert str(none) == str(selective) == str(full), name


def test_nothing_hides_behind_a_microbatch_with_full_recomputation() -> None:
    mixture = {**MOE, "vocab_size": 512, "num_gpus": 16, "global_batch_size": 64}
    mixture |= {
        "expert_parallel": 4,
        "expert_overlap_fraction": 0.0,
        "nvlink_bytes_per_second": 1e11,
    }
    hides = {"overlaps_expert_comm": True, "overlapped_expert_fraction": 1.0}
    full, same, none, less = steps(
        *(
            {**IDEAL, **mixture, "activation_recompute": recompute, **change}
            for recompute in ("full", "none")
            for change in ({}, hides)
        )
    )
    assert full == same
    assert less["step_seconds"] < none["step_seconds"]


def test_a_shape_without_a_name_has_the_defaults_of_its_model() -> None:
    shape = CATALOG.find("model", "gpt_oss_120B")
    names = (
        *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
        *("head_size", "vocab_size", "ties_embedding", "num_experts", "experts_per_token"),
        *("expert_ffn_hidden_size", "seq_len"),
    )
    row = {name: shape[name] for name in names}
    found = resolved({"accelerator": "GB200 (per GPU)", **row})
    assert (found["model"], found["dispatcher"]) == (None, "alltoall")
    other = resolved({"accelerator": "GB200 (per GPU)", **row, "num_layers": 35})
    assert other["dispatcher"] == "flex"


@pytest.mark.parametrize(
    ("row", "parts", "steps"),
    [
        ({"model": "qwen3_30B_A3B", "precision": "fp8"}, True, True),
        ({"model": "qwen3_30B_A3B", "precision": "bf16"}, True, False),
        ({"model": "gpt_oss_120B"}, False, False),
        ({"model": "gpt_oss_120B", "uses_cuda_graphs": True}, True, False),
        (
            {"model": "qwen3_30B_A3B", "precision": "fp8", "captures_whole_steps": False},
            True,
            False,
        ),
        ({"model": "gpt_oss_120B", "accelerator": "B300 SXM"}, True, False),
        ({"model": "gpt_oss_120B", "accelerator": "B200 SXM 180GB"}, False, False),
    ],
)
def test_graphs_are_those_of_the_recipe(row: dict[str, Any], parts: bool, steps: bool) -> None:
    found = resolved({"accelerator": "GB200 (per GPU)", **row})
    assert (found["uses_cuda_graphs"], found["captures_whole_steps"]) == (parts, steps)


@pytest.mark.parametrize(
    ("row", "parts", "steps"),
    [
        # Megatron-Bridge perf_recipes/llama/gb200: 8B has graphs of whole steps but under NVFP4,
        # 70B has graphs of layers under NVFP4 from release 26.06 on, 405B has none
        ({"model": "llama3_8B"}, True, True),
        ({"model": "llama3_8B", "number_recipe": "nvfp4"}, False, False),
        ({"model": "llama3_70B"}, False, False),
        ({"model": "llama3_70B", "number_recipe": "nvfp4"}, True, False),
        (
            {"model": "llama3_70B", "number_recipe": "nvfp4", "framework_release": 26.04},
            False,
            False,
        ),
        ({"model": "llama3_405B", "number_recipe": "nvfp4"}, False, False),
        ({"model": "llama3_405B", "uses_cuda_graphs": True}, True, False),
    ],
)
def test_dense_models_have_graphs_where_their_recipe_captures_them(
    row: dict[str, Any], parts: bool, steps: bool
) -> None:
    found = resolved({"accelerator": "GB200 (per GPU)", **row})
    assert (found["uses_cuda_graphs"], found["captures_whole_steps"]) == (parts, steps)


def test_the_processor_of_grace_launches_more_slowly() -> None:
    row = {"model": "llama3_8B", "framework": "megatron_core"}
    found = [
        resolved({**row, "accelerator": name})["host_seconds_per_launch"]
        for name in ("H100 SXM 80GB", "B200 SXM 180GB", "GB200 (per GPU)", "GB300 (per GPU)")
    ]
    assert found == [45e-6, 45e-6, 1.24e-4, 1.24e-4]


@pytest.mark.parametrize(
    ("row", "release", "expected"),
    [
        # of each key the row with the first release that differs, of which this one is before
        ({"model": "gpt_oss_120B"}, 25.11, ("alltoall", False, False, False)),
        ({"model": "gpt_oss_120B"}, 26.02, ("alltoall", False, False, False)),
        ({"model": "gpt_oss_120B"}, 26.04, ("flex", True, False, False)),
        ({"model": "gpt_oss_120B"}, 26.06, ("alltoall", True, False, False)),
        ({"model": "qwen3_30B_A3B", "precision": "fp8"}, 26.0401, ("flex", False, True, False)),
        ({"model": "qwen3_30B_A3B", "precision": "fp8"}, 26.06, ("flex", True, True, True)),
        ({"model": "qwen3_30B_A3B", "precision": "bf16"}, 26.04, ("flex", False, True, False)),
    ],
)
def test_a_release_has_the_recipe_of_its_time(
    row: dict[str, Any], release: float, expected: tuple[str, bool, bool, bool]
) -> None:
    found = resolved(
        {"accelerator": "GB200 (per GPU)", "framework_release": release, **row},
    )
    names = ("dispatcher", "overlaps_expert_comm", "uses_cuda_graphs", "captures_whole_steps")
    assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"model": "qwen3_30B_A3B"}, "cudnn_mxfp8"),
        ({"model": "qwen3_30B_A3B", "framework_release": 26.04}, "cudnn"),
        ({"model": "qwen3_30B_A3B", "attention_program": "cudnn"}, "cudnn"),
        ({"model": "qwen3_30B_A3B", "number_recipe": "tensorwise"}, "cudnn"),
        ({"model": "qwen3_30B_A3B", "kernels": "formula"}, "formula"),
        ({"model": "deepseek_v3"}, "cudnn"),
        ({"model": "deepseek_v3", "accelerator": "GB300 (per GPU)"}, "cudnn_mxfp8"),
        ({"model": "gpt_oss_120B"}, "cudnn_mxfp8"),
    ],
)
def test_attention_has_the_format_of_the_recipe(row: dict[str, Any], expected: str) -> None:
    found = resolved({"accelerator": "GB200 (per GPU)", "precision": "fp8", **row})
    assert found["attention_program"] == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"model": "deepseek_v3"}, True),
        ({"model": "gpt_oss_120B"}, True),
        ({"model": "qwen3_235B_A22B"}, False),
        ({"model": "deepseek_v3", "framework_release": 26.04}, False),
        ({"model": "deepseek_v3", "quantizes_output_layer": False}, False),
        ({"model": "deepseek_v3", "number_recipe": "tensorwise"}, False),
        ({"model": "deepseek_v3", "precision": "bf16"}, False),
        ({"model": "qwen3_235B_A22B", "quantizes_output_layer": True}, True),
    ],
)
def test_the_output_layer_has_the_format_of_the_recipe(row: dict[str, Any], expected: bool) -> None:
    found = resolved({"accelerator": "GB200 (per GPU)", "precision": "fp8", **row})
    assert found["quantizes_output_layer"] == expected


def test_each_release_that_differs_is_that_of_its_key() -> None:
    for name, row in CATALOG.tables["expert_default"].items():
        _, _, until = name.partition(" until ")
        assert row["before_release"] == (float(until) if until else None), name


H100, GB200, GB300, B200 = "H100 SXM 80GB", "GB200 (per GPU)", "GB300 (per GPU)", "B200 SXM 180GB"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"model": "gpt_oss_120B", "accelerator": H100}, "layernorm+moe_act"),
        ({"model": "gpt_oss_120B", "accelerator": GB200}, "layernorm+moe_act"),
        ({"model": "gpt_oss_120B", "accelerator": GB200, "precision": "fp8"}, "none"),
        ({"model": "gpt_oss_120B", "accelerator": GB300}, "none"),
        ({"model": "qwen3_30B_A3B", "accelerator": GB200}, "none"),
        ({"model": "deepseek_v3", "accelerator": GB200}, "mla_up_proj"),
        ({"model": "deepseek_v3", "accelerator": GB300}, "moe_act"),
        ({"model": "deepseek_v3", "accelerator": H100}, "mla_up_proj+mlp"),
        ({"model": "deepseek_v3", "accelerator": GB200, "number_recipe": "tensorwise"}, "mlp"),
        # what is given counts
        ({"model": "gpt_oss_120B", "accelerator": H100, "recompute_modules": "none"}, "none"),
        # and no default is what a rule refuses
        (
            {
                "model": "gpt_oss_120B",
                "accelerator": H100,
                "precision": "fp8",
                "number_recipe": "delayed",
            },
            "none",
        ),
        (
            {
                "model": "deepseek_v3",
                "accelerator": H100,
                "q_lora_rank": 0,
                "kv_lora_rank": 0,
                "qk_rotary_size": 0,
            },
            "none",
        ),
    ],
)
def test_parts_are_recomputed_as_the_recipe_does(row: dict[str, Any], expected: str) -> None:
    assert resolved(row)["recompute_modules"] == expected


@pytest.mark.parametrize(
    ("release", "expected"),
    [(25.11, "mla_up_proj"), (26.02, "mla_up_proj"), (26.04, "mlp"), (26.06, "mla_up_proj")],
)
def test_each_release_recomputes_its_parts(release: float, expected: str) -> None:
    row = {"model": "deepseek_v3", "accelerator": GB200, "precision": "fp8"}
    assert resolved({**row, "framework_release": release})["recompute_modules"] == expected
