"""Parameters and floating-point operations of a decoder, dense or a mixture of experts.

Model FLOPs are three times the forward pass, with attention over the whole square of scores. A
layer with a window counts the square of shorter sequences with as much causal attention. Layers
that predict further tokens count, each with an output layer.

Sources: arXiv 2205.05198 appendix A, arXiv 2204.02311 appendix B, arXiv 2104.04473 equation 2;
Megatron-LM @d98e8a64 megatron/training/training.py `num_floating_point_operations`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values


class Parameters(NamedTuple):
    """Parameters of an average layer and of the vocabulary, by the ranks that hold them."""

    split: Any
    """Parameters of a layer that tensor-parallel ranks split, without routed experts."""

    whole: Any
    """Parameters of a layer that every tensor-parallel rank has: norms, router, biases that are
    added to sums over ranks, and projections down to the latents of attention."""

    experts: Any
    """Parameters of all routed experts of a layer."""

    embedding: Any
    output: Any
    """Parameters of the output layer: those of the embedding, even if it shares its weights."""

    @property
    def layer(self) -> Any:
        """Parameters of a layer without its routed experts."""
        return self.split + self.whole


def parameters(values: Values) -> Parameters:
    """Return the parameters of an average layer and of the vocabulary.

    Norms have two weights an element in layers without a gate (Megatron-LM), one in gated layers
    (Llama). Learned positions and the last norm are left out: they are too small to matter.

    Sources: arXiv 2104.04473 equation 2; for latent attention NVIDIA/Megatron-LM @d98e8a64
    megatron/training/theoretical_memory_usage.py `compute_weight_and_optimizer_memory`, and
    megatron/core/transformer/multi_latent_attention.py for the parameters that ranks hold whole.
    """
    hidden, gated = values["hidden_size"] * 1.0, values["uses_glu"]
    sparse, products = values["sparse_share"], np.where(gated, 3.0, 2.0)
    biased = np.where(values["uses_linear_bias"], 1.0, 0.0)
    down, up = attention_weights(values)
    attention = up + biased * (queries_width(values) + keys_width(values) + values_width(values))
    gates = products - 1
    ffn = _width(hidden, products, biased * gates, values["ffn_hidden_size"])
    shared = _width(hidden, products, biased * gates, values["shared_ffn_hidden_size"])
    has_shared = np.where(values["shared_ffn_hidden_size"] > 0, sparse, 0.0)
    expert = _width(hidden, products, biased * gates, values["expert_ffn_hidden_size"])
    expert = expert + biased * hidden
    router = values["num_experts"] * (hidden + np.where(values["uses_router_bias"], 1.0, 0.0))
    norms = np.where(gated, 2.0, 4.0) * hidden
    small = np.where(values["uses_qk_norm"], 2.0 * values["head_size"], 0.0)
    sinks = np.where(values["uses_attention_sinks"], values["num_heads"], 0.0)
    biases = biased * hidden * (2.0 - sparse + has_shared)
    vocabulary = values["vocab_size"] * hidden
    return Parameters(
        attention + sinks + (1 - sparse) * ffn + sparse * shared,
        down + norms + small + biases + sparse * router,
        sparse * values["num_experts"] * expert,
        vocabulary,
        vocabulary,
    )


def _width(hidden: Any, products: Any, biases: Any, width: Any) -> Any:
    """Return the parameters of a feed-forward layer of a width, except the bias of its result."""
    return (products * hidden + biases) * width


def attention_weights(values: Values) -> tuple[Any, Any]:
    """Return the weights of a layer's attention: those down to the latents with norms, and others.

    Without latents the first number is 0. With latents, queries come from their latent, or from the
    residual stream if they have none. Keys and values come from another latent; the rotary part of
    the keys comes from the residual stream, and all heads share it (arXiv 2405.04434 section 2.1).
    """
    hidden = values["hidden_size"] * 1.0
    queries, result = queries_width(values), result_width(values)
    plain = hidden * (queries + keys_width(values) + values_width(values) + result)
    latent, of_queries = values["kv_lora_rank"] * 1.0, values["q_lora_rank"] * 1.0
    if not np.any(latent):
        return 0.0 * plain, plain
    rotary = values["qk_rotary_size"]
    heads = values["num_heads"] * (values["qk_head_size"] + values["v_head_size"] * 1.0)
    has_queries = of_queries > 0
    down = hidden * (of_queries + latent + rotary) + of_queries + latent
    up = np.where(has_queries, of_queries, hidden) * queries + latent * heads + hidden * result
    return np.where(latent > 0, down, 0.0), np.where(latent > 0, up, plain)


def queries_width(values: Values) -> Any:
    """Return the width of all queries."""
    return values["num_heads"] * (values["qk_head_size"] + values["qk_rotary_size"] * 1.0)


def keys_width(values: Values) -> Any:
    """Return the width of all keys: with latents every head has its own."""
    return _key_heads(values) * (values["qk_head_size"] + values["qk_rotary_size"])


def values_width(values: Values) -> Any:
    """Return the width of all values."""
    return _key_heads(values) * values["v_head_size"]


def result_width(values: Values) -> Any:
    """Return the width of the result of attention."""
    return values["num_heads"] * (values["v_head_size"] * 1.0)


def _key_heads(values: Values) -> Any:
    has_latent = np.greater(values["kv_lora_rank"], 0)
    heads: Any = np.where(has_latent, values["num_heads"], values["num_kv_heads"])
    return heads * 1.0


def attended_length(values: Values) -> Any:
    """Return the length of sequences with as much causal attention as a windowed layer.

    In a sequence of that length a query attends to half of it on average. With a window of w tokens
    in sequences of s it attends to ``w - w^2 / 2s``, so the length is ``w (2 - w / s)``. In chunks
    of w tokens it attends to w / 2, so the length is w.
    """
    length, window = values["seq_len"] * 1.0, values["attention_window"] * 1.0
    sliding = window * (2.0 - window / length)
    inside = np.where(values["uses_chunked_attention"], window, sliding)
    return np.where((window > 0) & (window < length), inside, length)


def unwindowed_share(values: Values) -> Any:
    """Return the share of the layers that attend to all earlier tokens."""
    every = values["window_period"]
    layers = values["num_layers"] * 1.0
    whole = np.where(every > 0, layers // np.maximum(every, 1) / layers, 0.0)
    return np.where(values["attention_window"] > 0, whole, 1.0)


def with_details(values: Values) -> dict[str, Any]:
    """Return the values of a shape, absent columns filled as in a dense model.

    Its heads have one width, as many keys as queries, and no window.
    """
    shape: dict[str, Any] = {
        **_DENSE,
        **{n: value for n, value in values.items() if value is not None},
    }
    shape.setdefault("num_kv_heads", shape["num_heads"])
    shape.setdefault("head_size", shape["hidden_size"] // max(shape["num_heads"], 1))
    shape.setdefault("qk_head_size", shape["head_size"])
    shape.setdefault("v_head_size", shape["head_size"])
    shape.setdefault("expert_ffn_hidden_size", shape["ffn_hidden_size"])
    shared = shape["num_shared_experts"] * shape["expert_ffn_hidden_size"]
    shape.setdefault("shared_ffn_hidden_size", shared)
    shape.setdefault("uses_linear_bias", not shape["uses_glu"])
    is_mixed = shape["num_experts"] > 1
    layers = shape["num_layers"]
    shape.setdefault("num_dense_layers", layers - layers // shape["moe_period"])
    dense = shape["num_dense_layers"] / float(layers)
    return {"vocab_size": 0.0, **shape, "sparse_share": 1 - dense if is_mixed else 0.0}


def layer_parameters(values: Values) -> tuple[float, float]:
    """Return the parameters of all layers, and those that one token passes through.

    Layers that predict further tokens are left out, as publications do.

    Parameters
    ----------
    values
        Scalars of a shape, without its vocabulary. Absent columns are those of `with_details`.
    """
    shape = with_details(values)
    layers, experts = float(shape["num_layers"]), float(shape["num_experts"])
    dense = float(shape["num_dense_layers"]) if experts > 1 else layers
    share = float(shape["experts_per_token"]) / experts
    whole = active = 0.0
    # counted by kind of layer: the numbers of an average layer need not be whole
    for sparse, number in ((0.0, dense), (1.0, layers - dense)):
        count = parameters({**shape, "sparse_share": sparse})
        whole += number * float(count.layer + count.experts)
        active += number * float(count.layer + share * count.experts)
    return whole, active


def mtp_parameters(values: Values) -> Parameters:
    """Return the parameters of one layer that predicts a further token.

    It is a layer of the last kind with a projection from twice the width, which ranks split, and
    three norms. Embedding and output layer are those of the model (arXiv 2412.19437 section 2.2;
    Megatron-LM @d98e8a64 megatron/core/transformer/multi_token_prediction.py).
    """
    hidden = values["hidden_size"] * 1.0
    last = np.where(np.greater(values["num_experts"], 1), 1.0, 0.0)
    count = parameters({**values, "sparse_share": last})
    norms = np.where(values["uses_glu"], 3.0, 6.0) * hidden
    return count._replace(split=count.split + 2 * hidden * hidden, whole=count.whole + norms)


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


def model_flops(values: Values) -> Any:
    """Return the model FLOPs of a step: forward and backward, nothing done again."""
    return _tokens(values) * (3 * (_layers(values) + _scores(values)) + 3 * _vocabulary(values))


def hardware_flops(values: Values) -> Any:
    """Return the model FLOPs with the recomputed ones (HFU, arXiv 2205.05198).

    Scores that fused attention recomputes in its backward pass do not count. Neither do
    `recompute_modules`.
    """
    recompute = values["activation_recompute"]
    selective = np.where(values["recomputes_operations"], _operations(values), _scores(values))
    core = np.where(np.equal(recompute, "selective"), selective, 0.0)
    again = np.where(np.equal(recompute, "full"), _layers(values) + _scores(values), core)
    return model_flops(values) + _tokens(values) * again


def least_flops(values: Values) -> Any:
    """Return the least FLOPs of a step: model FLOPs with causal attention.

    Half of the square of scores lies in the future: a causal mask halves the FLOPs of attention
    (arXiv 2307.08691, section 4.1).
    """
    return model_flops(values) - _tokens(values) * 1.5 * _scores(values)


def _tokens(values: Values) -> Any:
    return values["global_batch_size"] * (1.0 * values["seq_len"])


def _layers(values: Values) -> Any:
    """Return the FLOPs of one token in the products of all layers, forward."""
    return values["num_layers"] * _products(values, values["sparse_share"]) + _further(values)


def _products(values: Values, sparse: Any) -> Any:
    """Return the FLOPs of one token in the products of a layer, forward."""
    hidden = values["hidden_size"] * 1.0
    down, up = attention_weights(values)
    # weights of norms multiply no matrix
    norms = np.where(values["kv_lora_rank"] > 0, values["q_lora_rank"] + values["kv_lora_rank"], 0)
    products = np.where(values["uses_glu"], 3.0, 2.0)
    router = sparse * values["num_experts"]
    return 2 * (down - norms + up + hidden * (products * ffn_width(values, sparse) + router))


def ffn_width(values: Values, sparse: Any) -> Any:
    """Return the width of the feed-forward layer that one token passes through."""
    experts = values["experts_per_token"] * values["expert_ffn_hidden_size"]
    mixed = experts + values["shared_ffn_hidden_size"]
    return (1 - sparse) * values["ffn_hidden_size"] + sparse * mixed


def _further(values: Values) -> Any:
    """Return the FLOPs of one token in the products of layers that predict further tokens."""
    if not np.any(values["num_mtp_layers"]):
        return 0.0
    last = np.where(np.greater(values["num_experts"], 1), 1.0, 0.0)
    projection = 4.0 * values["hidden_size"] * values["hidden_size"]
    return values["num_mtp_layers"] * (_products(values, last) + projection)


def _operations(values: Values) -> Any:
    """Return the FLOPs of one token that recomputation by operation repeats.

    They are the products of the keys and behind attention, and the second product into a gated
    layer.
    """
    hidden = values["hidden_size"] * 1.0
    width = keys_width(values) + result_width(values)
    ffn = np.where(values["uses_glu"], ffn_width(values, values["sparse_share"]), 0.0)
    return 2 * values["num_layers"] * hidden * (width + ffn)


def _scores(values: Values) -> Any:
    """Return the FLOPs of one token in scores and their product with values, forward.

    ``2 x layers x length x (queries + results)``, over the whole square.
    """
    width = queries_width(values) + result_width(values)
    layers = values["num_layers"] + values["num_mtp_layers"]
    whole = unwindowed_share(values)
    length = whole * values["seq_len"] + (1 - whole) * attended_length(values)
    return 2.0 * layers * length * width


def _vocabulary(values: Values) -> Any:
    times = 1.0 + values["num_mtp_layers"]
    return 2.0 * times * values["hidden_size"] * values["vocab_size"]
