"""Seconds that a layer's pass waits for transfers: of tensors, of keys and values, of experts.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/model_parallel_config.py lines 265 to 295
(`tp_comm_overlap`) and megatron/core/tensor_parallel/layers.py; huggingface/nanotron @0e0a27ea
src/nanotron/parallel/tensor_parallel/functional.py; NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.contract import Values
from estimators.training_step import network
from estimators.training_step.network import Group
from estimators.training_step.products import stream_seconds

Way = dict[str, Any]

CORRECTION_BYTES = 6.0
"""Memory traffic of one step's correction for one entry of the output: the step's result is read,
the sum is read and written, all in 16 bits (context_parallel.py lines 139 to 167)."""


def pieces_of(values: Values, layout: Values) -> Any:
    """Return the pieces in which products with an exchange of their own run: ranks, or one.

    The buffers that pieces travel through are those of GPUs that NVLink joins.
    """
    splits = np.asarray(layout["uses_sequence_parallel"], dtype=bool)
    splits = splits & values["splits_tensor_exchanges"]
    splits = splits & (layout["tensor_parallel"] <= values["nvlink_size"])
    return np.where(splits, np.maximum(layout["tensor_parallel"], 1.0), 1.0)


def waits(
    size: Any,
    values: Values,
    layout: Values,
    group: dict[str, Group],
    products: dict[str, Any],
    core: Any,
) -> dict[str, Way]:
    """Return the transfers that each pass waits for, and `hidden`, what the others cost it.

    Parameters
    ----------
    size
        As of `layer.size_of`.
    products
        Seconds of a layer's products by pass, and by place and pass.
    core
        Seconds of the core of attention.
    """
    tensor = _tensor(size, values, layout, group["tensor"], products)
    context = _context(size, values, group["context"], core)
    volume = 2.0 * size.rows * size.hidden * values["experts_per_token"]
    way = values["sparse_share"] * network.exchange_seconds(group["expert"], volume, values)
    taken, found = values["communication_sm_fraction"], {}
    # expert transfers hide behind arithmetic that hides no other transfer
    work = {
        "forward": products["forward"],
        "backward": products["input_gradient"] + products["weight_gradient"],
    }
    for name, seconds in work.items():
        free = seconds - tensor[name]["hidden"]
        behind = values["expert_overlap_fraction"] * np.minimum(2 * way, free)
        hidden = tensor[name]["hidden"] + context[name]["hidden"] + behind
        expert = {"expert_comm": 2 * way - behind, "hidden": taken * hidden}
        found[name] = {**tensor[name], **context[name], **expert}
    return found


def _tensor(
    size: Any, values: Values, layout: Values, group: Group, products: dict[str, Any]
) -> dict[str, Way]:
    """Return the collectives around the attention and the feed-forward layer.

    One all-reduce each and way, or a reduce-scatter and an all-gather of the same volume under
    sequence parallelism, which in the backward pass gathers the products' inputs once more,
    at the same time as the gradient of the input (arXiv 2205.05198 section 4.2.2). A mixture
    exchanges a copy of a token for each of its experts.

    Where a program splits exchanges, a product runs in as many pieces as there are ranks, each
    beside the exchange of another: one piece of t is left of an exchange E beside a product P, or
    what P is too short for, ``max(E / t, E - P (t - 1) / t)``. So are the gathering before the
    first product of a pair, the scattering after the second, and the gathering of its gradient.
    Where a program starts with its own shard, a gathering runs beside one part of t of its product.
    """
    volume = 2.0 * size.tokens * size.hidden
    sparse = values["sparse_share"]
    copies = sparse * (values["experts_per_token"] + (size.shared_ffn > 0))
    splits = np.asarray(layout["uses_sequence_parallel"], dtype=bool)
    overlap, ranks = values["tensor_overlap_fraction"], np.maximum(group.size, 1.0)
    pieces = overlap * (1 - 1 / pieces_of(values, layout))
    own = np.where(splits & values["starts_with_own_shard"], overlap / ranks, 0.0)
    forward: dict[str, Any] = {"tensor_comm": 0.0, "hidden": 0.0}
    backward: dict[str, Any] = {"tensor_comm": 0.0, "hidden": 0.0}
    once = network.gather_seconds(group, volume, values)
    whole = np.where(splits, 2 * once, network.reduce_seconds(group, volume, values))
    # the feed-forward layers of a mixture are exchanged whole
    for name, dense in (("attention", 1.0), ("ffn", 1.0 - sparse)):
        share = dense if name == "attention" else dense + copies
        if name == "ffn" and np.any(sparse):
            once = network.gather_seconds(group, share * volume, values)
            reduced = network.reduce_seconds(group, share * volume, values)
            whole = np.where(splits, 2 * once, reduced)
        column, row = f"{name}_column", f"{name}_row"
        # forward: the gathering beside the first product, the scattering beside the second
        hidden = _beside(dense / share * once, products[f"{column}_forward"], pieces, own)
        hidden = hidden + _beside(dense / share * once, products[f"{row}_forward"], pieces, 0.0)
        forward["tensor_comm"] = forward["tensor_comm"] + whole - hidden
        forward["hidden"] = forward["hidden"] + hidden
        # backward: the second product's gradient is gathered, the first one's is scattered
        hidden = _beside(dense / share * once, products[f"{row}_input_gradient"], pieces, own)
        last = np.where(splits, 0.5, 1.0) * whole
        hidden = hidden + overlap * np.minimum(last, products[f"{column}_weight_gradient"])
        again = np.where(splits, once, 0.0)
        behind = np.minimum(again, products[f"{column}_input_gradient"])
        backward["tensor_comm"] = backward["tensor_comm"] + whole - hidden + again - behind
        backward["hidden"] = backward["hidden"] + hidden + behind
    return {"forward": forward, "backward": backward}


def _beside(exchange: Any, product: Any, pieces: Any, own: Any) -> Any:
    """Return the seconds of an exchange that hide behind the product that it belongs to."""
    return np.where(
        pieces > 0, pieces * np.minimum(exchange, product), np.minimum(exchange, own * product)
    )


def _context(size: Any, values: Values, group: Group, core: Any) -> dict[str, Way]:
    """Return the exchange of keys and values around the ring, and of their gradients back.

    Each of c steps has a c-th of attention, and in all but the last the keys and values of the next
    one travel beside it. The results of the steps are then put together: a pass over the output
    for each, of half of it after the rank's own step, on average (3 c + 1)/4 passes; backward the
    gradients likewise.
    """
    ring = group.size
    volume = 2.0 * 2.0 * size.tokens * size.key
    once = (ring - 1) * network.neighbour_seconds(group, volume, values)
    entries = size.tokens * size.query * (3 * ring + 1) / 4
    corrections = stream_seconds(CORRECTION_BYTES * entries, values, 4.0 * ring)
    corrections = np.where(ring > 1, corrections, 0.0)
    room = (ring - 1) / np.maximum(ring, 1.0)
    found: dict[str, Way] = {}
    for name, rounds, work in (("forward", 1.0, core.forward), ("backward", 2.0, core.backward)):
        hidden = values["context_overlap_fraction"] * np.minimum(rounds * once, room * work)
        found[name] = {
            "context_comm": rounds * once - hidden + corrections,
            "hidden": hidden,
        }
    return found
