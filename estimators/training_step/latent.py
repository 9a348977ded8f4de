"""Multi-head latent attention on one GPU: products, memory traffic, and kept activations.

Two products lead from the residual stream down to the latents: of queries, and of keys and values.
Norms follow, then two products up to heads. A tensor-parallel rank has the weights of the first two
whole; under sequence parallelism it multiplies its own rows of the sequence. So ranks gather
latents, not the stream. Only products of heads are split (NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer/multi_latent_attention.py, `TELinear` with `parallel_mode` duplicated).

Without latents the functions return the products of grouped queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values

LAUNCHES = (6.0, 10.0)
"""Kernels that latents add to a layer, forward and backward: three products (six backward), two
norms, a rotary embedding of keys that also writes the values; backward a sum of the stream's
gradients. Counted in the file above, +-30 %."""

Rows = tuple[Any, Any, Any, Any, Any]
"""Rows, columns, inner size, number and share of a product."""


def head_products(size: Any) -> tuple[Rows, Rows]:
    """Return the products before and behind attention: up from the latent of queries, or merged."""
    has_latent = size.key_latent > 0
    merged = size.query + np.where(has_latent, 0.0, size.key + size.value)
    return (
        (size.tokens, merged, _query_depth(size), 1.0, 1.0),
        (size.tokens, size.hidden, size.result, 1.0, 1.0),
    )


def latent_products(size: Any) -> tuple[Rows, Rows, Rows]:
    """Return the other products of latents: up to keys and values, down of queries, down of keys.

    Their share is 0 where there are no latents.
    """
    has_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    of_queries = np.where(size.query_latent > 0, has_latent, 0.0)
    own = size.key - size.heads * size.rotary + size.value
    return (
        (size.tokens, own, size.key_latent, 1.0, has_latent),
        (size.rows, size.query_latent, size.hidden, 1.0, of_queries),
        (size.rows, size.key_latent + size.rotary, size.hidden, 1.0, has_latent),
    )


def _query_depth(size: Any) -> Any:
    has_latent = (size.key_latent > 0) & (size.query_latent > 0)
    return np.where(has_latent, size.query_latent, size.hidden)


def product_flops(size: Any) -> Any:
    """Return the FLOPs of the products around attention, forward."""
    latents = latent_products(size) if np.any(size.key_latent) else ()
    runs = (*head_products(size), *latents)
    return sum(2.0 * share * rows * columns * depth for rows, columns, depth, _, share in runs)


def gathered_width(size: Any) -> Any:
    """Return the width that tensor-parallel ranks gather before attention: latents, or all."""
    queries = np.where(size.query_latent > 0, size.query_latent, size.hidden)
    latents = queries + size.key_latent + size.rotary
    return np.where(size.key_latent > 0, latents, size.hidden)


def traffic(size: Any, values: Values) -> tuple[Any, Any]:
    """Return the bytes that norms and rotary embedding of latents move, forward and backward.

    A fused norm reads 2 and writes 2 bytes an element; backward it reads 4 and writes 2. One kernel
    turns the rotary part of the queries in place. Another reads the product's result and the rotary
    part of the keys, and writes keys and values
    (megatron/core/fusions/fused_mla_yarn_rope_apply.py). Separate operations split, turn and join:
    20 bytes an element of the rotary part, as of other heads, and 4 an element of queries, keys and
    values.
    """
    if not np.any(size.key_latent):
        return 0.0, 0.0
    latents = size.rows * (size.query_latent + size.key_latent)
    turned = size.heads * size.rotary
    made = size.key - turned + size.value
    fuses = values["fuses_elementwise"]
    fused = 4.0 * turned + 2.0 * (made + size.rotary + size.key + size.value)
    separate = 20.0 * (turned + size.rotary) + 4.0 * (size.query + size.key + size.value)
    heads = size.tokens * np.where(fuses, fused, separate)
    has_latent = np.where(size.key_latent > 0, 1.0, 0.0)
    return has_latent * (4.0 * latents + heads), has_latent * (6.0 * latents + heads)
