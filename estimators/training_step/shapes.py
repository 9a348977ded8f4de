"""Share of a step with independent errors: each product's measured rate errs by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from estimators.decoder import attention_weights, attention_widths, ffn_width

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.values import Array, Real

PASSES = 3
"""Products with a weight in a step: forward, gradient of the input, gradient of the weight."""


def independent_share(shape: Shape, gemm: Real, vocabulary: Real, step: Real) -> Array:
    """Return the root of the summed squares of the products' shares of a step.

    Products whose errors are independent with the same deviation e make the step err by e times
    this root. A layer has four products: queries, keys and values; the output of attention; into
    and out of the feed-forward layer. Each takes time in proportion to its FLOPs, a third in each
    pass. The output layer has one product.

    Parameters
    ----------
    gemm, vocabulary, step
        Seconds of the layers' products, of the vocabulary, and of the step.
    """
    # products of latents count by their weights
    down, up = attention_weights(shape)
    result = attention_widths(shape).result
    merged = (down + up) / shape.hidden_size - result
    wide = ffn_width(shape, shape.sparse_share)
    gates = np.where(shape.uses_glu, 2.0, 1.0)
    widths = [merged, result, gates * wide, wide]
    spread = sum(np.square(width) for width in widths) / np.square(sum(widths))
    squares = np.square(gemm / step) * spread + np.square(vocabulary / step)
    root: Array = np.sqrt(squares / PASSES)
    return root
