"""Seconds that a layer's pass waits for transfers: of tensors, of keys and values, of experts.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/model_parallel_config.py lines 265 to 295
(`tp_comm_overlap`) and megatron/core/tensor_parallel/layers.py; huggingface/nanotron @0e0a27ea
src/nanotron/parallel/tensor_parallel/functional.py; NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import network
from estimators.training_step.dispatch import (
    Exchange,
    exchange_of,
    hides_behind_shared,
    overlaps,
)
from estimators.training_step.formats import SPLITS_EXCHANGES, by_recipe, wire_bytes
from estimators.training_step.latent import gathered_width
from estimators.training_step.network import Group
from estimators.training_step.products import stream_seconds

Way = dict[str, Any]

CORRECTION_BYTES = 6.0
"""Bytes to add the result of one ring step to an entry of the output: the result is read, the sum
is read and written, all in 16 bits (context_parallel.py lines 139 to 167)."""


def pieces_of(values: Values, layout: Values) -> Any:
    """Return into how many pieces a product with a tensor-parallel exchange is cut: ranks, or one.

    Pieces travel through buffers that GPUs of one NVLink domain share. Buffers hold 16 bits, FP8
    and MXFP8, and no other format.
    """
    splits = np.asarray(layout["uses_sequence_parallel"], dtype=bool)
    splits = splits & values["splits_tensor_exchanges"]
    splits = splits & by_recipe(SPLITS_EXCHANGES, values)
    splits = splits & (layout["tensor_parallel"] <= values["nvlink_size"])
    return np.where(splits, np.maximum(layout["tensor_parallel"], 1.0), 1.0)


def shards_of(values: Values, layout: Values) -> tuple[Any, ...]:
    """Return the shares of the rows into which a product is cut during its gathering.

    A rank that starts with its own shard multiplies that first, then all shards before it in one
    product, and all shards behind it in another (huggingface/nanotron @0e0a27ea
    src/nanotron/parallel/tensor_parallel/functional.py lines 165 to 245 and 500 to 545). The rank
    in the middle has three products; the others wait for it.
    """
    tensor = np.maximum(layout["tensor_parallel"], 1.0)
    splits = np.asarray(layout["uses_sequence_parallel"], dtype=bool)
    starts = splits & (tensor > 1) & values["starts_with_own_shard"]
    if not np.any(starts):
        return (1.0,)
    before = np.floor((tensor - 1) / 2)
    own = np.where(starts, 1 / tensor, 1.0)
    others = (before / tensor, (tensor - 1 - before) / tensor)
    return own, *(np.where(starts, share, 0.0) for share in others)


class Half(NamedTuple):
    """Seconds of the tensor-parallel collectives around attention, or the feed-forward layer.

    Attributes
    ----------
    column, row
        Gathering before the first product of a dense layer, and scattering behind the second one:
        these products can hide them.
    gradient
        Gathering of the second product's gradient, backward.
    forward, backward
        All collectives of a pass, without `again`.
    last
        Collectives at the end of a backward pass.
    again
        Gathering of the first product's input once more, backward.
    """

    column: Any
    row: Any
    gradient: Any
    forward: Any
    backward: Any
    last: Any
    again: Any


class Transfers(NamedTuple):
    """Seconds of a layer's transfers, before arithmetic hides any.

    Attributes
    ----------
    attention, ffn
        Tensor-parallel collectives.
    pieces
        Share of an exchange that can run during its product, where products run in pieces; 0 else.
    own
        Share of a product during which its gathering can run, where a rank starts with its own
        shard; 0 else.
    ring
        Keys and values once around the ring.
    steps
        Share of attention during which they can travel.
    corrections
        Adding up the results of the ring's steps, one pass.
    expert
        Tokens to their experts and back.
    """

    attention: Half
    ffn: Half
    pieces: Any
    own: Any
    ring: Any
    steps: Any
    corrections: Any
    expert: Exchange


def transfers_of(size: Any, values: Values, layout: Values) -> Transfers:
    """Return the seconds of a layer's transfers; `size` as in `layer.size_of`.

    Tensors: attention and feed-forward layer have one all-reduce each way (arXiv 1909.08053 section
    3). Under sequence parallelism it is a reduce-scatter and an all-gather of the same volume, and
    the backward pass gathers the inputs of products once more, during the product that makes the
    gradient of the input (arXiv 2205.05198 section 4.2.2). A mixture exchanges a copy of a token
    for each of its experts.

    Keys and values: the output is the sum of the ring's c steps. Steps up to the rank's own add to
    all of it, later ones to half: (3 c + 1)/4 passes over the output on average. The backward pass
    adds gradients likewise.
    """
    group = network.groups(values, layout)
    tensor, context = group["tensor"], group["context"]
    splits = np.asarray(layout["uses_sequence_parallel"], dtype=bool)
    overlap = values["tensor_overlap_fraction"]
    pieces = overlap * (1 - 1 / pieces_of(values, layout))
    starts = splits & values["starts_with_own_shard"]
    own = np.where(starts, overlap / np.maximum(tensor.size, 1.0), 0.0)

    volume, sparse = 2.0 * size.tokens * size.hidden, values["sparse_share"]
    attention = ffn = _half(1.0, 1.0, volume, values, tensor, splits)
    if np.any(size.key_latent):
        # latents are gathered in place of the stream
        latents = 2.0 * size.tokens * gathered_width(size)
        attention = _half(1.0, 1.0, volume, values, tensor, splits, latents)
    if np.any(sparse):
        # of a mixture only the experts that every token passes are split over these tensors
        shared = np.where(size.shared_ffn > 0, sparse, 0.0)
        ffn = _half(1.0 - sparse, 1.0 - sparse + shared, volume, values, tensor, splits)

    ring = context.size
    around = 2.0 * size.tokens * (size.key + size.value)
    entries = size.tokens * size.result * (3 * ring + 1) / 4
    corrections = stream_seconds(CORRECTION_BYTES * entries, values, 4.0 * ring)
    expert = Exchange(0.0, 0.0)
    if np.any(sparse):
        exchange = exchange_of(size, values, layout, group)
        expert = Exchange(sparse * exchange.forward, sparse * exchange.backward)
    return Transfers(
        attention,
        ffn,
        pieces,
        own,
        (ring - 1) * network.neighbour_seconds(context, around, values),
        (ring - 1) / np.maximum(ring, 1.0),
        np.where(ring > 1, corrections, 0.0),
        expert,
    )


def _half(
    dense: Any,
    share: Any,
    volume: Any,
    values: Values,
    group: Group,
    splits: Any,
    before: Any = None,
) -> Half:
    """Return the seconds of the collectives of `share` of a volume.

    Dense layers gather elements of `formats.wire_bytes`; sums have 16 bits.

    Parameters
    ----------
    dense
        Share of the volume that belongs to dense layers: a part of `share`.
    volume
        Bytes behind the second product, in 16 bits.
    before
        Bytes before the first product; None: as many.
    """
    row = column = network.gather_seconds(group, share * volume, values)
    forward = backward = network.reduce_seconds(group, share * volume, values)
    if before is not None:
        column = network.gather_seconds(group, share * before, values)
        backward = network.reduce_seconds(group, share * before, values)
    gathered, gradient = column, row
    if np.any(values["low_format"]):
        width = share - dense * (1.0 - wire_bytes(values) / 2.0)
        first = volume if before is None else before
        gathered = network.gather_seconds(group, width * first, values)
        gradient = network.gather_seconds(group, width * volume, values)
    # of layers without such products nothing is exchanged
    has_any = np.where(share > 0, 1.0, 0.0)
    column, row, forward, backward, gathered, gradient = (
        has_any * each for each in (column, row, forward, backward, gathered, gradient)
    )
    dense = dense / np.where(share > 0, share, 1.0)
    return Half(
        dense * gathered,
        dense * row,
        dense * gradient,
        np.where(splits, gathered + row, forward),
        np.where(splits, column + gradient, backward),
        np.where(splits, column, backward),
        np.where(splits, gathered, 0.0),
    )


def waits(
    transfers: Transfers, values: Values, products: dict[str, Any], core: Any
) -> dict[str, Way]:
    """Return the seconds that each pass waits for transfers, and `hidden`: those that it loses.

    Transfers that hide behind arithmetic take multiprocessors, and so slow the arithmetic down:
    part ``hidden`` is the loss.

    Parameters
    ----------
    products
        Seconds of a layer's products by pass, and by place and pass.
    core
        Seconds of the core of attention.
    """
    tensor = _tensor(transfers, values, products)
    context = _context(transfers, values, core)
    exchange = transfers.expert._asdict()
    taken, found = values["communication_sm_fraction"], {}
    # pieces travel through copy engines and a few multiprocessors, not through NCCL's kernels
    by_nccl = network.lost_share(values)
    by_pieces = np.where(transfers.pieces > 0, values["tensor_exchange_sm_fraction"], by_nccl)
    # tokens of one microbatch travel during arithmetic of the other pass of another one, as far as
    # that hides no other transfer
    work = {
        "forward": products["forward"] + core.forward,
        "backward": products["input_gradient"] + products["weight_gradient"] + core.backward,
    }
    busy = {name: tensor[name]["hidden"] + context[name]["hidden"] for name in work}
    slowed = {
        name: by_pieces * tensor[name]["hidden"] + taken * context[name]["hidden"] for name in work
    }
    share: Any = 0.0
    sent = sum(exchange.values())
    if np.any(sent):
        free = sum(work.values()) - sum(busy.values())
        share = overlaps(values) * np.minimum(free / np.where(sent > 0, sent, 1.0), 1.0)
    shared = {"forward": products["shared_experts"], "backward": products["shared_backward"]}
    beside_shared = hides_behind_shared(values)
    for name in work:
        behind = share * exchange[name]
        if np.any(beside_shared):
            beside = np.minimum(exchange[name], shared[name])
            behind = np.where(beside_shared, beside, behind)
        expert = {
            "expert_comm": exchange[name] - behind,
            "hidden": slowed[name] + taken * behind,
        }
        found[name] = {**tensor[name], **context[name], **expert}
    return found


def _tensor(transfers: Transfers, values: Values, products: dict[str, Any]) -> dict[str, Way]:
    """Return the exposed and the hidden seconds of the collectives around attention and FFN.

    If a program splits exchanges over t ranks, a product P runs in t pieces, each during the
    exchange of another. Of an exchange E remains ``max(E / t, E - P (t - 1) / t)``: one piece, or
    the time that P is too short for. That holds for the gathering before the first product of a
    pair, the scattering after the second one, and the gathering of its gradient. If a program
    starts with its own shard, a gathering runs during one t-th of its product.
    """
    overlap, pieces, own = values["tensor_overlap_fraction"], transfers.pieces, transfers.own
    forward: dict[str, Any] = {"tensor_comm": 0.0, "hidden": 0.0}
    backward: dict[str, Any] = {"tensor_comm": 0.0, "hidden": 0.0}
    for name, half in (("attention", transfers.attention), ("ffn", transfers.ffn)):
        column, row = f"{name}_column", f"{name}_row"
        # forward: the gathering during the first product, the scattering during the second
        hidden = _beside(half.column, products[f"{column}_forward"], pieces, own)
        hidden = hidden + _beside(half.row, products[f"{row}_forward"], pieces, 0.0)
        forward["tensor_comm"] = forward["tensor_comm"] + half.forward - hidden
        forward["hidden"] = forward["hidden"] + hidden
        # backward: the second product's gradient is gathered, the first one's is scattered
        hidden = _beside(half.gradient, products[f"{row}_input_gradient"], pieces, own)
        hidden = hidden + overlap * np.minimum(half.last, products[f"{column}_weight_gradient"])
        behind = np.minimum(half.again, products[f"{column}_input_gradient"])
        backward["tensor_comm"] = (
            backward["tensor_comm"] + half.backward - hidden + half.again - behind
        )
        backward["hidden"] = backward["hidden"] + hidden + behind
    return {"forward": forward, "backward": backward}


def _beside(exchange: Any, product: Any, pieces: Any, own: Any) -> Any:
    """Return the seconds of an exchange that hide behind its product."""
    return np.where(
        pieces > 0, pieces * np.minimum(exchange, product), np.minimum(exchange, own * product)
    )


def _context(transfers: Transfers, values: Values, core: Any) -> dict[str, Way]:
    """Return the exposed and the hidden seconds of keys and values on their way around the ring.

    Each of c steps computes a c-th of attention. The keys and values of the next step travel
    meanwhile, except in the last step. Backward their gradients travel with them: twice the bytes.
    """
    found: dict[str, Way] = {}
    for name, rounds, work in (("forward", 1.0, core.forward), ("backward", 2.0, core.backward)):
        moved = rounds * transfers.ring
        hidden = values["context_overlap_fraction"] * np.minimum(moved, transfers.steps * work)
        found[name] = {
            "context_comm": moved - hidden + transfers.corrections,
            "hidden": hidden,
        }
    return found
