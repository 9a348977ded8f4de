"""Bytes of weights, gradients and the optimizer, and of parameters that ZeRO 3 gathers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.decoder import Parameters
from estimators.training_step import formats
from estimators.training_step.replicas import Share, kept


def sharded(zero_stage: int, share: Share, values: Values, layout: Values) -> dict[str, Any]:
    """Return the bytes of a pipeline stage's state on one GPU under a ZeRO stage.

    Stage 1 shards the optimizer, 2 the gradients too, 3 the weights too (arXiv 1910.02054).
    """
    # a program whose weights have 32 bits keeps a gathered copy in 16 bits below stage 3
    weights = values["stored_weight_bytes"]
    if zero_stage < 3:
        weights = np.maximum(weights, values["gathered_weight_bytes"])
    words = share._replace(dense=share.vocabulary, experts=0.0 * share.experts)
    others = share._replace(dense=share.dense - share.vocabulary)
    own = formats.stored_weight_bytes(values, weights, is_sharded=zero_stage == 3)
    whole = weights * kept(zero_stage, 3, words, layout) + own * kept(zero_stage, 3, others, layout)
    return {
        "weights_bytes": whole,
        "gradients_bytes": values["stored_gradient_bytes"] * kept(zero_stage, 2, share, layout),
        "optimizer_bytes": values["stored_optimizer_bytes"] * kept(zero_stage, 1, share, layout),
    }


def gathered_bytes(
    zero_stage: int, counts: Mapping[str, Parameters], share: Share, values: Values, layout: Values
) -> Any:
    """Return the bytes of gathered weights and of gradients not yet scattered: 0 below ZeRO 3.

    They are the weights of two layers and the gradients of one, or weights and gradients of the
    vocabulary if these are larger. A program with `keeps_gathered_weights` has the weights and
    gradients of its whole stage under a pipeline: it scatters gradients after the last microbatch
    (torchtitan @82f7387f parallelisms/parallelize_llama.py `apply_fsdp`;
    torch/distributed/pipelining/stage.py `backward_maybe_with_nosync`).
    """
    if zero_stage < 3:
        return 0.0
    tensor = layout["tensor_parallel"]
    split = layout["expert_tensor_parallel"] * layout["expert_parallel"]
    # rows of a batch may lack a kind that others have
    sparse = values["sparse_share"]
    occurs = {"dense": sparse < 1, "mixture": sparse > 0, "mtp": values["num_mtp_layers"] > 0}
    layers = [
        np.where(occurs[name], count.split / tensor + count.whole + count.experts / split, 0.0)
        for name, count in counts.items()
    ]
    layer = reduce(np.maximum, layers)
    weights, gradients = values["gathered_weight_bytes"], values["reduced_gradient_bytes"]
    own = formats.gathered_weight_bytes(values)
    embedding = next(iter(counts.values())).embedding
    unit = np.maximum((2 * own + gradients) * layer, (weights + gradients) * embedding / tensor)
    keeps = np.where(values["keeps_gathered_weights"], layout["pipeline_parallel"] > 1, False)
    whole = (own + gradients) * (share.dense - share.vocabulary + share.experts)
    whole = whole + (weights + gradients) * share.vocabulary
    unit = np.where(keeps, whole, unit)
    return np.where(layout["data_parallel"] * layout["context_parallel"] > 1, unit, 0.0)
