"""Bubble, uneven stages, transfers and vocabulary of a pipeline, against figures by hand.

Expected values are arithmetic on the numbers of the case, written out in comments; none is taken
from the estimator. Every constant is given (`training_step_cases.IDEAL`).
"""

from __future__ import annotations

import pytest

from tests.estimators.training_step_cases import (
    step,
    step_with,
)
from tests.estimators.training_step_figures import (
    FAST,
    FORWARD,
    HIDDEN,
    LAYER,
    OUTPUT,
    SMALL,
    close,
)

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
    # 3, 3, 2 and 2 with the output layer, which is less than a layer
    shape = {**SMALL, "num_layers": 10, "pipeline_parallel": 4, "num_microbatches": 6}
    shape["pipeline_layout"] = "Ettt|ttt|tt|ttL"
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
    # The gradient of the embedding has all 512 rows of 512: it is dense.
    (dense,) = step_with({**SMALL, **slow}, {"embedding_gradient_bytes": 12.0})
    added = dense["vocabulary_seconds"] - few["vocabulary_seconds"]
    assert added == pytest.approx(12 * 512 * 512 / 1e9)


def test_the_vocabulary_is_split_over_tensors() -> None:
    found = step({**SMALL, "vocab_size": 4096, "tensor_parallel": 4})
    assert found["vocabulary_seconds"] == close(3 * 2 * 1024 * 512 * 4096 / 4 / 1e12)
