"""`warehouse validate`: the checks of the stored rows and the comparison with measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, Program, Quickstart, call

PUBLISHED_ROWS = {
    "published_megatron_scaling": 10,
    "published_megatron_recompute": 8,
    "published_megatron_training_time": 12,
    "published_megatron_h100_scaling": 9,
    "published_training_stage": 9,
}


@pytest.mark.long
def test_a_sound_database_passes_every_check_and_shows_the_comparison(
    program: Program, quickstart: Quickstart
) -> None:
    done = program("validate", "--db", quickstart.database)
    assert done.returncode == 0
    checks = done.stderr.splitlines()
    assert len(checks) >= 5
    assert all(": ok (" in line for line in checks)
    assert "mean |error| %" in done.stdout
    for reference in PUBLISHED_ROWS:
        assert f"Published and predicted steps of {reference}\n" in done.stdout
    assert "Error by degree" in done.stdout
    assert "Whole runs" in done.stdout
    [_, _, table] = done.stdout.partition("steps of published_megatron_scaling\n")
    rows = table.split("\n\n")[0].splitlines()
    # the peak rate, the estimator with constants, and the roofline in both variants
    assert sum(line.startswith("530B ") for line in rows) == 4


@pytest.mark.long
def test_a_check_that_finds_rows_exits_4_and_shows_them(warehouse: Command, swept: Path) -> None:
    with duckdb.connect(str(swept)) as connection:
        connection.execute(
            "update roofline set step_seconds = -1 where rowid in"
            " (select rowid from roofline order by rowid limit 30)"
        )
    code, out, err = warehouse("validate", "--db", swept)
    assert code == 4
    assert "times_are_positive: 30 rows" in err
    assert "... and 10 more rows" in err
    assert "error: " in err
    assert "times_are_positive" in err.partition("error: ")[2]
    assert "mean |error| %" in out


@pytest.mark.long
def test_json_names_failed_checks_and_has_base_units(warehouse: Command, swept: Path) -> None:
    with duckdb.connect(str(swept)) as connection:
        connection.execute("delete from problem where model = 'megatron_1T'")
    code, out, _ = warehouse("validate", "--json", "--db", swept)
    found = json.loads(out)
    assert code == 4
    assert "cells_have_problems" in found["failed_checks"]
    assert {row["variant"] for row in found["estimator_accuracy"]} == {"published", "corrected"}
    comparison = [
        row
        for row in found["megatron_comparison"]
        if row["reference"] == "published_megatron_scaling"
    ]
    assert len(comparison) == 36
    assert all(1e14 < row["predicted_flops_per_second_per_gpu"] < 1e15 for row in comparison)
    assert found["accuracy_by_degree"]
    assert found["training_time_comparison"]


@pytest.fixture(scope="module")
def comparison(quickstart: Quickstart) -> dict[str, Any]:
    """Every published step with its estimates, as `validate --json` gives them."""
    code, out, err = call("validate", "--json", "--db", quickstart.database)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.long
def test_every_published_step_has_an_estimate_from_first_principles(
    comparison: dict[str, Any],
) -> None:
    rows = [r for r in comparison["megatron_comparison"] if r["estimator"] == "training_step"]
    counts = dict.fromkeys(PUBLISHED_ROWS, 0)
    for row in rows:
        counts[row["reference"]] += 1
    assert counts == PUBLISHED_ROWS
    keys = {(row["reference"], row["published_row"]) for row in rows}
    assert len(keys) == len(rows)


@pytest.mark.long
def test_the_parts_of_a_compared_step_add_up_to_it(comparison: dict[str, Any]) -> None:
    parts = (
        *("compute_seconds", "memory_seconds", "tensor_comm_seconds", "pipeline_comm_seconds"),
        *("bubble_seconds", "data_comm_seconds"),
    )
    for row in comparison["megatron_comparison"]:
        if row["estimator"] == "training_step":
            assert sum(row[part] for part in parts) == pytest.approx(row["step_seconds"], rel=1e-9)


@pytest.mark.long
def test_choices_left_open_are_told_with_their_range(comparison: dict[str, Any]) -> None:
    rows = comparison["megatron_comparison"]
    open_ones = [row for row in rows if row["num_choices"] > 1]
    assert {row["reference"] for row in open_ones} == {
        *("published_megatron_h100_scaling", "published_megatron_training_time"),
        "published_training_stage",
    }
    for row in open_ones:
        assert (row["microbatch_size"], row["virtual_pipeline"]) == (1, 1)
        if row["lowest_step_seconds"] is not None:
            assert row["lowest_step_seconds"] <= row["highest_step_seconds"]


@pytest.mark.long
def test_another_constant_or_rate_takes_no_part(
    warehouse: Command, swept: Path, comparison: dict[str, Any], tmp_path: Path
) -> None:
    study = tmp_path / "other.toml"
    study.write_text(
        'name = "other"\nestimator = "training_step"\n[space]\nmodel = "megatron_1.7B"\n'
        'accelerator = "A100 SXM 80GB"\nframework = "megatron_lm_2021"\nattention = "unfused"\n'
        'activation_recompute = "full"\nnum_gpus = 32\nglobal_batch_size = 512\n'
        "tensor_parallel = 1\npipeline_parallel = 1\nmicrobatch_size = 16\nzero_stage = 0\n"
        "uses_sequence_parallel = false\n[system]\ngemm_efficiency = [0.6, 0.9]\n",
        encoding="utf-8",
    )
    code, _, err = warehouse("sweep", study, "--db", swept)
    assert (code, "2 rows" in err) == (0, True), err
    code, out, _ = warehouse("validate", "--json", "--db", swept)
    assert code == 0
    key = ("reference", "published_row", "estimator", "variant", "step_seconds")
    assert {tuple(row[name] for name in key) for row in json.loads(out)["megatron_comparison"]} == {
        tuple(row[name] for name in key) for row in comparison["megatron_comparison"]
    }


@pytest.mark.long
def test_whole_runs_at_published_rates_agree_within_rounding_and_predict_nothing(
    warehouse: Command, tmp_path: Path
) -> None:
    database = tmp_path / "w.duckdb"
    assert warehouse("sweep", "megatron_flops_published", "--db", database)[0] == 0
    code, out, _ = warehouse("validate", "--json", "--db", database)
    assert code == 0
    found = json.loads(out)
    # table 2 of arXiv 2104.04473
    runs = found["training_time_at_published_rate"]
    assert len(runs) == 12
    assert all(row["is_within_rounding"] for row in runs)
    # all but 4 steps with selective recomputation, 3 of Nemotron-4 and 2 of Llama 3
    rows = found["megatron_comparison"]
    assert len({(row["reference"], row["published_row"]) for row in rows}) == len(rows) == 39
    # at the peak rate: no step is measured faster than its lower bound
    rates = {round(row["predicted_flops_per_second_per_gpu"] / 1e11) for row in rows}
    assert rates == {3120, 9895}
    assert all(row["step_seconds"] < row["published_step_seconds"] for row in rows)
