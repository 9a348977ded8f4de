"""Parameters and floating-point operations of a decoder, dense or a mixture of experts.

Model FLOPs are three times the forward pass, with attention over the whole square of scores. A
layer with a window counts the square of shorter sequences with as much causal attention. Layers
that predict further tokens count, each with an output layer.

Sources: arXiv 2205.05198 appendix A, arXiv 2204.02311 appendix B, arXiv 2104.04473 equation 2;
Megatron-LM @d98e8a64 megatron/training/training.py `num_floating_point_operations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from estimators.structure import Structure, equals, real

if TYPE_CHECKING:
    from estimators.values import Flag, Real, Text


@dataclass(frozen=True)
class Shape(Structure):
    """The shape of a decoder.

    Attributes
    ----------
    sparse_share
        Share of the layers that are mixtures of experts.
    """

    num_layers: Real
    hidden_size: Real
    ffn_hidden_size: Real
    uses_glu: Flag
    num_heads: Real
    num_kv_heads: Real
    head_size: Real
    vocab_size: Real
    ties_embedding: Flag
    num_experts: Real
    experts_per_token: Real
    expert_ffn_hidden_size: Real
    num_shared_experts: Real
    num_dense_layers: Real
    seq_len: Real
    q_lora_rank: Real
    kv_lora_rank: Real
    qk_head_size: Real
    qk_rotary_size: Real
    v_head_size: Real
    shared_ffn_hidden_size: Real
    moe_period: Real
    num_mtp_layers: Real
    route_groups: Real
    route_groups_kept: Real
    attention_window: Real
    window_period: Real
    uses_chunked_attention: Flag
    uses_qk_norm: Flag
    uses_attention_sinks: Flag
    uses_linear_bias: Flag
    uses_gate_clamp: Flag
    uses_yarn: Flag
    uses_router_bias: Flag
    uses_post_norm: Flag
    other_layer_parameters: Real
    sparse_share: Real

    @classmethod
    def of(cls, columns: Mapping[str, Any], **others: Any) -> Self:
        """Return the shape; layers of a mixture are those that are not dense."""
        dense = columns["num_dense_layers"] / real(columns["num_layers"])
        sparse = np.where(np.greater(columns["num_experts"], 1), 1 - dense, 0.0)[()]
        shape = super().of(columns, sparse_share=sparse, **others)
        missing = {
            name: np.nan_to_num(getattr(shape, name))
            for name in ("vocab_size", "other_layer_parameters")
        }
        return replace(shape, **missing)


class Parameters(NamedTuple):
    """Parameters of an average layer and of the vocabulary, by the ranks that hold them."""

    split: Real
    """Parameters of a layer that tensor-parallel ranks split, without routed experts."""

    whole: Real
    """Parameters of a layer that every tensor-parallel rank has: norms, router, biases that are
    added to sums over ranks, projections down to the latents of attention, and small others."""

    experts: Real
    """Parameters of all routed experts of a layer."""

    embedding: Real
    output: Real
    """Parameters of the output layer: those of the embedding, even if it shares its weights."""

    @property
    def layer(self) -> Real:
        """Parameters of a layer without its routed experts."""
        return self.split + self.whole


def parameters(shape: Shape) -> Parameters:
    """Return the parameters of an average layer and of the vocabulary.

    Norms have two weights an element in layers without a gate (Megatron-LM), one in gated layers
    (Llama). Learned positions and the last norm are left out: they are too small to matter.

    Sources: arXiv 2104.04473 equation 2; for latent attention NVIDIA/Megatron-LM @d98e8a64
    megatron/training/theoretical_memory_usage.py `compute_weight_and_optimizer_memory`, and
    megatron/core/transformer/multi_latent_attention.py for the parameters that ranks hold whole.
    """
    hidden, gated = shape.hidden_size, shape.uses_glu
    sparse, matmuls = shape.sparse_share, np.where(gated, 3.0, 2.0)
    biased = np.where(shape.uses_linear_bias, 1.0, 0.0)
    down, up = attention_weights(shape)
    width = attention_widths(shape)
    attention = up + biased * (width.queries + width.keys + width.values)
    # of one element of a feed-forward layer's width, without the bias of the result
    element = matmuls * hidden + biased * (matmuls - 1)
    ffn = element * shape.ffn_hidden_size
    shared = element * shape.shared_ffn_hidden_size
    has_shared = np.where(shape.shared_ffn_hidden_size > 0, sparse, 0.0)
    expert = element * shape.expert_ffn_hidden_size + biased * hidden
    router = shape.num_experts * (hidden + np.where(shape.uses_router_bias, 1.0, 0.0))
    norms = np.where(shape.uses_post_norm, 2.0, 1.0) * np.where(gated, 2.0, 4.0) * hidden
    small = np.where(shape.uses_qk_norm, 2.0 * shape.head_size, 0.0)
    sinks = np.where(shape.uses_attention_sinks, shape.num_heads, 0.0)
    biases = biased * hidden * (2.0 - sparse + has_shared)
    vocabulary = shape.vocab_size * hidden
    return Parameters(
        attention + sinks + (1 - sparse) * ffn + sparse * shared,
        down + norms + small + biases + sparse * router + shape.other_layer_parameters,
        sparse * shape.num_experts * expert,
        vocabulary,
        vocabulary,
    )


class AttentionWidths(NamedTuple):
    """Widths of all queries, keys and values, and of the result of attention."""

    queries: Real
    keys: Real
    values: Real
    result: Real


def attention_widths(shape: Shape) -> AttentionWidths:
    """Return the widths of attention; with latents every head has its own keys and values."""
    key_heads = np.where(np.greater(shape.kv_lora_rank, 0), shape.num_heads, shape.num_kv_heads)
    key_size = shape.qk_head_size + shape.qk_rotary_size
    return AttentionWidths(
        shape.num_heads * key_size,
        key_heads * key_size,
        key_heads * shape.v_head_size,
        shape.num_heads * shape.v_head_size,
    )


def attention_weights(shape: Shape) -> tuple[Real, Real]:
    """Return the weights of a layer's attention: those down to the latents with norms, and others.

    Without latents the first number is 0. With latents, queries come from their latent, or from the
    residual stream if they have none. Keys and values come from another latent; the rotary part of
    the keys comes from the residual stream, and all heads share it (arXiv 2405.04434 section 2.1).
    """
    hidden = shape.hidden_size
    queries, keys, values, result = attention_widths(shape)
    plain = hidden * (queries + keys + values + result)
    latent, of_queries = shape.kv_lora_rank, shape.q_lora_rank
    if not np.any(latent):
        return 0.0 * plain, plain
    rotary = shape.qk_rotary_size
    heads = shape.num_heads * (shape.qk_head_size + shape.v_head_size)
    has_queries = of_queries > 0
    down = hidden * (of_queries + latent + rotary) + of_queries + latent
    up = np.where(has_queries, of_queries, hidden) * queries + latent * heads + hidden * result
    return np.where(latent > 0, down, 0.0), np.where(latent > 0, up, plain)


def attended_length(shape: Shape) -> Real:
    """Return the length of sequences with as much causal attention as a windowed layer.

    In a sequence of that length a query attends to half of it on average. With a window of w tokens
    in sequences of s it attends to ``w - w^2 / 2s``, so the length is ``w (2 - w / s)``. In chunks
    of w tokens it attends to w / 2, so the length is w.
    """
    length, window = shape.seq_len, shape.attention_window
    sliding = window * (2.0 - window / length)
    inside = np.where(shape.uses_chunked_attention, window, sliding)
    return np.where((window > 0) & (window < length), inside, length)


def unwindowed_share(shape: Shape) -> Real:
    """Return the share of the layers that attend to all earlier tokens."""
    every = shape.window_period
    layers = shape.num_layers
    whole = np.where(every > 0, layers // np.maximum(every, 1) / layers, 0.0)
    return np.where(shape.attention_window > 0, whole, 1.0)


def shape_of(columns: Mapping[str, Any]) -> Shape:
    """Return the shape of a model, or of one a row; what is absent is filled as in a dense one.

    Its heads have one width, as many keys as queries, and no window.
    """
    filled = dict(columns)

    def fill(name: str, usual: Any) -> None:
        value = np.asarray(filled.get(name), dtype=object)
        # None and NaN are absent
        is_absent: Any = np.equal(value, np.array(None)) | np.not_equal(value, value)
        filled[name] = np.where(is_absent, usual, value)[()]

    for name, usual in _DENSE.items():
        fill(name, usual)
    fill("num_kv_heads", filled["num_heads"])
    fill("head_size", filled["hidden_size"] // np.maximum(filled["num_heads"], 1))
    fill("qk_head_size", filled["head_size"])
    fill("v_head_size", filled["head_size"])
    fill("expert_ffn_hidden_size", filled["ffn_hidden_size"])
    shared = filled["num_shared_experts"] * filled["expert_ffn_hidden_size"]
    fill("shared_ffn_hidden_size", shared)
    fill("uses_linear_bias", np.logical_not(filled["uses_glu"]))
    layers = filled["num_layers"]
    fill("num_dense_layers", layers - layers // filled["moe_period"])
    return Shape.of(filled)


_DENSE = {
    "uses_glu": False,
    "num_experts": 1,
    "experts_per_token": 1,
    "num_shared_experts": 0,
    "moe_period": 1,
    "num_mtp_layers": 0,
    "q_lora_rank": 0,
    "kv_lora_rank": 0,
    "qk_rotary_size": 0,
    "attention_window": 0,
    "window_period": 0,
    "uses_chunked_attention": False,
    "uses_qk_norm": False,
    "uses_attention_sinks": False,
    "uses_router_bias": False,
    "uses_gate_clamp": False,
    "uses_yarn": False,
    "ties_embedding": True,
}


def layer_parameters(shape: Shape) -> tuple[Real, Real]:
    """Return the parameters of all layers, and those that one token passes through.

    Layers that predict further tokens are left out, as publications do.
    """
    dense = np.where(shape.num_experts > 1, shape.num_dense_layers, shape.num_layers)
    active_share = shape.experts_per_token / shape.num_experts
    whole: Real = np.float64(0.0)
    active: Real = np.float64(0.0)
    # counted by kind of layer: the numbers of an average layer need not be whole
    for sparse, number in ((0.0, dense), (1.0, shape.num_layers - dense)):
        count = parameters(replace(shape, sparse_share=np.float64(sparse)))
        whole = whole + number * (count.layer + count.experts)
        active = active + number * (count.layer + active_share * count.experts)
    return whole, active


def model_parameters(shape: Shape) -> Real:
    """Return the parameters of a model: its layers, the last norm and the vocabulary."""
    norm = np.where(shape.uses_glu, 1.0, 2.0)
    matrices = np.where(shape.ties_embedding, 1.0, 2.0)
    whole, _ = layer_parameters(shape)
    return whole + (norm + matrices * shape.vocab_size) * shape.hidden_size


def mtp_parameters(shape: Shape) -> Parameters:
    """Return the parameters of one layer that predicts a further token.

    It is a layer of the last kind with a projection from twice the width, which ranks split, and
    three norms. It shares embedding and output layer with the model (arXiv 2412.19437 section 2.2;
    Megatron-LM @d98e8a64 megatron/core/transformer/multi_token_prediction.py).
    """
    hidden = shape.hidden_size
    last = np.where(np.greater(shape.num_experts, 1), 1.0, 0.0)
    count = parameters(replace(shape, sparse_share=last))
    norms = np.where(shape.uses_glu, 3.0, 6.0) * hidden
    return count._replace(split=count.split + 2 * hidden * hidden, whole=count.whole + norms)


def model_flops(shape: Shape, sequences: Real) -> Real:
    """Return the model FLOPs of a step of some sequences: forward and backward, nothing again."""
    layers = 3 * (_layers(shape) + _scores(shape))
    output_layers = 1.0 + shape.num_mtp_layers
    output = 2.0 * output_layers * shape.hidden_size * shape.vocab_size
    return sequences * shape.seq_len * (layers + 3 * output)


def hardware_flops(
    shape: Shape,
    sequences: Real,
    recompute: Text,
    recomputes_operations: Flag,
    repeats_core: Flag,
) -> Real:
    """Return the model FLOPs with the recomputed ones (HFU, arXiv 2205.05198).

    Scores that fused attention recomputes in its backward pass do not count. Neither do
    `recompute_modules`.

    Parameters
    ----------
    recompute, recomputes_operations
        Columns `activation_recompute` and `recomputes_operations`.
    repeats_core
        Whether selective recomputation repeats the core of attention.
    """
    of_core = np.where(repeats_core, _scores(shape), 0.0)
    selective = np.where(recomputes_operations, _operations(shape), of_core)
    core = np.where(equals(recompute, "selective"), selective, 0.0)
    again = np.where(equals(recompute, "full"), _layers(shape) + _scores(shape), core)
    return model_flops(shape, sequences) + sequences * shape.seq_len * again


def least_flops(shape: Shape, sequences: Real) -> Real:
    """Return the least FLOPs of a step: model FLOPs with causal attention.

    Half of the square of scores lies in the future: a causal mask halves the FLOPs of attention
    (arXiv 2307.08691, section 4.1).
    """
    return model_flops(shape, sequences) - sequences * shape.seq_len * 1.5 * _scores(shape)


def _layers(shape: Shape) -> Real:
    """Return the FLOPs of one token in the matmuls of all layers, forward.

    A layer that predicts a further token is one of the last kind, with a projection from twice the
    width.
    """
    layers = shape.num_layers * _matmuls(shape, shape.sparse_share)
    if not np.any(shape.num_mtp_layers):
        return layers
    last = np.where(np.greater(shape.num_experts, 1), 1.0, 0.0)
    projection = 4.0 * shape.hidden_size * shape.hidden_size
    return layers + shape.num_mtp_layers * (_matmuls(shape, last) + projection)


def _matmuls(shape: Shape, sparse: Real) -> Real:
    """Return the FLOPs of one token in the matmuls of a layer, forward."""
    hidden = shape.hidden_size
    down, up = attention_weights(shape)
    # weights of norms multiply no matrix
    norms = np.where(shape.kv_lora_rank > 0, shape.q_lora_rank + shape.kv_lora_rank, 0)
    matmuls = np.where(shape.uses_glu, 3.0, 2.0)
    router = sparse * shape.num_experts
    return 2 * (down - norms + up + hidden * (matmuls * ffn_width(shape, sparse) + router))


def ffn_width(shape: Shape, sparse: Real) -> Real:
    """Return the width of the feed-forward layer that one token passes through."""
    experts = shape.experts_per_token * shape.expert_ffn_hidden_size
    mixed = experts + shape.shared_ffn_hidden_size
    return (1 - sparse) * shape.ffn_hidden_size + sparse * mixed


def _operations(shape: Shape) -> Real:
    """Return the FLOPs of one token that recomputation by operation repeats.

    They are the matmuls of the keys and behind attention, and the second matmul into a gated layer.
    """
    width = attention_widths(shape)
    ffn = np.where(shape.uses_glu, ffn_width(shape, shape.sparse_share), 0.0)
    return 2 * shape.num_layers * shape.hidden_size * (width.keys + width.result + ffn)


def _scores(shape: Shape) -> Real:
    """Return the FLOPs of one token in scores and their product with values, forward.

    ``2 x layers x length x (queries + results)``, over the whole square.
    """
    width = attention_widths(shape)
    layers = shape.num_layers + shape.num_mtp_layers
    whole = unwindowed_share(shape)
    length = whole * shape.seq_len + (1 - whole) * attended_length(shape)
    return 2.0 * layers * length * (width.queries + width.result)
