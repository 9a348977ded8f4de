"""Seconds of collectives and transfers on nodes of GPUs with a network card each.

Ranks are numbered as in frameworks: tensor-parallel neighbours first, then context, data and
pipeline. A node is the part of an NVLink domain that a run has (`domains.gpus_in_domain`). Members
in one node exchange over NVLink. A ring over several nodes uses the network cards
of all its members in a node at once; other groups use the other cards.

Source: arXiv 2104.04473 section 3 (placement), NCCL's ring and tree algorithms (a ring moves
(n - 1)/n of the volume through every member, an all-reduce twice that).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from estimators.training_step.problem import Layout, Network
    from estimators.values import Flag, Real


@dataclass(frozen=True)
class Group:
    """A parallel group: its size, and `room`, the most members that one node can hold."""

    size: Real
    room: Real

    @cached_property
    def full(self) -> Real:
        """Members in a full node."""
        return np.minimum(self.size, self.room)

    @cached_property
    def nodes(self) -> Real:
        """Nodes that the group reaches."""
        return np.ceil(self.size / self.full)

    @cached_property
    def members(self) -> Real:
        """Members in the node that has fewest of them."""
        # the remainder of whole numbers; `np.remainder` takes ten times as long
        rest = self.size - self.full * np.floor(self.size / self.full)
        return np.where(rest > 0, rest, self.full)


def groups(network: Network, layout: Layout) -> dict[str, Group]:
    """Return the groups of a layout by axis: tensor, context, expert, data, pipeline.

    `data` is the group that exchanges gradients: data and context parallelism together.

    The ranks of a stage are grouped twice. For attention: by tensors, then sequences, then
    replicas. For experts: by `expert_tensor` (neighbours), then `expert`, then `expert_data`, the
    group that exchanges the gradients of experts. So a group that exchanges tokens may contain
    ranks of several tensor- or context-parallel groups (NVIDIA/Megatron-LM @d98e8a64
    megatron/core/parallel_state.py `initialize_model_parallel`, `expert_decoder_rank_generator`;
    arXiv 2504.14960).
    """
    room = network.nvlink_size
    tensor, context = layout.tensor_parallel, layout.context_parallel
    expert_tensor, expert = layout.expert_tensor_parallel, layout.expert_parallel
    others = _room(room, tensor)
    return {
        "tensor": Group(tensor, room),
        "context": Group(context, others),
        "expert_tensor": Group(expert_tensor, room),
        "expert": Group(expert, _room(room, expert_tensor)),
        "data": Group(layout.data_parallel * context, others),
        "expert_data": Group(expert_replicas(layout), _room(room, expert_tensor * expert)),
        "pipeline": pipeline_of(network, layout),
    }


def expert_replicas(layout: Layout) -> Real:
    """Return the replicas of an expert: ``TP x CP x DP / (ETP x EP)``."""
    ranks = layout.tensor_parallel * layout.context_parallel * layout.data_parallel
    return ranks / (layout.expert_tensor_parallel * layout.expert_parallel)


def _room(room: Real, apart: Real) -> Real:
    """Return the most members in one node of a group whose members are `apart` ranks apart."""
    return np.maximum(np.floor(room / apart), 1)


def pipeline_of(network: Network, layout: Layout) -> Group:
    """Return the group of a pipeline's stages; neighbours are TP x CP x DP ranks apart."""
    replicas = layout.data_parallel * layout.context_parallel
    others = layout.tensor_parallel * replicas
    room = np.maximum(np.floor(network.nvlink_size / others), 1)
    return Group(layout.pipeline_parallel, room)


def bandwidth(group: Group, network: Network, ratio: Real = 1.0) -> Real:
    """Return the bytes/s that a ring over the group moves.

    Inside a node NVLink sets the rate; over several nodes the slower of NVLink and the cards of the
    members of a node.

    Parameters
    ----------
    ratio
        Rate of the collective over NVLink, over that of gathers.
    """
    link = network.nvlink_bytes_per_second * network.nvlink_efficiency
    inside = link * ring_share(group, network) * ratio
    across = np.minimum(inside, group.members * card_bandwidth(network))
    return np.where(group.size > group.members, across, inside)


def ring_share(group: Group, network: Network) -> Real:
    """Return the rate of a small ring inside a node over that of a ring of eight GPUs and more.

    ``1 - (1 - pair_ring_share) ((8/n)^2 - 1)/15`` for n GPUs: `pair_ring_share` for two, 1 from
    eight on. NCCL on H100, 4 to 268 MB: 0.73 for two GPUs, 0.95 for four
    (ai-dynamo/aiconfigurator @095f58a5, tables of NCCL). Without a switch it is `link_share`.
    """
    size = np.minimum(np.maximum(group.members, 2.0), 8.0)
    ring = 1.0 - (1.0 - network.pair_ring_share) * ((8.0 / size) ** 2 - 1.0) / 15.0
    mesh = lacks_switch(network)
    return np.where(mesh, link_share(group.members, network), ring) if np.any(mesh) else ring


def lacks_switch(network: Network) -> Flag:
    """Return whether each pair of GPUs in a node has a link of its own, instead of a switch.

    Two GPUs then have one of the seven links to the others: `pair_ring_share` is below a half.
    Over a switch it is 0.7 or more.
    """
    return np.less(network.pair_ring_share, 0.5)


def link_share(members: Real, network: Network) -> Real:
    """Return the share of a GPU's links in a node that lead to the other members of its group.

    1 over a switch, and for a GPU that is alone in its node. Without a switch
    ``min((n - 1) pair_ring_share, 1)`` for n members: each other member has one link. Eight MI300X
    reduce at 312.9 GB/s, two at 47.7 (stas00/ml-engineering @0030e63f network/README.md,
    "Peer-to-peer bandwidth").
    """
    mesh = lacks_switch(network)
    if not np.any(mesh):
        return 1.0
    share = np.minimum((members - 1.0) * network.pair_ring_share, 1.0)
    return np.where(mesh & np.greater(members, 1), share, 1.0)


def card_bandwidth(network: Network) -> Real:
    """Return the bytes/s of one GPU over the network."""
    rate = network.network_bytes_per_second * network.network_efficiency
    return rate * network.nics_per_gpu


def gather_seconds(group: Group, volume: Real, network: Network, calls: Real = 1.0) -> Real:
    """Return the seconds of all-gathers or reduce-scatters of `volume` bytes in `calls` calls.

    ``(n - 1)/n x volume / bandwidth + calls x (collective_seconds + n - 1 hops)`` for n ranks. A
    ring crosses the network once a node; its other hops are NVLink.
    """
    size = group.size
    moved = (size - 1) / size * volume / bandwidth(group, network)
    hops = (group.nodes - 1) * network.network_latency_seconds
    hops = hops + (size - group.nodes) * network.nvlink_latency_seconds
    return np.where(size > 1, moved + calls * (network.collective_seconds + hops), 0.0)


def reduce_seconds(group: Group, volume: Real, network: Network, calls: Real = 1.0) -> Real:
    """Return the seconds of all-reduces of `volume` bytes: rings in bandwidth, trees in latency.

    ``2 (n - 1)/n x volume / bandwidth + calls x (collective_seconds + 2 x hops)``; hops are
    log2(nodes), rounded up, over the network, and members - 1 over NVLink. Over NVLink the
    bandwidth is `all_reduce_ratio` times that of gathers.
    """
    size = group.size
    rate = bandwidth(group, network, network.all_reduce_ratio)
    moved = 2 * (size - 1) / size * volume / rate
    rounds = np.ceil(np.log2(np.maximum(group.nodes, 1)))
    hops = rounds * network.network_latency_seconds
    hops = hops + (group.members - 1) * network.nvlink_latency_seconds
    return np.where(size > 1, moved + calls * (network.collective_seconds + 2 * hops), 0.0)


def neighbour_seconds(group: Group, volume: Real, network: Network) -> Real:
    """Return the seconds to send `volume` bytes from one GPU to the next of its group."""
    link = network.nvlink_bytes_per_second * network.nvlink_efficiency * link_share(2.0, network)
    is_inside = group.size <= group.members
    rate = np.where(is_inside, link, card_bandwidth(network))
    latency = np.where(is_inside, network.nvlink_latency_seconds, network.network_latency_seconds)
    return np.where(group.size > 1, volume / rate + latency, 0.0)


def lost_share(network: Network) -> Real:
    """Return the seconds that products lose to a second of simultaneous transfers of NCCL.

    ``max(communication_sm_fraction, 1 - 1/overlap_slowdown)``. Transfers take multiprocessors. Some
    products assign tiles to blocks beforehand, one block a multiprocessor. Blocks that find none
    free run in a second wave, so the product takes up to twice as long (`overlap_slowdown`),
    however few multiprocessors are taken.

    Source: pytorch/pytorch issue 143988 and pull request 144974; NVIDIA CUTLASS documentation,
    Blackwell Cluster Launch Control (static and dynamic scheduler).
    """
    waves = 1.0 - 1.0 / network.overlap_slowdown
    return np.maximum(network.communication_sm_fraction, waves)
