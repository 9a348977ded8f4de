"""Steps to calibrate on, made by the estimator with constants that are known."""

from __future__ import annotations

from typing import Any

from estimators.registry import get
from warehouse.database.catalog import packaged_catalog

TRAINING_STEP = get("training_step")
CATALOG = packaged_catalog()
ACCELERATOR, FRAMEWORK = "A100 SXM 80GB", "megatron_lm_2022"

ROWS: dict[str, list[Any]] = {
    "num_layers": [48, 96, 96, 40, 36, 30],
    "hidden_size": [6144, 12288, 12288, 6144, 4096, 3072],
    "num_heads": [64, 96, 96, 48, 32, 32],
    "seq_len": [2048] * 6,
    "vocab_size": [51200] * 6,
    "accelerator": [ACCELERATOR] * 6,
    "framework": [FRAMEWORK] * 6,
    "kernels": ["formula"] * 6,
    "tensor_parallel": [8, 8, 8, 8, 4, 2],
    "pipeline_parallel": [1, 8, 4, 1, 1, 1],
    "microbatch_size": [4, 1, 2, 8, 16, 16],
    "num_gpus": [8, 64, 64, 8, 4, 2],
    "global_batch_size": [4, 64, 64, 8, 16, 32],
    "activation_recompute": ["full", "full", "selective", "full", "selective", "full"],
    "uses_sequence_parallel": [False, False, True, False, True, False],
}
"""Six layouts: two values of any constants that all of them take follow from their times."""
