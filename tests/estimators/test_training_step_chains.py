"""The time of uneven pipelines and of other schedules, against every pass of them run one by one.

`pipeline_schedule` and `zero_bubble_schedule` know nothing of the estimator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.contract import Array
from estimators.training_step.critical_path import (
    SETTLED,
    WORK,
    alternates,
    chains_of,
    longest,
    simulated,
)
from estimators.training_step.placement import Case, place
from estimators.training_step.schedule import BUBBLES
from tests.estimators import zero_bubble_schedule as passes
from tests.estimators.pipeline_schedule import simulate
from tests.estimators.training_step_cases import GPT, steps

DEEPSEEK = Case(61, 3, 1, 0, 8, 4, is_mixture=True)
QWEN = Case(94, 0, 1, 0, 8, 4, is_mixture=True)
LLAMA = Case(126, 0, 1, 0, 16, 8)
PLACED = [
    *(DEEPSEEK._replace(ranks=p, chunks=v) for p, v in ((8, 4), (4, 4), (8, 2), (4, 1), (16, 1))),
    *(QWEN, QWEN._replace(chunks=3), LLAMA, LLAMA._replace(chunks=4, ranks=8)),
    *(Case(64, 4, 1, 0, 8, v, is_mixture=True) for v in (1, 2, 4)),
    *(Case(48, 24, 2, 0, 8, v, is_mixture=True) for v in (1, 3)),
]
"""Dense layers first, in turn or none; embedding and loss counted, or not."""

SILENT = {name: value for name, value in GPT.items() if name != "vocab_size"}
"""A model without embedding and output layer."""

TURNS = Case(24, 0, 1, 0, 4, 4, layout="Ettt|t|t|t|t|ttt|t|t|t|t|ttt|t|t|t|t|tttL")
"""Another rank has the largest stage in each chunk."""


def seconds_of(dense: float, output: float, ratio: float, embedding: float = 0.0) -> Array:
    """Return seconds of each kind of work; those of a layer with experts are 1 forward."""
    by_name = {"dense": dense, "mixture": 1.0, "mtp": 1.0, "embedding": embedding, "output": output}
    forward = np.array([by_name[name] for name in WORK])
    return np.concatenate([forward, ratio * forward])[:, None]


def run(case: Case, seconds: Array, m: int, group: int = 0) -> float:
    """Return the seconds of a step, pass by pass."""
    placement = place(case)
    half = len(WORK)

    def stages(each: Array) -> Array:
        chunks = np.tensordot(each[:3], placement.layers, 1).T
        chunks[:, 0] += each[3] * placement.embedding
        chunks[:, -1] += each[4] * placement.output
        return np.asarray(chunks)

    forward, backward = stages(seconds[:half, 0]), stages(seconds[half:, 0])
    beside: dict[str, Any] = {"transfer": 0.0, "blocking_transfer": False}
    return simulate(forward, backward, m, case.chunks, **beside, group=group).makespan


def chained(case: Case, seconds: Array, m: int, group: int = 0) -> float:
    in_a_row = group or case.ranks if case.chunks > 1 else m
    return float(longest(chains_of(case, m, in_a_row), seconds, np.array([m]))[0])


@pytest.mark.parametrize("case", PLACED, ids=str)
def test_the_longest_chain_is_that_of_the_schedule(case: Case) -> None:
    # dense layers lighter, the same and heavier; outputs of none to three layers
    for m in (case.ranks, 2 * case.ranks, 5 * case.ranks):
        for dense in (0.6, 1.0, 1.5) if case.dense_layers else (1.0,):
            for output in (0.0, 0.6, 3.0):
                seconds = seconds_of(dense, output, 2.0 + output / 10)
                true = run(case, seconds, m)
                error = chained(case, seconds, m) / true - 1
                # a chain is a part of the step; of one rank with all largest stages, all of it
                takes_turns = dense > 1 or bool(alternates(case, seconds)[0])
                assert (-0.03 if takes_turns else -1e-9) < error < 1e-9, (m, dense, output)


def test_an_embedding_makes_chains_a_little_short() -> None:
    # a hundredth of a layer, as that of llama3_8B on H100; the first stage alone has it
    for case in (*PLACED, Case(64, 0, 1, 0, 8, 8), Case(32, 0, 1, 0, 4, 1)):
        for m in (case.ranks, 5 * case.ranks, 16 * case.ranks):
            for output in (0.0, 0.6):
                seconds = seconds_of(1.0, output, 2.0, embedding=0.01)
                error = chained(case, seconds, m) / run(case, seconds, m) - 1
                assert -2e-4 < error < 1e-9, (case, m, output)


@pytest.mark.parametrize(
    ("case", "fill"),
    [
        # above the largest rank's work, in units of a layer forward, with B = 2 F and an output of
        # 0.6 layers: specification of pipelines as they are run
        (DEEPSEEK._replace(mtp_layers=1), 33.8),
        (DEEPSEEK._replace(mtp_layers=1, ranks=4), 24),
        (QWEN, 52.8),
        (LLAMA, 39),
    ],
)
def test_a_pipeline_fills_as_the_specification_says(case: Case, fill: float) -> None:
    seconds, m = seconds_of(1.0, 0.6, 2.0), 64
    by_rank = place(case).of_rank.sum(axis=0) + 0.6 * place(case).output
    assert chained(case, seconds, m) - 3 * m * by_rank.max() == pytest.approx(fill)


@pytest.mark.parametrize(("m", "group"), [(16, 6), (20, 8), (12, 12), (10, 5), (9, 5)])
def test_groups_larger_than_the_stages_are_exact(m: int, group: int) -> None:
    case, seconds = Case(32, 0, 1, 0, 4, 4), seconds_of(1.0, 0.4, 2.1)
    assert chained(case, seconds, m, group) == pytest.approx(run(case, seconds, m, group))


def test_ranks_that_take_turns_are_run_pass_by_pass() -> None:
    seconds = seconds_of(1.0, 0.0, 2.0)
    assert alternates(TURNS, seconds).all()
    # between the bounds 1152 and 2304
    assert simulated(TURNS, 64, 4, seconds) == pytest.approx(1653)
    for m in (4, 8, 4 * SETTLED, 4 * SETTLED + 8):
        assert simulated(TURNS, m, 4, seconds) == pytest.approx(run(TURNS, seconds, m))
    assert simulated(TURNS, 16, 6, seconds) == pytest.approx(run(TURNS, seconds, 16, 6))


EQUAL = {"F": 1.0, "B": 1.0, "W": 1.0}
PROGRAMS = {
    "zb_h1": lambda p, m: passes.zb_h(p, m, warm=1, delay=1),
    "zb_h2": lambda p, m: passes.zb_h(p, m, warm=2, delay=2),
    "zbv": passes.zbv,
    "dualpipe": passes.dualpipe,
    "dualpipev": passes.dualpipev,
}


def run_bubble(schedule: str, p: int, seconds: dict[str, float]) -> float:
    """Return the bubble of a schedule, pass by pass; seconds are those of a stage's passes."""
    m, in_a_v = 4 * p, schedule in ("zbv", "dualpipev")
    stages = 2 * p if in_a_v else p
    found = max(passes.spans(PROGRAMS[schedule](p, m), stages, seconds))
    return found - m * sum(seconds.values()) * (2 if in_a_v else 1)


def bubble(schedule: str, p: int, seconds: dict[str, float]) -> float:
    times = 2 if schedule in ("zbv", "dualpipev") else 1
    parts = (times * seconds[kind] for kind in "FBW")
    return float(BUBBLES[schedule](p, 4.0 * p, *parts))


@pytest.mark.parametrize(
    ("schedule", "of_eight"), [("zb_h1", 7), ("zb_h2", 0), ("zbv", 0), ("dualpipe", 6)]
)
def test_published_bubbles_of_eight_stages(schedule: str, of_eight: float) -> None:
    assert bubble(schedule, 8, EQUAL) == of_eight
    assert run_bubble(schedule, 8, EQUAL) == of_eight


@pytest.mark.parametrize("schedule", ["zb_h1", "zb_h2"])
@pytest.mark.parametrize("p", [2, 4, 7])
def test_bubbles_of_zero_bubble_schedules_are_exact(schedule: str, p: int) -> None:
    for inputs, weights in ((1.0, 1.0), (1.2, 0.8), (0.8, 1.2), (1.5, 0.9), (2.0, 0.5)):
        # ZB-H2 has no closed form where the passes forward are the shortest
        for forward in (0.7, 1.0, 2.0)[schedule == "zb_h2" :]:
            seconds = {"F": forward, "B": inputs, "W": weights}
            found = run_bubble(schedule, p, seconds)
            assert bubble(schedule, p, seconds) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize("schedule", ["zbv", "dualpipe", "dualpipev"])
@pytest.mark.parametrize("p", [4, 8])
def test_bubbles_of_two_stages_a_rank_are_near_and_not_too_short(schedule: str, p: int) -> None:
    for inputs, weights in ((1.0, 1.0), (1.2, 0.8), (1.1, 1.0), (1.5, 0.9), (1.4, 0.6)):
        for forward in (0.9, 1.0, 1.3):
            seconds = {"F": forward, "B": inputs, "W": weights}
            error = bubble(schedule, p, seconds) - run_bubble(schedule, p, seconds)
            # one and a half passes forward at most, of a step of hundreds
            assert -0.1 < error < 1.5, seconds


@pytest.mark.parametrize("microbatches", [2, 8, 16])
@pytest.mark.parametrize("schedule", ["1f1b", *sorted(BUBBLES)])
def test_faster_matmuls_never_make_a_step_longer(schedule: str, microbatches: int) -> None:
    if schedule.startswith("dualpipe") and microbatches < 8:
        return  # the schedule needs two microbatches a rank
    row = {
        **GPT,
        "num_layers": 13,
        "pipeline_parallel": 4,
        "num_microbatches": microbatches,
        "schedule": schedule,
        "num_experts": 4,
        "experts_per_token": 1,
        "num_dense_layers": 2,
        "expert_ffn_hidden_size": 1920,  # a mixture and a dense layer take nearly as long
    }
    factors = np.linspace(1.0, 1.5, 60)
    found = steps(*({**row, "product_rate_factor": float(factor)} for factor in factors))
    seconds = np.array([each["step_seconds"] for each in found])
    assert (np.diff(seconds) <= 0).all()


def test_layers_of_two_kinds_are_on_their_own_stages() -> None:
    # two dense layers and two slower mixtures: a stage each
    row = {
        **SILENT,
        "num_layers": 4,
        "pipeline_parallel": 2,
        "num_microbatches": 8,
        "num_experts": 4,
        "experts_per_token": 1,
        "ffn_hidden_size": 512,
        "num_dense_layers": 2,
        "expert_ffn_hidden_size": 6 * 512,
    }
    of_experts = ("num_experts", "experts_per_token", "num_dense_layers", "expert_ffn_hidden_size")
    plain = {name: value for name, value in row.items() if name not in of_experts}
    both, dense, mixture = steps(
        row,
        {**plain, "num_layers": 2, "pipeline_parallel": 1},
        {**row, "num_layers": 2, "num_dense_layers": 0, "pipeline_parallel": 1},
    )
    first, second = (each["step_seconds"] / 8 for each in (dense, mixture))
    assert second > 1.2 * first
    # the pipeline fills and drains through the first stage once
    assert both["step_seconds"] == pytest.approx(8 * second + first)
    assert both["bubble_seconds"] == pytest.approx(first)


def test_a_text_and_counts_place_layers_as_the_default_does() -> None:
    row = {
        **SILENT,
        "num_layers": 14,
        "pipeline_parallel": 4,
        "num_microbatches": 8,
        "virtual_pipeline": 2,
    }
    plain, counted, text, other = steps(
        row,
        {**row, "counts_embedding": True, "counts_loss": True},
        {**row, "pipeline_layout": "Et|(tt|)*6tL"},
        {**row, "pipeline_layout": "E|(tt|)*5t|tttL"},
    )
    assert counted == plain
    assert text == plain
    # a stage of three layers is slower
    assert other["step_seconds"] > 1.2 * plain["step_seconds"]


def test_a_step_whose_ranks_take_turns_is_that_of_its_passes() -> None:
    row = {**SILENT, "pipeline_parallel": 4, "num_layers": 24, "num_microbatches": 64}
    turns, even = steps(
        {**row, "pipeline_layout": TURNS.layout}, {**row, "num_layers": 4, "num_microbatches": 1}
    )
    # 1653 of passes forward and backward of 1 and 2, as above: 3 a layer
    layer = even["step_seconds"] - even["bubble_seconds"]
    assert turns["step_seconds"] == pytest.approx(1653 / 3 * layer, rel=0.02)
    assert turns["step_seconds"] == pytest.approx(64 * 6 * layer + turns["bubble_seconds"])


def test_a_text_of_a_v_has_two_stages_a_rank() -> None:
    row = {**SILENT, "num_layers": 8, "pipeline_parallel": 2, "num_microbatches": 8}
    plain, text = steps(
        {**row, "schedule": "zbv"},
        {**row, "schedule": "zbv", "pipeline_layout": "Ett|tt|tt|ttL"},
    )
    assert text == plain


def test_ends_that_are_given_go_before_a_balance_of_products() -> None:
    row = {**SILENT, "num_layers": 8, "pipeline_parallel": 2, "num_microbatches": 4}
    given = {**row, "layers_in_first_stage": 5, "layers_in_last_stage": 3}
    even, balanced = steps(given, {**given, "balances_stages": True, "vocab_size": 512})
    assert balanced["gemm_seconds"] == pytest.approx(even["gemm_seconds"])


@pytest.mark.parametrize("schedule", sorted(BUBBLES))
def test_a_schedule_has_its_bubble_and_its_memory(schedule: str) -> None:
    row = {**SILENT, "num_layers": 8, "pipeline_parallel": 4, "num_microbatches": 8}
    plain, filled = steps(row, {**row, "schedule": schedule})
    assert filled["bubble_seconds"] < plain["bubble_seconds"]
    assert filled["gemm_seconds"] == pytest.approx(plain["gemm_seconds"])
    # both directions of a dual pipe have their own copies
    copies = 2 if schedule == "dualpipe" else 1
    assert filled["weights_bytes"] == pytest.approx(copies * plain["weights_bytes"])


@pytest.mark.parametrize("schedule", sorted(BUBBLES))
def test_gradients_of_weights_that_wait_for_the_host_fill_bubbles_all_the_same(
    schedule: str,
) -> None:
    # the host launches 40 kernels of a layer's backward pass, four of them for these gradients
    row = {**GPT, "num_layers": 8, "pipeline_parallel": 4, "num_microbatches": 8}
    launches = {"backward_launches": 40.0, "forward_launches": 20.0}
    row |= {"schedule": schedule, "host_seconds_per_launch": 1e-3, **launches}
    plain, faster = steps(row, {**row, "product_rate_factor": 1.2})
    assert faster["gemm_seconds"] < plain["gemm_seconds"]
    assert faster["step_seconds"] <= plain["step_seconds"] * (1 + 1e-12)


def test_a_dual_pipe_exchanges_a_stage_for_each_of_its_own_microbatches() -> None:
    # A pipeline's rank reduces a stage's gradients 8 times and gathers its weights once. A dual
    # pipe's has both stages, and reduces each 4 times: 2 x (4 + 1) exchanges of a stage for 8 + 1.
    row = {**GPT, "num_layers": 8, "pipeline_parallel": 2, "data_parallel": 4, "zero_stage": 2}
    row |= {"num_microbatches": 8, "network_bytes_per_second": 1e9, "nvlink_size": 1}
    plain, dual = steps(row, {**row, "schedule": "dualpipe"})
    assert dual["data_comm_seconds"] == pytest.approx(plain["data_comm_seconds"] * 10 / 9)
