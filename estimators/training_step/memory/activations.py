"""Bytes that one layer keeps of one microbatch, and further bytes that its backward pass needs.

The kept tensors are those in the code of three programs. In Megatron-Core with Transformer Engine a
norm, a product and an activation each keep their input (NVIDIA/Megatron-LM @d98e8a64
megatron/core/transformer; the same list in MooreThreads/SimuMax @4dcaae5
simumax/core/transformer/dense_module.py). The others are nanotron (huggingface/nanotron @67c5ebb6
src/nanotron/models/llama.py, parallel/tensor_parallel/functional.py) and torchtitan's recomputation
by operation. They agree with arXiv 2205.05198, equations 1 to 5.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import formats
from estimators.training_step.layer import Size
from estimators.training_step.modules import IN_MIXTURE, any_again

WHOLE_COPIES = 4.0
"""Bytes of one element of the residual stream that a backward pass holds for all tokens of a
tensor-parallel group: a gradient gathered before a product, and one not yet scattered."""

OWN_COPIES = 4.0
"""Bytes of one such element for a rank's own tokens: gradients of residual stream and norm."""


class Microbatch(NamedTuple):
    """Bytes of one microbatch on one GPU.

    Attributes
    ----------
    kept
        Tensors that a layer keeps until its backward pass; the others are recomputed.
    working
        Further tensors of a layer's backward pass: recomputed ones, and gradients.
    waiting
        Results of a layer that a tensor-parallel exchange still reads when the host goes on.
    entry
        Tensors that the embedding keeps.
    exit
        Tensors that the last norm keeps, and the input of the output layer.
    logits, logit_holes
        Peak of output layer and loss, and holes that it leaves in the allocator's memory.
    buffers
        Buffers of exchanges between products, shared by all layers.
    """

    kept: Any
    working: Any
    waiting: Any
    entry: Any
    exit: Any
    logits: Any
    logit_holes: Any
    buffers: Any


def microbatch_of(size: Size, values: Values, layout: Values) -> Microbatch:
    """Return the bytes of one microbatch in a layer, the embedding and the output layer."""
    recompute = values["activation_recompute"]
    whole = layer_bytes(size, values, layout)
    dropped = dropped_bytes(size, values, layout)
    kept, repeats = whole - sum(dropped), np.equal(recompute, "full")
    kept = np.where(repeats, 2.0 * size.rows * size.hidden, kept)
    by_operation = np.equal(recompute, "selective") & values["recomputes_operations"]
    if np.any(by_operation):
        kept = np.where(by_operation, _operation_bytes(size, values, layout), kept)
    working = reduce(np.maximum, dropped, 0.0) + gradient_bytes(size, values)
    if np.any(repeats | by_operation):
        working = working + np.where(repeats | by_operation, whole, 0.0)
    drops = np.where(values["uses_dropout"], 1.0, 0.0)
    between = size.rows * size.hidden
    is_split = layout["tensor_parallel"] > 1
    through = np.where(is_split, size.tokens * size.hidden, 0.0)
    words = size.tokens * values["vocab_size"] / layout["tensor_parallel"]
    words = words * (1 + values["num_mtp_layers"])
    stored = values["stored_logit_bytes"]
    return Microbatch(
        kept=kept,
        working=working,
        waiting=values["waiting_exchange_bytes"] * through,
        entry=drops * between,
        exit=4.0 * between,
        logits=words * stored,
        logit_holes=words * np.maximum(values["reserved_logit_bytes"] - stored, 0.0),
        buffers=values["exchange_buffer_bytes"] * through,
    )


def layer_bytes(size: Size, values: Values, layout: Values) -> Any:
    """Return the bytes that one layer keeps of one microbatch if nothing is recomputed."""
    drops = np.where(values["uses_dropout"], 1.0, 0.0)
    between = size.rows * size.hidden
    sparse, read = values["sparse_share"], formats.input_bytes(values)
    # inputs of both norms and of both blocks; masks. A router reads 16 bits
    own = (1 - sparse) * read + sparse * 2.0
    norms = (4 + read + own + 2 * drops + values["stored_norm_bytes"]) * between
    # queries, keys and values; the core's result, which the next product reads
    inside = 2.0 * size.tokens * (size.query + size.key + size.value)
    inside = inside + formats.core_bytes(values) * size.tokens * size.result
    # queries and keys before their norms
    normed = np.where(values["uses_qk_norm"], 2.0 * size.tokens * (size.query + size.key), 0.0)
    inside = inside + normed
    # latents before and after their norms
    latents = (2.0 + read) * (size.query_latent + size.key_latent) + 2.0 * size.rotary
    attention = norms + inside + size.rows * latents + _core_bytes(size, values, drops)
    halves = _halves(values)
    dense = halves * size.tokens * size.ffn
    if not np.any(sparse):
        return attention + dense
    return attention + (1 - sparse) * dense + sparse * mixture_bytes(size, values, layout)


def dropped_bytes(size: Size, values: Values, layout: Values) -> list[Any]:
    """Return the bytes that each part of `recompute_modules` drops and makes again.

    Norms, the activation of routed experts and latent attention drop their results. Other parts
    keep only their input, which the norm before them made. A fused core drops nothing: it keeps no
    scores, and the product behind it needs its result.
    """
    again = values["again"]
    if not any_again(values):
        return []
    sparse, read = values["sparse_share"], formats.input_bytes(values)
    routed = size.experts * size.expert_tokens
    norms = (read + (1 - sparse) * read + sparse * 2.0) * size.rows * size.hidden
    drops = np.where(values["uses_dropout"], 1.0, 0.0)
    is_flash = np.equal(values["attention"], "flash")
    kept = {
        "core_attn": np.where(is_flash, 0.0, _core_bytes(size, values, drops)),
        "layernorm": norms,
        "moe_act": sparse * read * routed * size.expert_ffn,
        "mlp": (1 - sparse) * _halves(values) * size.tokens * size.ffn,
        "shared_experts": sparse * _halves(values) * size.tokens * size.shared_ffn,
        "mla_up_proj": 2.0 * size.tokens * (size.query + size.key + size.value),
        "moe": sparse * mixture_bytes(size, values, layout),
    }
    inside = np.asarray(again["moe"])
    is_full = np.asarray(np.equal(values["activation_recompute"], "full"))
    return [
        np.where(again[name] & ~is_full & ~(inside & (name in IN_MIXTURE)), part, 0.0)
        for name, part in kept.items()
    ]


def mixture_bytes(size: Size, values: Values, layout: Values) -> Any:
    """Return the bytes that a layer's experts, their router and the shared experts keep.

    For each token and expert the router keeps 9 bytes: a logit and a score of 32 bits, and a byte
    of the map of chosen experts. A routed row keeps the input of its expert, the tensors of the
    expert's activation, and its probability in 32 bits. The activation applies the probability, so
    the expert's result is not kept (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/moe/README.md, memory-efficient permutation;
    fusions/fused_bias_swiglu.py WeightedSwiGLUFunction).
    """
    halves = _halves(values)
    routed = size.experts * size.expert_tokens
    stream = values["stored_routed_bytes"] - 2.0 + formats.input_bytes(values)
    each = stream * size.hidden + halves * size.expert_ffn + 4.0
    router = 9.0 * values["num_experts"] * size.tokens / layout["tensor_parallel"]
    return routed * each + halves * size.tokens * size.shared_ffn + router


def gradient_bytes(size: Size, values: Values) -> Any:
    """Return the bytes of the gradients that the backward pass of a layer holds at a time.

    They are largest in the feed-forward layer: gradients of the activation's result and of its
    input, and of the residual stream; of a mixture also of routed rows. Products add gradients of
    weights to their buffer.
    """
    gates = np.where(values["uses_glu"], 2.0, 1.0)
    sparse, routed = values["sparse_share"], size.experts * size.expert_tokens
    inside = (1 - sparse) * size.tokens * size.ffn
    inside = inside + sparse * (size.tokens * size.shared_ffn + routed * size.expert_ffn)
    stream = (WHOLE_COPIES * size.tokens + OWN_COPIES * size.rows) * size.hidden
    rows = sparse * 2 * values["stored_routed_bytes"] * routed * size.hidden
    return 2.0 * (1 + gates) * inside + stream + rows


def _halves(values: Values) -> Any:
    """Return the bytes kept of one element of a feed-forward width.

    A gated layer keeps both halves and their product; separate kernels also keep the activated
    gate. The next product keeps its input in the format of products.
    """
    kept = np.where(values["uses_glu"], values["stored_gate_bytes"], 4.0)
    return kept - 2.0 + formats.input_bytes(values)


def _core_bytes(size: Size, values: Values, drops: Any) -> Any:
    """Return the bytes that the core keeps: a statistic a query if fused, else scores and masks."""
    heads = size.heads
    length = values["seq_len"] * 1.0
    is_flash = np.equal(values["attention"], "flash")
    is_selective = np.equal(values["activation_recompute"], "selective")
    scores = heads * size.tokens * length * (2 + 3 * drops)
    return np.where(is_flash, 4.0 * heads * size.tokens, np.where(is_selective, 0.0, scores))


def _operation_bytes(size: Size, values: Values, layout: Values) -> Any:
    """Return the bytes that one layer keeps if it is recomputed by operation.

    It keeps its input, queries, values, the result of attention with its statistic, the result of
    the first feed-forward product, in a gated layer also that of the last one, and the sums of a
    tensor-parallel group (pytorch/torchtitan @82f7387f torchtitan/parallelisms/parallelize_llama.py
    _save_list, _get_custom_policy).
    """
    sparse, routed = values["sparse_share"], size.experts * size.expert_tokens
    core = size.query + size.value + size.result + 2.0 * size.heads
    first = (1 - sparse) * size.tokens * size.ffn
    first = first + sparse * (size.tokens * size.shared_ffn + routed * size.expert_ffn)
    shared = np.where(size.shared_ffn > 0, size.tokens, 0.0)
    last = ((1 - sparse) * size.tokens + sparse * (shared + routed)) * size.hidden
    last = np.where(values["uses_glu"], last, 0.0)
    sums = np.where(layout["tensor_parallel"] > 1, 3.0, 1.0) * size.rows * size.hidden
    return 2.0 * (size.tokens * core + first + last + sums)


def further_bytes(size: Size, values: Values) -> Any:
    """Return the bytes that a layer of further tokens keeps outside its transformer layer.

    For each token and element of the hidden width: 2 bytes of embeddings, which the first norm
    reads; the results of two norms, which the projection reads in its number format; 2 bytes each
    of the last norm's input and result. The norm of the hidden states reads a tensor that the layer
    before keeps. Full recomputation keeps only the embeddings.

    Source: NVIDIA/Megatron-LM @d98e8a64
    megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionLayer (enorm, hnorm,
    eh_proj, final_layernorm).
    """
    again = np.equal(values["activation_recompute"], "full")
    inside = 2 * formats.input_bytes(values) + 4.0
    return size.rows * size.hidden * (2.0 + np.where(again, 0.0, inside))


def with_further(layer: Microbatch, own: Any) -> Microbatch:
    """Return the bytes of a layer of further tokens: those of `layer`, with `own` more kept."""
    return layer._replace(kept=layer.kept + own)
