"""The time of a step's schedule, against every pass of it run one by one.

On the ideal machine a stage takes what its products and its attention take, known by hand; the rest
of a step is bubble and transfers. `pipeline_schedule` knows nothing of the estimator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.training_step.pipelines import held_at, pipelines_of
from tests.estimators.pipeline_schedule import simulate
from tests.estimators.training_step_cases import GPT, problem_of, steps

PRODUCTS = 24 * 1024 * 512**2 / 1e12
"""Products of a layer of GPT, forward; backward twice as much (arXiv 2104.04473 appendix)."""

CORE = 4 * 1024 * 1024 * 512 / 1e12 * (1 + 1 / 8) / 2
"""Its attention, the blocks on and below the diagonal; backward 2.5 times as much."""

FORWARD, BACKWARD = PRODUCTS + CORE, 2 * PRODUCTS + 2.5 * CORE
LAYER = FORWARD + BACKWARD
HIDDEN = 2 * 1024 * 512
"""Bytes that a stage sends to the next."""

VOCABULARIES = (256, 8192, 16_384)
"""Output layers of 0.03, 1.1 and 2.2 layers: the last stage may be by far the slowest."""

PLAIN = [(p, m) for p in (1, 2, 3, 4, 8) for m in sorted({1, 2, p, 2 * p, 8 * p})]
INTERLEAVED = [(p, p * n, v) for p in (2, 3, 4, 8) for n in (1, 2, 8) for v in (2, 4)]


def both(
    p: int, m: int, v: int, vocabulary: int, share: float, *, beside: bool = False
) -> tuple[dict[str, Any], float]:
    """Return a row and the seconds of its schedule, pass by pass; two layers to a chunk.

    `share` is a transfer's seconds over those of a stage.
    """
    transfer = share * 2 * v * LAYER
    row = {
        **GPT,
        "num_layers": 2 * p * v,
        "vocab_size": vocabulary,
        "ties_embedding": False,
        "pipeline_parallel": p,
        "virtual_pipeline": v,
        "num_microbatches": m,
        "nvlink_size": 1,
        "pipeline_overlap_fraction": float(beside),
    }
    if share:
        row["network_bytes_per_second"] = HIDDEN / transfer
    chunks = np.full((p, v), 2.0)
    forward, backward = chunks * FORWARD, chunks * BACKWARD
    output = 2 * 1024 * 512 * vocabulary / 1e12
    forward[-1, -1] += output
    backward[-1, -1] += 2 * output
    found = simulate(forward, backward, m, v, transfer, blocking_transfer=not beside)
    return row, found.makespan


def errors(cases: list[tuple[dict[str, Any], float]]) -> list[float]:
    """Return by how much the step is too long in each case, as a share."""
    rows, seconds = zip(*cases, strict=True)
    found = steps(*rows)
    return [each["step_seconds"] / true - 1 for each, true in zip(found, seconds, strict=True)]


def test_a_pipeline_without_transfers_is_exact_however_slow_its_last_stage() -> None:
    cases = [both(p, m, 1, vocabulary, 0) for p, m in PLAIN for vocabulary in VOCABULARIES]
    assert errors(cases) == pytest.approx([0] * len(cases), abs=1e-12)


def test_an_interleaved_pipeline_without_transfers_is_exact() -> None:
    cases = [both(*each, vocabulary, 0) for each in INTERLEAVED for vocabulary in VOCABULARIES]
    assert errors(cases) == pytest.approx([0] * len(cases), abs=1e-12)


@pytest.mark.parametrize("share", [0.003, 0.01, 0.03])
def test_interleaved_transfers_during_work_are_exact(share: float) -> None:
    cases = [
        both(*each, vocabulary, share, beside=True)
        for each in INTERLEAVED
        for vocabulary in VOCABULARIES
    ]
    assert errors(cases) == pytest.approx([0] * len(cases), abs=1e-12)


@pytest.mark.parametrize("share", [0.003, 0.01])
def test_blocking_transfers_are_never_too_short_and_within_one_percent(share: float) -> None:
    # The estimator has every stage wait for two transfers a microbatch and chunk; the first and the
    # last wait for one a pass, which counts where they are the slowest: at most the share itself.
    plain = [both(p, m, 1, vocabulary, share) for p, m in PLAIN for vocabulary in VOCABULARIES]
    chunked = [
        both(p, m, v, vocabulary, share / v)
        for p, m, v in INTERLEAVED
        for vocabulary in VOCABULARIES
    ]
    for found in errors([*plain, *chunked]):
        assert -1e-12 <= found <= share


@pytest.mark.parametrize(
    ("layers", "p", "m"), [(126, 16, 16), (126, 16, 64), (94, 16, 32), (70, 12, 48), (61, 16, 64)]
)
def test_uneven_stages_are_as_in_the_schedule(layers: int, p: int, m: int) -> None:
    counts = np.full(p, layers // p, dtype=np.float64)
    counts[: layers % p] += 1
    if (layers + 2) % p == 0:  # embedding and loss count as a layer each
        counts[[0, -2]] = counts[[-1, 0]]
    for vocabulary in (256, 16_384):
        output = 2 * 1024 * 512 * vocabulary / 1e12
        forward, backward = counts * FORWARD, counts * BACKWARD
        forward[-1] += output
        backward[-1] += 2 * output
        row = {
            **GPT,
            "num_layers": layers,
            "vocab_size": vocabulary,
            "ties_embedding": False,
            "pipeline_parallel": p,
            "num_microbatches": m,
        }
        (found,) = errors([(row, simulate(forward, backward, m).makespan)])
        assert abs(found) < 1e-9


def test_memory_in_flight_is_that_of_the_schedule() -> None:
    for p, m, v in [*((p, m, 1) for p, m in PLAIN), *INTERLEAVED]:
        row, _ = both(p, m, v, 256, 0)
        problem, layout = problem_of(row)
        held = simulate(np.ones(p), np.ones(p), m, v).in_flight[0] / v
        found = held_at(pipelines_of(problem, layout))
        # two layers a chunk
        assert found.layers["dense"][0] == pytest.approx(held * 2 * v)
