"""`warehouse plan` where the batch does not divide over some GPU counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.planning import ACCELERATOR, MODEL, QUESTION
from tests.shared import Command
from warehouse.errors import InputError
from warehouse.plan.compare import best_counts
from warehouse.plan.queries import GpuRates
from warehouse.plan.question import PlanRequest, RunLimits, TrainingRun, resolve
from warehouse.plan.words import alternative_entries, count_rows

pytestmark = pytest.mark.usefixtures("same_answers")

Planned = tuple[Path, dict[str, Any], str]

DAY = 86400


def run_within(batch: int, **limits: float) -> TrainingRun:
    return resolve(
        PlanRequest(
            "training_step", MODEL, ACCELERATOR, 1e12, limits=RunLimits(**limits), batch=batch
        )
    )


def timed(days: dict[int, float]) -> list[dict[str, Any]]:
    """Return the line of each GPU count, at 3 USD and 1,000 W a GPU."""
    return [
        {
            "num_gpus": count,
            "training_seconds": each * DAY,
            "gpu_hours": 24 * each * count,
            "cost_usd": 72 * each * count,
            "power_watts": 1000.0 * count,
        }
        for count, each in days.items()
    ]


# days of Qwen3 235B on H200s at a batch of 512
SLOW_BETWEEN = timed({256: 109.6, 512: 62.7, 640: 73.3, 768: 68.7, 896: 62.5, 1024: 38.9})


def answer_of(
    run: TrainingRun, num_gpus: int, lines: list[dict[str, Any]], within: Iterable[int] = ()
) -> Any:
    """Return what tables of GPU counts read of an answer."""
    counts = [{"note": None, **line} for line in lines]
    return SimpleNamespace(
        run=run,
        num_gpus=num_gpus,
        counts=counts,
        own_count=next(line for line in counts if line["num_gpus"] == num_gpus),
        within_limits=frozenset(within),
    )


def test_the_table_marks_the_count_of_the_plan_and_those_within_the_limits() -> None:
    answer = answer_of(run_within(512, days=63), 512, SLOW_BETWEEN, (512, 896, 1024))
    assert {row["num_gpus"]: row["note"] for row in count_rows(answer)} == {
        256: "",
        512: "best",
        640: "",
        768: "",
        896: "within the limits",
        1024: "within the limits",
    }
    asked = answer_of(run_within(512), 512, SLOW_BETWEEN)
    notes = {row["num_gpus"]: row["note"] for row in count_rows(asked)}
    assert notes == {256: "", 512: "best", 640: "", 768: "", 896: "", 1024: ""}


@pytest.mark.parametrize(
    ("days", "max_gpus", "is_named"),
    [
        (30, 1024, True),
        (30, 2047, True),
        # a larger count may be tried, but was not worth it
        (30, 2048, False),
    ],
)
def test_where_the_largest_count_is_too_slow_the_hint_names_the_option(
    days: float, max_gpus: int, is_named: bool
) -> None:
    run = run_within(512, days=days)
    run = replace(run, request=replace(run.request, max_gpus=max_gpus))
    with pytest.raises(InputError) as caught:
        best_counts(run, SLOW_BETWEEN, GpuRates(3.0))
    assert (f"raise a limit or --max-gpus {max_gpus:,}, or ask" in caught.value.hint) == is_named


def test_where_days_are_kept_the_hint_names_no_larger_count() -> None:
    run = run_within(512, days=60, budget_usd=1.0)
    run = replace(run, request=replace(run.request, max_gpus=1024))
    with pytest.raises(InputError) as caught:
        best_counts(run, SLOW_BETWEEN, GpuRates(3.0))
    assert caught.value.hint.startswith("raise a limit, or ask for fewer --tokens")


@pytest.mark.long
def test_a_limit_on_days_is_one_of_the_median_and_the_answer_says_so(
    warehouse: Command, planned_database: Path
) -> None:
    asked = ("plan", *QUESTION, "--days", 0.25, "--max-gpus", 64, "--db", planned_database)
    code, out, err = warehouse(*asked, "--details")
    assert code == 0, err
    table = out.split("Other GPU counts\n\n")[1].split("\n\n")[0]
    # the slow end of the best is that of the answer, and later than the limit
    plan = json.loads(warehouse(*asked, "--json")[1])
    [best] = [line for line in plan["counts"] if line["num_gpus"] == plan["num_gpus"]]
    slow = plan["likely_training_seconds"][1]
    assert best["slow_training_seconds"] == pytest.approx(slow)
    assert slow > 0.25 * DAY
    assert all(line["slow_training_seconds"] > line["training_seconds"] for line in plan["counts"])
    assert "slow training hours" in table
    time = " ".join(out.split("\n  step")[0].split())
    assert time.endswith("; --days 0.25 limits the median; the slow end exceeds it")


def test_a_layout_with_an_earlier_slow_end_is_named_where_it_is_hardly_slower(
    warehouse: Command, planned: Planned, answers: dict[object, Any]
) -> None:
    assert warehouse("plan", *QUESTION, "--gpus", 8, "--db", planned[0])[0] == 0
    answer = list(answers.values())[-1]
    best = answer.best
    step, high = best["step_seconds"], best["high_step_seconds"]

    def surer(**changed: float) -> Any:
        other = {**best, "tensor_parallel": 2, **changed}
        found = replace(answer, layouts=[best, other], other_kind=None, riskier_layout=None)
        lines = [text for name, text in alternative_entries(found) if name == "surer"]
        assert bool(lines) == (found.steadier_layout is not None)
        return " ".join(lines)

    assert "(+4.0 %), at most " in surer(
        step_seconds=1.04 * step,
        training_seconds=1.04 * best["training_seconds"],
        high_step_seconds=0.8 * high,
    )
    assert not surer(step_seconds=1.04 * step, high_step_seconds=0.95 * high)
    assert not surer(step_seconds=1.06 * step, high_step_seconds=0.8 * high)


@pytest.mark.long
def test_held_columns_have_slow_ends_within_limits_too(
    warehouse: Command, planned_database: Path
) -> None:
    asked = ("plan", *QUESTION, "tensor_parallel=2", "--days", 0.5, "--max-gpus", 16)
    code, out, err = warehouse(*asked, "--json", "--db", planned_database)
    assert code == 0, err
    plan = json.loads(out)
    ends = {line["num_gpus"]: line["slow_training_seconds"] for line in plan["counts"]}
    assert ends[plan["num_gpus"]] == pytest.approx(plan["likely_training_seconds"][1])
    assert None not in ends.values()
