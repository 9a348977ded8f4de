"""Seconds that a layer's pass waits for transfers: of tensors, of keys and values, of experts.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/model_parallel_config.py lines 265 to 295
(`tp_comm_overlap`) and megatron/core/tensor_parallel/layers.py; huggingface/nanotron @0e0a27ea
src/nanotron/parallel/tensor_parallel/functional.py; NVIDIA/TransformerEngine @d0067d0d
transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.training_step import network
from estimators.training_step.dispatch import AllToAll, all_to_all_of, overlaps
from estimators.training_step.formats import input_bytes
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.network import Group

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Overlap, Problem
    from estimators.training_step.sizes import Size
    from estimators.values import Flag, Real

Parts = dict[str, "Real"]
"""Seconds of one pass by part."""

CORRECTION_BYTES = 6.0
"""Bytes to add the result of one ring step to an entry of the output: the result is read, the sum
is read and written, all in 16 bits (context_parallel.py lines 139 to 167)."""


def pieces_of(problem: Problem, layout: Layout) -> Real:
    """Return into how many pieces a matmul with a tensor-parallel collective is cut: ranks, or 1.

    Pieces travel through buffers that GPUs of one NVLink domain share. Buffers hold 16 bits, FP8
    and MXFP8, and no other format.
    """
    splits = layout.uses_sequence_parallel & problem.overlap.splits_tensor_exchanges
    splits = splits & problem.recipe.splits_collectives
    splits = splits & (layout.tensor_parallel <= problem.network.nvlink_size)
    return np.where(splits, np.maximum(layout.tensor_parallel, 1.0), 1.0)


def shards_of(problem: Problem, layout: Layout) -> tuple[Real, ...]:
    """Return the shares of the rows into which a matmul is cut during its gathering.

    A rank that starts with its own shard multiplies that first, then all shards before it in one
    GEMM, and all shards behind it in another (huggingface/nanotron @0e0a27ea
    src/nanotron/parallel/tensor_parallel/functional.py lines 165 to 245 and 500 to 545). The rank
    in the middle has three GEMMs; the others wait for it.
    """
    tensor = np.maximum(layout.tensor_parallel, 1.0)
    starts = layout.uses_sequence_parallel & problem.overlap.starts_with_own_shard
    starts = starts & (tensor > 1)
    if not np.any(starts):
        return (1.0,)
    before = np.floor((tensor - 1) / 2)
    first = np.where(starts, 1 / tensor, 1.0)
    others = (before / tensor, (tensor - 1 - before) / tensor)
    return first, *(np.where(starts, share, 0.0) for share in others)


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

    column: Real
    row: Real
    gradient: Real
    forward: Real
    backward: Real
    last: Real
    again: Real


class Transfers(NamedTuple):
    """Seconds of a layer's transfers, before arithmetic hides any.

    Attributes
    ----------
    attention, ffn
        Tensor-parallel collectives.
    pieces
        Share of a collective that can run during its matmul, where matmuls run in pieces; 0 else.
    first_shard
        Share of a matmul during which its gathering can run, where a rank starts with its own
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
    pieces: Real
    first_shard: Real
    ring: Real
    steps: Real
    corrections: Real
    expert: AllToAll


def transfers_of(size: Size, problem: Problem, layout: Layout) -> Transfers:
    """Return the seconds of a layer's transfers.

    Tensors: attention and feed-forward layer have one all-reduce each way (arXiv 1909.08053 section
    3). Under sequence parallelism it is a reduce-scatter and an all-gather of the same volume, and
    the backward pass gathers the inputs of matmuls once more, during the matmul that makes the
    gradient of the input (arXiv 2205.05198 section 4.2.2). A mixture sends a copy of a token to
    each of its experts.

    Keys and values: the output is the sum of the ring's c steps. Steps up to the rank's own add to
    all of it, later ones to half: (3 c + 1)/4 passes over the output on average. The backward pass
    adds gradients likewise.
    """
    group = network.groups(problem.network, layout)
    tensor, context = group["tensor"], group["context"]
    splits = layout.uses_sequence_parallel
    overlap = problem.overlap.tensor_overlap_fraction
    pieces = overlap * (1 - 1 / pieces_of(problem, layout))
    starts = splits & problem.overlap.starts_with_own_shard
    first_shard = np.where(starts, overlap / np.maximum(tensor.size, 1.0), 0.0)

    volume, sparse = 2.0 * size.tokens * size.hidden, problem.shape.sparse_share
    attention = ffn = _half(1.0, 1.0, volume, problem, tensor, splits)
    if np.any(size.key_latent):
        # latents are gathered in place of the stream
        latents = 2.0 * size.tokens * gathered_width(size)
        attention = _half(1.0, 1.0, volume, problem, tensor, splits, latents)
    if np.any(sparse):
        # of a mixture only the experts that every token passes are split over these tensors
        shared = np.where(size.shared_ffn > 0, sparse, 0.0)
        ffn = _half(1.0 - sparse, 1.0 - sparse + shared, volume, problem, tensor, splits)

    ring = context.size
    around = 2.0 * size.tokens * (size.key + size.value)
    entries = size.tokens * size.result * (3 * ring + 1) / 4
    corrections = stream_seconds(CORRECTION_BYTES * entries, problem.system, 4.0 * ring)
    expert = AllToAll(0.0, 0.0)
    if np.any(sparse):
        of_mixture = all_to_all_of(size, problem, layout, group)
        expert = AllToAll(sparse * of_mixture.forward, sparse * of_mixture.backward)
    return Transfers(
        attention,
        ffn,
        pieces,
        first_shard,
        (ring - 1) * network.neighbour_seconds(context, around, problem.network),
        (ring - 1) / np.maximum(ring, 1.0),
        np.where(ring > 1, corrections, 0.0),
        expert,
    )


def gathered_width(size: Size) -> Real:
    """Return the width that tensor-parallel ranks gather before attention: latents, or all."""
    queries = np.where(size.query_latent > 0, size.query_latent, size.hidden)
    latents = queries + size.key_latent + size.rotary
    return np.where(size.key_latent > 0, latents, size.hidden)


def _half(
    dense: Real,
    share: Real,
    volume: Real,
    problem: Problem,
    group: Group,
    splits: Flag,
    before: Real | None = None,
) -> Half:
    """Return the seconds of the collectives of `share` of a volume.

    Dense layers gather elements of `formats.input_bytes`; sums have 16 bits.

    Parameters
    ----------
    dense
        Share of the volume that belongs to dense layers: a part of `share`.
    volume
        Bytes behind the second product, in 16 bits.
    before
        Bytes before the first product; None: as many.
    """
    row = column = network.gather_seconds(group, share * volume, problem.network)
    forward = backward = network.reduce_seconds(group, share * volume, problem.network)
    if before is not None:
        column = network.gather_seconds(group, share * before, problem.network)
        backward = network.reduce_seconds(group, share * before, problem.network)
    gathered, gradient = column, row
    if np.any(problem.formats.low_format):
        width = share - dense * (1.0 - input_bytes(problem) / 2.0)
        first = volume if before is None else before
        gathered = network.gather_seconds(group, width * first, problem.network)
        gradient = network.gather_seconds(group, width * volume, problem.network)
    # of layers without such products nothing is exchanged
    has_any = np.where(share > 0, 1.0, 0.0)
    column, row, forward, backward, gathered, gradient = (
        has_any * seconds for seconds in (column, row, forward, backward, gathered, gradient)
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


def waits(transfers: Transfers, problem: Problem, matmuls: Parts, core: Parts) -> dict[str, Parts]:
    """Return the seconds that each pass waits for transfers, and `hidden`: those that it loses.

    Transfers that hide behind arithmetic take multiprocessors, and so slow the arithmetic down:
    part ``hidden`` is the loss.

    Parameters
    ----------
    matmuls
        Seconds of a layer's matmuls, as in `matmuls.matmul_seconds`.
    core
        Seconds of the core of attention by pass.
    """
    tensor = _tensor(transfers, problem.overlap, matmuls)
    context = _context(transfers, problem.overlap, core)
    tokens = transfers.expert._asdict()
    taken = problem.network.communication_sm_fraction
    # pieces travel through copy engines and a few multiprocessors, not through NCCL's kernels
    by_nccl = network.lost_share(problem.network)
    by_pieces = problem.network.tensor_exchange_sm_fraction
    by_tensor = np.where(transfers.pieces > 0, by_pieces, by_nccl)
    # tokens of one microbatch travel during arithmetic of the other pass of another one, as far as
    # that hides no other transfer
    work = {
        "forward": matmuls["forward"] + core["forward"],
        "backward": matmuls["input_gradient"] + matmuls["weight_gradient"] + core["backward"],
    }
    share: Real = 0.0
    sent = tokens["forward"] + tokens["backward"]
    if np.any(sent):
        busy = [tensor[name]["hidden"] + context[name]["hidden"] for name in work]
        free = work["forward"] + work["backward"] - (busy[0] + busy[1])
        share = overlaps(problem.overlap) * np.minimum(free / np.where(sent > 0, sent, 1.0), 1.0)
    shared = {"forward": matmuls["shared_experts"], "backward": matmuls["shared_backward"]}
    exposed = {}
    for name in work:
        # shared experts run in a separate stream: their first matmul while tokens are sent, the
        # second while results come back; backward likewise (NVIDIA/Megatron-LM @d98e8a64
        # megatron/core/transformer/moe/shared_experts.py `--moe-shared-expert-overlap`)
        behind = np.where(
            problem.overlap.overlaps_shared_experts,
            np.minimum(tokens[name], shared[name]),
            share * tokens[name],
        )
        slowed = by_tensor * tensor[name]["hidden"] + taken * context[name]["hidden"]
        expert = {"expert_comm": tokens[name] - behind, "hidden": slowed + taken * behind}
        exposed[name] = {**tensor[name], **context[name], **expert}
    return exposed


def last_wait(transfers: Transfers, problem: Problem, matmuls: dict[str, Real]) -> Real:
    """Return the seconds that a dense layer waits for the collective behind its last matmul."""
    half = transfers.ffn
    last = (1.0 - problem.shape.sparse_share) * (half.forward - half.again)
    hidden = _hidden(half.row, matmuls["ffn_row_forward"], transfers.pieces, 0.0)
    return np.maximum(last - hidden, 0.0)


def _tensor(transfers: Transfers, overlap: Overlap, matmuls: dict[str, Real]) -> dict[str, Parts]:
    """Return the exposed and the hidden seconds of the collectives around attention and FFN.

    If a program splits collectives over t ranks, a matmul P runs in t pieces, each during the
    collective of another. Of a collective E remains ``max(E / t, E - P (t - 1) / t)``: one piece,
    or the time that P is too short for. That holds for the gathering before the first matmul of a
    pair, the scattering after the second one, and the gathering of its gradient. If a program
    starts with its own shard, a gathering runs during one t-th of its matmul.
    """
    pieces, first_shard = transfers.pieces, transfers.first_shard
    forward: Parts = {"tensor_comm": 0.0, "hidden": 0.0}
    backward: Parts = {"tensor_comm": 0.0, "hidden": 0.0}
    for name, half in (("attention", transfers.attention), ("ffn", transfers.ffn)):
        column, row = f"{name}_column", f"{name}_row"
        # forward: the gathering during the first matmul, the scattering during the second
        hidden = _hidden(half.column, matmuls[f"{column}_forward"], pieces, first_shard)
        hidden = hidden + _hidden(half.row, matmuls[f"{row}_forward"], pieces, 0.0)
        forward["tensor_comm"] = forward["tensor_comm"] + half.forward - hidden
        forward["hidden"] = forward["hidden"] + hidden
        # backward: the second matmul's gradient is gathered, the first one's is scattered
        hidden = _hidden(half.gradient, matmuls[f"{row}_input_gradient"], pieces, first_shard)
        hidden = hidden + overlap.tensor_overlap_fraction * np.minimum(
            half.last, matmuls[f"{column}_weight_gradient"]
        )
        behind = np.minimum(half.again, matmuls[f"{column}_input_gradient"])
        backward["tensor_comm"] = (
            backward["tensor_comm"] + half.backward - hidden + half.again - behind
        )
        backward["hidden"] = backward["hidden"] + hidden + behind
    return {"forward": forward, "backward": backward}


def _hidden(collective: Real, matmul: Real, pieces: Real, first_shard: Real) -> Real:
    """Return the seconds of a collective that hide behind its matmul."""
    in_pieces = pieces * np.minimum(collective, matmul)
    return np.where(pieces > 0, in_pieces, np.minimum(collective, first_shard * matmul))


def _context(transfers: Transfers, overlap: Overlap, core: Parts) -> dict[str, Parts]:
    """Return the exposed and the hidden seconds of keys and values on their way around the ring.

    Each of c steps computes a c-th of attention. The keys and values of the next step travel
    meanwhile, except in the last step. Backward their gradients travel with them: twice the bytes.
    """
    parts: dict[str, Parts] = {}
    for name, rounds in (("forward", 1.0), ("backward", 2.0)):
        moved, work = rounds * transfers.ring, transfers.steps * core[name]
        hidden = overlap.context_overlap_fraction * np.minimum(moved, work)
        parts[name] = {
            "context_comm": moved - hidden + transfers.corrections,
            "hidden": hidden,
        }
    return parts
