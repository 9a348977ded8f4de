"""One's own measurements count in the views of accuracy as the published steps do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.shared import Document, Shared, call

pytestmark = pytest.mark.long

MODEL, GPUS, BATCH = "gpt3_1.3B", 8, 64
LAYOUTS = {"slow": 2, "fast": 4}
"""Name of a run -> its tensor-parallel degree; the rest of its eight GPUs are replicas."""

FACTORS = {"slow": 1.25, "fast": 0.8}
"""Name of a run -> measured over estimated time of its step."""


def document(*arguments: object) -> Any:
    """Call a command that must succeed; return what it prints as data."""
    code, out, err = call(*arguments, "--format", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def estimated() -> dict[str, float]:
    """Return the estimated seconds of a step of each run, of `show`, which knows no database."""
    found = {}
    for run, degree in LAYOUTS.items():
        problem = (f"model={MODEL}", "accelerator=H100", f"num_gpus={GPUS}")
        pairs = (*problem, f"tensor_parallel={degree}", f"global_batch_size={BATCH}")
        shown = document("show", "--estimator", "training_step", *pairs)
        found[run] = shown.get("results", shown)["step_seconds"]
    return found


@pytest.fixture(scope="module")
def measured(estimated: dict[str, float]) -> dict[str, float]:
    """The measured seconds of both runs, as `FACTORS` has them."""
    return {run: FACTORS[run] * estimated[run] for run in LAYOUTS}


@pytest.fixture(scope="module")
def database(measured: dict[str, float], shared: Shared, empty_warehouse: Path) -> Path:
    """A database of both runs; their file is beside it."""

    def make(place: Path) -> None:
        shutil.copyfile(empty_warehouse, place / "measured.duckdb")
        lines = ["run,model,accelerator,num_gpus,tensor_parallel,global_batch_size,step_seconds"]
        lines += [
            f"{run},{MODEL},H100,{GPUS},{degree},{BATCH},{measured[run]!r}"
            for run, degree in LAYOUTS.items()
        ]
        (place / "ours.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        document("measure", place / "ours.csv", "--db", place / "measured.duckdb")

    return shared("measured accuracy", make) / "measured.duckdb"


@pytest.fixture(scope="module")
def ask(database: Path) -> Document:
    """Call a command with the database of both runs; return what it prints as data."""
    return lambda *arguments: document(*arguments, "--db", database)


def rate_error(line: dict[str, Any]) -> float:
    """Return the relative error of the rate of a compared step."""
    name = "flops_per_second_per_gpu"
    return float(line[f"predicted_{name}"] / line[f"published_{name}"] - 1)


def test_a_measured_step_is_compared_as_a_published_one(
    ask: Document, estimated: dict[str, float], measured: dict[str, float]
) -> None:
    found = ask("sql", "from published_comparison where reference = 'ours' order by published_row")
    fast, slow = found
    assert (fast["published_row"], slow["published_row"]) == ("fast", "slow")
    # measured 1.25 x the estimate: the estimate takes 1 / 1.25 - 1 = -20 % of the time, and its
    # rate is 25 % above the measured one; 0.8 x it: + 25 % of the time, - 20 % of the rate
    assert slow["time_relative_error"] == pytest.approx(-0.2, rel=1e-9)
    assert rate_error(slow) == pytest.approx(0.25, rel=1e-9)
    assert fast["time_relative_error"] == pytest.approx(0.25, rel=1e-9)
    assert rate_error(fast) == pytest.approx(-0.2, rel=1e-9)
    for run, line in (("slow", slow), ("fast", fast)):
        assert line["estimator"] == "training_step"
        assert line["step_seconds"] == pytest.approx(estimated[run], rel=1e-12)
        assert line["published_step_seconds"] == pytest.approx(measured[run], rel=1e-12)
        # a measurement is not rounded, and says its whole layout: there is no other choice
        assert (line["published_rounding"], line["num_choices"]) == (0, 1)
        assert line["time_error_beyond_rounding"] == line["time_relative_error"]


def test_a_run_has_one_row_for_each_estimate_of_it(database: Path, tmp_path: Path) -> None:
    """Runs of the same configuration under another name match their own estimates alone."""
    both = shutil.copyfile(database, tmp_path / "twice.duckdb")
    document("measure", database.with_name("ours.csv"), "--name", "again", "--db", both)
    keys = {
        "compared_step": "reference, published_row",
        "published_comparison": "reference, published_row, estimator, variant",
        "measurement_comparison": "reference, measured_row, estimator, variant, profile",
    }
    for view, key in keys.items():
        query = f"select {key}, count(*) as n from {view} where reference in ('ours', 'again') "
        found = document("sql", f"{query} group by all", "--db", both)
        assert [line["n"] for line in found] == [1] * 2 * len(LAYOUTS)


def test_its_rate_is_the_flops_of_equation_3_over_the_measured_time(
    ask: Document, measured: dict[str, float]
) -> None:
    # arXiv 2104.04473, equation 3 without recomputation, of 24 layers of width 2048 over 2048
    # tokens and table `model`'s 50257 words: 72 B s l h^2 (1 + s / 6h) + 6 B s h V
    layers = 72 * BATCH * 2048 * 24 * 2048**2 * (1 + 2048 / (6 * 2048))
    flops = layers + 6 * BATCH * 2048 * 2048 * 50257
    found = ask("sql", "from compared_step where reference = 'ours'")
    assert len(found) == len(LAYOUTS)
    for line in found:
        expected = flops / measured[line["published_row"]] / GPUS
        assert line["published_flops_per_second_per_gpu"] == pytest.approx(expected, rel=1e-12)


def test_the_accuracy_over_all_rows_comes_with_that_of_baselines(
    ask: Document, measured: dict[str, float]
) -> None:
    (line,) = ask("sql", "from estimator_accuracy where reference = 'ours'")
    assert (line["estimator"], line["published_group"], line["num_rows"]) == (
        "training_step",
        "all",
        2,
    )
    # rates are off by + 25 and - 20 %, times by - 20 and + 25 %
    assert line["mean_absolute_relative_error"] == pytest.approx(0.225, rel=1e-9)
    assert line["max_absolute_relative_error"] == pytest.approx(0.25, rel=1e-9)
    assert line["bias"] == pytest.approx(0.025, rel=1e-9)
    assert line["time_mean_absolute_relative_error"] == pytest.approx(0.225, rel=1e-9)
    assert line["time_bias"] == pytest.approx(0.025, rel=1e-9)
    # the rate of the other run: FLOPs are the same, so rates are as the inverse of the times
    ratio = measured["slow"] / measured["fast"]
    baseline = (abs(ratio - 1) + abs(1 / ratio - 1)) / 2
    assert line["baseline_mean_absolute_relative_error"] == pytest.approx(baseline, rel=1e-9)
    # times the factor of the other run: 1.25 / 0.8 - 1 = 0.5625 and 0.8 / 1.25 - 1 = -0.36
    assert line["rescaled_mean_absolute_relative_error"] == pytest.approx(0.46125, rel=1e-9)
    assert line["rescaled_max_absolute_relative_error"] == pytest.approx(0.5625, rel=1e-9)
    # both are as wide: no line
    assert line["line_mean_absolute_relative_error"] is None


def test_a_measured_mixture_of_experts_is_not_compared_with_dense_flops(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    # equation 3 counts dense layers: such a run is in measurement_comparison alone
    file = tmp_path / "mixture.csv"
    file.write_text(
        "run,model,accelerator,num_gpus,num_experts,experts_per_token,global_batch_size,"
        "step_seconds\nsparse,gpt3_1.3B,H100,8,4,1,64,0.5\ndense,gpt3_1.3B,H100,8,1,1,64,0.5\n"
    )
    database = shutil.copyfile(empty_warehouse, tmp_path / "mixture.duckdb")
    document("measure", file, "--db", database)
    compared = {
        view: [
            line["name"]
            for line in document(
                "sql", f"select {name} as name from {view} order by 1", "--db", database
            )
        ]
        for view, name in (
            ("measurement_comparison", "measured_row"),
            ("published_comparison", "published_row"),
        )
    }
    assert compared == {
        "measurement_comparison": ["dense", "sparse"],
        "published_comparison": ["dense"],
    }
