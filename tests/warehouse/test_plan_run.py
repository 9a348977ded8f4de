"""The sweeps of a plan: finding them writes nothing, and each has what the one before has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from estimators.contract import Scalar
from warehouse.plan.question import PlanRequest, RunLimits, TrainingRun, reference_tables, resolve
from warehouse.plan.run import answer_plan, steps_in_words, store_sweep
from warehouse.plan.search import Sweep, plan_first_sweep

HELD: dict[str, Scalar] = {"tensor_parallel": 1, "context_parallel": 1}


def run_within(limits: RunLimits, num_gpus: int | None = None) -> TrainingRun:
    """Return a small run whose layouts differ in recomputation, microbatch and ZeRO stage."""
    request = PlanRequest(
        "training_step",
        "gpt3_1.3B",
        "H100 SXM 80GB",
        2e10,
        num_gpus,
        limits,
        inputs={"nvlink_size": 2},  # servers of two: counts between two powers are sold
        held=HELD,
        batch=64,
        max_gpus=16,
    )
    return resolve(request)


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the reference tables of the package."""
    with reference_tables(tmp_path / "none.duckdb") as connection:
        yield connection


def test_the_steps_of_a_plan_are_said_before_anything_is_written(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    run = run_within(RunLimits(), 8)
    sweep = plan_first_sweep(run, reference)
    assert sorted(sweep.problems) == [8]
    assert steps_in_words(run, sweep, 1) == [
        sweep.in_words(),
        "sweep smaller counts, from the largest down, until none can be faster",
        "read the best layout on the best count, with cost and error",
    ]
    run = run_within(RunLimits(days=1))
    assert steps_in_words(run, plan_first_sweep(run, reference), 5)[1:] == [
        "sweep other counts that may be better than the best of these",
        "read the best 5 layouts on the best count, with cost and error",
    ]
    assert not any(tmp_path.iterdir())


def test_the_first_sweep_is_the_same_however_often_it_is_built(
    reference: duckdb.DuckDBPyConnection,
) -> None:
    run = run_within(RunLimits(max_mw=0.01))
    assert plan_first_sweep(run, reference) == plan_first_sweep(run, reference)


@pytest.mark.long
def test_counts_that_may_be_faster_take_one_more_sweep(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "plan.duckdb"
    run = run_within(RunLimits(max_mw=0.0125))
    stored: list[Sweep] = []

    def store(sweep: Sweep, database: Path) -> None:
        stored.append(sweep)
        store_sweep(sweep, database)

    answer = answer_plan(run, plan_first_sweep(run, reference), path, store=store)
    # 12.5 kW feed 11 GPUs at 1,052 W each: of the powers 8 is the best, then 9 and 10 are tried,
    # and others in case they draw less, or take less time
    first, second = (set(sweep.problems) for sweep in stored)
    assert first == {1, 2, 4, 8, 16}
    assert first | {9, 10} <= second <= {*first, 7, 9, 10, 12, 14, 15}
    assert answer.num_gpus in answer.within_limits
    assert [line["num_gpus"] for line in answer.counts] == sorted(second)
    # asked again, nothing is swept
    with reference_tables(path) as connection:
        again = plan_first_sweep(run, connection)
    assert "stored already" in again.in_words()
    written = path.stat().st_mtime_ns
    repeated = answer_plan(run, again, path)
    assert path.stat().st_mtime_ns == written
    assert repeated.layouts == answer.layouts
