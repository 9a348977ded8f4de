"""Collectives over a network of two tiers, against figures worked out by hand from the papers.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

import pytest

from estimators.training_step import network
from estimators.training_step.network import Group
from estimators.training_step.problem import Layout, Network
from tests.estimators.training_step_figures import close

# ---- collectives ----


def wires(**changes: float) -> Network:
    columns = {
        "nvlink_size": 4,
        "nvlink_bytes_per_second": 1e11,
        "nvlink_efficiency": 0.8,
        "nvlink_latency_seconds": 1e-6,
        "network_bytes_per_second": 1e10,
        "network_efficiency": 0.5,
        "network_latency_seconds": 1e-5,
        "nics_per_gpu": 2.0,
        "collective_seconds": 1e-4,
        "pair_ring_share": 1.0,
        "all_reduce_ratio": 1.0,
        **changes,
    }
    return Network.of(columns)


def test_an_all_reduce_in_a_node_moves_2_n_minus_1_over_n_of_the_volume() -> None:
    # 2 x 3/4 x 8e9 / 0.8e11 = 0.15 s; one call, three hops up and three down.
    found = network.reduce_seconds(Group(4, 4), 8e9, wires())
    assert found == close(0.15 + 1e-4 + 6e-6)


def test_an_all_reduce_in_a_node_may_be_faster_than_two_gathers() -> None:
    # 2 x 3/4 x 8e9 / (1.25 x 0.8e11) = 0.12 s; gathers, and cards between nodes, are as before.
    fast = wires(all_reduce_ratio=1.25)
    assert network.reduce_seconds(Group(4, 4), 8e9, fast) == close(0.12 + 1e-4 + 6e-6)
    for group, collective in ((4, network.gather_seconds), (8, network.reduce_seconds)):
        found = collective(Group(group, 4), 8e9, fast)
        assert found == collective(Group(group, 4), 8e9, wires())


def test_a_small_ring_in_a_node_is_slower() -> None:
    # A pair reaches 0.6 of 0.8e11: 1/2 x 8e9 / 0.48e11 = 1/12 s, and one hop. Of its loss of 0.4
    # four keep (64/16 - 1)/15 = 1/5, so that they reach 0.92, and eight nothing.
    few = wires(nvlink_size=8, pair_ring_share=0.6)
    assert network.gather_seconds(Group(2, 8), 8e9, few) == close(1 / 12 + 1e-4 + 1e-6)
    four = 3 / 4 * 8e9 / (0.92 * 0.8e11)
    assert network.gather_seconds(Group(4, 8), 8e9, few) == close(four + 1e-4 + 3e-6)
    eight = 7 / 8 * 8e9 / 0.8e11
    assert network.gather_seconds(Group(8, 8), 8e9, few) == close(eight + 1e-4 + 7e-6)
    # Cards between nodes do not depend on it: 7/8 x 8e9 / 4e10.
    across = network.gather_seconds(Group(8, 4), 8e9, wires(pair_ring_share=0.9))
    assert across == close(0.175 + 1e-4 + 1e-5 + 6e-6)


def test_without_a_switch_each_pair_has_a_link_of_its_own() -> None:
    # A quarter of 0.8e11 a link: two have 0.2e11, three 0.4e11, five and more 0.8e11.
    mesh = wires(nvlink_size=8, pair_ring_share=0.25)
    for ranks, rate in ((2, 0.2e11), (3, 0.4e11), (5, 0.8e11), (8, 0.8e11)):
        found = network.gather_seconds(Group(ranks, 8), 8e9, mesh)
        assert found == close((ranks - 1) / ranks * 8e9 / rate + 1e-4 + (ranks - 1) * 1e-6)
    # neighbours have one link, however many are in their group
    assert network.neighbour_seconds(Group(8, 8), 8e9, mesh) == close(8e9 / 0.2e11 + 1e-6)
    # over nodes: cards of 1e10 for each member, and no link for a member that is alone in its node
    fast = wires(nvlink_size=8, pair_ring_share=0.05)
    alone = network.gather_seconds(Group(8, 1), 8e9, fast)
    assert alone == close(7 / 8 * 8e9 / 1e10 + 1e-4 + 7e-5)
    # two of a node have one link of 0.04e11, less than their cards
    pairs = network.gather_seconds(Group(8, 2), 8e9, fast)
    assert pairs == close(7 / 8 * 8e9 / 0.04e11 + 1e-4 + 3e-5 + 4e-6)


def test_over_a_switch_a_pair_has_the_whole_link() -> None:
    for share in (0.5, 0.73, 1.0):
        found = network.neighbour_seconds(Group(8, 8), 8e9, wires(pair_ring_share=share))
        assert found == close(8e9 / 0.8e11 + 1e-6)


def test_an_all_reduce_over_nodes_passes_the_cards_of_its_members_together() -> None:
    # A GPU's cards: 2 x 0.5 x 1e10 = 1e10. Eight ranks in two nodes: four GPUs' cards, 4e10;
    # 2 x 7/8 x 8e9 / 4e10 = 0.35 s; up and down a tree of one hop between nodes, three within.
    found = network.reduce_seconds(Group(8, 4), 8e9, wires())
    assert found == close(0.35 + 1e-4 + 2 * (1e-5 + 3e-6))
    # One rank a node: its own cards; three hops deep between 8 nodes.
    alone = network.reduce_seconds(Group(8, 1), 8e9, wires())
    assert alone == close(1.4 + 1e-4 + 6e-5)
    # Cards beyond NVLink do not help: 0.8e11.
    many = network.reduce_seconds(Group(8, 4), 8e9, wires(nics_per_gpu=100.0))
    assert many == close(2 * 7 / 8 * 8e9 / 0.8e11 + 1e-4 + 2 * (1e-5 + 3e-6))


def test_an_all_gather_moves_half_of_an_all_reduce() -> None:
    assert network.gather_seconds(Group(4, 4), 8e9, wires()) == close(0.075 + 1e-4 + 3e-6)
    # Around the ring of eight: one hop between two nodes, six within them; in two calls.
    found = network.gather_seconds(Group(8, 4), 8e9, wires(), 2)
    assert found == close(0.175 + 2 * (1e-4 + 1e-5 + 6e-6))


def test_a_neighbour_is_reached_over_nvlink_or_a_card() -> None:
    assert network.neighbour_seconds(Group(4, 4), 8e9, wires()) == close(0.1 + 1e-6)
    assert network.neighbour_seconds(Group(4, 2), 8e9, wires()) == close(0.8 + 1e-5)


@pytest.mark.parametrize("collective", ["reduce", "gather", "neighbour"])
def test_a_group_of_one_waits_for_nothing(collective: str) -> None:
    assert getattr(network, f"{collective}_seconds")(Group(1, 1), 8e9, wires()) == 0


def test_ranks_fill_nodes_tensors_first_then_context_and_data() -> None:
    # 4 x 2 x 8 x 3 GPUs in nodes of 16: a node holds four tensor groups, that is both context
    # ranks of two replicas; replicas exchange gradients over context and data together.
    layout = {
        "tensor_parallel": 4,
        "context_parallel": 2,
        "data_parallel": 8,
        "pipeline_parallel": 3,
        "expert_tensor_parallel": 4,
        "expert_parallel": 2,
    }
    found = network.groups(wires(nvlink_size=16), Layout.of(layout))
    members = {name: (int(group.size), int(group.members)) for name, group in found.items()}
    assert members == {
        "tensor": (4, 4),
        "context": (2, 2),
        "expert_tensor": (4, 4),
        "expert": (2, 2),
        "data": (16, 4),
        "expert_data": (8, 2),
        "pipeline": (3, 1),
    }
    # Two tensors of 16 fill no node of 8: eight members of each are in one.
    wide = network.groups(wires(nvlink_size=8), Layout.of({**layout, "tensor_parallel": 16}))
    assert (int(wide["tensor"].size), int(wide["tensor"].members)) == (16, 8)
    assert int(wide["data"].members) == 1


def test_ranks_of_experts_span_those_of_tensors_and_sequences() -> None:
    # 1,024 GPUs, 8 stages of 2 x 64: 64 ranks of experts, and two replicas of each.
    layout = dict.fromkeys(("context_parallel", "expert_tensor_parallel"), 1)
    layout |= {"tensor_parallel": 2, "data_parallel": 64}
    layout |= {"pipeline_parallel": 8, "expert_parallel": 64}
    found = network.groups(wires(nvlink_size=8), Layout.of(layout))
    members = {name: (int(group.size), int(group.members)) for name, group in found.items()}
    assert members["expert"] == (64, 8)
    assert members["expert_data"] == (2, 1)
    assert members["data"] == (64, 4)
    # 256 GPUs, 4 stages of 4 x 2 x 8: each expert is held once.
    layout |= {"tensor_parallel": 4, "context_parallel": 2, "data_parallel": 8}
    alone = network.groups(wires(nvlink_size=72), Layout.of(layout))["expert_data"]
    assert int(alone.size) == 1
    assert network.gather_seconds(alone, 1e9, wires()) == 0
