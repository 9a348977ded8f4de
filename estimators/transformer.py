"""Parameters of a decoder, and its activations kept for the backward pass.

Shapes are given as values by column name: scalars or arrays, broadcast against one another;
NaN (unknown) makes NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from estimators.values import Real

SHAPE = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "uses_glu", "num_heads", "num_kv_heads"),
    *("seq_len", "vocab_size"),
)
"""Columns that make a decoder's shape."""

Shape = Mapping[str, Any]

BATCH_RULE = (
    "2,048^2 tokens at 1e25 FLOPs, growing with the sixth root of the FLOPs, "
    "rounded to a power of two"
)
"""Source: davidsj/ml_par_sim run_optimizer2.ipynb."""


REFERENCE_FLOPS = 1e25
REFERENCE_BATCH_TOKENS = 2048**2


def growth(flops: Real) -> Real:
    """Return by how much a batch grows with the FLOPs of a run, 1 at `REFERENCE_FLOPS`."""
    return (flops / REFERENCE_FLOPS) ** (1 / 6)


def batch_tokens(flops: Real) -> Real:
    """Return the tokens of a batch in a run of `flops`, by `BATCH_RULE`, not rounded."""
    return REFERENCE_BATCH_TOKENS * growth(flops)


def default_batch(active_parameters: float, seq_len: int, tokens: float) -> int:
    """Return the sequences of a step of a run over `tokens`, by `BATCH_RULE`.

    The run takes 6 FLOPs a token and active parameter.
    """
    sequences = float(batch_tokens(6 * active_parameters * tokens)) / seq_len
    return int(2 ** max(round(math.log2(sequences)), 0))


def number(values: Mapping[str, Any], name: str) -> Any:
    """Return a column as floating-point numbers, NaN where it is missing."""
    found = values.get(name)
    return np.asarray(np.nan if found is None else found, dtype=np.float64)


def flag(values: Mapping[str, Any], name: str) -> Any:
    """Return a column of flags, false where it is missing."""
    return np.equal(np.asarray(values.get(name), dtype=object), True)


def parameters(shape: Shape) -> Any:
    """Return the parameters of a decoder.

    A model with a gated feed-forward layer is counted like Llama (arXiv 2307.09288: no biases, RMS
    norms, rotary positions, a separate output layer), others like GPT (arXiv 2104.04473 equation 2:
    biases, layer norms, learned positions, a tied output layer). If the vocabulary is unknown, its
    matrices are left out.
    """
    layers, hidden = number(shape, "num_layers"), number(shape, "hidden_size")
    ffn, gated = number(shape, "ffn_hidden_size"), flag(shape, "uses_glu")
    kv_width = hidden * kv_share(shape)
    vocabulary = np.nan_to_num(number(shape, "vocab_size"))
    attention = 2 * hidden * hidden + 2 * hidden * kv_width
    llama = layers * (attention + 3 * hidden * ffn + 2 * hidden) + hidden + 2 * vocabulary * hidden
    biases = 2 * hidden + 2 * kv_width + ffn + hidden
    gpt = layers * (attention + 2 * hidden * ffn + biases + 4 * hidden) + 2 * hidden
    gpt = gpt + (vocabulary + number(shape, "seq_len")) * hidden
    return np.where(gated, llama, gpt)


def kv_share(shape: Shape) -> Any:
    """Return the width of all keys over the width of all queries; 1 without grouped queries."""
    return number(shape, "num_kv_heads") / number(shape, "num_heads")


def kv_rank_share(shape: Shape, tensor_parallel: Any) -> Any:
    """Return the width of one rank's keys over that of all queries; at least one head's."""
    heads = np.maximum(number(shape, "num_kv_heads") / tensor_parallel, 1)
    return heads / number(shape, "num_heads")


def layer_activations(
    shape: Shape, sequences: Any, tensor_parallel: Any, splits_sequence: Any
) -> dict[str, Any]:
    """Return the bytes of one layer's activations on one GPU, part by part, nothing recomputed.

    Tensors have 16 bits, dropout masks 8 (arXiv 2205.05198 section 4.1, equations 1 to 3).
    Tensor-parallel ranks split the operands and results of products, and with sequence parallelism
    everything else. Widths of keys, values and feed-forward layer are those of the shape. A gated
    layer keeps its gate, the gate's activation, the other half and their product. With more ranks
    than heads of keys and values, each rank has a whole head.

    Parameters
    ----------
    sequences
        Sequences of a microbatch.
    splits_sequence
        Whether sequence parallelism splits the tensors between the products.
    """
    hidden, ffn = number(shape, "hidden_size"), number(shape, "ffn_hidden_size")
    heads, length = number(shape, "num_heads"), number(shape, "seq_len")
    rows = length * sequences
    inside = rows / tensor_parallel
    between = np.where(splits_sequence, inside, rows)
    scores = heads * length * inside
    share = kv_rank_share(shape, tensor_parallel) * tensor_parallel
    return {
        "layer_linear_proj_input_bytes": 2 * inside * hidden,
        "layer_attn_qkv_matmul_bytes": 2 * between * hidden,
        "layer_attn_qk_scores_bytes": 2 * inside * hidden * (1 + share),
        "layer_attn_softmax_bytes": 2 * scores,
        "layer_attn_dropout_bytes": scores,
        "layer_attn_v_bytes": 2 * scores + 2 * inside * hidden * share,
        "layer_attn_drop_mask_bytes": between * hidden,
        "layer_mlp_bytes": 3 * between * hidden
        + np.where(flag(shape, "uses_glu"), 8, 4) * inside * ffn,
        "layer_ln_bytes": 4 * between * hidden,
    }


def activations(
    shape: Shape,
    sequences: Any,
    recompute: Any,
    tensor_parallel: Any = 1.0,
    splits_sequence: Any = False,
) -> Any:
    """Return the bytes of all layers' activations on one GPU of the first pipeline stage.

    Parameters
    ----------
    recompute
        `none`; `selective`: tensors that grow with the square of the sequence are computed again;
        `full`: only the input of each layer is kept (arXiv 2205.05198 table 2, equations 2 to 6).

    Notes
    -----
    The first of p stages has 1/p of the layers and p microbatches under way, so the number of
    stages changes nothing.
    """
    parts = layer_activations(shape, sequences, tensor_parallel, splits_sequence)
    hidden, length = number(shape, "hidden_size"), number(shape, "seq_len")
    whole = sum(parts.values())
    inside = length * sequences / tensor_parallel
    dropped = 5 * number(shape, "num_heads") * length * inside
    entry = 2 * hidden * np.where(splits_sequence, inside, length * sequences)
    recompute = np.asarray(recompute, dtype=object)
    kept = np.where(
        np.equal(recompute, "full"),
        entry,
        np.where(np.equal(recompute, "selective"), whole - dropped, whole),
    )
    return number(shape, "num_layers") * kept
