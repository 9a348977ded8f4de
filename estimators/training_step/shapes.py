"""Shares of a step that single products take: the errors of their rates are independent."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values

PASSES = 3
"""Products of a weight in a step: forward, gradient of the input, gradient of the weight."""


def independent_share(values: Values, gemm: Any, vocabulary: Any, step: Any) -> Any:
    """Return the root of the summed squares of the products' shares of a step.

    A layer has four products: queries, keys and values; the output of attention; into and out of
    the feed-forward layer. Each has the share of its FLOPs, a third of it in each pass. The output
    layer has one.

    Parameters
    ----------
    gemm, vocabulary, step
        Seconds of the layers' products, of the vocabulary, and of the step.
    """
    query = values["num_heads"] * values["head_size"] * 1.0
    key = values["num_kv_heads"] * values["head_size"] * 1.0
    sparse = values["sparse_share"]
    experts = values["experts_per_token"] + values["num_shared_experts"]
    wide = (1 - sparse) * values["ffn_hidden_size"] + sparse * (
        experts * values["expert_ffn_hidden_size"]
    )
    gates = np.where(values["uses_glu"], 2.0, 1.0)
    widths = [query + 2 * key, query, gates * wide, wide]
    spread = sum(np.square(width) for width in widths) / np.square(sum(widths))
    squares = np.square(gemm / step) * spread + np.square(vocabulary / step)
    return np.sqrt(squares / PASSES)
