"""Parameters of a decoder, its activations, and the memory of one GPU by part.

Memory is that of a GPU of the first pipeline stage, in mixed precision with Adam.

Source: xrsrke/hf-notebooks diloco/transformer_mem_functional.py @dfaef07; arXiv 2205.05198 for
activations, arXiv 1910.02054 for the ZeRO stages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators import decoder
from estimators.structure import Structure, equals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Mends
    from estimators.values import Flag, Real, Text

WEIGHT_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 12
"""Two Adam moments and the master weights, four bytes each."""


@dataclass(frozen=True)
class Shape(Structure):
    """The shape of a decoder; a run without one has NaN."""

    num_layers: Real
    hidden_size: Real
    ffn_hidden_size: Real
    uses_glu: Flag
    num_heads: Real
    num_kv_heads: Real
    seq_len: Real

    def as_published(self, mends: Mends) -> Shape:
        """Return the shape that activations have: as published, that of a plain GPT (C18)."""
        if "C18" in mends:
            return self
        plain = np.bool_(False)
        return replace(
            self,
            num_kv_heads=self.num_heads,
            uses_glu=plain,
            ffn_hidden_size=4 * self.hidden_size,
        )

    def kv_rank_share(self, tensor_parallel: Real) -> Real:
        """Return the width of one rank's keys over that of all queries; at least one head's."""
        return np.maximum(self.num_kv_heads / tensor_parallel, 1) / self.num_heads


@dataclass(frozen=True)
class Layout(Structure):
    """The sequences that a GPU holds, and how GPUs share the work and the state."""

    batch_sequences: Real
    zero_stage: Real
    data_parallel: Real
    tensor_parallel: Real
    pipeline_parallel: Real
    uses_sequence_parallel: Flag

    @property
    def model_ranks(self) -> Real:
        """GPUs that share one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel


def parameters(columns: Mapping[str, Any]) -> Real:
    """Return the parameters of a decoder, with learned positions and the last norm.

    A model with a gated feed-forward layer is counted like Llama (arXiv 2307.09288: no biases, RMS
    norms, rotary positions, a separate output layer), others like GPT (arXiv 2104.04473 equation 2:
    biases, layer norms, learned positions, a tied output layer). If the vocabulary is unknown, its
    matrices are left out.
    """
    shape = decoder.shape_of(columns)
    parts, hidden = decoder.parameters(shape), shape.hidden_size
    llama = parts.embedding + parts.output + hidden
    gpt = parts.embedding + shape.seq_len * hidden + 2 * hidden
    return shape.num_layers * parts.layer + np.where(shape.uses_glu, llama, gpt)


def layer_activations(
    shape: Shape, sequences: Real, tensor_parallel: Real, splits_sequence: Flag | bool
) -> dict[str, Real]:
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
    hidden, ffn = shape.hidden_size, shape.ffn_hidden_size
    rows = shape.seq_len * sequences
    inside = rows / tensor_parallel
    between = np.where(splits_sequence, inside, rows)
    scores = shape.num_heads * shape.seq_len * inside
    share = shape.kv_rank_share(tensor_parallel) * tensor_parallel
    return {
        "layer_linear_proj_input_bytes": 2 * inside * hidden,
        "layer_attn_qkv_matmul_bytes": 2 * between * hidden,
        "layer_attn_qk_scores_bytes": 2 * inside * hidden * (1 + share),
        "layer_attn_softmax_bytes": 2 * scores,
        "layer_attn_dropout_bytes": scores,
        "layer_attn_v_bytes": 2 * scores + 2 * inside * hidden * share,
        "layer_attn_drop_mask_bytes": between * hidden,
        "layer_mlp_bytes": 3 * between * hidden + np.where(shape.uses_glu, 8, 4) * inside * ffn,
        "layer_ln_bytes": 4 * between * hidden,
    }


def activations(
    shape: Shape,
    sequences: Real,
    recompute: Text,
    tensor_parallel: Real = 1.0,
    splits_sequence: Flag | bool = False,
) -> Real:
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
    hidden, length = shape.hidden_size, shape.seq_len
    whole = sum(parts.values())
    inside = length * sequences / tensor_parallel
    dropped = 5 * shape.num_heads * length * inside
    entry = 2 * hidden * np.where(splits_sequence, inside, length * sequences)
    partly = np.where(equals(recompute, "selective"), whole - dropped, whole)
    return shape.num_layers * np.where(equals(recompute, "full"), entry, partly)


def memory(
    size: Real, shape: Shape, recompute: Text, layout: Layout, mends: Mends
) -> dict[str, Real]:
    """Return the bytes of each part, and of one layer's activations.

    Stages have equal shares of all `size` parameters, embeddings included.
    """
    plain = shape.as_published(mends)
    split = (layout.tensor_parallel, layout.uses_sequence_parallel)
    kept = activations(plain, layout.batch_sequences, recompute, *split)
    state = _state(size, layout, mends)
    cache = _kv_cache(shape, layout, mends)
    # A GPU that serves the model: ZeRO does not shard its weights (C17).
    served = state["weights_bytes"]
    if "C17" in mends:
        served = WEIGHT_BYTES * size / layout.model_ranks
    return {
        **state,
        "activations_bytes": kept,
        "kv_cache_bytes": cache,
        "memory_bytes": sum(state.values()) + kept,
        "inference_bytes": served + cache,
        **layer_activations(plain, layout.batch_sequences, *split),
    }


def _state(size: Real, layout: Layout, mends: Mends) -> dict[str, Real]:
    """Return weights, gradients and optimizer.

    With t tensor-parallel ranks, p stages and d replicas all three are divided by t p. ZeRO 1
    divides the optimizer by d, ZeRO 2 the gradients too, ZeRO 3 the weights too (arXiv 1910.02054).

    As published (C17) ZeRO 1 and above divide all three by d t p. Besides, weights are divided by
    t p, gradients by p, and the optimizer by nothing.
    """
    replicas, zero = layout.data_parallel, layout.zero_stage
    if "C17" in mends:
        split = size / layout.model_ranks
        return {
            "weights_bytes": WEIGHT_BYTES * split / np.where(zero >= 3, replicas, 1),
            "gradients_bytes": GRADIENT_BYTES * split / np.where(zero >= 2, replicas, 1),
            "optimizer_bytes": OPTIMIZER_BYTES * split / np.where(zero >= 1, replicas, 1),
        }
    all_ranks = np.where(zero >= 1, replicas * layout.tensor_parallel * layout.pipeline_parallel, 1)
    return {
        "weights_bytes": WEIGHT_BYTES * size / layout.model_ranks / all_ranks,
        "gradients_bytes": GRADIENT_BYTES * size / all_ranks / layout.pipeline_parallel,
        "optimizer_bytes": OPTIMIZER_BYTES * size / all_ranks,
    }


def _kv_cache(shape: Shape, layout: Layout, mends: Mends) -> Real:
    """Return the bytes of keys and values of one sequence: ``2 x 2 x layers x hidden x length``.

    Times key-value heads over heads; as published, all heads count (C16). The published formula
    ignores the layout. The mended one splits layers over stages, and key-value heads over ranks,
    with one head a rank at least (C17).
    """
    whole = 2 * WEIGHT_BYTES * shape.num_layers * shape.hidden_size * shape.seq_len
    if "C16" not in mends:
        shape = replace(shape, num_kv_heads=shape.num_heads)
    if "C17" not in mends:
        return whole * shape.kv_rank_share(1.0)
    return whole * shape.kv_rank_share(layout.tensor_parallel) / layout.pipeline_parallel
