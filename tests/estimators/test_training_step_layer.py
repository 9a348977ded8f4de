"""The products and streams of a layer, against figures worked out by hand from the cited papers.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

from typing import Any

import pytest

from estimators.kernels.gemms import tile_share
from estimators.training_step.gemm import IN_16_BITS, Gemm, gemm_seconds
from tests.estimators.training_step_cases import (
    FREE,
    LLAMA,
    problem_with,
    step,
    step_with,
)
from tests.estimators.training_step_figures import CORE, FORWARD, LAYER, OUTPUT, SMALL, close

# ---- one product ----


CHIP: dict[str, Any] = {
    "product_rate_factor": 1.0,
    "input_gradient_rate_factor": 1.0,
    "weight_gradient_rate_factor": 1.0,
    "narrow_product_rate_factor": 1.0,
    "short_product_rate_factor": 1.0,
    "backward_attention_rate_factor": 1.0,
    "fp8_product_rate_factor": 1.0,
    "num_sms": 1,
    "small_tile_efficiency": 0.5,
    "num_layers": 4,
    "num_bf16_layers_start": 0,
    "num_bf16_layers_end": 0,
    "fp8_flops_per_second": 2e12,
    "fp4_flops_per_second": 4e12,
    "fp4_gemm_efficiency": 0.25,
    "fp4_product_rate_factor": 1.0,
    "fp8_gemm_efficiency": 0.25,
    "matrix_flops_per_second": 1e12,
    "gemm_efficiency": 0.5,
    "gemm_half_depth": 0.0,
    "hbm_bytes_per_second": FREE,
    "hbm_efficiency": 1.0,
    "launch_seconds": 0.0,
}


def seconds(rows: int, columns: int, depth: int, batch: float = 1, **chip: Any) -> Any:
    """Return the seconds of a GEMM on a chip, in the format of its recipe."""
    problem = problem_with(**{**CHIP, **chip})
    return gemm_seconds(Gemm(rows, columns, depth, batch), problem, problem.formats.low_format)


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
    tiling = {"num_sms": 1, "small_tile_efficiency": 0.5, **chip}
    assert tile_share(rows, columns, batch, **tiling) == close(share)
    flops = 2 * rows * columns * 1024 * batch
    assert seconds(rows, columns, 1024, batch, **chip) == close(flops / (0.5e12 * share))


def test_a_product_loses_to_a_shallow_inner_dimension() -> None:
    # K / (K + K0) is 1024 / 1280 = 0.8; 256 / 512 is a half.
    for depth, share in ((1024, 0.8), (256, 0.5)):
        expected = 2 * 256 * 128 * depth / (0.5e12 * share)
        assert seconds(256, 128, depth, gemm_half_depth=256.0) == close(expected)


def test_a_product_takes_what_its_operands_take_to_read_and_write_if_that_is_longer() -> None:
    # 2 x (256 + 256) x 64 read and 2 x 256 x 256 written: 196,608 bytes at 0.5e9 B/s.
    slow: dict[str, Any] = {"hbm_bytes_per_second": 1e9, "hbm_efficiency": 0.5}
    slow["launch_seconds"] = 3e-6
    assert seconds(256, 256, 64, **slow) == close(196_608 / 0.5e9 + 3e-6)
    # In FP8 the operands take a byte: 32,768 + 131,072, of three products in one launch.
    low = {**slow, "number_recipe": "tensorwise"}
    assert seconds(256, 256, 64, 3, **low) == close(3 * 163_840 / 0.5e9 + 3e-6)
    # A product that is kept in 16 bits does not care.
    in_16_bits = gemm_seconds(Gemm(256, 256, 64), problem_with(**{**CHIP, **low}), IN_16_BITS)
    assert in_16_bits == close(196_608 / 0.5e9 + 3e-6)


def test_a_product_in_fp8_runs_at_its_own_rate() -> None:
    # 2 x 256 x 128 x 512 FLOPs at a quarter of 2e12.
    found = seconds(256, 128, 512, number_recipe="tensorwise")
    assert found == close(2 * 256 * 128 * 512 / 0.5e12)


def test_a_product_in_fp4_runs_at_its_own_rate_and_reads_half_a_byte() -> None:
    found = seconds(256, 128, 512, number_recipe="nvfp4")
    assert found == close(2 * 256 * 128 * 512 / 1e12)
    # 0.5 x (256 + 256) x 64 read and 2 x 256 x 256 written: 147,456 bytes at 0.5e9 B/s.
    slow: dict[str, Any] = {"hbm_bytes_per_second": 1e9, "hbm_efficiency": 0.5}
    assert seconds(256, 256, 64, number_recipe="nvfp4", **slow) == close(147_456 / 0.5e9)


# ---- a layer ----


def test_products_of_a_step_are_three_times_those_of_the_forward_pass() -> None:
    found = step(SMALL, num_microbatches=3)
    # 4 layers, 3 microbatches.
    assert found["gemm_seconds"] == close(12 * 3 * FORWARD)
    assert found["attention_seconds"] == close(12 * 3.5 * CORE)
    assert found["vocabulary_seconds"] == close(3 * OUTPUT)
    assert found["step_seconds"] == close(12 * LAYER + 3 * OUTPUT)


def test_a_product_that_adds_to_a_buffer_takes_longer() -> None:
    found = step(SMALL, accumulating_product_ratio=1.5)
    # One of three products, that of the gradient of the weights, of layers and output layer.
    assert found["gemm_seconds"] == close(4 * (2 + 1.5) * FORWARD)
    assert found["vocabulary_seconds"] == close((2 + 1.5) / 3 * OUTPUT)


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


def test_what_streams_in_a_gated_layer_of_eager_kernels() -> None:
    eager = {"fuses_elementwise": False, "gate_forward_bytes": 10.0, "gate_backward_bytes": 26.0}
    copies = {"forward_copy_bytes": 9.0, "backward_copy_bytes": 15.0}
    found = step({**LLAMA, "vocab_size": 512}, hbm_bytes_per_second=1e9, **eager, **copies)
    # A norm in 32 bits: cast 6, square 8, mean 4, product 8, cast 6, weight 4; backward weight 4,
    # its gradient 8, cast 6, product 8, root 16, mean 4, square 28, sum 12, cast 6. Residuals 6.
    between = 2 * 1024 * 512 * (36 + 6 + 92 + 6)
    inside = 1024 * 1024 * (10 + 26)
    # Rotary embedding: cast 6, complex product 8, cast 6, both ways.
    turned = 1024 * (512 + 256) * (20 + 20)
    copied = 1024 * (512 + 2 * 256) * (9 + 15)
    assert found["elementwise_seconds"] == close(4 * (between + inside + turned + copied) / 1e9)


@pytest.mark.parametrize(("keys", "turned"), [(4, 0), (2, 512 + 2 * 128), (1, 0)])
def test_groups_of_queries_that_share_a_key_have_rotary_positions(keys: int, turned: int) -> None:
    # Without a gate: as above, and queries and keys read and written both ways (4 + 4). Not where
    # each of the 4 queries has its key, or all have one.
    found = step({**SMALL, "num_kv_heads": keys, "hbm_bytes_per_second": 1e9})
    between = 2 * 1024 * 512 * ((4 + 6) + (6 + 6 + 2))
    inside = 1024 * 2048 * (4 + 8)
    assert found["elementwise_seconds"] == close(4 * (between + inside + 1024 * turned * 8) / 1e9)


def test_kernels_that_load_elements_one_by_one_take_longer_than_memory() -> None:
    # At 1e9 bytes/s memory takes 4e-9 s for the 4 bytes of a copied element and 5e-9 s for those of
    # a gate's kernel; 2 multiprocessors take 1e-8 s for either.
    slow = {"hbm_bytes_per_second": 1e9, "unvectorized_seconds": 2e-8, "num_sms": 2}
    gates = {"unvectorized_gate_forward": 2.0, "unvectorized_gate_backward": 4.0}
    copies = {"unvectorized_copy_forward": 1.0, "unvectorized_copy_backward": 3.0}
    shape = {**LLAMA, "vocab_size": 512, **slow}
    plain, gate, copied = step_with(shape, {}, gates, copies)
    whole = plain["elementwise_seconds"]
    assert gate["elementwise_seconds"] - whole == close(4 * 1024 * 1024 * (2 + 4) * 5e-9)
    moved = 1024 * (512 + 2 * 256)
    assert copied["elementwise_seconds"] - whole == close(4 * moved * (1 + 3) * 6e-9)
    # A fast machine has them no later than their bytes: 1e-9 s for an element.
    fast = {**shape, "num_sms": 20}
    one, same = step_with(fast, {}, {**gates, **copies})
    assert one["elementwise_seconds"] == same["elementwise_seconds"]


def test_queries_that_share_a_key_are_copied() -> None:
    slow = {"hbm_bytes_per_second": 1e9, "unvectorized_seconds": 1e-8, "num_sms": 1}
    shape = {**LLAMA, "vocab_size": 512, **slow}
    plain, copied = step_with(shape, {}, {"copies_grouped_queries": True})
    # Of 512 queries, 256 keys and 256 values of a token: each query is copied in 1e-8 s, longer
    # than its 4 bytes take in memory; backward the gradients of all are joined, 4 bytes each.
    more = 1024 * (512 * 1e-8 + (512 + 2 * 256) * 4e-9)
    assert copied["elementwise_seconds"] - plain["elementwise_seconds"] == close(4 * more)
    # A key for each query: the merged product is viewed, not copied.
    single = {**shape, "num_kv_heads": shape["num_heads"]}
    one, same = step_with(single, {}, {"copies_grouped_queries": True})
    assert one["elementwise_seconds"] == same["elementwise_seconds"]


def test_written_out_norms_and_rotary_embedding_load_elements_one_by_one() -> None:
    shape = {**LLAMA, "vocab_size": 512, "hbm_bytes_per_second": 1e9, "fuses_elementwise": False}
    plain, slow = step_with(shape, {}, {"unvectorized_seconds": 1e-8, "num_sms": 1})
    # Of an element 1e-8 s. Two norms: cast 6, product with the root 8, with the weight 4; backward
    # weight 4, cast 6, root 8, mean 4. Rotary embedding of queries and keys: cast 6, both ways.
    norms = 2 * 1024 * 512 * ((4 + 2 + 6) + (6 + 4 + 2 + 6)) * 1e-9
    turned = 1024 * (512 + 256) * (4 + 4) * 1e-9
    lost = slow["elementwise_seconds"] - plain["elementwise_seconds"]
    assert lost == close(4 * (norms + turned))


def test_the_loss_loads_logits_one_by_one() -> None:
    shape = {**SMALL, "vocab_size": 2048, "hbm_bytes_per_second": 1e9, "num_sms": 1}
    # 1e-8 s for a logit, 7.2e-9 s in memory
    plain, slow = step_with({**shape, "unvectorized_seconds": 1e-8}, {}, {"unvectorized_loss": 5.0})
    lost = slow["vocabulary_seconds"] - plain["vocabulary_seconds"]
    assert lost == close(1024 * 2048 * 5 * 2.8e-9)


def test_what_streams_in_a_plain_layer_of_eager_kernels() -> None:
    found = step(SMALL, hbm_bytes_per_second=1e9, fuses_elementwise=False)
    # As fused, but backward a norm reads the gradient and its input twice: 10.
    between = 2 * 1024 * 512 * ((4 + 6) + (10 + 6 + 2))
    assert found["elementwise_seconds"] == close(4 * (between + 1024 * 2048 * 12) / 1e9)


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


def test_exchanges_of_the_second_dimension_copy_what_they_gather_and_scatter() -> None:
    slow = {"hbm_bytes_per_second": 1e9, "tensor_parallel": 4, "uses_sequence_parallel": True}
    plain, copied = step_with({**SMALL, **slow}, {}, {"exchange_copy_bytes": 4.0})
    # Two gathers and two scatters of T h elements each way, in 4 layers.
    more = 4 * 2 * 4 * 1024 * 512 * 4
    assert copied["elementwise_seconds"] - plain["elementwise_seconds"] == close(more / 1e9)
    # Without sequence parallelism tensors are summed in place.
    whole = {**SMALL, **slow, "uses_sequence_parallel": False}
    first, second = step_with(whole, {}, {"exchange_copy_bytes": 4.0})
    assert first == second


def test_launches_count_kernel_by_kernel() -> None:
    quick, late = step_with(SMALL, {}, {"launch_seconds": 1e-3})
    # A layer has four products, each forward and twice backward.
    assert late["gemm_seconds"] - quick["gemm_seconds"] == close(4 * 12 * 1e-3)
    # The fused core is one kernel forward and three backward (a row sum, the gradients, a sum).
    assert late["attention_seconds"] - quick["attention_seconds"] == close(4 * 4 * 1e-3)


def test_the_host_fills_what_a_pass_is_too_short_for() -> None:
    # Forward FORWARD + CORE = 7.65e-3 s is too short for 10e-3, backward 15.9e-3 s is not. Two
    # stages of two layers synchronize between passes: neither pass makes up for the other.
    found, both = step_with(
        {**SMALL, "pipeline_parallel": 2},
        {"host_seconds_per_layer": 10e-3},
        {"host_seconds_per_layer": 20e-3},
    )
    forward, backward = FORWARD + CORE, 2 * FORWARD + 2.5 * CORE
    assert found["host_seconds"] == close(2 * (10e-3 - forward))
    assert both["host_seconds"] == close(2 * (40e-3 - forward - backward))
