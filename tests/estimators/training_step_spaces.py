"""Spaces of training steps that several tests search."""

from __future__ import annotations

KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("uses_sequence_parallel", "microbatch_size"),
    *("pipeline_parallel", "virtual_pipeline", "data_parallel", "zero_stage"),
)
DENSE = {
    "num_layers": 6,
    "hidden_size": 512,
    "num_heads": 8,
    "seq_len": 1024,
    "vocab_size": 512,
    "num_gpus": 16,
    "global_batch_size": 8,
}
