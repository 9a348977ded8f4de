"""`warehouse validate`: the checks of the stored rows and the comparison with measurements."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import polars as pl
import pytest

from estimators import registry
from estimators.contract import variant_name
from tests.shared import Command, Quickstart, call
from warehouse.calibrate.published import published_steps
from warehouse.cli.comparison import comparison as sections
from warehouse.cli.validate import COMPARISON
from warehouse.database.connection import open_for_read
from warehouse.database.sql_text import keep_view
from warehouse.database.tables import MEASUREMENTS
from warehouse.plan.evaluated_steps import evaluated_steps
from warehouse.show.page import Section

PUBLISHED_ROWS = {
    "published_megatron_scaling": 10,
    "published_megatron_recompute": 8,
    "published_megatron_training_time": 12,
    "published_megatron_h100_scaling": 9,
    "published_training_stage": 9,
}


@pytest.mark.long
def test_a_sound_database_passes_every_check_and_shows_the_comparison(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, out, err = warehouse("validate", "--details", "--db", quickstart.database)
    assert code == 0
    checks = err.splitlines()
    assert len(checks) >= 5
    assert all(": ok (" in line for line in checks)
    assert "mean |error| %" in out
    for reference in PUBLISHED_ROWS:
        assert f"Published and predicted steps of {reference}\n" in out
    assert "Error by degree" in out
    assert "Whole runs" in out
    [_, _, table] = out.partition("steps of published_megatron_scaling\n")
    rows = table.split("\n\n")[0].splitlines()
    # the peak rate, the estimator with constants, and the roofline in both variants
    assert sum(line.startswith("530B ") for line in rows) == 4
    assert f"Published and predicted steps of {MEASUREMENTS}\n" not in out
    assert "How far training_step is from measured steps, by group" in out
    by_group = out.partition("by group\n")[2].split("\n\n")[1].splitlines()
    assert max(map(len, by_group)) <= 100


@pytest.mark.long
def test_the_summary_has_twenty_lines_at_most(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse("validate", "--db", quickstart.database)
    assert code == 0
    assert re.search(r"^\d+ checks ok, 0 failed$", err, re.MULTILINE)
    assert "--details" in err
    assert len((err + out).splitlines()) <= 20
    assert re.search(r"^published steps +training_step ", out, re.MULTILINE)


@pytest.fixture(scope="module")
def damaged(
    quickstart: Quickstart, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and words on a copy of which rows that nobody published are damaged."""
    path = tmp_path_factory.mktemp("damaged") / "warehouse.duckdb"
    shutil.copyfile(quickstart.database, path)
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "update roofline set step_seconds = -1 where rowid in"
            " (select rowid from roofline order by rowid limit 30)"
        )
        [[problem]] = connection.execute(
            "select max(problem_id) from problem where model = 'gpt3_1T'"
        ).fetchall()
        connection.execute("delete from problem where problem_id = ?", [problem])
    code, out, err = call("validate", "--json", "--db", path)
    return code, json.loads(out), err


@pytest.mark.long
def test_checks_that_find_rows_exit_4_and_show_them_and_json_names_them(
    damaged: tuple[int, dict[str, Any], str],
) -> None:
    code, found, err = damaged
    assert code == 4
    assert "times_are_positive: 30 rows" in err
    assert "... and 10 more rows" in err
    assert "times_are_positive" in err.partition("error: ")[2]
    assert {"cells_have_problems", "times_are_positive"} <= set(found["failed_checks"])
    # the comparison is shown all the same
    assert {row["variant"] for row in found["published_accuracy"]} == {"published", "corrected"}
    comparison = [
        row
        for row in found["published_comparison"]
        if row["reference"] == "published_megatron_scaling"
    ]
    assert len(comparison) == 40
    assert all(1e14 < row["predicted_flops_per_second_per_gpu"] < 1e15 for row in comparison)
    assert "tensor_parallel" in {row["grouped_by"] for row in found["published_accuracy"]}
    assert found["training_time_comparison"]


@pytest.fixture
def comparison(damaged: tuple[int, dict[str, Any], str]) -> dict[str, Any]:
    """Every published step with its estimates, as `validate --json` gives them.

    The damage is to other rows.
    """
    return damaged[1]


@pytest.mark.long
def test_every_published_step_has_an_estimate_from_first_principles(
    comparison: dict[str, Any],
) -> None:
    rows = [
        row
        for row in comparison["published_comparison"]
        if row["estimator"] == "training_step" and row["reference"] != MEASUREMENTS
    ]
    counts = dict.fromkeys(PUBLISHED_ROWS, 0)
    for row in rows:
        counts[row["reference"]] += 1
    assert counts == PUBLISHED_ROWS
    keys = {(row["reference"], row["published_row"]) for row in rows}
    assert len(keys) == len(rows)


@pytest.mark.long
def test_every_published_measurement_has_an_estimate_or_is_refused(
    comparison: dict[str, Any],
) -> None:
    published = published_steps().filter(pl.col("reference") == MEASUREMENTS)
    groups = {
        group["published_group"]: group
        for group in comparison["published_accuracy"]
        if group["reference"] == MEASUREMENTS and group["grouped_by"] == "group"
    }
    assert set(groups) == set(published["published_group"])
    rows = [row for row in comparison["published_comparison"] if row["reference"] == MEASUREMENTS]
    assert len({row["published_row"] for row in rows}) == len(rows)
    refused = sum(group["num_refused"] for group in groups.values())
    assert len(rows) + refused == published.height
    assert {row["num_choices"] for row in rows} == {1}
    timed = [row for row in rows if row["published_step_seconds"] is not None]
    assert len(timed) == sum(group["num_timed"] for group in groups.values())


@pytest.mark.long
def test_the_errors_of_a_group_are_those_of_its_rows(comparison: dict[str, Any]) -> None:
    [group] = [
        group
        for group in comparison["published_accuracy"]
        if (group["estimator"], group["published_group"]) == ("training_step", "simumax")
    ]
    rows = [r for r in comparison["published_comparison"] if r["published_group"] == "simumax"]
    times = [row["step_seconds"] / row["published_step_seconds"] - 1 for row in rows]
    # SimuMax reports the memory of tensors
    assert {row["measured_memory_kind"] for row in rows} == {"allocated"}
    memory = [row["compared_memory_bytes"] / row["published_memory_bytes"] - 1 for row in rows]
    assert len(rows) == group["num_published"] == group["num_timed"] == group["num_memory_rows"]
    assert group["time_bias"] == pytest.approx(sum(times) / len(rows), rel=1e-9)
    assert group["time_median_absolute_relative_error"] == pytest.approx(
        statistics.median(map(abs, times)), rel=1e-9
    )
    assert group["memory_bias"] == pytest.approx(sum(memory) / len(rows), rel=1e-9)


@pytest.mark.long
def test_no_other_constant_fits_a_group_better(comparison: dict[str, Any]) -> None:
    groups = {
        group["published_group"]: group
        for group in comparison["published_accuracy"]
        if group["estimator"] == "training_step" and group["reference"] == MEASUREMENTS
    }
    by_group: dict[str, list[float]] = {}
    for row in comparison["published_comparison"]:
        if row["reference"] == MEASUREMENTS and row["published_mfu"] is not None:
            by_group.setdefault(row["published_group"], []).append(row["published_mfu"])
    assert len(by_group) > 10
    for name, utilizations in by_group.items():
        # the least mean of |u / c - 1| is at one of the u: between two of them it has no minimum
        least = min(
            statistics.fmean(abs(u / constant - 1) for u in utilizations)
            for constant in utilizations
        )
        found = groups[name]["constant_time_mean_absolute_relative_error"]
        assert found == pytest.approx(least, rel=1e-9, abs=1e-12)


@pytest.mark.long
def test_rows_of_published_measurements_are_listed_on_request(
    warehouse: Command,
    quickstart: Quickstart,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_for_read(quickstart.database) as connection:
        keep_view(connection, COMPARISON)
        [listed] = [
            section
            for section in sections(connection, every_row=True)
            if section.heading == f"Published and predicted steps of {MEASUREMENTS}"
        ]
    names = [row[listed.columns.index("published_row")] for row in listed.rows]
    assert "mlperf GPT-3 512 GPUs result_0" in names
    asked = []

    def noted(_: object, *, every_row: bool) -> list[Section]:
        asked.append(every_row)
        return [Section("nothing")]

    monkeypatch.setattr("warehouse.cli.validate.comparison", noted)
    monkeypatch.setattr("warehouse.cli.validate.run_checks", lambda *_, **__: [])
    for option in (["--details"], ["--measurements"]):
        assert warehouse("validate", *option, "--db", empty_warehouse)[0] == 0
    assert asked == [False, True]


@pytest.mark.long
def test_the_parts_of_a_compared_step_add_up_to_it(comparison: dict[str, Any]) -> None:
    parts = (
        *("compute_seconds", "memory_seconds", "tensor_comm_seconds", "pipeline_comm_seconds"),
        *("bubble_seconds", "data_comm_seconds"),
    )
    for row in comparison["published_comparison"]:
        if row["estimator"] == "training_step":
            assert sum(row[part] for part in parts) == pytest.approx(row["step_seconds"], rel=1e-9)


@pytest.mark.long
def test_choices_left_open_are_reported_with_their_range(comparison: dict[str, Any]) -> None:
    rows = comparison["published_comparison"]
    open_ones = [row for row in rows if row["num_choices"] > 1]
    assert {row["reference"] for row in open_ones} == {
        *("published_megatron_h100_scaling", "published_megatron_training_time"),
        "published_training_stage",
    }
    for row in open_ones:
        # the interleaving of Llama 3 is known, its microbatch is not
        chunks = 8 if row["published_row"].startswith("Llama 3 405B") else 1
        assert (row["microbatch_size"], row["virtual_pipeline"]) == (1, chunks)
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
    key = ("reference", "published_row", "estimator", "variant", "step_seconds")
    with duckdb.connect(str(swept), read_only=True) as connection:
        query = f"select {', '.join(key)} from published_comparison"
        compared = connection.execute(query).fetchall()
    assert set(compared) == {
        tuple(row[name] for name in key) for row in comparison["published_comparison"]
    }


@pytest.mark.long
def test_whole_runs_at_published_rates_agree_within_rounding_and_predict_nothing(
    comparison: dict[str, Any],
) -> None:
    # table 2 of arXiv 2104.04473
    runs = comparison["training_time_at_published_rate"]
    assert len(runs) == 12
    assert all(row["is_within_rounding"] for row in runs)
    # all but 4 steps with selective recomputation, 3 of Nemotron-4 and 2 of Llama 3
    rows = [
        row for row in comparison["published_comparison"] if row["estimator"] == "megatron_flops"
    ]
    assert len({(row["reference"], row["published_row"]) for row in rows}) == len(rows) == 39
    # at the peak rate: no step is measured faster than its lower bound
    rates = {round(row["predicted_flops_per_second_per_gpu"] / 1e11) for row in rows}
    assert rates == {3120, 9895}
    assert all(row["step_seconds"] < row["published_step_seconds"] for row in rows)


# ---- intervals ----


@pytest.mark.long
def test_the_share_inside_is_that_of_the_rows_within_their_intervals(
    comparison: dict[str, Any], quickstart: Quickstart
) -> None:
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        rows = connection.execute(
            "select reference, published_group, published_step_seconds, low_step_seconds, "
            "high_step_seconds from interval_comparison"
        ).fetchall()
    inside: dict[tuple[str, str], list[bool]] = {}
    for reference, group, published, low, high in rows:
        inside.setdefault((reference, group), []).append(low <= published <= high)
    found = {
        (group["reference"], group["published_group"]): group
        for group in comparison["interval_coverage"]
    }
    assert found.keys() == inside.keys()
    assert len(found) > 20
    for key, group in found.items():
        assert group["num_rows"] == len(inside[key])
        assert group["inside_fraction"] == pytest.approx(statistics.fmean(inside[key]))
        counts = [int(number) for number in group["interval_places"].split()]
        assert sum(counts) == group["num_rows"]
        assert sum(counts[1:-1]) == sum(inside[key])


@pytest.mark.long
def test_a_plan_counts_the_steps_in_their_intervals_as_the_view_does(
    quickstart: Quickstart,
) -> None:
    estimator = registry.get(registry.default("plan"))
    run: Any = SimpleNamespace(estimator=estimator, mends=frozenset(estimator.mends))
    found = Counter(
        (step["reference"], step["published_group"], step["is_inside_interval"])
        for step in evaluated_steps(run)
    )
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        rows = connection.execute(
            "select reference, published_group, is_inside_interval, count(*) "
            "from interval_comparison where estimator = ? and variant = ? group by all",
            [estimator.name, variant_name(run.mends, estimator.mends)],
        ).fetchall()
        # without the choices that nobody published, five intervals fewer have their steps
        widened = connection.execute(
            "select count(*) from published_comparison "
            "where estimator = ? and num_choices > 1 and is_inside_interval",
            [estimator.name],
        ).fetchone()
    assert found == {(*key, inside): number for *key, inside, number in rows}
    assert widened is not None
    assert widened[0] >= 5


@pytest.mark.long
def test_every_timed_measurement_that_is_estimated_has_an_interval(
    comparison: dict[str, Any],
) -> None:
    timed = [
        row
        for row in comparison["published_comparison"]
        if row["estimator"] == "training_step" and row["published_step_seconds"] is not None
    ]
    assert sum(group["num_rows"] for group in comparison["interval_coverage"]) == len(timed)
