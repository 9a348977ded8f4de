"""Memory by part: on one GPU of the first pipeline stage, in mixed precision with Adam.

Source: xrsrke/hf-notebooks diloco/transformer_mem_functional.py @dfaef07; arXiv 2205.05198 for
activations, arXiv 1910.02054 for the ZeRO stages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.cluster.runs import activation_shape
from estimators.contract import Columns, Mends, Values
from estimators.transformer import activations, flag, kv_rank_share, layer_activations, number

WEIGHT_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 12
"""Two Adam moments and the master weights, four bytes each."""


def memory(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return the bytes of each part, and of one layer's activations.

    Stages have equal shares of all parameters, embeddings included.
    """
    shape = activation_shape(values, mends)
    sequences, tensor = number(layouts, "batch_sequences"), number(layouts, "tensor_parallel")
    splits = flag(layouts, "uses_sequence_parallel")
    kept = activations(shape, sequences, values.get("activation_recompute"), tensor, splits)
    state = _state(values, layouts, mends)
    cache = _kv_cache(values, layouts, mends)
    return {
        **state,
        "activations_bytes": kept,
        "kv_cache_bytes": cache,
        "memory_bytes": sum(state.values()) + kept,
        "inference_bytes": _served_weights(state, values, layouts, mends) + cache,
        **layer_activations(shape, sequences, tensor, splits),
    }


def _state(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return weights, gradients and optimizer.

    With t tensor-parallel ranks, p stages and d replicas all three are divided by t p. ZeRO 1
    divides the optimizer by d, ZeRO 2 the gradients too, ZeRO 3 the weights too (arXiv 1910.02054).

    As published (C17) ZeRO 1 and above divide all three by d t p. Besides, weights are divided by
    t p, gradients by p, and the optimizer by nothing.
    """
    size = number(values, "parameters")
    tensor, stages = number(layouts, "tensor_parallel"), number(layouts, "pipeline_parallel")
    replicas, zero = number(layouts, "data_parallel"), number(layouts, "zero_stage")
    if "C17" in mends:
        split = size / (tensor * stages)
        return {
            "weights_bytes": WEIGHT_BYTES * split / np.where(zero >= 3, replicas, 1),
            "gradients_bytes": GRADIENT_BYTES * split / np.where(zero >= 2, replicas, 1),
            "optimizer_bytes": OPTIMIZER_BYTES * split / np.where(zero >= 1, replicas, 1),
        }
    everyone = np.where(zero >= 1, replicas * tensor * stages, 1)
    return {
        "weights_bytes": WEIGHT_BYTES * size / (tensor * stages) / everyone,
        "gradients_bytes": GRADIENT_BYTES * size / everyone / stages,
        "optimizer_bytes": OPTIMIZER_BYTES * size / everyone,
    }


def _served_weights(state: dict[str, Any], values: Values, layouts: Columns, mends: Mends) -> Any:
    """Return the weights of a GPU that serves the model; ZeRO does not shard them (C17)."""
    if "C17" not in mends:
        return state["weights_bytes"]
    degrees = number(layouts, "tensor_parallel") * number(layouts, "pipeline_parallel")
    return WEIGHT_BYTES * number(values, "parameters") / degrees


def _kv_cache(values: Values, layouts: Columns, mends: Mends) -> Any:
    """Return the bytes of keys and values of one sequence: ``2 x 2 x layers x hidden x length``.

    Times key-value heads over heads; as published, all heads count (C16). The published formula
    ignores the layout. The mended one splits layers over stages, and key-value heads over ranks,
    with one head a rank at least (C17).
    """
    whole = 2 * WEIGHT_BYTES * number(values, "num_layers") * number(values, "hidden_size")
    whole = whole * number(values, "seq_len")
    shape = values if "C16" in mends else {**values, "num_kv_heads": values.get("num_heads")}
    if "C17" not in mends:
        return whole * kv_rank_share(shape, 1)
    ranks = kv_rank_share(shape, number(layouts, "tensor_parallel"))
    return whole * ranks / number(layouts, "pipeline_parallel")
