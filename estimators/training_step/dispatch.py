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

from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Values
from estimators.training_step import network
from estimators.training_step.formats import are_fused, by_recipe
from estimators.training_step.network import Group
from estimators.training_step.products import stream_seconds
from estimators.training_step.routing import BALANCED

RESULT_BYTES = 2.0
"""Bytes of an element of a result, and of every gradient: they are summed in 16 bits."""

PROBABILITY_BYTES = 4.0
"""Bytes of the weight of a copy, which travels with it (token_dispatcher.py, FP32)."""

ALIGNMENTS = (1.0, 16.0, 16.0, 16.0, 32.0, 32.0)
"""Rows that an expert's part is padded to, by `formats.RECIPES`: FP8 kernels need multiples of 16,
those with scales of blocks of 32 or 16 values multiples of 32 (`get_align_size_for_quantization`).
"""


class Exchange(NamedTuple):
    """Seconds of the tokens' transfers in the forward and in the backward pass."""

    forward: Any
    backward: Any


def load_ratio(values: Values, layout: Values) -> Any:
    """Return the tokens of the fullest rank of experts over the mean.

    It is `expert_load_ratio`, or the ratio of `expert_routing` where that is larger. It is at most
    the number of ranks (one rank has all copies), and at most experts / `experts_per_token` (each
    expert of the rank has every token).
    """
    most = values["num_experts"] / values["experts_per_token"]
    most = np.minimum(most, layout["expert_parallel"])
    ratio = values["expert_load_ratio"]
    if np.any(np.not_equal(values["expert_routing"], BALANCED)):
        ratio = np.maximum(ratio, values["expert_loads"].ratio(values, layout))
    return np.minimum(ratio, most)


def exchange_of(size: Any, values: Values, layout: Values, group: dict[str, Group]) -> Exchange:
    """Return the seconds of a layer's exchanges; `size` as in `layer.size_of`.

    The rank of experts that has most tokens receives most: its time is that of the group.
    """
    there = _one_way(size, values, layout, group, values["dispatch_element_bytes"])
    back = _one_way(size, values, layout, group, RESULT_BYTES)
    return Exchange(there + back, 2 * back)


def _one_way(
    size: Any, values: Values, layout: Values, group: dict[str, Group], element: Any
) -> Any:
    """Return the seconds of one exchange of all tokens of a microbatch.

    Parameters
    ----------
    element
        Bytes of an element on the wire.
    """
    dispatcher, experts = values["dispatcher"], group["expert"]
    even = size.rows * size.hidden * element
    tokens = even * load_ratio(values, layout)
    copies = values["experts_per_token"] * tokens
    share = network.link_share(experts.members, values)
    found: Any = 0.0
    if np.any(np.equal(dispatcher, "alltoall")):
        weights = PROBABILITY_BYTES * copies / (size.hidden * element)
        rate = values["nvlink_bytes_per_second"] * values["alltoall_efficiency"] * share
        inside, outside = alltoall_bytes(experts, copies + weights)
        found = _seconds(experts, inside / rate, outside, values)
    if np.any(np.equal(dispatcher, "flex")):
        rate = values["nvlink_bytes_per_second"] * values["flex_efficiency"] * share
        inside, outside = flex_bytes(experts, tokens, values)
        flex = _flex_seconds(experts, inside / rate, outside, values)
        found = np.where(np.equal(dispatcher, "flex"), flex, found)
    split = layout["expert_tensor_parallel"]
    # ranks that split an expert's width gather one another's tokens, and scatter the sums
    if np.any(np.greater(split, 1)):
        found = found + network.gather_seconds(group["expert_tensor"], split * copies, values)
    if np.any(np.equal(dispatcher, "allgather")):
        ranks = split * experts.size
        whole = Group(ranks, values["nvlink_size"])
        # all tokens go to all ranks, whichever experts they choose
        gathered = network.gather_seconds(whole, ranks * even, values)
        found = np.where(np.equal(dispatcher, "allgather"), gathered, found)
    return found


def _seconds(group: Group, inside: Any, outside: Any, values: Values) -> Any:
    """Return the seconds of an exchange whose bytes take NVLink and the cards at the same time."""
    moved = np.maximum(inside, outside / network.card_bandwidth(values))
    leaves = group.size > group.members
    hop = np.where(leaves, values["network_latency_seconds"], values["nvlink_latency_seconds"])
    return np.where(group.size > 1, moved + values["collective_seconds"] + hop, 0.0)


def _flex_seconds(group: Group, inside: Any, outside: Any, values: Values) -> Any:
    """Return the seconds of an exchange that goes over cards first, and then over NVLink.

    Ranks hand arrived tokens on while others still travel, so only `flex_serial_fraction` of the
    time over NVLink adds to the time over cards. The kernels of `flex` do not call NCCL; waiting
    for all ranks costs them `flex_seconds`.
    """
    leaves = group.size > group.members
    serial = np.where(leaves, values["flex_serial_fraction"], 1.0)
    moved = outside / network.card_bandwidth(values) + serial * inside
    hop = np.where(leaves, values["network_latency_seconds"], values["nvlink_latency_seconds"])
    return np.where(group.size > 1, np.maximum(moved, inside) + values["flex_seconds"] + hop, 0.0)


def alltoall_bytes(group: Group, copies: Any) -> tuple[Any, Any]:
    """Return the bytes that a rank sends inside its node, and to other nodes, of all its `copies`.

    Destinations are equally likely: ``(members - 1)/n`` and ``(n - members)/n`` for n ranks.
    """
    inside = (group.members - 1) / group.size * copies
    return inside, (group.size - group.members) / group.size * copies


def flex_bytes(group: Group, tokens: Any, values: Values) -> tuple[Any, Any]:
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
    places = distinct_places(nodes, values)
    ranks = distinct_places(group.size, values)
    inside = tokens * ranks * (1 - nodes / group.size)
    return inside, tokens * places * (1 - 1 / nodes)


def distinct_places(places: Any, values: Values) -> Any:
    """Return how many of a number of places have any of a token's experts, on average.

    Each place, a node or a rank, has an equal share of the experts. The router keeps g of G groups
    of experts and chooses k experts in them; all choices are equally likely. The result is
    ``places x (1 - probability that a place has none of the k)``.
    """
    experts, chosen = values["num_experts"], values["experts_per_token"]
    groups = np.maximum(values["route_groups"], 1)
    kept = np.minimum(np.maximum(values["route_groups_kept"], 1), groups)
    left = experts * kept / groups
    # groups that have a part in a place, and the experts of each of them there
    own = np.maximum(groups / places, 1.0)
    each = np.minimum(experts / groups, experts / places)
    untouched: Any = 0.0
    for number in range(int(np.max(own)) + 1):
        # the chance that `number` of the place's groups are kept, and that no expert is one of them
        chance = _share_of_sets(groups - own, kept - number, groups, kept, own, number)
        untouched = untouched + chance * _none_of(left, number * each, chosen)
    return places * (1 - untouched)


def _none_of(whole: Any, part: Any, chosen: Any) -> Any:
    """Return the chance that none of `chosen` of `whole` things is in a part of them."""
    found: Any = 1.0
    for number in range(int(np.max(chosen))):
        share = np.maximum(whole - part - number, 0.0) / np.maximum(whole - number, 1.0)
        found = found * np.where(number < chosen, share, 1.0)
    return found


def _share_of_sets(
    others: Any, of_others: Any, whole: Any, kept: Any, own: Any, of_own: int
) -> Any:
    """Return the chance that `kept` of `whole` things are `of_own` of `own` ones and of others."""
    possible = (of_own <= own) & (of_others >= 0) & (of_others <= others)
    ways = _combinations(own, of_own) * _combinations(others, np.maximum(of_others, 0))
    return np.where(possible, ways / _combinations(whole, kept), 0.0)


def _combinations(whole: Any, part: Any) -> Any:
    """Return the number of sets of `part` of `whole` things."""
    found: Any = 1.0
    for number in range(int(np.max(part))):
        step = np.maximum(whole - number, 0.0) / (number + 1.0)
        found = found * np.where(number < part, step, 1.0)
    return found


def padded_rows(rows: Any, values: Values) -> Any:
    """Return the rows of an expert, padded to the alignment of its products, on average."""
    return rows + (by_recipe(ALIGNMENTS, values) - 1) / 2


def kernels_of(experts: Any, values: Values) -> tuple[Any, Any]:
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
    is_one = are_fused(values)
    return np.where(is_one, experts, 1.0), np.where(is_one, 1.0, experts)


def moved_bytes(size: Any, values: Values, layout: Values) -> Any:
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
    width = 2.0 * size.rows * size.hidden
    copies, ranks = values["experts_per_token"], layout["expert_parallel"]
    sorts = np.where(size.experts > 1, 2.0 * copies, 0.0)
    sorts = sorts + np.where(values["low_format"] > 0, 2.0 * copies, 0.0)
    received = distinct_places(ranks, values)
    received = np.where(np.equal(values["dispatcher"], "allgather"), ranks, received)
    once = np.where(
        np.equal(values["dispatcher"], "alltoall"), 1.0 + copies + sorts, received + copies
    )
    return 2.0 * once * width


def sum_seconds(parameters: Any, values: Values) -> Any:
    """Return the additional seconds of products that add experts' gradients to a buffer.

    Such a product reads and writes the buffer, ``2 x stored_gradient_bytes`` a parameter, where
    another writes 2 bytes. Products of many tokens hide that; an expert has few tokens. With
    Transformer Engine on B200, BF16 and a buffer in FP32, the gradient of the weight takes 1.10
    times as long as the forward product with 9,832 tokens an expert, 1.20 with 2,460, 1.41 with
    1,024 and 1.75 with 128 (MooreThreads/SimuMax @4dcaae5, Apache-2.0, grouped products). A program
    that adds gradients in a separate kernel has `accumulation_traffic_bytes`, and 0 here.
    """
    is_fused = np.equal(values["accumulation_traffic_bytes"], 0)
    moved = 2.0 * values["stored_gradient_bytes"] - 2.0
    return np.where(is_fused, stream_seconds(moved * parameters, values), 0.0)


def overlaps(values: Values) -> Any:
    """Return the share of the exchanges that may run during arithmetic.

    With `overlaps_expert_comm` that is the arithmetic of another microbatch, and the share is the
    measured `overlapped_expert_fraction`. Else it is `expert_overlap_fraction`.
    """
    can = np.asarray(values["overlaps_expert_comm"], dtype=bool)
    return np.where(can, values["overlapped_expert_fraction"], values["expert_overlap_fraction"])


def hides_behind_shared(values: Values) -> Any:
    """Return whether shared experts run during the exchange of tokens with routed ones.

    They run in a separate CUDA stream: the first product while tokens are sent, the second while
    results come back. The backward pass does the same.

    Source: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/moe/shared_experts.py
    (`--moe-shared-expert-overlap`).
    """
    return np.asarray(values["overlaps_shared_experts"], dtype=bool)
