"""Bytes that a device holds beyond its tensors: unused memory of the allocator, and libraries.

A measurement may count tensors alone (what is allocated), with them the allocator's unused memory
(what is reserved), or all of the device's. The estimate has the same three sums.

- The allocator: `fragmentation` times what is allocated. Besides, pieces of freed logits that no
  later tensor fits (`reserved_logit_bytes`), and results of tensor-parallel exchanges: the
  allocator gives their memory to others when the exchange is done, not when the host is done with
  them (PyTorch c10/cuda/CUDACachingAllocator.cpp `recordStream`, called by
  torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp). A host that waits for the transfers of a
  pipeline is not ahead by more than that.
- Libraries: a communicator for each group of more than one GPU, and captured CUDA graphs.
- The context of CUDA with its loaded kernels is `framework_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values


def communicators(values: Values, layout: Values) -> Any:
    """Return the groups of more than one GPU that a GPU exchanges with.

    Tensors, contexts, replicas with contexts, neighbours in the pipeline, the two stages of a
    shared embedding; of a mixture the ranks with other experts, those with other parts of an
    expert, and replicas of experts (NVIDIA/Megatron-LM @d98e8a64 megatron/core/parallel_state.py).
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

    Parameters
    ----------
    allocated
        Bytes in use at their peak.
    besides
        Bytes of holes and of results that wait for an exchange.
    """
    factor = values["fragmentation"]
    return (factor - 1) * allocated + factor * besides
