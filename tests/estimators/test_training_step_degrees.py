"""What tensor, context and expert parallelism exchange, against figures worked out by hand.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

import numpy as np
import pytest

from estimators.training_step.domains import gpus_in_domain
from tests.estimators.training_step_cases import (
    LLAMA,
    step,
    step_with,
)
from tests.estimators.training_step_figures import FAST, HIDDEN, MIXTURE, SMALL, close

COPIES = HIDDEN * (1 + 4 / 1024)
"""Bytes of a copy of each token of 512 with its weight of 4 bytes."""

# ---- tensor, context and expert parallelism ----


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


SPLIT = {**SMALL, "tensor_parallel": 4, "uses_sequence_parallel": True}
"""Products of a rank, of T x h: h x 3h/4 and h/4 x h, then h x h and h x h."""

PAIRS = (
    (2 * 1024 * 512 * 384 / 1e12, 2 * 1024 * 512 * 128 / 1e12),
    (2 * 1024 * 512 * 512 / 1e12, 2 * 1024 * 512 * 512 / 1e12),
)
"""Seconds of the product that splits columns, and of that which splits rows, in either pair."""


def test_the_second_gathering_runs_during_the_gradient_of_its_own_input() -> None:
    slow = {**SPLIT, "nvlink_bytes_per_second": 1e9}
    whole, split = step_with(slow, {"uses_sequence_parallel": False}, {})
    once = 0.75 * HIDDEN / 1e9
    exposed = sum(max(once - column, 0) for column, _ in PAIRS)
    assert exposed > 0
    behind = split["tensor_comm_seconds"] - whole["tensor_comm_seconds"]
    assert behind == pytest.approx(4 * exposed)


@pytest.mark.parametrize("rate", [1e8, 1.5e9, 1e10, 1e12])
def test_split_exchanges_run_during_the_pieces_of_their_product(rate: float) -> None:
    # max(E / t, E - P (t - 1) / t): forward a gathering during the first and a scattering during
    # the second product of either pair; backward the gathering during the second one's gradient.
    # The two others hide whole behind the first one's gradients: max(0, E - P).
    fast = {**SPLIT, "nvlink_bytes_per_second": rate, "tensor_overlap_fraction": 1.0}
    one, four = step_with(fast, {"num_layers": 4}, {"num_layers": 8})
    layer = (four["tensor_comm_seconds"] - one["tensor_comm_seconds"]) / 4
    assert layer == pytest.approx(_whole(rate), rel=1e-9)
    split = {**fast, "splits_tensor_exchanges": True}
    one, four = step_with(split, {"num_layers": 4}, {"num_layers": 8})
    layer = (four["tensor_comm_seconds"] - one["tensor_comm_seconds"]) / 4
    exchange, expected = 0.75 * HIDDEN / rate, 0.0
    for column, row in PAIRS:
        for beside in (column, row, row):
            expected += max(exchange / 4, exchange - 0.75 * beside)
        expected += 2 * max(exchange - column, 0)
    assert layer == pytest.approx(expected, rel=1e-9)


def test_tensor_exchanges_in_pieces_slow_products_by_their_own_share() -> None:
    # 0.75 x 1,048,576 bytes at 1e11 bytes/s are 7.9e-6 s. Of a pair three exchanges hide three
    # quarters during their product's pieces, and two hide whole: 4.25 a pair, 8.5 a layer.
    fast = {**SPLIT, "nvlink_bytes_per_second": 1e11, "tensor_overlap_fraction": 1.0}
    occupied = {"communication_sm_fraction": 0.5, "tensor_exchange_sm_fraction": 0.1}
    split, whole = ({**fast, "splits_tensor_exchanges": is_split} for is_split in (True, False))
    free, taken = step_with(split, {}, occupied)
    exchange = 0.75 * HIDDEN / 1e11
    slowed = taken["gemm_seconds"] - free["gemm_seconds"]
    assert slowed == pytest.approx(4 * 0.1 * 8.5 * exchange)
    # In one piece NCCL has the multiprocessors: of a pair two exchanges hide, four a layer.
    free, taken = step_with(whole, {}, occupied)
    slowed = taken["gemm_seconds"] - free["gemm_seconds"]
    assert slowed == pytest.approx(4 * 0.5 * 4 * exchange)
    # Products that take 1.6 times as long during NCCL lose 1 - 1 / 1.6 of it, those in pieces none.
    waves = {"overlap_slowdown": 1.6}
    for given, lost in ((whole, 0.375), (split, 0.0)):
        free, taken = step_with(given, {}, waves)
        slowed = taken["gemm_seconds"] - free["gemm_seconds"]
        assert slowed == pytest.approx(4 * lost * 4 * exchange)


def _whole(rate: float) -> float:
    """Return the seconds of a layer without pieces: three exchanges a pair are whole."""
    exchange = 0.75 * HIDDEN / rate
    return sum(3 * exchange + 2 * max(exchange - column, 0) for column, _ in PAIRS)


def test_exchanges_over_nodes_are_not_split() -> None:
    over = {**SPLIT, "nvlink_size": 2, "network_bytes_per_second": 1e10}
    over["tensor_overlap_fraction"] = 1.0
    whole, split = step_with(over, {}, {"splits_tensor_exchanges": True})
    assert split["step_seconds"] == whole["step_seconds"]


def test_products_in_pieces_take_as_long_as_a_piece_for_each() -> None:
    # 16 rows a piece take the time of a tile of 128: eight times as long. Split are all four
    # products forward and the gradients of the inputs of two.
    short = {**SPLIT, "seq_len": 64, "splits_tensor_exchanges": True}
    whole, split = step_with(short, {"splits_tensor_exchanges": False}, {})
    tile = 128 / 1024 * sum(column + 2 * row for column, row in PAIRS)
    # the whole of 64 rows are one tile, too
    assert split["gemm_seconds"] - whole["gemm_seconds"] == pytest.approx(4 * 3 * tile)


@pytest.mark.parametrize("rate", [1e8, 6e9, 1e12])
def test_a_program_may_start_with_its_own_shard(rate: float) -> None:
    # nanotron: gatherings run during a quarter of their product, scatterings forward do not.
    own = {**SPLIT, "starts_with_own_shard": True, "tensor_overlap_fraction": 1.0}
    own["nvlink_bytes_per_second"] = rate
    one, four = step_with(own, {"num_layers": 4}, {"num_layers": 8})
    layer = (four["tensor_comm_seconds"] - one["tensor_comm_seconds"]) / 4
    exchange, expected = 0.75 * HIDDEN / rate, 0.0
    for column, row in PAIRS:
        expected += max(exchange - column / 4, 0) + exchange + max(exchange - row / 4, 0)
        expected += 2 * max(exchange - column, 0)
    assert layer == pytest.approx(expected, rel=1e-9)


def test_the_own_shard_and_the_other_shards_are_separate_products() -> None:
    # 64 rows: the second of four ranks multiplies its own 16, the 16 before and the 32 behind them.
    # Each takes the time of a tile of 128 rows, as all 64 do: two tiles more, for the first product
    # of a pair forward and for the gradient of the input of the second.
    short = {**SPLIT, "seq_len": 64, "tensor_overlap_fraction": 1.0}
    whole, own, lone = step_with(
        short,
        {},
        {"starts_with_own_shard": True},
        {"starts_with_own_shard": True, "uses_sequence_parallel": False},
    )
    tile = 128 / 1024 * sum(column + row for column, row in PAIRS)
    assert own["gemm_seconds"] - whole["gemm_seconds"] == pytest.approx(4 * 2 * tile)
    assert lone["gemm_seconds"] == pytest.approx(whole["gemm_seconds"])


def test_reductions_of_the_backward_pass_hide_behind_weight_gradients() -> None:
    slow = {**SMALL, "tensor_parallel": 4, "nvlink_bytes_per_second": 1e11}
    shown, half, hidden = step_with(
        slow,
        {},
        {"tensor_overlap_fraction": 0.5},
        {"tensor_overlap_fraction": 1.0, "communication_sm_fraction": 0.2},
    )
    # 1.5 x 1,048,576 / 1e11 = 1.6e-5 s fits during 1024 x 384 x 512 weights' gradient, 4.0e-4 s.
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
    # 6.3e-5 s during 4 x 1024 x 4096 x 512 / 1e12 / 2 = 4.3e-3 s of attention.
    assert hidden["context_comm_seconds"] == pytest.approx(0, abs=1e-18)


def test_grouped_queries_pass_fewer_keys_around() -> None:
    slow = {"context_parallel": 2, "nvlink_bytes_per_second": 1e9, **FAST}
    found = step({**LLAMA, "vocab_size": 512}, **slow)
    assert found["context_comm_seconds"] == close(4 * 3 * 0.5 * 4 * 1024 * 256 / 1e9)


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
    assert two["expert_comm_seconds"] == close(4 * 4 * 0.5 * 2 * COPIES / 1e9)
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
    assert found["expert_comm_seconds"] == close(4 * 4 * 0.5 * 2 * COPIES / 1e9)


def test_experts_over_tensors_exchange_copies_of_tokens() -> None:
    # Attention gathers and scatters one volume, and half as much again backward (sequence
    # parallelism); the ends as of a dense model. Each of the four ranks sends its quarter of the
    # tokens to experts, and gathers both copies of the others' tokens where experts are split.
    found = step(
        MIXTURE,
        **FAST,
        tensor_parallel=4,
        expert_tensor_parallel=4,
        uses_sequence_parallel=True,
        data_parallel=2,
        expert_parallel=2,
        nvlink_bytes_per_second=1e9,
    )
    once, small = 1.5 * HIDDEN / 1e9, 1.5 * 4 * 1024 / 1e9
    assert found["tensor_comm_seconds"] == close(4 * 2.5 * once + 2 * once + 3 * small)
    sent = 0.5 * 2 * COPIES / 4 / 1e9
    assert found["expert_comm_seconds"] == close(4 * 4 * (sent + once))


def test_whole_experts_over_tensors_gather_nothing() -> None:
    # Eight ranks hold one expert each; those that split tensors send their own tokens, 256 x 2, of
    # which seven eighths leave.
    layout = {"tensor_parallel": 4, "uses_sequence_parallel": True, "data_parallel": 2}
    split, whole = step_with(
        {**MIXTURE, **FAST, **layout, "nvlink_bytes_per_second": 1e9},
        {"expert_tensor_parallel": 4, "expert_parallel": 2},
        {"expert_parallel": 8},
    )
    assert whole["expert_comm_seconds"] == close(4 * 4 * 7 / 8 * 2 * COPIES / 4 / 1e9)
    assert whole["tensor_comm_seconds"] == close(split["tensor_comm_seconds"])
    # both hold an eighth of the experts
    for name in ("weights_bytes", "optimizer_bytes"):
        assert whole[name] == split[name]


def test_keys_and_values_hide_behind_attention_as_far_as_it_goes() -> None:
    slow = {**SMALL, "context_parallel": 2, "nvlink_bytes_per_second": 1e8}
    shown, hidden = step_with(slow, {}, {"context_overlap_fraction": 1.0})
    # 0.5 x 4 x 1024 x 512 bytes take 1.0e-2 s forward and twice that backward; half of 1024
    # queries against all keys, (1 + 1/4)/2 of it, take 6.7e-4 s and 2.5 times that.
    core = 4 * 512 * 1024 * 512 / 1e12 * (1 + 1 / 4) / 2
    behind = shown["context_comm_seconds"] - hidden["context_comm_seconds"]
    # In the second of two steps nothing travels any more.
    assert behind == pytest.approx(4 * 3.5 * core / 2)


def test_the_results_of_a_ring_are_put_together_in_memory() -> None:
    # (3 c + 1) / 4 passes of 6 bytes over 256 tokens of 512: four layers, both ways.
    ring = {**SMALL, "context_parallel": 4, "hbm_bytes_per_second": 1e9}
    found, one = step_with(ring, {}, {"context_parallel": 1})
    assert found["context_comm_seconds"] == close(4 * 2 * 6 * 13 / 4 * 256 * 512 / 1e9)
    assert one["context_comm_seconds"] == 0


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


# ---- GPUs in an NVLink domain ----


@pytest.mark.parametrize(
    ("num_gpus", "size", "expected"),
    [
        (8, 72, 8),
        (72, 72, 72),
        (144, 72, 72),
        # 16 of the 18 nodes of each rack
        (128, 72, 64),
        (2048, 72, 64),
        (96, 72, 48),
        (74, 72, 37),
        (4096, 8, 8),
        # no equal slice of 146 = 2 x 73 is half as large as 146 / 3
        (146, 72, 49),
    ],
)
def test_a_run_has_an_equal_slice_of_each_domain(num_gpus: int, size: int, expected: int) -> None:
    assert gpus_in_domain(num_gpus, size) == expected
    both = gpus_in_domain(np.array([num_gpus, 8.0]), np.array([size, 8.0]))
    assert np.asarray(both).tolist() == [expected, 8]


def test_a_ring_over_racks_does_not_depend_on_the_number_of_racks() -> None:
    # tensor groups of 8: 8 of them fill a slice of 64, and 9 a rack of 72, which left 1 to 8 for
    # the last rack; 256, 512, 1,024 and 2,048 GPUs took 0.586, 2.68, 1.46 and 0.93 s
    ring = {
        "nvlink_size": 72,
        "num_heads": 8,
        "head_size": 64,
        "tensor_parallel": 8,
        "network_bytes_per_second": 1e9,
        "network_efficiency": 1.0,
    }
    times = [
        step(SMALL, num_gpus=gpus, global_batch_size=gpus // 8, **ring, **FAST)["data_comm_seconds"]
        for gpus in (128, 256, 512, 1024, 2048)
    ]
    assert times == sorted(times)
    # (n - 1) / n of the bytes over eight cards
    assert times[-1] == pytest.approx(times[0] * (255 / 256) / (15 / 16), rel=1e-6)
