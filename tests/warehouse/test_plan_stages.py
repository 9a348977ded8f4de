"""A plan is a list of stages: building it writes nothing, running it goes once through the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from estimators.contract import Scalar
from warehouse.plan.question import PlanRequest, RunLimits, TrainingRun, reference_tables, resolve
from warehouse.plan.search import Sweep
from warehouse.plan.stages import (
    ReadAnswer,
    RefineCounts,
    Stage,
    SweepCounts,
    build_stages,
    explain_stage,
    run_stages,
    store_sweep,
)

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


def counts_of(stage: Stage) -> list[int]:
    assert isinstance(stage, SweepCounts)
    return sorted(stage.sweep.problems)


def test_a_gpu_count_is_one_round_and_limits_are_two(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    counted = build_stages(run_within(RunLimits(), 8), reference)
    assert [type(stage) for stage in counted] == [SweepCounts, ReadAnswer]
    assert counts_of(counted[0]) == [4, 8, 16]
    limited = build_stages(run_within(RunLimits(days=1)), reference, top=5)
    assert [type(stage) for stage in limited] == [SweepCounts, RefineCounts, ReadAnswer]
    assert limited[-1] == ReadAnswer(5)
    assert not any(tmp_path.iterdir())


def test_the_list_is_the_same_however_often_it_is_built(
    reference: duckdb.DuckDBPyConnection,
) -> None:
    run = run_within(RunLimits(max_mw=0.01))
    first, second = (build_stages(run, reference) for _ in range(2))
    assert [explain_stage(stage) for stage in first] == [explain_stage(stage) for stage in second]
    assert first == second


@pytest.mark.long
def test_a_refinement_leads_to_one_more_sweep(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "plan.duckdb"
    run = run_within(RunLimits(max_mw=0.0125))
    stored: list[Sweep] = []

    def store(sweep: Sweep, database: Path) -> None:
        stored.append(sweep)
        store_sweep(sweep, database)

    answer = run_stages(run, build_stages(run, reference), path, store)
    # 12.5 kW feed 11 GPUs at 1,052 W each: of the powers 8 is the best, then 10 to 14 are tried
    first, second = (set(sweep.problems) for sweep in stored)
    assert first == {1, 2, 4, 8, 16}
    assert first < second <= {*first, 10, 12, 14}
    assert answer.num_gpus in answer.within_limits
    assert [line["num_gpus"] for line in answer.counts] == sorted(second)
    # asked again, nothing is swept
    with reference_tables(path) as connection:
        again = build_stages(run, connection)
    assert "stored already" in explain_stage(again[0])
    written = path.stat().st_mtime_ns
    repeated = run_stages(run, again, path)
    assert path.stat().st_mtime_ns == written
    assert repeated.layouts == answer.layouts


def test_a_list_without_an_answer_is_refused(tmp_path: Path) -> None:
    run = run_within(RunLimits(), 8)
    with pytest.raises(ValueError, match="end without ReadAnswer"):
        run_stages(run, [], tmp_path / "none.duckdb")
