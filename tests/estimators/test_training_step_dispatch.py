"""Tokens on their way to experts: worked numbers of DeepSeek-V3, and cases that are known."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.condense_routing import SHAPE, condensed
from estimators.columns import COLUMNS
from estimators.contract import Catalog
from estimators.decoder import Shape
from estimators.kernels.loads import MeasuredLoads
from estimators.structure import real
from estimators.training_step import dispatch, network
from estimators.training_step.network import Group
from estimators.training_step.problem import Layout
from tests.estimators.training_step_cases import CATALOG, problem_with, step, step_with, steps
from tests.estimators.training_step_figures import close
from warehouse.database.catalog import packaged_catalog


def routed(experts: int, chosen: int, groups: int = 1, kept: int = 1) -> Shape:
    """Return a shape that chooses some of its experts in some of their groups."""
    columns: dict[str, Any] = {"num_experts": experts, "experts_per_token": chosen}
    return problem_with(**columns, route_groups=groups, route_groups_kept=kept).shape


DEEPSEEK, FREE = routed(256, 8, 8, 4), routed(256, 8)
TOKENS = 4096 * 7168 * 2.0
"""Bytes of 4,096 tokens in 16 bits."""

MIXTURE = {
    "num_layers": 2,
    "hidden_size": 256,
    "num_heads": 4,
    "seq_len": 512,
    "ffn_hidden_size": 512,
    "uses_glu": True,
    "num_experts": 8,
    "experts_per_token": 2,
    "expert_ffn_hidden_size": 256,
    "data_parallel": 8,
    "expert_parallel": 8,
    "nvlink_bytes_per_second": 1e9,
}
HIDDEN = 2.0 * 512 * 256
"""Bytes of a microbatch's tokens."""


def test_an_all_to_all_sends_a_copy_for_each_expert_but_to_itself() -> None:
    # 4096 x 8 x 7168 x 2 x 63/64 bytes.
    inside, outside = dispatch.alltoall_bytes(Group(64, 8), 8 * TOKENS)
    assert inside + outside == close(4096 * 8 * 7168 * 2 * 63 / 64)
    assert inside + outside == pytest.approx(462.4e6, rel=1e-3)
    assert outside == close(8 * TOKENS * 56 / 64)


def test_a_token_of_deepseek_reaches_3_63_of_8_nodes_with_its_limit_and_5_29_without() -> None:
    assert dispatch.distinct_places(8.0, DEEPSEEK) == pytest.approx(3.63, abs=0.005)
    assert dispatch.distinct_places(8.0, FREE) == pytest.approx(5.29, abs=0.005)
    # one copy to each node but the own one: 3.63 x 7/8
    _, outside = dispatch.flex_bytes(Group(64, 8), TOKENS, DEEPSEEK)
    assert outside == pytest.approx(186.5e6, rel=1e-3)


@pytest.mark.parametrize("places", [1, 2, 4, 8])
@pytest.mark.parametrize(("groups", "kept"), [(1, 1), (4, 2), (2, 1), (8, 3)])
def test_places_are_those_of_all_equally_likely_sets(places: int, groups: int, kept: int) -> None:
    experts, chosen = 8, 2
    of_group = [[e for e in range(experts) if e * groups // experts == g] for g in range(groups)]
    reached, sets = 0, 0
    for some in itertools.combinations(range(groups), kept):
        left = [expert for group in some for expert in of_group[group]]
        for picked in itertools.combinations(left, chosen):
            reached += len({expert * places // experts for expert in picked})
            sets += 1
    shape = routed(experts, chosen, groups, kept)
    assert dispatch.distinct_places(float(places), shape) == close(reached / sets)


def test_places_of_many_layouts_are_those_of_each() -> None:
    places = np.array([1.0, 2.0, 8.0, 64.0])
    found = np.asarray(dispatch.distinct_places(places, DEEPSEEK))
    alone = [dispatch.distinct_places(number, DEEPSEEK) for number in places]
    assert found == pytest.approx(alone, rel=1e-12)
    # 64 ranks of four experts each: at most one rank an expert
    assert 7 < found[-1] < 8


def test_within_a_domain_flex_sends_one_copy_to_each_rank() -> None:
    inside, outside = dispatch.flex_bytes(Group(8, 8), TOKENS, FREE)
    ranks = dispatch.distinct_places(8.0, FREE)
    assert (inside, outside) == (close(float(TOKENS * ranks * 7 / 8)), 0)


def test_each_dispatcher_exchanges_four_times_a_layer() -> None:
    # Two copies of a token with their weights of 4 bytes; one copy for each of the ranks that have
    # one of two experts, one each; all tokens of the seven others.
    plain = dict.fromkeys(("alltoall_efficiency", "flex_efficiency"), 0.5)
    copies, flex, gathered = step_with(
        {**MIXTURE, **plain},
        {"dispatcher": "alltoall"},
        {"dispatcher": "flex"},
        {"dispatcher": "allgather"},
    )
    once = 2 * 4 / 1e9
    weights = 2 * 512 * 4
    assert copies["expert_comm_seconds"] == close(once * 7 / 8 * (2 * HIDDEN + weights) / 0.5)
    assert flex["expert_comm_seconds"] == close(once * 7 / 8 * 2 * HIDDEN / 0.5)
    assert gathered["expert_comm_seconds"] == close(once * 7 * HIDDEN)


def test_without_a_switch_tokens_take_the_links_to_the_other_ranks() -> None:
    # eight ranks have seven links of a tenth
    for dispatcher in ("alltoall", "flex"):
        mixture = {**MIXTURE, "dispatcher": dispatcher}
        switch, mesh = step_with(mixture, {}, {"pair_ring_share": 0.1})
        assert mesh["expert_comm_seconds"] == close(switch["expert_comm_seconds"] / 0.7)


def test_tokens_in_8_bits_halve_one_exchange_of_four() -> None:
    flex = {**MIXTURE, "dispatcher": "flex"}
    wide, narrow = step_with(flex, {}, {"dispatch_element_bytes": 1.0})
    assert narrow["expert_comm_seconds"] == close(3.5 / 4 * wide["expert_comm_seconds"])


def test_the_fullest_rank_has_more_tokens_and_more_work() -> None:
    found = step_with({**MIXTURE, "dispatcher": "flex"}, {}, {"expert_load_ratio": 2.0})
    even, uneven = found
    assert uneven["expert_comm_seconds"] == close(2 * even["expert_comm_seconds"])
    assert uneven["gemm_seconds"] > even["gemm_seconds"]


LOADS = Catalog(
    {
        **CATALOG.tables,
        "expert_load": {
            f"{routing}@{experts}@{ranks}": {
                "expert_routing": routing,
                "num_experts": experts,
                "expert_parallel": ranks,
                "expert_load_ratio": ratio,
            }
            for routing, experts, ranks, ratio in (
                ("power_law_1.01", 16, 2, 1.5),
                ("power_law_1.01", 16, 4, 2.0),
                ("power_law_1.01", 16, 16, 3.0),
                ("power_law_1.01", 64, 2, 1.25),
                ("power_law_1.01", 64, 4, 1.5),
                ("power_law_1.2", 16, 2, 2.5),
            )
        },
    }
)


@pytest.mark.parametrize(
    ("routing", "experts", "ranks", "ratio"),
    [
        ("balanced", 16, 2, 1.0),
        ("power_law_1.01", 16, 2, 1.5),
        ("power_law_1.2", 16, 2, 2.5),
        # one rank has all tokens
        ("power_law_1.01", 16, 1, 1.0),
        # half way between 4 and 16 ranks in their logarithm
        ("power_law_1.01", 16, 8, 2.5),
        # half way between 16 and 64 experts: (2 + 1.5) / 2
        ("power_law_1.01", 32, 4, 1.75),
        # beyond what was measured: as the nearest
        ("power_law_1.01", 4, 4, 2.0),
        ("power_law_1.01", 256, 64, 1.5),
        ("power_law_1.2", 256, 64, 2.5),
    ],
)
def test_a_power_law_fills_the_fullest_rank_as_measured(
    routing: str, experts: int, ranks: int, ratio: float
) -> None:
    found = MeasuredLoads(LOADS).ratio(routing, experts, ranks)
    assert found == pytest.approx(ratio)


def test_rows_with_different_routing_have_ratios_of_their_own() -> None:
    routing = np.array(["power_law_1.2", "balanced", "power_law_1.01"], dtype=object)
    experts = real([16, 16, 64])
    loads = MeasuredLoads(LOADS)
    assert np.equal(loads.ratio(routing, experts, real([2, 2, 4])), [2.5, 1.0, 1.5]).all()
    # one number of ranks for all rows
    assert np.equal(loads.ratio(routing, experts, 2), [2.5, 1.0, 1.25]).all()


def test_every_law_that_a_problem_takes_has_measured_loads() -> None:
    loads = MeasuredLoads(packaged_catalog())
    given = [float(loads.ratio(str(name), 128, 64)) for name in COLUMNS["expert_routing"].choices]
    assert given == [1.0, 1.803, 2.356]


def test_loads_are_medians_of_kernels_with_enough_rows() -> None:
    # 8 experts and 2 a token: 512 rows an expert are 2,048 tokens
    kernels = pl.DataFrame(
        [
            {**kernel, "num_experts": 8, "experts_per_token": per_token, "routing": routing}
            | {"expert_parallel": ranks, "seconds": seconds, "num_tokens": tokens, "kernel": number}
            for kernel in [dict.fromkeys(SHAPE, 1)]
            for number, per_token, ranks, tokens, ratio in (
                *((1, 2, 2, 2048, 1.5), (2, 2, 2, 2048, 1.25), (3, 2, 2, 2048, 2.0)),
                # fewer rows, and experts a token with fewer kernels
                *((4, 2, 2, 1024, 9.0), (5, 4, 2, 2048, 7.0)),
                # a lower median on more ranks
                (6, 2, 4, 2048, 1.25),
            )
            for routing, seconds in (("balanced", 1.0), ("power_law_1.2", ratio))
        ]
    ).with_columns(hidden_size=pl.col("kernel"))
    found = condensed(kernels)
    assert found["expert_load"].to_list() == ["power_law_1.2@8@2", "power_law_1.2@8@4"]
    assert found["expert_load_ratio"].to_list() == [1.5, 1.5]
    assert found["num_kernels"].to_list() == [3, 1]
    # measured on fewer than half as many ranks
    assert condensed(kernels.filter(pl.col("expert_parallel") < 4)).is_empty()


def test_a_power_law_costs_the_time_and_memory_of_its_load_ratio() -> None:
    # 8 experts on 8 ranks: those of 16 on 8, 2.5 times the mean
    row = {**MIXTURE, "dispatcher": "flex"}
    law = {**row, "expert_routing": "power_law_1.01"}
    even, uneven, ratio = steps(row, law, {**row, "expert_load_ratio": 2.5}, catalog=LOADS)
    assert uneven == ratio
    assert uneven["expert_comm_seconds"] == close(2.5 * even["expert_comm_seconds"])
    assert uneven["activations_bytes"] > even["activations_bytes"]
    # a ratio that is given counts where it is more
    more, given = steps(
        {**law, "expert_load_ratio": 4.0}, {**row, "expert_load_ratio": 4.0}, catalog=LOADS
    )
    assert more == given


def test_shared_experts_hide_the_exchange_during_which_they_run() -> None:
    # without tiles, waves and memory a shared product takes its FLOPs at 1e12 FLOP/s: 512 tokens x
    # 256 x 3 x 256 x 2 forward, twice that backward; the exchange takes longer than that
    shared = {**MIXTURE, "dispatcher": "flex", "shared_ffn_hidden_size": 256}
    alone, beside = step_with(shared, {}, {"overlaps_shared_experts": True})
    work = 3 * 2 * 512 * 256 * 3 * 256 / 1e12 * 2
    assert alone["expert_comm_seconds"] > work
    assert beside["expert_comm_seconds"] == close(alone["expert_comm_seconds"] - work)
    # a shorter exchange is hidden
    fast = {**shared, "nvlink_bytes_per_second": 1e14}
    [found] = step_with(fast, {"overlaps_shared_experts": True})
    assert found["expert_comm_seconds"] == 0


def test_the_fullest_rank_has_no_more_than_all_tokens() -> None:
    # 8 experts, 2 a token: a rank with one of them gets each token once, 4 times the mean
    row = {**MIXTURE, "dispatcher": "flex"}
    most, beyond = step_with(row, {"expert_load_ratio": 4.0}, {"expert_load_ratio": 1e4})
    assert beyond == most
    alone, uneven = step_with({**row, "expert_parallel": 1}, {}, {"expert_load_ratio": 4.0})
    assert uneven == alone


def test_what_all_ranks_get_does_not_depend_on_the_choice_of_experts() -> None:
    row = {**MIXTURE, "dispatcher": "allgather"}
    even, uneven = step_with(row, {}, {"expert_load_ratio": 2.0})
    assert uneven["expert_comm_seconds"] == even["expert_comm_seconds"]
    assert uneven["gemm_seconds"] > even["gemm_seconds"]


def test_tokens_hide_behind_the_arithmetic_of_another_microbatch() -> None:
    slow = {**MIXTURE, "dispatcher": "flex", "nvlink_bytes_per_second": 2e8}
    shown, hidden = step_with(slow, {}, {"overlaps_expert_comm": True})
    work = shown["gemm_seconds"] + shown["attention_seconds"]
    assert 0 < work < shown["expert_comm_seconds"]
    assert hidden["expert_comm_seconds"] == close(shown["expert_comm_seconds"] - work)
    fast = {**slow, "nvlink_bytes_per_second": 1e14}
    assert step(fast, overlaps_expert_comm=True)["expert_comm_seconds"] == 0


def test_over_nodes_tokens_cross_the_cards_and_then_nvlink() -> None:
    # Eight ranks on two nodes of four, an expert each: a token reaches 2 x (1 - 6/28) = 11/7 nodes
    # and 2 ranks. Half of the nodes' copies leave: 11/14; to ranks go 2 x (1 - 2/8) = 3/2.
    row = {**MIXTURE, "dispatcher": "flex", "nvlink_size": 4, "network_bytes_per_second": 1e8}
    at_once, after, called = step_with(
        row, {}, {"flex_serial_fraction": 0.5}, {"flex_seconds": 1e-3}
    )
    once = 2 * 4 * HIDDEN
    assert at_once["expert_comm_seconds"] == close(once * 11 / 14 / 1e8)
    more = after["expert_comm_seconds"] - at_once["expert_comm_seconds"]
    assert more == close(once * 0.5 * 3 / 2 / 1e9)
    assert called["expert_comm_seconds"] - at_once["expert_comm_seconds"] == close(2 * 4 * 1e-3)
    # in a node nothing crosses a card
    inside = {**row, "nvlink_size": 8}
    alike, serial = step_with(inside, {}, {"flex_serial_fraction": 0.5})
    assert serial["expert_comm_seconds"] == alike["expert_comm_seconds"]


def test_a_part_of_the_exchange_hides() -> None:
    row = {**MIXTURE, "dispatcher": "flex", "overlaps_expert_comm": True}
    shown, part = step_with(
        row, {"overlaps_expert_comm": False}, {"overlapped_expert_fraction": 0.37}
    )
    assert 0 < shown["expert_comm_seconds"] < shown["gemm_seconds"]
    assert part["expert_comm_seconds"] == close(0.63 * shown["expert_comm_seconds"])


def test_experts_pad_their_rows_for_8_bits() -> None:
    for recipe, rows in (("none", 100), ("tensorwise", 107.5), ("mxfp8", 115.5)):
        figures = problem_with(number_recipe=recipe).recipe
        assert dispatch.padded_rows(100.0, figures) == rows


def test_experts_have_a_product_each_unless_the_host_does_not_know_their_rows() -> None:
    for recipe, captures, kernels in (
        ("mxfp8", False, (1, 4)),
        ("mxfp8", True, (4, 1)),
        ("none", True, (1, 4)),
    ):
        problem = problem_with(number_recipe=recipe, captures_whole_steps=captures)
        assert dispatch.kernels_of(4.0, problem) == kernels
    # more multiprocessors than tiles do a kernel in one wave, however many experts it has: two,
    # four and eight in kernels of their own take one, three and seven waves more
    row: dict[str, Any] = {**MIXTURE, "expert_parallel": 1, "data_parallel": 1, "num_sms": 10**4}
    row |= {"precision": "fp8", "number_recipe": "mxfp8", "transposes_operands": False}
    more = []
    for number in (2, 4, 8):
        each = {**row, "num_experts": number, "experts_per_token": number}
        apart, fused = step_with(each, {}, {"captures_whole_steps": True})
        more.append(apart["gemm_seconds"] - fused["gemm_seconds"])
    assert more[0] > 0
    assert more[1:] == [close(3 * more[0]), close(7 * more[0])]


def test_a_rank_alone_exchanges_nothing() -> None:
    for dispatcher in ("alltoall", "flex", "allgather"):
        found = step({**MIXTURE, "dispatcher": dispatcher, "expert_parallel": 1})
        assert found["expert_comm_seconds"] == 0


def test_groups_of_experts_may_span_those_of_tensors() -> None:
    layout = {"tensor_parallel": 4, "context_parallel": 2, "data_parallel": 8}
    layout |= {"pipeline_parallel": 4, "expert_tensor_parallel": 1, "expert_parallel": 64}
    assert network.expert_replicas(Layout.of(layout)) == 1


def test_gradients_of_experts_are_added_to_their_buffer() -> None:
    # Eight ranks of one expert, 3 x 256 x 256 weights, two layers, one microbatch: a buffer in 32
    # bits is read and written, 8 bytes, where another product writes 2.
    machine = {**MIXTURE, "nvlink_bytes_per_second": 1e30, "accumulating_product_ratio": 1.0}
    buffer = {"stored_gradient_bytes": 4.0, "accumulation_traffic_bytes": 0.0}
    memory = {"hbm_bytes_per_second": 1e9}
    free, slow = (step({**machine, **buffer, **each}) for each in ({}, memory))
    apart = {"accumulation_traffic_bytes": 1e-9}
    products = step({**machine, **buffer, **memory, **apart})["gemm_seconds"]
    assert slow["gemm_seconds"] - products == close(2 * 6 * 3 * 256 * 256 / 1e9)
    assert free["gemm_seconds"] < products


def test_an_all_to_all_pads_tokens_and_results_of_fp8_in_copies_of_their_own() -> None:
    # both copies of each token, and their results, are read and written once more: in each pass of
    # two layers 2 x 2 x 2 times the tokens' bytes; `flex` pads as it puts in order
    row = {**MIXTURE, "expert_parallel": 1, "data_parallel": 1, "hbm_bytes_per_second": 1e9}
    low = {"precision": "fp8", "number_recipe": "tensorwise"}
    more = []
    for dispatcher in ("alltoall", "flex"):
        wide, narrow = step_with({**row, "dispatcher": dispatcher}, {}, low)
        more.append(narrow["elementwise_seconds"] - wide["elementwise_seconds"])
    assert more[0] - more[1] == close(2 * 2 * (2 * 2 * 2) * HIDDEN / 1e9)
