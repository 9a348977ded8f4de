"""A plan whose tokens depend on its batch: the same loss at every batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from warehouse.ask.terms import Term
from warehouse.options import DEFAULT_PLANNER
from warehouse.plan.answer import PlanAnswer
from warehouse.plan.document import document
from warehouse.plan.question import CostTerms, PlanRequest, TrainingRun, reference_tables, resolve
from warehouse.plan.question_words import assumptions
from warehouse.plan.run import answer_plan
from warehouse.plan.search import plan_first_sweep

SMALL = PlanRequest(
    DEFAULT_PLANNER,
    "gpt3_1.3B",
    "H100 SXM 80GB",
    2e10,
    6,
    inputs={"nvlink_size": 8},
    held={"tensor_parallel": 1, "activation_recompute": "none"},
)


def run_of(batch: int | None, critical: Term | None, others: tuple[int, ...] = ()) -> TrainingRun:
    """Return a small run with a critical batch."""
    request = replace(SMALL, batch=batch, other_batches=others)
    return resolve(request, CostTerms(critical_batch=critical))


def answer_of(run: TrainingRun, database: Path) -> PlanAnswer:
    with reference_tables(database) as connection:
        sweep = plan_first_sweep(run, connection)
    return answer_plan(run, sweep, database)


def test_no_batch_changes_the_tokens_unless_asked() -> None:
    assert {run_of(batch, None).tokens for batch in (None, 64, 8_192)} == {2e10}
    assert not any("critical" in words for words in assumptions(run_of(8_192, None)))


@pytest.mark.parametrize("critical", [Term(None, 4e6), Term("bergsma_2025", 0.0)])
def test_the_usual_batch_takes_the_asked_tokens_and_a_larger_one_more(critical: Term) -> None:
    usual = run_of(None, critical)
    assert usual.tokens == 2e10
    assert "critical batch" in " ".join(assumptions(usual))
    tokens = [run_of(batch, critical).tokens for batch in (64, usual.batch, 512, 4_096)]
    assert tokens == sorted(tokens)
    assert tokens[1] == 2e10
    assert tokens[0] < tokens[1] < tokens[2]
    larger = run_of(4_096, critical)
    assert f"({100 * (larger.tokens / 2e10 - 1):+.1f} %)" in " ".join(assumptions(larger))


def test_a_bound_of_the_time_holds_for_every_batch_that_may_be_tried() -> None:
    run = run_of(512, Term(None, 1e6), others=(8, 2_048))
    smallest = run_of(8, Term(None, 1e6))
    assert run.least_seconds_of_one_gpu == pytest.approx(smallest.least_seconds_of_one_gpu)
    assert run.tokens > smallest.tokens


def test_every_batch_of_an_answer_has_its_own_tokens(tmp_path: Path) -> None:
    database, critical = tmp_path / "plan.duckdb", Term(None, 1e6)
    answer = answer_of(run_of(64, critical, others=(512,)), database)
    alone = answer_of(run_of(512, critical), database)
    [line] = answer.batches
    assert line["training_seconds"] == pytest.approx(alone.best["training_seconds"], rel=1e-9)
    plain = answer_of(run_of(512, None), database)
    more = alone.run.tokens / 2e10
    assert more > 1
    assert alone.best["training_seconds"] == pytest.approx(
        more * plain.best["training_seconds"], rel=1e-3
    )
    # six GPUs share other batches evenly; the tokens are those of the 64 that were asked for
    assert answer.run.batch != 64
    assert answer.run.tokens == run_of(64, critical).tokens
    found = document(alone, 1)
    assert found["trained_tokens"] == alone.run.tokens
    assert found["question"]["critical_batch_tokens"] == 1e6
