"""The closed form: FLOPs and elements of a token and layer, and of a batch's weights.

Source: davidsj/ml_par_sim transformer.py and lib.py @520dcff, whose counting the formulas sum
up. Symbols: S sequence length, E experts, d residual width, f feed-forward width, h width of a
head, a heads, A = a h; degrees: delta data, pi pipeline, eps expert, sigma sequence, ti inner
tensor (heads and feed-forward), te outer tensor (residual width).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.contract import Values

FLAGS = ("use_glu", "multi_query_attention", "sequential_attention_ffn")
SIZES = (
    *("num_experts", "seq_len", "num_layers", "hidden_size", "ffn_hidden_size"),
    *("num_heads", "head_size"),
)
DEGREES = (
    "data_parallel",
    "pipeline_parallel",
    "expert_parallel",
    "sequence_parallel",
    "tensor_parallel",
    "tensor_parallel_external",
)


@dataclass(frozen=True)
class Counts:
    """Work of one token and layer, forward and backward, and of the weights of a layer.

    Attributes
    ----------
    forward_flops, backward_flops
        Per token and layer, all clusters.
    forward_sent, forward_received, backward_sent, backward_received
        Elements per token and layer, all clusters.
    weights
        Parameters of a layer, all experts.
    weights_moved
        Elements of a layer that a batch reduces backward (one FLOP each), and receives forward.
    weights_sent
        Elements of a layer that a batch sends forward, counted once for any number of receivers.
    """

    forward_flops: Any
    backward_flops: Any
    forward_sent: Any
    forward_received: Any
    backward_sent: Any
    backward_received: Any
    weights: Any
    weights_moved: Any
    weights_sent: Any


def counts_of(values: Values) -> Counts:
    """Return the counts; `values` has `SIZES`, `FLAGS` and `DEGREES`, scalars or arrays."""
    n = {name: np.asarray(values[name], dtype=np.float64) for name in (*SIZES, *DEGREES)}
    flags = {name: np.asarray(values[name], dtype=bool) for name in FLAGS}
    forward, backward = _flops(n, flags)
    sent, received, returned = _traffic(n, flags)
    weights, moved, first = _weights(n, flags)
    return Counts(forward, backward, sent, received, returned, received, weights, moved, first)


def _widths(n: Values, flags: Values) -> tuple[Any, Any, Any, Any]:
    """Return A, the matrices into the feed-forward layer g, and key widths c0, c1."""
    attention = n["num_heads"] * n["head_size"]
    gates = np.where(flags["use_glu"], 2.0, 1.0)
    shared = flags["multi_query_attention"]
    kept = np.where(shared, n["head_size"], attention)
    spread = np.where(shared, n["head_size"] * n["tensor_parallel"], attention)
    return attention, gates, kept, spread


def _hops(n: Values) -> Any:
    """Return beta, the share of layers after which a token leaves its rank.

    ``1 - (1 - (pi - 1) / layers) / eps``.
    """
    stays = 1 - (n["pipeline_parallel"] - 1) / n["num_layers"]
    return 1 - stays / n["expert_parallel"]


def _reduced_back(n: Values, flags: Values) -> Any:
    """Return phi: how often the residual stream is summed over ti, and leaves its rank."""
    inner = n["tensor_parallel"] - 1
    return inner + _hops(n) + np.where(flags["sequential_attention_ffn"], inner, 0.0)


def _flops(n: Values, flags: Values) -> tuple[Any, Any]:
    """Return the FLOPs of a token and layer, forward and backward, on all clusters.

    Forward: products of queries, keys, values and the feed-forward input, 2 d - 1 an element;
    scores, softmax, attended values; both projections back to the residual stream, summed over ti.
    Backward: two products for each forward one, and sums over te, eps sigma and ti.
    """
    attention, g, _, spread = _widths(n, flags)
    d, f, length, heads = n["hidden_size"], n["ffn_hidden_size"], n["seq_len"], n["num_heads"]
    te, groups = n["tensor_parallel_external"], n["expert_parallel"] * n["sequence_parallel"]
    serial = flags["sequential_attention_ffn"]
    forward = (
        (attention + 2 * spread + g * f) * (2 * d - 1)
        + length * (2 * attention - heads)
        + (heads + attention) * (2 * length - 1)
        + d * (2 * attention - heads)
        + d * f
        + (g - 1) * f * te
        + d * (heads + f - np.where(serial, 2.0, 1.0))
    )
    products = (
        d * (2 * attention + 2 * spread + (g + 1) * f)
        + length * (2 * attention + heads)
        + (g - 1) * f * te
    )
    gathered = 2 * attention + heads + g * f
    backward = (
        4 * products + gathered * (te - 1) + 2 * spread * (groups - 1) + d * _reduced_back(n, flags)
    )
    return forward, backward


def _traffic(n: Values, flags: Values) -> tuple[Any, Any, Any]:
    """Return elements of a token and layer: sent forward, received each way, sent backward."""
    attention, g, kept, spread = _widths(n, flags)
    d, f, heads = n["hidden_size"], n["ffn_hidden_size"], n["num_heads"]
    te, ti = n["tensor_parallel_external"], n["tensor_parallel"]
    groups = n["expert_parallel"] * n["sequence_parallel"]
    serial = flags["sequential_attention_ffn"]
    reduced = 2 * attention + 2 * spread + heads + g * f
    gathered = 2 * attention + heads + g * f
    sums = np.where(serial, 2.0, 1.0)
    hops = _hops(n)
    sent = (
        reduced * (te - 1)
        + gathered * (te > 1)
        + 2 * kept * (groups > 1)
        + sums * d * (ti - 1)
        + d * np.maximum(ti > 1, hops)
        + np.where(serial, d * (ti > 1), 0.0)
    )
    back = d * _reduced_back(n, flags)
    keys = 2 * spread * (groups - 1)
    received = (reduced + gathered) * (te - 1) + keys + sums * d * (ti - 1) + back
    returned = reduced * (te > 1) + gathered * (te - 1) + keys + sums * d * (ti > 1) + back
    return sent, received, returned


def _weights(n: Values, flags: Values) -> tuple[Any, Any, Any]:
    """Return parameters of a layer, elements that reductions move, elements sent once."""
    attention, g, _, _ = _widths(n, flags)
    d, f, experts = n["hidden_size"], n["ffn_hidden_size"], n["num_experts"]
    shared = flags["multi_query_attention"]
    matrices = experts * d * (2 * attention + (1 + g) * f + np.where(shared, 0.0, 2 * attention))
    keys = np.where(shared, 2 * experts * d * n["head_size"], 0.0)
    copies = n["data_parallel"] * n["sequence_parallel"]
    key_copies = copies * n["tensor_parallel"]
    moved = matrices * (copies - 1) + keys * (key_copies - 1)
    sent = matrices * (copies > 1) + keys * (key_copies > 1)
    return matrices + keys, moved, sent
