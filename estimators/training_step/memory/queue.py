"""Launched passes of layers that wait in the GPU's queue when memory is at its peak.

The allocator reuses the memory of an exchange's result once the exchange has run, not when the host
frees it (PyTorch c10/cuda/CUDACachingAllocator.cpp `recordStream`, called by
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp). Until then each launched pass holds its results.

The host is at most `host.QUEUE` launches ahead of the GPU. The estimate takes all of them: reserved
memory is the largest of all steps, and the GPU is slow in the first ones. A host that sends to
another stage waits for the GPU (huggingface/nanotron @2411b022
src/nanotron/parallel/pipeline_parallel/p2p.py `_send_meta` copies to the GPU from pageable memory),
so no passes wait in a pipeline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.training_step.host import QUEUE
from estimators.training_step.pipelines import microbatches_of
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.spent import Spent


def queued_passes(layer: Spent, values: Problem, layout: Layout) -> Any:
    """Return the passes of a layer that are in the queue after the last forward pass of a step.

    The queue ends with the output layer and the loss. Before them it has the forward passes of all
    layers, and before these the backward passes of the previous microbatch. Earlier microbatches
    would fit if layers are few; they are left out.

    Parameters
    ----------
    layer
        One microbatch of an average layer.

    Returns
    -------
    float or ndarray
        At most twice the layers, without a unit; 0 in a pipeline.
    """
    layers = values["num_layers"] * 1.0
    backward = np.maximum(layer.launches - layer.forward_launches, 1.0)
    # the output layer and the loss forward are about half of the vocabulary's launches
    room = np.maximum(QUEUE - values["vocabulary_launches"] / 2, 0.0)
    forwards = np.minimum(layers, room / np.maximum(layer.forward_launches, 1.0))
    before = np.where(microbatches_of(values.run, layout) > 1, layers, 0.0)
    left = np.maximum(room - forwards * layer.forward_launches, 0.0)
    passes = forwards + np.minimum(before, left / backward)
    return np.where(layout["pipeline_parallel"] > 1, 0.0, passes)
