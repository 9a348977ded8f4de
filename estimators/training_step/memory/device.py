"""Bytes that a device holds beyond its tensors: unused memory of the allocator, and libraries.

A measurement counts tensors (allocated memory), tensors and the allocator's unused memory
(reserved), or all memory of the device. The estimate has the same three sums.

- The allocator holds `fragmentation` times the allocated memory, holes of freed logits that no
  later tensor fits (`reserved_logit_bytes`), and results that wait for tensor-parallel exchanges
  (module `queue`).
- Libraries: a communicator for each group of more than one GPU, and captured CUDA graphs.
- The CUDA context with its loaded kernels is `framework_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values


def communicators(values: Values, layout: Values) -> Any:
    """Return the number of groups of more than one GPU that a GPU exchanges with.

    They are the tensor- and context-parallel groups, replicas and contexts together, the pipeline,
    and the two stages of a shared embedding; in a mixture also the expert-parallel group, the ranks
    that split an expert, and the replicas of experts (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/parallel_state.py).
    """
    tensor, context = layout["tensor_parallel"], layout["context_parallel"]
    stages, replicas = layout["pipeline_parallel"], layout["data_parallel"] * context
    ties = np.asarray(values["ties_embedding"], dtype=bool) & (stages > 1)
    groups: tuple[Any, ...] = (tensor > 1, context > 1, replicas > 1, stages > 1, ties)
    has_experts = np.greater(values["num_experts"], 1)
    if np.any(has_experts):
        experts, parts = layout["expert_parallel"], layout["expert_tensor_parallel"]
        copies = tensor * replicas > experts * parts
        groups += (experts > 1, has_experts & (parts > 1), has_experts & copies)
    return sum(np.where(group, 1.0, 0.0) for group in groups)


def library_bytes(values: Values, layout: Values) -> Any:
    """Return the bytes of communicators and captured graphs."""
    graphs = np.where(values["uses_cuda_graphs"], values["graph_bytes"], 0.0)
    return values["communicator_bytes"] * communicators(values, layout) + graphs


def unused_bytes(allocated: Any, besides: Any, values: Values) -> Any:
    """Return the bytes that the allocator holds beyond those in use.

    ``(fragmentation - 1) x allocated + fragmentation x besides``.

    Parameters
    ----------
    allocated
        Bytes in use at their peak.
    besides
        Bytes of holes and of results that wait for an exchange.
    """
    factor = values["fragmentation"]
    return (factor - 1) * allocated + factor * besides
