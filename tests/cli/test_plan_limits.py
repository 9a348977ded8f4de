"""`warehouse plan` within dollars, days and megawatts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cli.planning import PUE, QUESTION, WATTS
from tests.shared import Command, Refusal

pytestmark = pytest.mark.long

Planned = tuple[Path, dict[str, Any], str]


@pytest.fixture(scope="module")
def planned_database(planned: Planned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all tests: a later one reads the layouts that an earlier one stored."""
    return Path(shutil.copyfile(planned[0], tmp_path_factory.mktemp("limits") / "copy.duckdb"))


# ---- limits ----


def test_a_limit_on_days_takes_the_cheapest_count(
    plan: Callable[..., tuple[Any, str]], planned: Planned
) -> None:
    # 8 GPUs take some days; in half the time it takes more than 8 and at most 32
    base = planned[1]
    days = base["training_seconds"] / 86400 / 2
    found, _ = plan("--days", days, "--max-gpus", 64)
    assert 8 < found["num_gpus"] <= 32
    assert found["training_seconds"] <= days * 86400
    kept = [
        line
        for line in found["counts"]
        if line["note"] is None and line["training_seconds"] <= days * 86400
    ]
    assert found["gpu_hours"] == min(line["gpu_hours"] for line in kept)


def test_a_budget_takes_the_fastest_count(
    plan: Callable[..., tuple[Any, str]], planned: Planned
) -> None:
    base = planned[1]
    budget = 1.05 * base["cost_usd"]
    found, _ = plan("--budget-usd", budget, "--max-gpus", 64)
    assert found["cost_usd"] <= budget
    faster = [
        line
        for line in found["counts"]
        if line["note"] is None and line["training_seconds"] < found["training_seconds"]
    ]
    assert all(line["cost_usd"] > budget for line in faster)


def test_a_limit_on_megawatts_bounds_the_gpus(
    plan: Callable[..., tuple[Any, str]],
) -> None:
    fed = 11.9
    # servers of two: counts between two powers are sold
    found, _ = plan("--nvlink-size", 2, "--watts", WATTS, "--max-mw", fed * WATTS * PUE / 1e6)
    assert found["power_watts"] <= fed * WATTS * PUE
    assert found["num_gpus"] in (8, 10)
    assert {line["num_gpus"] for line in found["counts"]} >= {8, 10, 12, 14, 16}


def test_limits_that_only_a_count_between_two_powers_keeps_are_not_refused(
    plan: Callable[..., tuple[Any, str]],
) -> None:
    # 12 GPUs end in days that 8 do not make, and draw what 16 exceed: no power of two does both
    # with a host that costs nothing: else the layers of twelve are as long as those of eight
    # and servers of two: twelve GPUs are sold
    free = ("host_seconds_per_launch=0", "--nvlink-size", 2)
    between, _ = plan("--gpus", 12, *free)
    days = between["training_seconds"] * 1.001 / 86400
    limits = ("--days", days, "--watts", WATTS, "--max-mw", 12.5 * WATTS * PUE / 1e6)
    found, _ = plan(*free, *limits, "--budget-usd", 1.01 * between["cost_usd"])
    assert found["num_gpus"] == 12
    assert found["training_seconds"] <= days * 86400
    assert found["cost_usd"] <= 1.01 * between["cost_usd"]
    powers = [line for line in found["counts"] if line["num_gpus"].bit_count() == 1]
    assert {8, 16} <= {line["num_gpus"] for line in powers}
    fed = 12.5 * WATTS * PUE
    assert not [
        line
        for line in powers
        if line["training_seconds"] <= days * 86400 and line["power_watts"] <= fed
    ]


def test_a_dry_run_of_a_limit_says_that_more_counts_follow(
    warehouse: Command, planned_database: Path
) -> None:
    limit = ("--max-mw", 0.01)
    code, out, _ = warehouse("plan", *QUESTION, *limit, "--dry-run", "--db", planned_database)
    assert code == 0
    assert "\n2. sweep other counts that may be better than the best of these\n3. read" in out


def test_a_budget_below_the_peak_rate_is_refused_before_a_sweep(
    refusal: Refusal, planned_database: Path
) -> None:
    with duckdb.connect(str(planned_database), read_only=True) as connection:
        before = connection.execute("select count(*) from cell").fetchone()
    code, error = refusal(*QUESTION, "--budget-usd", 100, "--price", 3.29)
    # 24 layers of 12 x 2048^2 parameters and 36,864 more: 1.209e9; 6 x 1.209e9 x 2e10 FLOPs at
    # 989.5e12 a second are 40.7 GPU-hours, 134 dollars
    assert code == 3
    assert "cost at least 134 USD at 3.29 USD/GPU-hour" in error
    assert "hint: raise it" in error
    with duckdb.connect(str(planned_database), read_only=True) as connection:
        assert connection.execute("select count(*) from cell").fetchone() == before


def test_a_budget_that_no_layout_keeps_names_the_cheapest(refusal: Refusal) -> None:
    code, error = refusal(*QUESTION, "--budget-usd", 140, "--max-gpus", 2, "--price", 3.29)
    assert code == 3
    assert "no GPU count that was tried meets every limit" in error
    assert "`--budget-usd` 140: the cheapest costs" in error


def test_too_few_gpus_for_the_days_names_how_many_it_takes(refusal: Refusal) -> None:
    code, error = refusal(*QUESTION, "--days", 0.5, "--max-gpus", 2)
    # 40.7 GPU-hours at the peak rate in 12 hours
    assert code == 3
    assert "at the peak rate of H100 SXM 80GB the run needs at least 4 GPUs" in error
    assert "--max-gpus is 2" in error
    code, error = refusal(*QUESTION, "--days", 0.5, "--max-gpus", 4)
    assert code == 3
    assert "`--days` 0.5: the fastest takes" in error
    assert "on 4 GPUs" in error


def test_a_power_that_feeds_no_gpu_is_refused(refusal: Refusal) -> None:
    code, error = refusal(*QUESTION, "--watts", WATTS, "--max-mw", 0.0001)
    assert code == 3
    assert "--max-mw feeds 0.1" in error
    # without a power that is given, an idle board of 126 W and 230 W of its host
    code, error = refusal(*QUESTION, "--max-mw", 0.0001)
    assert code == 3
    assert "--max-mw feeds 0.3" in error


def test_a_refusal_names_the_batches_that_were_tried_alone(refusal: Refusal) -> None:
    # a bound of the time excludes larger batches on the first counts, as 64 misses the days by far
    question = [*QUESTION, "--batch", 128, "--max-gpus", 4]
    code, error = refusal(*question, "--days", 0.45)
    assert code == 3
    assert "the nearest are with a batch of" in error
    assert "GPUs at a batch of" in error
    assert "other ones were not tried" in error


def test_a_gpu_count_has_no_largest_one(refusal: Refusal) -> None:
    code, error = refusal(*QUESTION, "--gpus", 8, "--max-gpus", 16)
    assert code == 2
    assert "leave it out" in error
