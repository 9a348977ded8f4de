"""Parameters and floating-point operations of a decoder, dense or a mixture of experts.

Sources: arXiv 2205.05198 appendix A and arXiv 2204.02311 appendix B (model FLOPs: three times
the forward pass, attention counted over the whole square), arXiv 2104.04473 equation 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values


class Parameters(NamedTuple):
    """Parameters by where they are kept: an average layer's, split over tensors and experts."""

    layer: Any
    """Of a layer, without its routed experts."""

    experts: Any
    """Routed experts of an average layer, all of them."""

    embedding: Any
    output: Any
    """The output layer: as large as the embedding, whether it shares its weights or not."""


def parameters(values: Values) -> Parameters:
    """Return the parameters of an average layer and of the vocabulary.

    Biases and norms of the layers are counted as Megatron-LM's where the feed-forward layer is
    not gated, norms alone where it is (Llama). Learned positions and the last norm, of which no
    GPU has a share that matters, are left out.
    """
    hidden, gated = values["hidden_size"] * 1.0, values["uses_glu"]
    queries = values["num_heads"] * values["head_size"] * 1.0
    keys = values["num_kv_heads"] * values["head_size"] * 1.0
    sparse, products = values["sparse_share"], np.where(gated, 3.0, 2.0)
    attention = 2 * hidden * queries + 2 * hidden * keys
    expert = products * hidden * values["expert_ffn_hidden_size"]
    ffn = (1 - sparse) * products * hidden * values["ffn_hidden_size"] + sparse * (
        values["num_shared_experts"] * expert + hidden * values["num_experts"]
    )
    biases = queries + 2 * keys + hidden + values["ffn_hidden_size"] + hidden
    small = np.where(gated, 2 * hidden, 4 * hidden + biases)
    vocabulary = values["vocab_size"] * hidden
    return Parameters(
        attention + ffn + small, sparse * values["num_experts"] * expert, vocabulary, vocabulary
    )


def layer_parameters(values: Values) -> tuple[float, float]:
    """Return the parameters of all layers, and those that one token passes through.

    Parameters
    ----------
    values
        Scalars of a shape, without its vocabulary. Absent columns are those of a dense model
        with one head of keys and values for each head.
    """
    given = {name: value for name, value in values.items() if value is not None}
    shape: dict[str, Any] = {**_DENSE, **given}
    shape.setdefault("num_kv_heads", shape["num_heads"])
    shape.setdefault("head_size", shape["hidden_size"] // max(shape["num_heads"], 1))
    shape.setdefault("expert_ffn_hidden_size", shape["ffn_hidden_size"])
    layers, experts = float(shape["num_layers"]), float(shape["num_experts"])
    dense = shape["num_dense_layers"] / layers
    shape |= {"vocab_size": 0.0, "sparse_share": 1 - dense if experts > 1 else 0.0}
    count = parameters(shape)
    share = float(shape["experts_per_token"]) / experts
    whole, active = count.layer + count.experts, count.layer + share * count.experts
    return float(layers * whole), float(layers * active)


_DENSE = {
    "uses_glu": False,
    "num_experts": 1,
    "experts_per_token": 1,
    "num_shared_experts": 0,
    "num_dense_layers": 0,
}


def model_flops(values: Values) -> Any:
    """Return the model FLOPs of a step: forward and backward, nothing done again."""
    return _tokens(values) * (3 * (_layers(values) + _scores(values)) + 3 * _vocabulary(values))


def hardware_flops(values: Values) -> Any:
    """Return the model FLOPs with the recomputed ones (HFU, arXiv 2205.05198).

    Work that fused attention repeats within its backward pass does not count.
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
    hidden, sparse = values["hidden_size"] * 1.0, values["sparse_share"]
    width = values["num_heads"] * values["head_size"]
    keys = values["num_kv_heads"] * values["head_size"]
    products = np.where(values["uses_glu"], 3.0, 2.0)
    experts = values["experts_per_token"] + values["num_shared_experts"]
    ffn = (1 - sparse) * values["ffn_hidden_size"] + sparse * (
        experts * values["expert_ffn_hidden_size"]
    )
    router = sparse * values["num_experts"]
    return 2 * values["num_layers"] * hidden * (2 * width + 2 * keys + products * ffn + router)


def _operations(values: Values) -> Any:
    """Return the FLOPs of one token that recomputation by operation repeats.

    Products of keys and behind attention, and the second of a gated layer's two.
    """
    hidden, sparse = values["hidden_size"] * 1.0, values["sparse_share"]
    width = (values["num_heads"] + values["num_kv_heads"]) * values["head_size"]
    experts = values["experts_per_token"] + values["num_shared_experts"]
    ffn = (1 - sparse) * values["ffn_hidden_size"] + sparse * (
        experts * values["expert_ffn_hidden_size"]
    )
    return 2 * values["num_layers"] * hidden * (width + np.where(values["uses_glu"], ffn, 0.0))


def _scores(values: Values) -> Any:
    width = values["num_heads"] * values["head_size"]
    return 4.0 * values["num_layers"] * values["seq_len"] * width


def _vocabulary(values: Values) -> Any:
    return 2.0 * values["hidden_size"] * values["vocab_size"]
