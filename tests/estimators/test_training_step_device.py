"""Memory of a device besides tensors: that of the allocator and the libraries, and room for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.contract import Catalog
from estimators.interval import fit_probability
from tests.estimators.training_step_cases import LLAMA, MOE, step, steps

S, B = 1024, 3
"""Tokens of a sequence; sequences of a microbatch."""

SBH = S * B * 512
STATES = {**LLAMA, "vocab_size": 512, "num_microbatches": 1}


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


def test_an_allocator_holds_more_than_it_has_given_out() -> None:
    plain, more = steps(STATES, {**STATES, "fragmentation": 1.25, "framework_bytes": 3e9})
    assert plain["unused_bytes"] == 0
    assert plain["reserved_bytes"] == close(plain["allocated_bytes"])
    assert more["allocated_bytes"] == close(plain["allocated_bytes"])
    assert more["reserved_bytes"] == close(1.25 * plain["allocated_bytes"])
    assert more["memory_bytes"] == close(more["reserved_bytes"] + 3e9)


def test_freed_logits_leave_holes() -> None:
    # 8 bytes are in use at a time, in blocks of 10; growing segments hold a quarter more.
    shape = {**STATES, "microbatch_size": B, "stored_logit_bytes": 8.0}
    shape |= {"reserved_logit_bytes": 10.0, "fragmentation": 1.25}
    found = step(shape)
    expected = 1.25 * (found["allocated_bytes"] + 2 * S * B * 512)
    assert found["reserved_bytes"] == close(expected)


def test_results_wait_for_an_exchange_if_the_host_is_ahead() -> None:
    # 4 bytes of all tokens of the group and of each of four layers, though a rank has a half.
    # One microbatch has no backward pass before its memory is at its peak.
    shape = {**STATES, "microbatch_size": B, "tensor_parallel": 2}
    shape |= {"uses_sequence_parallel": True, "waiting_exchange_bytes": 4.0}
    assert step(shape)["unused_bytes"] == close(4 * 4 * SBH)
    # One GPU has no exchange, and a pipeline's host waits for its transfers.
    assert step({**shape, "tensor_parallel": 1})["unused_bytes"] == 0
    assert step({**shape, "pipeline_parallel": 2, "num_microbatches": 2})["unused_bytes"] == 0
    # Buffers of exchanges are given out, once for all layers.
    plain, buffers = steps(shape, {**shape, "exchange_buffer_bytes": 4.0})
    assert buffers["activations_bytes"] - plain["activations_bytes"] == close(4 * SBH)


@pytest.mark.parametrize(
    ("forward", "backward", "microbatches", "passes"),
    [
        # 24 of the 1,024 launches are the loss. 1,000 are ten of a layer's forward passes, and
        # there are four; the 600 left are three backward passes of the microbatch before.
        (100.0, 200.0, 2, 4 + 3),
        (100.0, 200.0, 1, 4),
        # few launches: both passes of all layers, once
        (10.0, 20.0, 5, 4 + 4),
        # many: not all forward passes
        (500.0, 200.0, 5, 2),
    ],
)
def test_a_queue_of_launches_bounds_what_waits(
    forward: float, backward: float, microbatches: int, passes: int
) -> None:
    shape = {**STATES, "microbatch_size": B, "tensor_parallel": 2, "uses_sequence_parallel": True}
    shape |= {"num_microbatches": microbatches, "waiting_exchange_bytes": 4.0}
    # a layer has four and six collectives durings
    shape |= {"forward_launches": forward - 4, "backward_launches": backward - 6}
    assert step(shape, vocabulary_launches=48.0)["unused_bytes"] == close(passes * 4 * SBH)


@pytest.mark.parametrize(
    ("degrees", "groups"),
    [
        ({}, 0),
        ({"data_parallel": 2}, 1),
        # contexts, and the replicas that they are among
        ({"context_parallel": 2}, 2),
        ({"tensor_parallel": 2, "data_parallel": 2, "pipeline_parallel": 2}, 3),
        # the embedding's two stages
        ({"pipeline_parallel": 2, "ties_embedding": True}, 2),
    ],
)
def test_each_group_has_a_communicator(degrees: dict[str, Any], groups: int) -> None:
    found = step({**STATES, "num_microbatches": 2}, communicator_bytes=1e8, **degrees)
    assert found["library_bytes"] == close(groups * 1e8)


def test_experts_have_groups_of_their_own() -> None:
    # Replicas; experts over all eight, then over four of eight with two replicas of each.
    shape = {**MOE, "data_parallel": 8, "num_microbatches": 1, "communicator_bytes": 1e8}
    rows = [{**shape, "expert_parallel": spread} for spread in (1, 4, 8)]
    assert [found["library_bytes"] / 1e8 for found in steps(*rows)] == [close(n) for n in (2, 3, 2)]


def test_captured_graphs_take_memory() -> None:
    found = step(STATES, graph_bytes=3e9, uses_cuda_graphs=True)
    assert found["library_bytes"] == close(3e9)
    assert step(STATES, graph_bytes=3e9)["library_bytes"] == 0


def test_the_probability_of_room_is_that_of_the_errors_on_measured_rows() -> None:
    # A median 10 % above the estimate; of nine tenths the ends are 0.2 from it in logarithms: a
    # device with 1.1 times the estimate has room half the time, one with e^0.2 more 95 %.
    term = {"constant_value": np.log(1.1), "lowest_value": -0.2, "highest_value": 0.2}
    catalog = Catalog({"interval_term": {"memory_error": term}})
    room = np.array([1.1, 1.1 * np.exp(0.2), 1.1 * np.exp(-0.2), 9.0])
    found = fit_probability(np.full(4, 8e10), 8e10 * room, catalog)
    assert found == pytest.approx([0.5, 0.95, 0.05, 1.0], abs=1e-6)
    assert fit_probability(np.full(2, 8e10), np.array([7e10, 9e10]), Catalog({})).tolist() == [0, 1]
