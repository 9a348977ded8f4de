"""Transfers of tokens to experts and back: bytes over NVLink and the network, and their time.

A router chooses k experts for each token. `alltoall` sends a copy for each of them. `allgather`
sends every token to every rank. `flex` sends one copy to each node that has any of the experts, and
from there one to each rank of that node that has any. The result comes back the same way. The
backward pass sends the gradient of the result forth and the gradient of the token back: four
exchanges a layer and microbatch.

Tokens are spread evenly unless `expert_routing` or `expert_load_ratio` says otherwise.

Sources: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/token_dispatcher.py
(MoEAlltoAllTokenDispatcher, MoEAllGatherTokenDispatcher, MoEFlexTokenDispatcher) and
moe_utils.py (`get_align_size_for_quantization`); deepseek-ai/DeepEP @dd758ca README.md and
docs/legacy.md; @94a9f8f (branch hybrid-ep) docs/README_Hybrid-EP.md; arXiv 2412.19437 sections
2.1.2 and 3.2.2 (routing to a limited number of groups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.structure import equals
from estimators.training_step import network
from estimators.training_step.formats import are_fused
from estimators.training_step.gemm import stream_seconds
from estimators.training_step.network import Group
from estimators.training_step.sizes import load_ratio

if TYPE_CHECKING:
    from estimators.decoder import Shape
    from estimators.training_step.problem import Layout, Network, Overlap, Problem
    from estimators.training_step.recipes import Recipe
    from estimators.training_step.sizes import Size
    from estimators.values import Real

RESULT_BYTES = 2.0
"""Bytes of an element of a result, and of every gradient: they are summed in 16 bits."""

PROBABILITY_BYTES = 4.0
"""Bytes of the weight of a copy, which travels with it (token_dispatcher.py, FP32)."""


class AllToAll(NamedTuple):
    """Seconds of the tokens' transfers in the forward and in the backward pass."""

    forward: Real
    backward: Real


def all_to_all_of(
    size: Size, problem: Problem, layout: Layout, group: dict[str, Group]
) -> AllToAll:
    """Return the seconds of a layer's transfers of tokens.

    The rank of experts that has most tokens receives most: its time is that of the group.
    """
    there = _one_way(size, problem, layout, group, problem.experts.dispatch_element_bytes)
    back = _one_way(size, problem, layout, group, RESULT_BYTES)
    return AllToAll(there + back, 2 * back)


def _one_way(
    size: Size, problem: Problem, layout: Layout, group: dict[str, Group], element: Real
) -> Real:
    """Return the seconds to send all tokens of a microbatch once.

    Parameters
    ----------
    element
        Bytes of an element on the wire.
    """
    links, experts, dispatcher = problem.network, group["expert"], problem.experts.dispatcher
    even = size.rows * size.hidden * element
    tokens = even * load_ratio(problem, layout)
    copies = problem.shape.experts_per_token * tokens
    rate = links.nvlink_bytes_per_second
    share = network.link_share(experts.members, links)
    seconds: Real = 0.0
    if np.any(equals(dispatcher, "alltoall")):
        weights = PROBABILITY_BYTES * copies / (size.hidden * element)
        inside, outside = alltoall_bytes(experts, copies + weights)
        inside = inside / (rate * links.alltoall_efficiency * share)
        seconds = _seconds(experts, inside, outside, links)
    is_flex = equals(dispatcher, "flex")
    if np.any(is_flex):
        inside, outside = flex_bytes(experts, tokens, problem.shape)
        inside = inside / (rate * links.flex_efficiency * share)
        seconds = np.where(is_flex, _flex_seconds(experts, inside, outside, links), seconds)
    split = layout.expert_tensor_parallel
    # ranks that split an expert's width gather one another's tokens, and scatter the sums
    if np.any(np.greater(split, 1)):
        gathered = network.gather_seconds(group["expert_tensor"], split * copies, links)
        seconds = seconds + gathered
    is_gather = equals(dispatcher, "allgather")
    if np.any(is_gather):
        ranks = split * experts.size
        # all tokens go to all ranks, whichever experts they choose
        gathered = network.gather_seconds(Group(ranks, links.nvlink_size), ranks * even, links)
        seconds = np.where(is_gather, gathered, seconds)
    return seconds


def _seconds(group: Group, inside: Real, outside: Real, links: Network) -> Real:
    """Return the seconds of an all-to-all whose bytes take NVLink and the cards at once."""
    moved = np.maximum(inside, outside / network.card_bandwidth(links))
    leaves = group.size > group.members
    hop = np.where(leaves, links.network_latency_seconds, links.nvlink_latency_seconds)
    return np.where(group.size > 1, moved + links.collective_seconds + hop, 0.0)


def _flex_seconds(group: Group, inside: Real, outside: Real, links: Network) -> Real:
    """Return the seconds of an all-to-all that goes over cards first, and then over NVLink.

    Ranks hand arrived tokens on while others still travel, so only `flex_serial_fraction` of the
    time over NVLink adds to the time over cards. The kernels of `flex` do not call NCCL; waiting
    for all ranks costs them `flex_seconds`.
    """
    leaves = group.size > group.members
    serial = np.where(leaves, links.flex_serial_fraction, 1.0)
    moved = outside / network.card_bandwidth(links) + serial * inside
    hop = np.where(leaves, links.network_latency_seconds, links.nvlink_latency_seconds)
    return np.where(group.size > 1, np.maximum(moved, inside) + links.flex_seconds + hop, 0.0)


def alltoall_bytes(group: Group, copies: Real) -> tuple[Real, Real]:
    """Return the bytes that a rank sends inside its node, and to other nodes, of all its `copies`.

    Destinations are equally likely: ``(members - 1)/n`` and ``(n - members)/n`` for n ranks.
    """
    inside = (group.members - 1) / group.size * copies
    return inside, (group.size - group.members) / group.size * copies


def flex_bytes(group: Group, tokens: Real, shape: Shape) -> tuple[Real, Real]:
    """Return the bytes that a rank sends over NVLink, and over its card.

    A token goes once to each other node with one of its experts, to the rank in the sender's place.
    There it goes over NVLink to each rank with one of its experts, except where it already is.
    With D nodes and R ranks that have one of its experts, of N nodes and n ranks:
    ``D (1 - 1/N)`` copies over cards, ``R (1 - N/n)`` over NVLink.

    Parameters
    ----------
    tokens
        Bytes of all tokens of a rank, one copy of each.
    """
    nodes = np.where(group.size > group.members, group.nodes, 1.0)
    reached = distinct_places(nodes, shape)
    ranks = distinct_places(group.size, shape)
    inside = tokens * ranks * (1 - nodes / group.size)
    return inside, tokens * reached * (1 - 1 / nodes)


def distinct_places(places: Real, shape: Shape) -> Real:
    """Return how many of a number of places have any of a token's experts, on average.

    Each place, a node or a rank, has an equal share of the experts. The router keeps g of G groups
    of experts and chooses k experts in them; all choices are equally likely. The result is
    ``places x (1 - probability that a place has none of the k)``.
    """
    experts, chosen = shape.num_experts, shape.experts_per_token
    groups = np.maximum(shape.route_groups, 1)
    chosen_groups = np.minimum(np.maximum(shape.route_groups_kept, 1), groups)
    left = experts * chosen_groups / groups
    # groups that have a part in a place, and the experts of each of them there
    local = np.maximum(groups / places, 1.0)
    of_group = np.minimum(experts / groups, experts / places)
    untouched: Real = 0.0
    for number in range(int(np.max(local)) + 1):
        # the chance that the router keeps `number` of the place's groups, and chooses none of
        # their experts
        chance = _share_of_sets(groups, local, chosen_groups, number)
        untouched = untouched + chance * _none_of(left, number * of_group, chosen)
    return places * (1 - untouched)


def _none_of(whole: Real, part: Real, chosen: Real) -> Real:
    """Return the chance that none of `chosen` of `whole` things is in a part of them."""
    chance: Real = 1.0
    for number in range(int(np.max(chosen))):
        share = np.maximum(whole - part - number, 0.0) / np.maximum(whole - number, 1.0)
        chance = chance * np.where(number < chosen, share, 1.0)
    return chance


def _share_of_sets(whole: Real, part: Real, chosen: Real, in_part: int) -> Real:
    """Return the chance that `in_part` of `chosen` of `whole` things are in a part of them."""
    others, of_others = whole - part, chosen - in_part
    possible = (in_part <= part) & (of_others >= 0) & (of_others <= others)
    sets = _combinations(part, in_part) * _combinations(others, np.maximum(of_others, 0))
    return np.where(possible, sets / _combinations(whole, chosen), 0.0)


def _combinations(whole: Real, part: Real) -> Real:
    """Return the number of sets of `part` of `whole` things."""
    sets: Real = 1.0
    for number in range(int(np.max(part))):
        step = np.maximum(whole - number, 0.0) / (number + 1.0)
        sets = sets * np.where(number < part, step, 1.0)
    return sets


def padded_rows(rows: Real, recipe: Recipe) -> Real:
    """Return the rows of an expert, padded to the alignment of its matmuls, on average."""
    return rows + (recipe.alignment - 1) / 2


def kernels_of(experts: Real, problem: Problem) -> tuple[Real, Real]:
    """Return how many experts share a kernel for their products, and the number of such kernels.

    The grouped product of Transformer Engine calls cuBLAS once for each expert, on four streams. So
    each product has the rate of one expert's rows, not the rate of all rows. On B200 the calls for
    20 to 256 experts with 128 to 9,832 rows, forward and for gradients of inputs, take 1.0 to 1.5
    times as long as table `matrix_product_rate` says for the rows of one expert, and 1.4 to 2.3
    times as long as it says for all rows. Single products through the same library take 1.3 times
    as long (MooreThreads/SimuMax @4dcaae5, Apache-2.0). A fused kernel (`formats.are_fused`) does
    the products of all experts.

    Source: NVIDIA/TransformerEngine @d0067d0d transformer_engine/common/gemm/cublaslt_gemm.cu
    `multi_stream_cublas_gemm`.
    """
    is_one = are_fused(problem)
    return np.where(is_one, experts, 1.0), np.where(is_one, 1.0, experts)


def moved_bytes(size: Size, problem: Problem, layout: Layout) -> Real:
    """Return the memory traffic of permuting tokens in one pass, forward or backward.

    `alltoall` reads tokens and writes their copies, sorts received copies by expert, and does both
    in reverse with the results; a rank with one expert sorts nothing. `flex` and `allgather` sort
    received tokens once, and add up the results of a rank's experts. Formats of 8 and 4 bits pad
    each expert's rows: `alltoall` copies tokens and results once more for that, the kernels of
    `flex` pad while they sort (NVIDIA/Megatron-LM @0d8e0714, @b0cc2706,
    @d7288711, @d0b3b775 and @cd4afff, those of Megatron-Bridge 0.2 to 0.6,
    megatron/core/transformer/moe/experts.py `quantization_padding`, token_dispatcher.py
    `pad_multiple`; NVIDIA/TransformerEngine v2.9 transformer_engine/pytorch/module/fp8_padding.py).
    """
    width, dispatcher = 2.0 * size.rows * size.hidden, problem.experts.dispatcher
    copies, ranks = problem.shape.experts_per_token, layout.expert_parallel
    sorts = np.where(size.experts > 1, 2.0 * copies, 0.0)
    sorts = sorts + np.where(problem.formats.low_format > 0, 2.0 * copies, 0.0)
    received = distinct_places(ranks, problem.shape)
    received = np.where(equals(dispatcher, "allgather"), ranks, received)
    passes = np.where(equals(dispatcher, "alltoall"), 1.0 + copies + sorts, received + copies)
    return 2.0 * passes * width


def sum_seconds(parameters: Real, problem: Problem) -> Real:
    """Return the additional seconds of products that add experts' gradients to a buffer.

    Such a product reads and writes the buffer, ``2 x stored_gradient_bytes`` a parameter, where
    another writes 2 bytes. Products of many tokens hide that; an expert has few tokens. With
    Transformer Engine on B200, BF16 and a buffer in FP32, the gradient of the weight takes 1.10
    times as long as the forward product with 9,832 tokens an expert, 1.20 with 2,460, 1.41 with
    1,024 and 1.75 with 128 (MooreThreads/SimuMax @4dcaae5, Apache-2.0, grouped products). A program
    that adds gradients in a separate kernel has `accumulation_traffic_bytes`, and 0 here.
    """
    sharding = problem.sharding
    is_fused = np.equal(sharding.accumulation_traffic_bytes, 0)
    moved = 2.0 * sharding.stored_gradient_bytes - 2.0
    return np.where(is_fused, stream_seconds(moved * parameters, problem.system), 0.0)


def overlaps(overlap: Overlap) -> Real:
    """Return the share of the tokens' transfers that may run during arithmetic.

    With `overlaps_expert_comm` that is the arithmetic of another microbatch, and the share is the
    measured `overlapped_expert_fraction`. Else it is `expert_overlap_fraction`.
    """
    return np.where(
        overlap.overlaps_expert_comm,
        overlap.overlapped_expert_fraction,
        overlap.expert_overlap_fraction,
    )
