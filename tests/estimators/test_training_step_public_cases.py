"""Runs that contradicted themselves, with the reference tables: shapes and machines of public runs.

The properties of `test_training_step_machines` draw other problems of the same kinds.
"""

from __future__ import annotations

from typing import Any

import pytest

from estimators.contract import PUBLISHED
from estimators.search import combinations
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from tests.estimators.training_step_cases import estimate
from warehouse.database.catalog import packaged_catalog

CATALOG = packaged_catalog()

DEEPSEEK = {
    "model": "deepseek_v3",
    "accelerator": "H800",
    "num_gpus": 2048,
    "global_batch_size": 15360,
    "seq_len": 4096,
    "pipeline_parallel": 16,
    "expert_parallel": 64,
    "precision": "fp8",
    "schedule": "dualpipe",
}
LONG = {
    "model": "llama2_7B",
    "accelerator": "B200",
    "num_gpus": 8,
    "global_batch_size": 8,
    "seq_len": 32768,
    "attention": "unfused",
}
RACKS = {
    "num_layers": 80,
    "hidden_size": 11264,
    "num_heads": 88,
    "seq_len": 4096,
    "vocab_size": 32000,
    "accelerator": "GB200",
    "framework": "fsdp",
    "tensor_parallel": 8,
}
LLAMA = {
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_heads": 32,
    "num_kv_heads": 8,
    "uses_glu": True,
    "vocab_size": 128256,
    "ties_embedding": False,
}
GRAPHS = {
    "seq_len": 8192,
    "accelerator": "GB200",
    "num_gpus": 64,
    "global_batch_size": 64,
    "tensor_parallel": 4,
    "pipeline_parallel": 4,
}
MIXTRAL = {
    "model": "mixtral_8x7B",
    "accelerator": "H100",
    "num_gpus": 16,
    "global_batch_size": 128,
    "seq_len": 4096,
    "tensor_parallel": 2,
    "expert_parallel": 8,
}


def of(run: dict[str, Any], name: str = "step_seconds", /, **changes: Any) -> float:
    """Return a result of a run as `evaluate` has it."""
    columns = combinations({key: (value,) for key, value in {**run, **changes}.items()})
    resolved, refusals = TRAINING_STEP.resolve(RELATION, columns, CATALOG, PUBLISHED)
    assert not refusals
    return float(estimate(resolved, CATALOG)[name][0])


def test_faster_gemms_do_not_slow_a_dual_pipe() -> None:
    steps = [of(DEEPSEEK, fp8_product_rate_factor=1 + percent / 100) for percent in (0, 1, 5, 30)]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("batch", [8, 64])
def test_faster_memory_does_not_slow_unfused_attention_under_the_power_limit(batch: int) -> None:
    rates = [{"hbm_bytes_per_second": rate} for rate in (8e12, 8.8e12, 9.6e12, 12e12)]
    steps = [of(LONG, global_batch_size=batch, **rate) for rate in rates]
    assert steps == sorted(steps, reverse=True)
    watts = [of(LONG, "gpu_watts", global_batch_size=batch, **rate) for rate in rates]
    assert watts == sorted(watts)


def test_racks_that_are_not_full_slow_no_ring() -> None:
    steps = [
        of(RACKS, num_gpus=gpus, global_batch_size=gpus // 8)
        for gpus in (64, 128, 256, 512, 1024, 2048, 4096)
    ]
    assert steps == sorted(steps)
    assert steps[-1] < 2 * steps[0]


def test_a_shape_without_its_name_has_the_recipe_of_the_name() -> None:
    assert of(LLAMA | GRAPHS) == of({"model": "llama3_8B", **GRAPHS})


def test_a_mixture_whose_experts_are_split_as_other_tensors_fits_as_it_ran() -> None:
    assert of(MIXTRAL, "memory_bytes") < of(MIXTRAL, "memory_bytes", expert_tensor_parallel=1)
    device = CATALOG.find("accelerator", "H100 SXM 80GB")
    assert of(MIXTRAL, "memory_bytes") < float(device["device_bytes"] or 0)


@pytest.mark.parametrize("accelerator", ["V100 SXM2", "MI300X", "H100 PCIe 80GB"])
def test_a_device_has_the_memory_that_its_driver_shows(accelerator: str) -> None:
    record = CATALOG.find("accelerator", accelerator)
    assert 0.9 < float(record["device_bytes"] or 0) / float(record["hbm_bytes"] or 1) < 1.1
    assert record["device_bytes"] != record["hbm_bytes"]
