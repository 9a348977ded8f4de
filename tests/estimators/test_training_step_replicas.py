"""What replicas exchange, shard and stream, against figures worked out by hand.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

import pytest

from tests.estimators.training_step_cases import (
    LLAMA_LAYER,
    MOE,
    step,
    step_with,
)
from tests.estimators.training_step_figures import CORE, REPLICAS, SMALL, close

# ---- replicas ----


WEIGHTS = 4 * LLAMA_LAYER + 2 * 512 * 512
"""Parameters of LLAMA with a vocabulary of 512, which it does not tie: 9,965,568."""


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
    # A pass can hide all calls but the last: 3/4. A network of 1e12 is fast enough for it.
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
        {
            "gradient_overlap_fraction": 1.0,
            "exchange_buckets": 4.0,
            "communication_sm_fraction": 0.25,
            "overlap_slowdown": 1.6,
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
        # Products during them take 1.6 times as long: they lose 3/8 of the time.
        close(psi * (4 * (1 / 4 + 3 / 4 * 3 / 8) + 2)),
    ]


@pytest.mark.parametrize(
    ("zero", "times"), [(0, 4 / 5), (1, 4 / 5), (2, 3 * 4 / 5), (3, 3 * 3 / 4)]
)
def test_hidden_transfers_are_limited_by_the_pass_that_hides_them(zero: int, times: float) -> None:
    # A network of 1e8 B/s takes 0.3 s or more; the backward pass of a microbatch 0.04 s. Stages
    # below 2 exchange once, during the last backward pass; stages 2 and 3 during each of three.
    # The first of five buckets is ready when a fifth of the pass is over; of four layers, three
    # have the scattering of another during them.
    # Products that take 1.6 times as long during an exchange of 0.3 s are still hidden by it.
    overlaps = {"gradient_overlap_fraction": 1.0, "exchange_buckets": 100.0}
    rows = [{}, overlaps, {**overlaps, "overlap_slowdown": 1.6}]
    base = {**REPLICAS, "vocab_size": 1, "zero_stage": zero, "num_microbatches": 3}
    shown, hidden, slowed = step_with(base, *rows)
    # Passes of a layer: products 1 to 2, core 1 to 2.5.
    weights = 512 * 1024 + 512 * 512 + 3 * 512 * 1024
    forward = 2 * 1024 * weights / 1e12
    backward = 4 * (2 * forward + 2.5 * CORE)
    # One word takes a tile of 128 columns: its output layer is a 300th of the pass.
    behind = shown["data_comm_seconds"] - hidden["data_comm_seconds"]
    assert behind == pytest.approx(times * backward, rel=0.01)
    assert slowed["data_comm_seconds"] == close(hidden["data_comm_seconds"])


LAYERS_ONLY = {**REPLICAS, "vocab_size": None, "zero_stage": 1, "microbatch_size": 1}
"""Two stages of two layers each have 2 x LLAMA_LAYER parameters."""

CHUNKS = {**LAYERS_ONLY, "pipeline_parallel": 2, "virtual_pipeline": 2, "num_microbatches": 4}

HIDES = {"gradient_overlap_fraction": 1.0, "parameter_overlap_fraction": 0.0}
GATHERS = {"gradient_overlap_fraction": 0.0, "parameter_overlap_fraction": 1.0}

LAYER_FORWARD = 2 * 1024 * (LLAMA_LAYER - 1024) / 1e12 + CORE
LAYER_BACKWARD = 4 * 1024 * (LLAMA_LAYER - 1024) / 1e12 + 2.5 * CORE


@pytest.mark.parametrize("rate", [1e7, 2e8, 1e9, 1e12])
def test_the_last_chunk_of_a_stage_has_nothing_to_hide_its_gradients_behind(rate: float) -> None:
    # max(G / v, G - (v - 1) w b): two chunks of one layer, groups of two microbatches. At 1e9 B/s
    # the first chunk's exchange fits behind two passes of the other; at 2e8 it does not.
    found = step(CHUNKS, **HIDES, network_bytes_per_second=rate)
    scattered, gathered = 0.75 * 4 * 2 * LLAMA_LAYER / rate, 0.75 * 2 * 2 * LLAMA_LAYER / rate
    exposed = max(scattered / 2, scattered - 2 * LAYER_BACKWARD)
    assert found["data_comm_seconds"] == close(exposed + gathered)


def test_a_chunk_that_is_not_aligned_is_exchanged_bucket_by_bucket() -> None:
    # Two buckets: the last one is exposed; or, of a slow network, all that does not fit behind two
    # passes of the other chunk and half a pass of the last.
    rows = [
        {**HIDES, "aligns_exchanges": False, "exchange_buckets": 2.0, "network_bytes_per_second": r}
        for r in (1e12, 1e8)
    ]
    fast, slow = (each["data_comm_seconds"] for each in step_with(CHUNKS, *rows))
    size = 0.75 * 2 * LLAMA_LAYER
    assert fast == close(size * (4 / 2 + 2) / 1e12)
    assert slow == close(size * (4 + 2) / 1e8 - 2.5 * LAYER_BACKWARD)


@pytest.mark.parametrize("rate", [1e7, 1.5e8, 1e9, 1e12])
def test_weights_are_gathered_chunk_by_chunk(rate: float) -> None:
    # max(a of the first bucket, a - f behind the buckets of the first pass, 2 a - w f): one layer
    # a chunk, two buckets a stage.
    found = step(CHUNKS, **GATHERS, network_bytes_per_second=rate, exchange_buckets=2.0)
    scattered, gathered = 0.75 * 4 * 2 * LLAMA_LAYER / rate, 0.75 * 2 * 2 * LLAMA_LAYER / rate
    exposed = max(gathered / 2, gathered / 2 - LAYER_FORWARD / 2, gathered - 2 * LAYER_FORWARD)
    assert found["data_comm_seconds"] == close(exposed + scattered)


def test_the_embedding_is_the_last_bucket_and_the_first() -> None:
    # 512 x 8192 of the embedding's weights, as many of the output layer's, and four layers: at a
    # fast network the embedding's gradients and weights are all that is exposed.
    wide = {**REPLICAS, "vocab_size": 8192, "zero_stage": 1, "exchange_buckets": 100.0}
    found = step(
        wide,
        gradient_overlap_fraction=1.0,
        parameter_overlap_fraction=1.0,
        network_bytes_per_second=1e12,
    )
    assert found["data_comm_seconds"] == close(0.75 * (4 + 2) * 512 * 8192 / 1e12)


@pytest.mark.parametrize("rate", [1e7, 5e8, 1e9, 1e12])
def test_stage_3_hides_a_layer_behind_its_neighbour(rate: float) -> None:
    # Forward a + 3 max(0, a - F), backward a + 3 max(0, a + r - B) + r, for each microbatch.
    found = step(
        LAYERS_ONLY,
        zero_stage=3,
        num_microbatches=3,
        gradient_overlap_fraction=1.0,
        parameter_overlap_fraction=1.0,
        network_bytes_per_second=rate,
    )
    gathered, scattered = (0.75 * size * LLAMA_LAYER / rate for size in (2, 4))
    forward = gathered + 3 * max(0, gathered - LAYER_FORWARD)
    backward = gathered + 3 * max(0, gathered + scattered - LAYER_BACKWARD) + scattered
    assert found["data_comm_seconds"] == close(3 * (forward + backward))


def test_programs_that_keep_gathered_weights_gather_less() -> None:
    # Nothing hides. One stage: the last layer once, the vocabulary once; three microbatches. Two
    # stages: everything once a step, of the first stage, which has the embedding.
    keeps = {**REPLICAS, "keeps_gathered_weights": True, "zero_stage": 3, "num_microbatches": 3}
    one, two = step_with(keeps, {}, {"pipeline_parallel": 2})
    words = 2 * 512 * 512
    gathered = 2 * ((4 + 3) * LLAMA_LAYER + words)
    scattered = 4 * (4 * LLAMA_LAYER + words)
    assert one["data_comm_seconds"] == close(3 * 0.75 * (gathered + scattered) / 1e8)
    stage = 2 * LLAMA_LAYER + words / 2
    assert two["data_comm_seconds"] == close(0.75 * (2 + 4) * stage / 1e8)


def test_a_program_may_gather_again_after_recomputation_and_copy_shards() -> None:
    # DeepSpeed of 2021: layers are gathered forward, to recompute and backward, the vocabulary
    # twice; four replicas' parts of a layer are copied after each gathering and before each
    # scattering. Three microbatches, nothing hides.
    program = {**REPLICAS, "zero_stage": 3, "num_microbatches": 3, "regathers_for_recompute": True}
    program["shard_copy_seconds"] = 1e-4
    none, full = step_with(program, {}, {"activation_recompute": "full"})
    words = 2 * 512 * 512
    for found, gathers in ((none, 2), (full, 3)):
        moved = 2 * (gathers * 4 * LLAMA_LAYER + 2 * words) + 4 * WEIGHTS
        copied = 4 * 4 * (gathers + 1) * 1e-4
        assert found["data_comm_seconds"] == close(3 * (0.75 * moved / 1e8 + copied))


def test_a_program_may_wait_with_sharded_gradients_and_copy_shards() -> None:
    # nanotron: under ZeRO-1 one all-reduce after the last backward pass and a blocking gather,
    # 2 (d - 1)/d 4 N / B + (d - 1)/d 2 N / B in one call each; the host puts four replicas' parts
    # of five units in place. Under stage 0 all but a fifth of the all-reduce is hidden.
    program = {
        **REPLICAS,
        "waits_for_sharded_gradients": True,
        "reduces_all_gradients": True,
        "gradient_overlap_fraction": 1.0,
        "network_bytes_per_second": 1e12,
        "exchange_buckets": 100.0,
        "shard_copy_seconds": 1e-4,
        "collective_seconds": 1e-3,
    }
    zero, one = step_with(program, {"zero_stage": 0}, {"zero_stage": 1})
    end = 3 * 1e-3
    moved = 0.75 * WEIGHTS / 1e12
    assert one["data_comm_seconds"] == close((2 * 4 + 2) * moved + 2e-3 + 4 * 5 * 1e-4 + end)
    reduced = 2 * 4 * moved + 5 * 1e-3
    assert zero["data_comm_seconds"] == close(reduced / 5 + end)


def test_a_step_ends_with_three_small_collectives_of_all_gpus() -> None:
    # 16 GPUs in two nodes: up and down a tree of one hop between nodes and seven within.
    found = step(
        {**SMALL, "ties_embedding": False},
        tensor_parallel=4,
        pipeline_parallel=4,
        collective_seconds=1e-3,
        network_latency_seconds=1e-4,
        nvlink_latency_seconds=1e-5,
    )
    assert found["data_comm_seconds"] == close(3 * (1e-3 + 2 * (1e-4 + 7e-5)))


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
    # Half of two stages and of two tensors, which have the norms whole; the first stage has the
    # embedding, the last as much.
    split = step(REPLICAS, **traffic, tensor_parallel=2, pipeline_parallel=2)
    norms = 2 * 2 * 512
    kept = (2 * LLAMA_LAYER - norms + 512 * 512) / 2 + norms
    assert split["optimizer_seconds"] == close(40 * kept / 1e9)


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
