"""Each part of a training step, against figures worked out by hand from the cited papers.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_step_cases import (
    FREE,
    GPT,
    IDEAL,
    LLAMA,
    LLAMA_LAYER,
    MOE,
    evaluate,
    step,
    step_with,
    total,
)

from estimators.training_step import network, products
from estimators.training_step.network import Group

SMALL = {**GPT, "vocab_size": 512}
"""The vocabulary's matrices have 512 x 512 = 262,144 weights."""

FORWARD = 24 * 1024 * 512**2 / 1e12
"""Products of a layer of GPT, forward: 24 T h^2 FLOPs (arXiv 2104.04473 appendix)."""

CORE = 4 * 1024 * 1024 * 512 / 1e12 * (1 + 1 / 8) / 2
"""Scores and values of a layer, forward: 4 b s^2 h (the same), of 8 x 8 blocks of 128 the 36 on and
below the diagonal: (1 + 1/8)/2 of 64."""

LAYER = 3 * FORWARD + 3.5 * CORE
"""Backward: twice the products, two and a half times the core (arXiv 2307.08691 section 4.1)."""

OUTPUT = 3 * 2 * 1024 * 512 * 512 / 1e12
"""The output layer, forward and both gradients: 6 T h V."""

HIDDEN = 2 * 1024 * 512
"""Bytes of a microbatch's hidden states in 16 bits."""


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-25)


# ---- one product ----

CHIP = {
    "num_sms": 1,
    "small_tile_efficiency": 0.5,
    "is_fp8": False,
    "fp8_peak": 2e12,
    "fp8_gemm_efficiency": 0.25,
    "matrix_flops_per_second": 1e12,
    "gemm_efficiency": 0.5,
    "gemm_half_depth": 0.0,
    "hbm_bytes_per_second": FREE,
    "hbm_efficiency": 1.0,
    "launch_seconds": 0.0,
}


@pytest.mark.parametrize(
    ("rows", "columns", "batch", "chip", "share"),
    [
        # 2 x 4 tiles of 256 x 128 on 4 multiprocessors: two waves, both full.
        (512, 512, 1, {"num_sms": 4}, 1.0),
        # 8 x 4 tiles on 20: 1.6 waves take the time of two.
        (1024, 1024, 1, {"num_sms": 20}, 0.8),
        # 2 x 2 tiles on 8: half a wave takes the time of one.
        (512, 256, 1, {"num_sms": 8}, 0.5),
        # ... but 4 x 2 tiles of 128 x 128 fill it, at 0.9 of the rate.
        (512, 256, 1, {"num_sms": 8, "small_tile_efficiency": 0.9}, 0.9),
        # Upright 2 x 2 = 4 tiles, lying 3 x 1 = 3, of 32,768 each, for 60,000 entries: the fewer.
        (300, 200, 1, {}, 60_000 / (3 * 32_768)),
        # The other way up.
        (200, 300, 1, {}, 60_000 / (3 * 32_768)),
        # A column of a vector: 128 x 256 uses 1 of 256 columns, 256 x 128 one of 128.
        (256, 1, 1, {"small_tile_efficiency": 0.9}, 1 / 128),
        # Three products in one kernel on 2 multiprocessors: 1.5 waves take two.
        (256, 128, 3, {"num_sms": 2}, 0.75),
        # 3 x 1 small tiles of 128 x 128 use 384 x 128 of 512 x 128 (upright) wholly.
        (384, 128, 1, {"small_tile_efficiency": 0.9}, 0.9),
    ],
)
def test_a_product_loses_to_edges_of_tiles_and_to_waves_that_are_not_full(
    rows: int, columns: int, batch: int, chip: dict[str, Any], share: float
) -> None:
    values = {**CHIP, **chip}
    assert products.tile_share(rows, columns, batch, values) == close(share)
    flops = 2 * rows * columns * 1024 * batch
    assert products.product_seconds(rows, columns, 1024, values, batch) == close(
        flops / (0.5e12 * share)
    )


def test_a_product_loses_to_a_shallow_inner_dimension() -> None:
    # K / (K + K0) is 1024 / 1280 = 0.8; 256 / 512 is a half.
    values = {**CHIP, "gemm_half_depth": 256.0}
    for depth, share in ((1024, 0.8), (256, 0.5)):
        assert products.product_seconds(256, 128, depth, values) == close(
            2 * 256 * 128 * depth / (0.5e12 * share)
        )


def test_a_product_takes_what_its_operands_take_to_read_and_write_if_that_is_longer() -> None:
    # 2 x (256 + 256) x 64 read and 2 x 256 x 256 written: 196,608 bytes at 0.5e9 B/s.
    values = {**CHIP, "hbm_bytes_per_second": 1e9, "hbm_efficiency": 0.5, "launch_seconds": 3e-6}
    assert products.product_seconds(256, 256, 64, values) == close(196_608 / 0.5e9 + 3e-6)
    # In FP8 the operands take a byte: 32,768 + 131,072, of three products in one launch.
    low = {**values, "is_fp8": True}
    assert products.product_seconds(256, 256, 64, low, 3) == close(3 * 163_840 / 0.5e9 + 3e-6)
    # A product that is kept in 16 bits does not care.
    assert products.product_seconds(256, 256, 64, low, low=False) == close(196_608 / 0.5e9 + 3e-6)


def test_a_product_in_fp8_runs_at_its_own_rate() -> None:
    values = {**CHIP, "is_fp8": True}
    # 2 x 256 x 128 x 512 FLOPs at a quarter of 2e12.
    assert products.product_seconds(256, 128, 512, values) == close(2 * 256 * 128 * 512 / 0.5e12)


# ---- a layer ----


def test_products_of_a_step_are_three_times_those_of_the_forward_pass() -> None:
    found = step(SMALL, num_microbatches=3)
    # 4 layers, 3 microbatches.
    assert found["gemm_seconds"] == close(12 * 3 * FORWARD)
    assert found["attention_seconds"] == close(12 * 3.5 * CORE)
    assert found["vocabulary_seconds"] == close(3 * OUTPUT)
    assert found["step_seconds"] == close(12 * LAYER + 3 * OUTPUT)


def test_products_lose_to_their_efficiency_and_depth() -> None:
    found = step(SMALL, gemm_efficiency=0.5, gemm_half_depth=512.0)
    # Inner dimensions of the three ways of a product are its three sides. Of T = 1024, h = 512:
    # qkv 1024 x 1536 x 512, projection 1024 x 512 x 512, 1024 x 2048 x 512 and back.
    # Seconds of one of depth K at half the peak: 2 M N K (1 + 512/K) / 0.5e12.
    seconds = 0.0
    for m, n, k in (
        (1024, 1536, 512),
        (1024, 512, 512),
        (1024, 2048, 512),
        (1024, 512, 2048),
    ):
        seconds += sum(2 * m * n * k * (1 + 512 / depth) / 0.5e12 for depth in (m, n, k))
    assert found["gemm_seconds"] == close(4 * seconds)


def test_a_tensor_parallel_group_shares_the_products_of_a_layer() -> None:
    # Tiles stay full: 1536/4 = 384 is 3 x 128 of an upright tile, 512/4 = 128.
    (found,) = step_with(SMALL, {"tensor_parallel": 4})
    assert found["gemm_seconds"] == close(4 * 3 * FORWARD / 4)
    assert found["attention_seconds"] == close(4 * 3.5 * CORE / 4)


def test_grouped_queries_and_a_gated_layer_have_their_own_products() -> None:
    # A token: h x (512 queries + 2 x 256) + 512 x h + 3 x 512 x 1024 weights, two FLOPs each.
    weights = 512 * (512 + 512) + 512 * 512 + 3 * 512 * 1024
    found = step({**LLAMA, "vocab_size": 512})
    assert found["gemm_seconds"] == close(4 * 3 * 2 * 1024 * weights / 1e12)
    assert found["attention_seconds"] == close(4 * 3.5 * CORE)


def test_key_heads_are_copied_where_there_are_fewer_than_tensors() -> None:
    # Four ranks and two key heads: each has a query head and, not half a key head, a whole one.
    found = step({**LLAMA, "vocab_size": 512, "tensor_parallel": 4})
    weights = 512 * (128 + 2 * 128) + 128 * 512 + 3 * 512 * 256
    assert found["gemm_seconds"] == close(4 * 3 * 2 * 1024 * weights / 1e12)


def test_the_core_of_fused_attention_runs_at_its_own_efficiency_and_fills_a_wave_or_not() -> None:
    rates = {"flash_forward_efficiency": 0.5, "flash_backward_efficiency": 0.25}
    (found, few) = step_with(SMALL, rates, {**rates, "num_sms": 128})
    # Forward 1/0.5, backward 2.5/0.25: twelve times.
    assert found["attention_seconds"] == close(4 * CORE * 12)
    # 4 heads x 1024/128 blocks of queries are 32 of 128 multiprocessors: a quarter of a wave.
    assert few["attention_seconds"] == close(4 * CORE * 12 * 4)


def test_a_context_parallel_rank_has_its_share_of_the_attention() -> None:
    # Of 1024 tokens on 2 ranks: half of the queries against all keys, 512/128 = 4 blocks; of the
    # 4 x 4 blocks on its diagonal 10: (1 + 1/4)/2.
    found = step(SMALL, context_parallel=2)
    share = 4 * 512 * 1024 * 512 / 1e12 * (1 + 1 / 4) / 2
    assert found["attention_seconds"] == close(4 * 3.5 * share)
    assert found["gemm_seconds"] == close(4 * 3 * FORWARD / 2)


def test_unfused_attention_computes_the_whole_square() -> None:
    # 4 b s^2 h forward (the paper counts no less), twice that backward.
    found = step(SMALL, attention="unfused")
    assert found["attention_seconds"] == close(4 * 3 * 4 * 1024 * 1024 * 512 / 1e12)


@pytest.mark.parametrize("drops", [False, True])
def test_unfused_attention_reads_and_writes_its_scores(drops: bool) -> None:
    # Memory alone counts: 1e9 B/s. Four heads of 128, 1024 x 1024 scores each in 16 bits.
    changes = {"matrix_flops_per_second": FREE, "hbm_bytes_per_second": 1e9}
    found = step(SMALL, attention="unfused", uses_dropout=drops, **changes)
    square, side = 4 * 1024 * 1024, 4 * 1024 * 128
    # Products: scores read two sides and write a square, values read a square and a side and
    # write a side; backward two such each.
    core = 2 * (2 * side + square) + 2 * (square + 2 * side)
    # Queries, keys, values and result are turned: read and written, 4 bytes.
    turned = 4 * 4 * side
    # Softmax reads and writes scores (4); its gradient reads two squares and writes one (6).
    # Dropout reads, writes and keeps a mask of a byte (5), both ways.
    dropped = 5 * drops
    forward = core + turned + (4 + dropped) * square
    backward = 2 * core + turned + (6 + dropped) * square
    assert found["attention_seconds"] == close(4 * (forward + backward) / 1e9)


@pytest.mark.parametrize("drops", [False, True])
def test_what_streams_between_products_is_counted_byte_by_byte(drops: bool) -> None:
    found = step(SMALL, hbm_bytes_per_second=1e9, uses_dropout=drops)
    # Of T h = 524,288 elements, for each of two blocks. Forward: a norm reads and writes (4); bias
    # and residual read two and write one (6), with a mask of a byte (1). Backward: a norm reads two
    # and writes one (6), the two gradients of the forking stream are added up (6), the mask is
    # applied (5), and the bias's gradient read (2).
    between = 2 * 1024 * 512 * ((4 + 6 + drops) + (6 + 6 + 5 * drops + 2))
    # Of T 4h elements: bias and GeLU read and write (4); backward read two, write one, read for
    # the bias (8).
    inside = 1024 * 2048 * (4 + 8)
    assert found["elementwise_seconds"] == close(4 * (between + inside) / 1e9)


def test_what_streams_in_a_gated_layer() -> None:
    found = step({**LLAMA, "vocab_size": 512}, hbm_bytes_per_second=1e9)
    # As above without biases; a gate reads two and writes one (6), backward reads three and
    # writes two (10); rotary embedding reads and writes queries and keys (4), both ways.
    between = 2 * 1024 * 512 * ((4 + 6) + (6 + 6))
    inside = 1024 * 1024 * (6 + 10)
    turned = 1024 * (512 + 256) * (4 + 4)
    assert found["elementwise_seconds"] == close(4 * (between + inside + turned) / 1e9)


def test_separate_kernels_move_more_than_fused_ones() -> None:
    for shape in (SMALL, {**LLAMA, "vocab_size": 512}):
        fused, separate = step_with(
            {**shape, "hbm_bytes_per_second": 1e9}, {}, {"fuses_elementwise": False}
        )
        assert separate["elementwise_seconds"] > fused["elementwise_seconds"]


def test_sequence_parallelism_splits_what_lies_between_products() -> None:
    slow = {"hbm_bytes_per_second": 1e9, "tensor_parallel": 4}
    whole, split = step_with({**SMALL, **slow}, {}, {"uses_sequence_parallel": True})
    # As above without dropout: 24 bytes of T h between, 12 bytes of T 4h/4 inside.
    inside, between = 1024 * 512 * 12, 2 * 1024 * 512 * 24
    assert whole["elementwise_seconds"] == close(4 * (inside + between) / 1e9)
    assert split["elementwise_seconds"] == close(4 * (inside + between / 4) / 1e9)


def test_launches_count_kernel_by_kernel() -> None:
    quick, late = step_with(SMALL, {}, {"launch_seconds": 1e-3})
    # A layer has four products, each forward and twice backward.
    assert late["gemm_seconds"] - quick["gemm_seconds"] == close(4 * 12 * 1e-3)
    # The fused core is one kernel forward and three backward (a row sum, the gradients, a sum).
    assert late["attention_seconds"] - quick["attention_seconds"] == close(4 * 4 * 1e-3)


def test_the_host_fills_what_a_pass_is_too_short_for() -> None:
    # Forward FORWARD + CORE = 7.65e-3 s is too short for 10e-3, backward 15.9e-3 s is not.
    found, both = step_with(
        SMALL, {"host_seconds_per_layer": 10e-3}, {"host_seconds_per_layer": 20e-3}
    )
    forward, backward = FORWARD + CORE, 2 * FORWARD + 2.5 * CORE
    assert found["host_seconds"] == close(4 * (10e-3 - forward))
    assert both["host_seconds"] == close(4 * (40e-3 - forward - backward))


# ---- recomputation ----


def test_full_recomputation_adds_a_forward_pass_and_its_collectives() -> None:
    slow = {"tensor_parallel": 4, "nvlink_bytes_per_second": 1e9}
    none, full = step_with({**SMALL, **slow}, {}, {"activation_recompute": "full"})
    assert none["recompute_seconds"] == 0
    assert full["recompute_seconds"] == close(4 * (FORWARD + CORE) / 4)
    for name in ("gemm_seconds", "attention_seconds", "vocabulary_seconds"):
        assert full[name] == none[name]
    # Two all-reduces a layer more, of 2 x 3/4 of the volume each.
    added = full["tensor_comm_seconds"] - none["tensor_comm_seconds"]
    assert added == pytest.approx(4 * 2 * 1.5 * HIDDEN / 1e9)


def test_selective_recomputation_adds_the_core_of_attention() -> None:
    unfused = {**SMALL, "attention": "unfused"}
    none, selective, flash = step_with(
        unfused,
        {},
        {"activation_recompute": "selective"},
        {"activation_recompute": "selective", "attention": "flash"},
    )
    # 4 b s^2 h a layer (arXiv 2205.05198 section 5: the second product needs the first again).
    assert selective["recompute_seconds"] == close(4 * 4 * 1024**2 * 512 / 1e12)
    assert selective["step_seconds"] - none["step_seconds"] == pytest.approx(
        selective["recompute_seconds"], rel=1e-9
    )
    # The fused kernel is run again as well, over its blocks on and below the diagonal.
    assert flash["recompute_seconds"] == close(
        4 * 4 * 1024**2 * 512 / 1e12 * 0.5 * (1 + 128 / 1024)
    )


# ---- collectives ----


def wires(**changes: float) -> dict[str, float]:
    return {
        "nvlink_size": 4,
        "nvlink_bytes_per_second": 1e11,
        "nvlink_efficiency": 0.8,
        "nvlink_latency_seconds": 1e-6,
        "network_bytes_per_second": 1e10,
        "network_efficiency": 0.5,
        "network_latency_seconds": 1e-5,
        "nics_per_gpu": 2.0,
        "collective_seconds": 1e-4,
        **changes,
    }


def test_an_all_reduce_in_a_node_moves_2_n_minus_1_over_n_of_the_volume() -> None:
    # 2 x 3/4 x 8e9 / 0.8e11 = 0.15 s; one call, three hops up and three down.
    found = network.reduce_seconds(Group(4, 4), 8e9, wires())
    assert found == close(0.15 + 1e-4 + 6e-6)


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


def test_an_all_to_all_leaves_the_node_over_the_gpus_own_card() -> None:
    # Of 8e9 bytes of a GPU 3/8 stay in the node (3e9 / 0.8e11), 4/8 leave it (4e9 / 1e10).
    found = network.exchange_seconds(Group(8, 4), 8e9, wires())
    assert found == close(0.4 + 1e-4 + 1e-5)
    inside = network.exchange_seconds(Group(4, 4), 8e9, wires())
    assert inside == close(0.075 + 1e-4 + 1e-6)
    # A node with cards as fast as ten links: NVLink is what is waited for.
    found = network.exchange_seconds(Group(8, 4), 8e9, wires(nics_per_gpu=1e3))
    assert found == close(3e9 / 0.8e11 + 1e-4 + 1e-5)


def test_a_neighbour_is_reached_over_nvlink_or_a_card() -> None:
    assert network.neighbour_seconds(Group(4, 4), 8e9, wires()) == close(0.1 + 1e-6)
    assert network.neighbour_seconds(Group(4, 2), 8e9, wires()) == close(0.8 + 1e-5)


@pytest.mark.parametrize("collective", ["reduce", "gather", "exchange", "neighbour"])
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
        "expert_parallel": 2,
    }
    found = network.groups({"nvlink_size": 16}, layout)
    members = {name: (int(group.size), int(group.members)) for name, group in found.items()}
    assert members == {
        "tensor": (4, 4),
        "context": (2, 2),
        "expert": (2, 2),
        "data": (16, 4),
        "expert_data": (8, 2),
        "pipeline": (3, 1),
    }
    # Two tensors of 16 fill no node of 8: eight members of each are in one.
    wide = network.groups({"nvlink_size": 8}, {**layout, "tensor_parallel": 16})
    assert (int(wide["tensor"].size), int(wide["tensor"].members)) == (16, 8)
    assert int(wide["data"].members) == 1


# ---- tensor, context and expert parallelism ----

FAST = {"matrix_flops_per_second": FREE}
"""No arithmetic to hide behind."""


def test_tensor_parallelism_reduces_twice_each_way_and_once_at_either_end() -> None:
    found = step(
        SMALL, tensor_parallel=4, nvlink_bytes_per_second=1e9, nvlink_efficiency=0.5, **FAST
    )
    # 4 layers x 4 all-reduces of T h in 16 bits: 2 x 3/4 x 1,048,576 / 0.5e9. The embedding's
    # forward pass and the output layer's backward pass reduce as much once each; maximum, sum and
    # target of the loss (arXiv 1909.08053 section 3) take 3 x 4 bytes a token.
    whole, small = 1.5 * HIDDEN / 0.5e9, 1.5 * 4 * 1024 / 0.5e9
    assert found["tensor_comm_seconds"] == close(18 * whole + 3 * small)


def test_sequence_parallelism_moves_the_same_volume() -> None:
    # An all-gather and a reduce-scatter for each all-reduce (arXiv 2205.05198 section 4.2.2); the
    # backward pass gathers the inputs of both blocks' first products once more: half as much each.
    slow = {**SMALL, "tensor_parallel": 4, "nvlink_bytes_per_second": 1e9, **FAST}
    whole, split = step_with(slow, {}, {"uses_sequence_parallel": True})
    once = 1.5 * HIDDEN / 1e9
    # Embedding scatters and its gradient is gathered (one all-reduce's volume); so does the output
    # layer, whose input is gathered once and its gradient scattered.
    layers = split["tensor_comm_seconds"] - whole["tensor_comm_seconds"]
    assert layers == pytest.approx(4 * 2 * 0.5 * once)


def test_the_second_gathering_runs_beside_the_gradient_of_the_input() -> None:
    # With products to run beside it is not seen: both ways take the same.
    slow = {**SMALL, "tensor_parallel": 4, "nvlink_bytes_per_second": 1e9}
    whole, split = step_with(slow, {}, {"uses_sequence_parallel": True})
    once = 0.5 * 1.5 * HIDDEN / 1e9
    assert once < FORWARD / 4 / 2
    assert split["tensor_comm_seconds"] == pytest.approx(whole["tensor_comm_seconds"])


def test_reductions_of_the_backward_pass_hide_behind_weight_gradients() -> None:
    slow = {**SMALL, "tensor_parallel": 4, "nvlink_bytes_per_second": 1e11}
    shown, half, hidden = step_with(
        slow,
        {},
        {"tensor_overlap_fraction": 0.5},
        {"tensor_overlap_fraction": 1.0, "communication_sm_fraction": 0.2},
    )
    # 1.5 x 1,048,576 / 1e11 = 1.6e-5 s fits beside 1024 x 384 x 512 weights' gradient, 4.0e-4 s.
    once = 1.5 * HIDDEN / 1e11
    assert once < 2 * 1024 * 384 * 512 / 1e12
    behind = shown["tensor_comm_seconds"] - half["tensor_comm_seconds"]
    assert behind == pytest.approx(4 * 2 * once * 0.5)
    behind = shown["tensor_comm_seconds"] - hidden["tensor_comm_seconds"]
    assert behind == pytest.approx(4 * 2 * once)
    # A fifth of the multiprocessors is not at the products' disposal meanwhile.
    assert hidden["gemm_seconds"] - shown["gemm_seconds"] == pytest.approx(4 * 2 * once * 0.2)


def test_what_hides_is_limited_by_what_it_hides_behind() -> None:
    slow = {**SMALL, "tensor_parallel": 4, "nvlink_bytes_per_second": 1e9}
    shown, hidden = step_with(slow, {}, {"tensor_overlap_fraction": 1.0})
    # 1.6e-3 s of a reduction against the gradients of h x 3h/4 and of h x 4h/4 weights.
    column = 2 * 1024 * 512 * (384 + 512) / 1e12
    behind = shown["tensor_comm_seconds"] - hidden["tensor_comm_seconds"]
    assert behind == pytest.approx(4 * column)


def test_context_parallelism_passes_keys_and_values_around_and_their_gradients_back() -> None:
    slow = {**SMALL, "context_parallel": 4, "seq_len": 4096, "nvlink_bytes_per_second": 1e9}
    shown, hidden = step_with(
        slow, {**FAST}, {"context_overlap_fraction": 1.0, "nvlink_bytes_per_second": 1e11}
    )
    # 1024 tokens a rank, keys and values of 512 each in 16 bits: three quarters of 4 x 4096 x 512
    # bytes arrive; backward keys and values come again and gradients go.
    assert shown["context_comm_seconds"] == close(4 * 3 * 0.75 * 4 * 4096 * 512 / 1e9)
    # 6.3e-5 s beside 4 x 1024 x 4096 x 512 / 1e12 / 2 = 4.3e-3 s of attention.
    assert hidden["context_comm_seconds"] == pytest.approx(0, abs=1e-18)


def test_grouped_queries_pass_fewer_keys_around() -> None:
    slow = {"context_parallel": 2, "nvlink_bytes_per_second": 1e9, **FAST}
    found = step({**LLAMA, "vocab_size": 512}, **slow)
    assert found["context_comm_seconds"] == close(4 * 3 * 0.5 * 4 * 1024 * 256 / 1e9)


MIXTURE = {**MOE, "vocab_size": 512}


def test_experts_do_the_products_of_the_tokens_they_get() -> None:
    # A token: attention 512 x 1024 + 512 x 512, two experts of 3 x 512 x 256, a router of 512 x 8.
    # The router's 8 columns take a tile's 128: sixteen times, but where 8 is its depth.
    # 1024 tokens x 2 on 8 experts are 256 each: full tiles.
    attention, experts, router = 786_432, 2 * 393_216, 4_096
    found = step(MIXTURE)
    flops = 3 * (attention + experts) + (16 + 1 + 16) * router
    assert found["gemm_seconds"] == close(4 * 2 * 1024 * flops / 1e12)


def test_expert_parallelism_keeps_the_tokens_of_an_expert_but_for_its_group() -> None:
    # Two ranks of data: 4 experts each, which get the tokens of both: 512. Work stays the same.
    one, two = step_with(
        MIXTURE,
        {"data_parallel": 2, "microbatch_size": 1, "num_microbatches": 1},
        {
            "data_parallel": 2,
            "expert_parallel": 2,
            "num_microbatches": 1,
            "network_bytes_per_second": 1e9,
            "nvlink_bytes_per_second": 1e9,
        },
    )
    assert two["gemm_seconds"] == close(one["gemm_seconds"])
    # Each token's two copies: half of 2 x 2 x 1024 x 512 bytes leave, there and back, both ways.
    assert two["expert_comm_seconds"] == close(4 * 4 * 0.5 * 2 * HIDDEN / 1e9)
    assert one["expert_comm_seconds"] == 0


def test_the_exchange_between_nodes_is_that_of_what_leaves_them() -> None:
    # 4 ranks, 2 a node: half of the copies leave, a quarter stays with the neighbour.
    found = step(
        MIXTURE,
        data_parallel=4,
        expert_parallel=4,
        nvlink_size=2,
        network_bytes_per_second=1e9,
        nvlink_bytes_per_second=1e10,
    )
    assert found["expert_comm_seconds"] == close(4 * 4 * 0.5 * 2 * HIDDEN / 1e9)


def test_experts_over_tensors_exchange_copies_of_tokens() -> None:
    # Around the experts two copies of a token are gathered and scattered where a dense layer has
    # one: 1 + 2 volumes each way, and half as much again backward (sequence parallelism). The
    # ends as of a dense model. Each of the four tensors sends its quarter of the tokens to experts.
    found = step(
        MIXTURE,
        **FAST,
        tensor_parallel=4,
        uses_sequence_parallel=True,
        data_parallel=2,
        expert_parallel=2,
        nvlink_bytes_per_second=1e9,
    )
    once, small = 1.5 * HIDDEN / 1e9, 1.5 * 4 * 1024 / 1e9
    assert found["tensor_comm_seconds"] == close(4 * 2.5 * 3 * once + 2 * once + 3 * small)
    assert found["expert_comm_seconds"] == close(4 * 4 * 0.5 * 2 * HIDDEN / 4 / 1e9)


def test_keys_and_values_hide_behind_attention_as_far_as_it_goes() -> None:
    slow = {**SMALL, "context_parallel": 2, "nvlink_bytes_per_second": 1e8}
    shown, hidden = step_with(slow, {}, {"context_overlap_fraction": 1.0})
    # 0.5 x 4 x 1024 x 512 bytes take 1.0e-2 s forward and twice that backward; half of 1024
    # queries against all keys, (1 + 1/4)/2 of it, take 6.7e-4 s and 2.5 times that.
    core = 4 * 512 * 1024 * 512 / 1e12 * (1 + 1 / 4) / 2
    behind = shown["context_comm_seconds"] - hidden["context_comm_seconds"]
    assert behind == pytest.approx(4 * 3.5 * core)


def test_first_dense_layers_and_shared_experts_as_of_deepseek() -> None:
    shape = {**MIXTURE, "num_dense_layers": 1, "num_shared_experts": 1}
    found = step(shape)
    # Four layers of attention; one dense of 3 x 512 x 1024; three of 2 + 1 experts and a router.
    attention, dense, expert, router = 786_432, 3 * 512 * 1024, 393_216, 4_096
    flops = 3 * (4 * attention + dense + 9 * expert) + 3 * (16 + 1 + 16) * router
    assert found["gemm_seconds"] == pytest.approx(2 * 1024 * flops / 1e12, rel=1e-12)
    # Weights, 2 bytes: the same with all 8 + 1 experts, norms, and 2 x 512 x 512 of vocabulary.
    weights = 4 * (attention + 1024) + dense + 27 * expert + 3 * router + 2 * 512 * 512
    assert found["weights_bytes"] == pytest.approx(2 * weights, rel=1e-12)
    # MFU counts what a token passes, and the whole square of attention.
    model = 6 * (4 * attention + dense + 9 * expert + 3 * router) + 12 * 4 * 1024 * 512
    model = 1024 * (model + 6 * 512 * 512)
    assert found["mfu"] == pytest.approx(model / found["step_seconds"] / 1e12, rel=1e-12)


# ---- pipeline ----


def test_the_bubble_is_what_the_other_stages_take_once() -> None:
    # 4 stages of a layer, the last with the output layer, 8 microbatches.
    shape = {**SMALL, "pipeline_parallel": 4, "num_microbatches": 8}
    found = step(shape)
    assert found["bubble_seconds"] == close(3 * LAYER)
    assert found["step_seconds"] == close(8 * (LAYER + OUTPUT) + 3 * LAYER)
    # Even stages, as of the paper: (p - 1)/m of the work. The vocabulary is a millionth here.
    even = {**shape, "num_layers": 32, "vocab_size": 1, "hidden_size": 2048, "num_heads": 16}
    even["ffn_hidden_size"] = 8192
    found, chunks = step_with(even, {}, {"virtual_pipeline": 4})
    busy = found["step_seconds"] - found["bubble_seconds"] - found["vocabulary_seconds"]
    assert found["bubble_seconds"] / busy == pytest.approx(3 / 8, rel=1e-12)
    # Interleaving divides it by the chunks of a stage.
    assert chunks["bubble_seconds"] == pytest.approx(found["bubble_seconds"] / 4)


def test_the_output_layer_makes_the_last_stage_the_slowest() -> None:
    # A vocabulary of 16,384 takes 32 times OUTPUT = 5.2e-2 s, more than the layer's 2.4e-2 s.
    found = step({**SMALL, "vocab_size": 16_384, "pipeline_parallel": 4, "num_microbatches": 8})
    assert found["vocabulary_seconds"] == close(8 * 32 * OUTPUT)
    assert found["gemm_seconds"] == close(8 * 3 * FORWARD)
    assert found["bubble_seconds"] == pytest.approx(3 * LAYER, rel=1e-12)


def test_uneven_stages_are_paced_by_those_that_have_a_layer_more() -> None:
    # 10 layers on 4 stages: 3, 3, 2 and 2 with the output layer, which is less than a layer.
    shape = {**SMALL, "num_layers": 10, "pipeline_parallel": 4, "num_microbatches": 6}
    found = step(shape)
    assert OUTPUT < LAYER
    assert found["gemm_seconds"] == close(6 * 3 * 3 * FORWARD)
    assert found["vocabulary_seconds"] == pytest.approx(0, abs=1e-20)  # the embedding alone
    # The second stage waits for the first to fill, 3 layers. Those behind it take 4 layers and the
    # output layer: 2 layers and the output more than 2 forward passes of its own, the output more
    # than 2 backward passes.
    assert found["bubble_seconds"] == close(5 * LAYER + 2 * OUTPUT)
    # With an output layer of more than a layer the last stage is the slowest.
    found = step({**shape, "vocab_size": 16_384})
    assert found["gemm_seconds"] == close(6 * 2 * 3 * FORWARD)
    assert found["vocabulary_seconds"] == close(6 * 32 * OUTPUT)
    assert found["bubble_seconds"] == pytest.approx(8 * LAYER)


def test_a_transfer_between_stages_sends_a_share_and_gathers_it_in_the_node() -> None:
    slow = {
        **SMALL,
        "pipeline_parallel": 4,
        "num_microbatches": 8,
        "tensor_parallel": 4,
        "nvlink_size": 4,
        "network_bytes_per_second": 1e9,
        "network_efficiency": 0.5,
        "nics_per_gpu": 2.0,
        "nvlink_bytes_per_second": 1e10,
    }
    whole, split = step_with(slow, {}, {"uses_sequence_parallel": True})
    # T h / 4 elements over the cards, then 3/4 of all over NVLink; with sequence parallelism the
    # next stage wants no more than its share (arXiv 2205.05198 section 4.2.2).
    share = HIDDEN / 4 / 1e9
    gathered = 0.75 * HIDDEN / 1e10
    # A stage sends 8 activations and 8 gradients; to fill and drain takes three more of each.
    assert whole["pipeline_comm_seconds"] == close(2 * (8 + 3) * (share + gathered))
    assert split["pipeline_comm_seconds"] == close(2 * (8 + 3) * share)


def test_chunks_transfer_each_on_its_own() -> None:
    slow = {
        **SMALL,
        "num_layers": 8,
        "pipeline_parallel": 4,
        "num_microbatches": 8,
        "nvlink_size": 1,
        "network_bytes_per_second": 1e9,
        "virtual_pipeline": 2,
    }
    shown, beside = step_with(slow, {}, {"pipeline_overlap_fraction": 1.0})
    once = HIDDEN / 1e9
    assert shown["pipeline_comm_seconds"] == close(2 * (2 * 8 + 3) * once)
    # With another chunk to go on with only the first microbatch's way through all eight chunks is
    # waited for, and the last one's back: seven hops each.
    assert beside["pipeline_comm_seconds"] == close(2 * 7 * once)


def test_stages_in_one_node_transfer_over_nvlink() -> None:
    slow = {**SMALL, "pipeline_parallel": 4, "nvlink_bytes_per_second": 1e10}
    inside, across = step_with(slow, {}, {"nvlink_size": 2, "network_bytes_per_second": 1e9})
    assert inside["pipeline_comm_seconds"] == close(2 * (1 + 3) * HIDDEN / 1e10)
    assert across["pipeline_comm_seconds"] == close(2 * (1 + 3) * HIDDEN / 1e9)


# ---- vocabulary ----


def test_the_loss_streams_its_logits_and_the_embedding_its_rows() -> None:
    slow = {"hbm_bytes_per_second": 1e9, **FAST}
    few, many = step_with({**SMALL, **slow}, {}, {"loss_traffic_bytes": 20.0})
    added = many["vocabulary_seconds"] - few["vocabulary_seconds"]
    assert added == pytest.approx(20 * 1024 * 512 / 1e9)


def test_the_vocabulary_is_split_over_tensors() -> None:
    found = step({**SMALL, "vocab_size": 4096, "tensor_parallel": 4})
    assert found["vocabulary_seconds"] == close(3 * 2 * 1024 * 512 * 4096 / 4 / 1e12)


# ---- replicas ----

WEIGHTS = 4 * LLAMA_LAYER + 2 * 512 * 512
"""Parameters of LLAMA with a vocabulary of 512, which it does not tie: 9,965,568."""

REPLICAS = {
    **LLAMA,
    "vocab_size": 512,
    "data_parallel": 4,
    "nvlink_size": 1,
    "network_bytes_per_second": 1e8,
    "reduced_gradient_bytes": 4.0,
    "gathered_weight_bytes": 2.0,
}


@pytest.mark.parametrize(
    ("zero", "volume"),
    [
        # Three of four parts; all-reduced gradients twice that; weights gathered once; stage 2
        # scatters and stage 3 scatters and gathers (twice) for each of three microbatches.
        (0, 2 * 4),
        (1, 4 + 2),
        (2, 3 * 4 + 2),
        (3, 3 * (4 + 2 + 2)),
    ],
)
def test_replicas_exchange_what_their_zero_stage_says(zero: int, volume: int) -> None:
    # arXiv 1910.02054 section 7: stages 1 and 2 move as much as an all-reduce, stage 3 half as
    # much again, where gradients and weights have the same size and there is one microbatch.
    found = step(REPLICAS, zero_stage=zero, num_microbatches=3)
    assert found["data_comm_seconds"] == close(0.75 * volume * WEIGHTS / 1e8)


def test_zero_moves_as_much_as_the_paper_says() -> None:
    # 2 psi, 2 psi, 2 psi and 3 psi elements (section 7): of (d - 1)/d of them.
    rows = [{"zero_stage": zero, "reduced_gradient_bytes": 2.0} for zero in range(4)]
    found = [each["data_comm_seconds"] for each in step_with(REPLICAS, *rows)]
    psi = 0.75 * 2 * WEIGHTS / 1e8
    assert found == [close(2 * psi), close(2 * psi), close(2 * psi), close(3 * psi)]


def test_gradients_and_weights_hide_behind_passes_but_for_the_ends() -> None:
    # Five units: four layers and the vocabulary, exchanged in four calls (`exchange_buckets`).
    # What runs beside a pass is all but the last call: 3/4. At a network of 1e12 all of that fits.
    fast = {**REPLICAS, "zero_stage": 1, "network_bytes_per_second": 1e12}
    rows = [
        {"gradient_overlap_fraction": 1.0, "exchange_buckets": 4.0},
        {"parameter_overlap_fraction": 1.0, "exchange_buckets": 4.0},
        {"gradient_overlap_fraction": 0.5, "exchange_buckets": 100.0},
        {"gradient_overlap_fraction": 1.0, "exchange_buckets": 1.0},
        {
            "gradient_overlap_fraction": 1.0,
            "exchange_buckets": 4.0,
            "communication_sm_fraction": 0.25,
        },
    ]
    found = [each["data_comm_seconds"] for each in step_with(fast, *rows)]
    psi = 0.75 * WEIGHTS / 1e12
    assert found == [
        close(psi * (4 / 4 + 2)),
        close(psi * (4 + 2 / 4)),
        close(psi * (4 * (1 - 0.5 * 4 / 5) + 2)),
        close(psi * 6),
        # The hidden three quarters take a quarter of the multiprocessors.
        close(psi * (4 * (1 / 4 + 3 / 4 / 4) + 2)),
    ]


@pytest.mark.parametrize(("zero", "times"), [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_what_hides_is_limited_by_the_pass_beside_it(zero: int, times: int) -> None:
    # A network of 1e8 B/s takes 0.3 s or more; the backward pass of a microbatch 0.04 s. Stages
    # below 2 exchange once, beside the last backward pass; stages 2 and 3 beside each of three.
    rows = [{}, {"gradient_overlap_fraction": 1.0, "exchange_buckets": 100.0}]
    base = {**REPLICAS, "vocab_size": 1, "zero_stage": zero, "num_microbatches": 3}
    shown, hidden = step_with(base, *rows)
    # Passes of a layer: products 1 to 2, core 1 to 2.5.
    weights = 512 * 1024 + 512 * 512 + 3 * 512 * 1024
    forward = 2 * 1024 * weights / 1e12
    backward = 4 * (2 * forward + 2.5 * CORE)
    # One word takes a tile of 128 columns: its output layer is a 300th of the pass.
    behind = shown["data_comm_seconds"] - hidden["data_comm_seconds"]
    assert behind == pytest.approx(times * backward, rel=0.01)


def test_context_parallel_ranks_are_replicas_too() -> None:
    # 2 x 2 ranks have the same weights: three quarters, as of four replicas.
    found = step(REPLICAS, data_parallel=2, context_parallel=2, zero_stage=0)
    assert found["data_comm_seconds"] == close(0.75 * 2 * 4 * WEIGHTS / 1e8)


def test_experts_are_exchanged_by_the_replicas_that_have_them() -> None:
    # Four replicas, two that share the experts between them: dense weights over 4, half of the
    # experts over 2. Each a node of its own.
    found = step(
        {**MOE, "vocab_size": 512},
        data_parallel=4,
        expert_parallel=2,
        nvlink_size=1,
        network_bytes_per_second=1e8,
        num_microbatches=1,
    )
    dense = 4 * (786_432 + 1024 + 4096) + 2 * 512 * 512
    experts = 4 * 8 * 393_216 / 2
    assert found["data_comm_seconds"] == close(2 * (2 * 0.75 * dense + 2 * 0.5 * experts) / 1e8)


def test_a_shared_embedding_adds_its_gradients_up_between_first_and_last_stage() -> None:
    # V h / t gradients between two GPUs: an all-reduce of two moves the volume once.
    tied = {**SMALL, "pipeline_parallel": 2, "tensor_parallel": 4, "nvlink_size": 4}
    tied["network_bytes_per_second"] = 1e8
    found, own, one = step_with(
        tied, {}, {"ties_embedding": False}, {"pipeline_parallel": 1, "ties_embedding": True}
    )
    assert found["data_comm_seconds"] == close(2 * 512 * 512 / 4 / 1e8)
    assert own["data_comm_seconds"] == 0
    assert one["data_comm_seconds"] == 0


def test_the_optimizer_streams_what_a_gpu_keeps_of_it() -> None:
    traffic = {"optimizer_traffic_bytes": 40.0, "hbm_bytes_per_second": 1e9}
    rows = [{**traffic, "zero_stage": zero} for zero in range(4)]
    found = [each["optimizer_seconds"] for each in step_with(REPLICAS, *rows)]
    every = 40 * WEIGHTS / 1e9
    assert found == [close(every), close(every / 4), close(every / 4), close(every / 4)]
    # Half of two stages and of two tensors; the first stage has the embedding, the last as much.
    found = step(REPLICAS, **traffic, tensor_parallel=2, pipeline_parallel=2)
    assert found["optimizer_seconds"] == close(40 * (2 * LLAMA_LAYER + 512 * 512) / 2 / 1e9)


def test_a_buffer_of_gradients_is_streamed_whole_where_the_optimizer_is_sharded() -> None:
    # 40 bytes of a quarter of the parameters, 8 of all.
    traffic = {"optimizer_traffic_bytes": 40.0, "buffer_traffic_bytes": 8.0}
    found = step(REPLICAS, **traffic, zero_stage=1, hbm_bytes_per_second=1e9)
    assert found["optimizer_seconds"] == close((40 / 4 + 8) * WEIGHTS / 1e9)


def test_experts_of_a_sharded_optimizer_are_split_over_their_own_replicas() -> None:
    found = step(
        {**MOE, "vocab_size": 512},
        data_parallel=4,
        expert_parallel=2,
        zero_stage=1,
        optimizer_traffic_bytes=40.0,
        hbm_bytes_per_second=1e9,
    )
    # Every parameter of the run is kept by one of four.
    dense = 4 * (786_432 + 1024 + 4096) + 2 * 512 * 512
    assert found["optimizer_seconds"] == close(40 * (dense + 4 * 8 * 393_216) / 4 / 1e9)


def test_adding_up_gradients_streams_every_microbatch() -> None:
    found = step(
        REPLICAS, accumulation_traffic_bytes=6.0, hbm_bytes_per_second=1e9, num_microbatches=5
    )
    assert found["accumulation_seconds"] == close(5 * 6 * WEIGHTS / 1e9)


# ---- counts ----

PUBLISHED: dict[str, dict[str, Any]] = {
    # arXiv 2407.21783 table 3, and the sizes it gives in the text.
    "llama3_8B": {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14_336,
        "uses_glu": True,
        "num_heads": 32,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    "llama3_70B": {
        "num_layers": 80,
        "hidden_size": 8192,
        "ffn_hidden_size": 28_672,
        "uses_glu": True,
        "num_heads": 64,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    "llama3_405B": {
        "num_layers": 126,
        "hidden_size": 16_384,
        "ffn_hidden_size": 53_248,
        "uses_glu": True,
        "num_heads": 128,
        "num_kv_heads": 8,
        "seq_len": 8192,
        "vocab_size": 128_256,
    },
    # arXiv 2401.04088 table 1.
    "mixtral_8x7B": {
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14_336,
        "uses_glu": True,
        "num_heads": 32,
        "num_kv_heads": 8,
        "seq_len": 4096,
        "vocab_size": 32_000,
        "num_experts": 8,
        "experts_per_token": 2,
    },
    # arXiv 2005.14165 table 2.1.
    "gpt3_175B": {
        "num_layers": 96,
        "hidden_size": 12_288,
        "num_heads": 96,
        "seq_len": 2048,
        "vocab_size": 50_257,
    },
}


@pytest.mark.parametrize(
    ("model", "billions", "digits"),
    [
        ("llama3_8B", 8.03, 2),
        ("llama3_70B", 70.6, 1),
        ("llama3_405B", 405.9, 1),
        ("mixtral_8x7B", 46.7, 1),
        ("gpt3_175B", 175, 0),
    ],
)
def test_parameters_are_those_of_known_models(model: str, billions: float, digits: int) -> None:
    found = step(PUBLISHED[model], stored_weight_bytes=1.0, gathered_weight_bytes=1.0)
    assert round(found["weights_bytes"] / 1e9, digits) == billions


def test_a_token_meets_the_active_parameters_of_a_mixture() -> None:
    # Mixtral has 12.9e9: model FLOPs are 6 a token and weight of a product, 12 L s h of attention;
    # the embedding is a look-up.
    shape = PUBLISHED["mixtral_8x7B"]
    found = step(shape)
    flops = found["mfu"] * 1e12 * found["step_seconds"] / 4096
    products = (flops - 12 * 32 * 4096 * 4096) / 6
    assert round((products + 32_000 * 4096) / 1e9, 1) == 12.9


def test_a_gpt_has_the_parameters_of_equation_2_but_for_positions_and_last_norm() -> None:
    # P = 12 L h^2 (1 + 13/12h + (V + s)/12Lh), arXiv 2104.04473; without s h and 2 h.
    found = step(
        {**PUBLISHED["gpt3_175B"], "stored_weight_bytes": 1.0, "gathered_weight_bytes": 1.0}
    )
    layers, h, v = 96, 12_288, 50_257
    expected = 12 * layers * h**2 + 13 * layers * h + v * h
    assert found["weights_bytes"] == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_model_and_hardware_flops_are_those_of_the_papers(recompute: str, attention: str) -> None:
    layers, h, s, v, batch = 8, 1024, 2048, 51_200, 12
    shape = {"num_layers": layers, "hidden_size": h, "num_heads": 16, "seq_len": s, "vocab_size": v}
    found = step(
        shape,
        global_batch_size=batch,
        data_parallel=2,
        pipeline_parallel=2,
        microbatch_size=3,
        activation_recompute=recompute,
        attention=attention,
        matrix_flops_per_second=3e12,
    )
    spent = found["step_seconds"] * 4 * 3e12
    # arXiv 2205.05198 equation 7.
    model = 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))
    # arXiv 2104.04473 equation 3, which is with full recomputation; arXiv 2205.05198 equation 8.
    full = 96 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    core = 72 * batch * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers) + s / (18 * h))
    hardware = {"none": model, "full": full, "selective": core}
    assert found["mfu"] == pytest.approx(model / spent, rel=1e-12)
    assert found["hfu"] == pytest.approx(hardware[recompute] / spent, rel=1e-12)
    tokens = batch * s / found["step_seconds"] / 4
    assert found["tokens_per_second_per_gpu"] == pytest.approx(tokens, rel=1e-12)


# ---- FP8 ----


def test_fp8_speeds_up_the_products_of_layers_alone() -> None:
    wide, low = step_with(
        SMALL, {}, {"precision": "fp8", "fp8_gemm_efficiency": 0.5, "fp8_flops_per_second": 4e12}
    )
    # Half of 4e12 is twice the rate of 1e12.
    assert low["gemm_seconds"] == close(wide["gemm_seconds"] / 2)
    assert low["attention_seconds"] == wide["attention_seconds"]
    assert low["vocabulary_seconds"] == wide["vocabulary_seconds"]
    # Utilisation is of the peak of FP8.
    assert low["mfu"] * low["step_seconds"] == close(wide["mfu"] * wide["step_seconds"] / 4)


def test_fp8_reads_and_writes_casts() -> None:
    slow = {**SMALL, "hbm_bytes_per_second": 1e9}
    wide, low = step_with(slow, {}, {"precision": "fp8"})
    assert low["elementwise_seconds"] > wide["elementwise_seconds"]


def test_fp16_is_as_fast_as_bf16() -> None:
    one, two = step_with(SMALL, {}, {"precision": "fp16"})
    assert one == two


def test_parts_add_up_in_every_case_of_this_file() -> None:
    rows = [SMALL, REPLICAS, MIXTURE, {**SMALL, "num_layers": 10, "pipeline_parallel": 4}]
    found = evaluate([{**IDEAL, **row} for row in rows])
    np.testing.assert_allclose(total(found), found["step_seconds"], rtol=1e-12)
