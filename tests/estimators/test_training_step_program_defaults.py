"""Defaults of training programs and of chips: those of their code."""

from __future__ import annotations

from typing import Any

import pytest

from estimators.contract import Refusal
from estimators.training_step.inputs import COARSE
from tests.estimators.training_step_cases import resolve
from warehouse.database.catalog import packaged_catalog

PACKAGED = packaged_catalog()


def resolved(**row: Any) -> tuple[dict[str, Any], list[Refusal]]:
    """Return a completed row and its refusals, with the packaged tables."""
    given = {"model": "llama3_8B", "num_gpus": 16, "global_batch_size": 64} | row
    columns, refusals = resolve([given], PACKAGED)
    return {name: column[0] for name, column in columns.items()}, list(refusals)


def values(*names: str, **row: Any) -> tuple[Any, ...]:
    """Return some columns of a completed row."""
    found, refusals = resolved(**row)
    assert not refusals
    return tuple(found[name] for name in names)


# ---- chips ----


def test_a_chip_takes_the_format_and_the_attention_that_it_has() -> None:
    names = ("precision", "attention")
    for framework in ("megatron_core", "fsdp", "deepspeed", "nanotron"):
        assert values(*names, accelerator="V100", framework=framework) == ("fp16", "unfused")
        assert values(*names, accelerator="A100", framework=framework) == ("bf16", "flash")
    # a chip without a number of its own is not judged
    assert values(*names, accelerator="MI300X") == ("bf16", "flash")


@pytest.mark.parametrize(("column", "value"), [("precision", "bf16"), ("attention", "flash")])
def test_a_chip_refuses_what_it_lacks_by_name(column: str, value: str) -> None:
    _, [refusal] = resolved(accelerator="V100", **{column: value})
    assert (refusal.column, refusal.value) == (column, value)
    assert "is not possible on V100 SXM2: it needs compute capability 8.0" in refusal.reason
    assert refusal.hint in ("use fp16", "use unfused")


def test_every_chip_of_nvidia_says_its_capability() -> None:
    chips = PACKAGED.tables["accelerator"].items()
    others = {name for name, row in chips if row["compute_capability"] is None}
    assert others == {"MI250X (per GCD)", "MI300X", "MI325X", "MI350X", "MI355X"}


# ---- programs ----


def test_programs_before_bf16_take_fp16() -> None:
    for framework in ("megatron_lm_2021", "megatron_lm_2022", "deepspeed_2021"):
        assert values("precision", accelerator="A100", framework=framework) == ("fp16",)
        found = values("precision", accelerator="A100", framework=framework, precision="bf16")
        assert found == ("bf16",)


def test_torchtitan_always_shards_the_sequence_of_split_tensors() -> None:
    for framework in ("fsdp", "fsdp_compile"):
        run = {"accelerator": "H100", "framework": framework}
        assert values("uses_sequence_parallel", **run, tensor_parallel=8) == (True,)
        assert values("uses_sequence_parallel", **run) == (False,)


@pytest.mark.parametrize(
    ("accelerator", "release", "program"),
    [
        ("H100", None, "cudnn"),
        ("H100", 25.10, "cudnn"),
        ("H100", 25.09, "flash_2"),
        ("B200", 25.09, "cudnn"),
        ("B200", 25.05, "flash_2"),
    ],
)
def test_torchtitan_tries_cudnn_first_from_a_release_on(
    accelerator: str, release: float | None, program: str
) -> None:
    run = {"accelerator": accelerator, "framework": "fsdp", "global_batch_size": 16}
    assert values("attention_program", **run, framework_release=release) == (program,)


@pytest.mark.parametrize(
    ("framework", "release", "stops"),
    [
        ("llm_foundry", None, True),
        ("llm_foundry", 23.06, False),
        ("fsdp", None, False),
        ("fsdp_compile", 24.12, True),
        ("megatron_core", None, False),
        ("nanotron", None, False),
    ],
)
def test_full_recomputation_stops_early_by_program_and_release(
    framework: str, release: float | None, stops: bool
) -> None:
    run = {"accelerator": "H100", "framework": framework, "framework_release": release}
    found = values("stops_recompute_early", **run, global_batch_size=16)
    assert found == (stops,)


MIXTRAL = {"model": "mixtral_8x7B", "accelerator": "H100", "tensor_parallel": 2}


@pytest.mark.parametrize(
    ("changes", "degree"),
    [
        ({"expert_parallel": 8}, 2),
        # experts of two GPUs each would need 32
        ({"expert_parallel": 8, "pipeline_parallel": 2}, 1),
        ({"expert_parallel": 8, "framework_release": 25.09}, 1),
        ({"expert_parallel": 1, "framework_release": 25.09}, 2),
        ({"expert_parallel": 8, "expert_tensor_parallel": 1}, 1),
        ({"expert_parallel": 8, "framework": "fsdp"}, 1),
        # the recipes of a model name 1
        ({"model": "qwen3_30B_A3B", "expert_parallel": 8}, 1),
    ],
)
def test_tensors_of_experts_are_split_as_the_program_does(
    changes: dict[str, Any], degree: int
) -> None:
    assert values("expert_tensor_parallel", **MIXTRAL | changes) == (degree,)


# ---- names ----


def test_a_recipe_is_found_by_shape() -> None:
    """The same shape has the same recipe without its name; another shape has none."""
    names = ("uses_cuda_graphs", "dispatcher", "recompute_modules", "attention_program")
    for model in ("llama3_8B", "qwen3_30B_A3B", "deepseek_v3", "gpt_oss_120B"):
        run = {"accelerator": "GB200", "precision": "fp8", "num_gpus": 64, "model": model}
        shape = {name: PACKAGED.tables["model"][model][name] for name in (*COARSE, "seq_len")}
        named = values(*names, **run)
        assert values(*names, **run | shape | {"model": None}) == named
        assert values(*names, **run | shape | {"model": "mine"}) == named
    run = {"accelerator": "GB200", "model": "llama3_8B"}
    assert values("uses_cuda_graphs", **run) == (True,)
    assert values("uses_cuda_graphs", **run, num_layers=16) == (False,)
