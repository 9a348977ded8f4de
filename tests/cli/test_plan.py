"""`warehouse plan`: the best layouts of a run, its time, dollars, energy, and its limits."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import registry
from tests.cli.planning import ACCELERATOR, MODEL, PUE, QUESTION, TOKENS
from tests.shared import Command
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.one import show_configuration
from warehouse.evaluate.space import cells_of_problem, evaluated
from warehouse.options import PlanOptions
from warehouse.plan.run import first_sweep

SHELL = Path(sys.executable).parent / "duckdb"
END = "-- end of an answer"

# of the reference tables: the price of the last year
USD_PER_GPU_HOUR = 4.5
DEVICE_BYTES = 85_520_809_984
"""Memory of an H100 of 80 GB, as drivers show it."""


# ---- a number of GPUs ----


def test_the_best_layout_is_the_fastest_that_fits_of_the_whole_space(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    _, found, _ = planned
    estimator = registry.get("training_step")
    relation = estimator.relations[0]
    given = {"model": MODEL, "accelerator": ACCELERATOR, "num_gpus": "8", "global_batch_size": "64"}
    shown = show_configuration(estimator, relation, given, frozenset(), packaged_catalog())
    cells = cells_of_problem(estimator, relation, shown.problem, frozenset())
    names = ["step_seconds", "fits_memory", "memory_bytes"]
    space = evaluated(estimator, relation, cells, names, packaged_catalog()).columns
    fastest = np.where(space["fits_memory"], space["step_seconds"], math.inf).min()
    best = found["layouts"][0]
    assert best["step_seconds"] == pytest.approx(fastest, rel=1e-12)
    assert found["problem_id"] == cells[0].problem.id
    assert [line["step_seconds"] for line in found["layouts"]] == sorted(
        line["step_seconds"] for line in found["layouts"]
    )
    names = [*relation.keys, "activation_recompute"]
    keys = [tuple(line[name] for name in names) for line in found["layouts"]]
    assert len(set(keys)) == len(keys)


def test_the_step_is_that_of_the_same_layout_by_itself(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    best = planned[1]["layouts"][0]
    estimator = registry.get("training_step")
    relation = estimator.relations[0]
    given = {"model": MODEL, "accelerator": ACCELERATOR, "global_batch_size": "64"}
    given |= {name: str(best[name]).lower() for name in relation.keys}
    given["activation_recompute"] = best["activation_recompute"]
    shown = show_configuration(estimator, relation, given, frozenset(), packaged_catalog())
    assert shown.results["step_seconds"] == pytest.approx(best["step_seconds"], rel=1e-12)
    memory = shown.results["memory_bytes"]
    assert isinstance(memory, float)
    assert best["headroom_bytes"] == pytest.approx(DEVICE_BYTES - memory)


def test_days_dollars_energy_and_carbon_follow_from_the_step(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    _, found, _ = planned
    step = found["layouts"][0]["step_seconds"]
    # 64 sequences of 2,048 tokens: 131,072 a step; 2e10 take 152,588 steps, the last not full
    seconds = 152_588 * step
    hours = 8 * seconds / 3600
    assert found["training_seconds"] == pytest.approx(seconds)
    assert found["gpu_hours"] == pytest.approx(hours)
    [own] = [line for line in found["counts"] if line["num_gpus"] == 8]
    dollars = {line["basis"]: line["cost_usd"] for line in found["costs"]}
    assert dollars["on_demand"] == pytest.approx(hours * USD_PER_GPU_HOUR)
    assert found["cost_usd"] == pytest.approx(dollars["on_demand"])
    assert {"owned", "on_demand", "one_year", "three_year"} == set(dollars)
    # a board between idle and its limit, and 230 W of the host
    watts = found["energies"][0]["watts_per_gpu"]
    assert 126 + 230 < watts <= 700 + 230
    assert found["energies"][0]["power_basis"] == "step"
    kwh = hours * watts / 1000 * PUE
    assert found["energy_kwh"] == pytest.approx(kwh)
    assert found["power_watts"] == pytest.approx(8 * watts * PUE)
    assert own["energy_kwh"] == pytest.approx(kwh)
    assert own["power_watts"] == pytest.approx(found["power_watts"])
    carbon = {line["grid"]: line["kg_co2e"] for line in found["energies"]}
    assert carbon["France (BLOOM)"] == pytest.approx(kwh * 0.057)


@pytest.mark.long
def test_terms_that_are_given_take_the_place_of_the_published_ones(
    plan: Callable[..., tuple[Any, str]], planned: tuple[Path, dict[str, Any], str]
) -> None:
    options = ("--price", 2, "--watts", 1000, "--pue", 1.5, "--goodput", 0.5)
    found, _ = plan("--gpus", 8, *options, "--carbon", 0.1, "--electricity-price", 0.05)
    hours = 2 * planned[1]["gpu_hours"]
    assert found["gpu_hours"] == pytest.approx(hours)
    assert [line["basis"] for line in found["costs"]] == ["given"]
    assert found["cost_usd"] == pytest.approx(2 * hours)
    [energy] = found["energies"]
    assert energy["energy_kwh"] == pytest.approx(1.5 * hours)
    assert energy["electricity_usd"] == pytest.approx(0.05 * 1.5 * hours)
    assert energy["kg_co2e"] == pytest.approx(0.1 * 1.5 * hours)


def test_rates_may_be_given_by_name(planned: tuple[Path, dict[str, Any], str]) -> None:
    named: dict[str, Any] = {"carbon": ["France (BLOOM)"], "goodput": "Llama 3 405B"}
    options = PlanOptions([TOKENS], MODEL, [ACCELERATOR], num_gpus=[8], **named)
    run, _ = first_sweep(options, planned[0])
    assert [(term.name, term.value) for term in run.terms.carbons] == [("France (BLOOM)", 0.057)]
    assert run.goodput == 0.9


def test_a_count_that_cannot_be_faster_is_not_tried(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    # seven GPUs at the rate of the best layout on eight would take 8/7 of its time
    _, found, _ = planned
    [own] = found["counts"]
    assert own["num_gpus"] == found["num_gpus"] == 8
    assert own["training_seconds"] == found["training_seconds"] == found["steady_seconds"]


@pytest.mark.long
@pytest.mark.usefixtures("same_answers")
def test_stored_cells_are_not_swept_again(
    planned: tuple[Path, dict[str, Any], str], warehouse: Command
) -> None:
    path, first, said = planned
    swept = re.findall(r"; ([\d,]+) rows of (\d+) cells? to evaluate and store", said)
    assert first["swept"] == {
        "cells": sum(int(cells) for _, cells in swept),
        "rows": sum(int(rows.replace(",", "")) for rows, _ in swept),
    }
    before = path.stat()
    code, out, err = warehouse("plan", *QUESTION, "--gpus", 8, "--json", "--db", path)
    assert code == 0, err
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    again = json.loads(out)
    assert again["swept"] == {"cells": 0, "rows": 0}
    assert {**again, "swept": 0} == {**first, "swept": 0}
    # asked for itself, as an answer that another test has read says no more
    code, out, _ = warehouse("plan", *QUESTION, "--gpus", 8, "--dry-run", "--db", path)
    assert "all of them are stored already" in out


@pytest.mark.long
def test_a_dry_run_writes_nothing(warehouse: Command, tmp_path: Path) -> None:
    path = tmp_path / "none.duckdb"
    code, out, err = warehouse("plan", *QUESTION, "--gpus", 8, "--dry-run", "--db", path)
    assert code == 0
    assert "assumes BF16, batch 64, " in err
    first, *others = out.splitlines()
    assert first.startswith("1. sweep 8 GPUs: ")
    assert first.endswith(" rows of 3 cells to evaluate and store")
    assert others == [
        "2. sweep smaller counts, from the largest down, until none can be faster",
        "3. read the best 3 layouts on the best count, with cost and error",
    ]
    assert not path.exists()


def test_the_parts_of_the_step_add_up_and_the_largest_is_named(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    from warehouse.show.units import STEP_PARTS

    _, found, _ = planned
    best = found["layouts"][0]
    assert math.fsum(best[name] for name in STEP_PARTS) == pytest.approx(best["step_seconds"])
    assert best[found["limited_by"]] == max(best[name] for name in STEP_PARTS)


@pytest.mark.long
def test_every_query_runs_in_the_shell_and_gives_the_figures(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    path, found, _ = planned
    queries = found["queries"]
    done = subprocess.run(
        [SHELL, "-readonly", "-json", "-bail", path],
        input="".join(f"{query};\n.print {END}\n" for query in queries.values()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *printed, rest = done.stdout.split(f"{END}\n")
    assert rest == ""
    answers = dict(zip(queries, map(json.loads, printed), strict=True))
    rows = answers["layouts"]
    assert rows[0]["step_seconds"] == pytest.approx(found["layouts"][0]["step_seconds"])
    assert rows[0]["gpu_hours"] == pytest.approx(found["gpu_hours"])
    rows = [row for row in answers["counts"] if row["num_gpus"] == found["num_gpus"]]
    assert rows[0]["cost_usd"] == pytest.approx(found["cost_usd"])
    assert rows[0]["power_watts"] == pytest.approx(found["power_watts"])


def test_the_interval_holds_the_answer_and_the_extreme_one_is_wider(
    planned: tuple[Path, dict[str, Any], str],
) -> None:
    _, found, _ = planned
    low, high = found["likely_training_seconds"]
    lowest, highest = found["extreme_training_seconds"]
    assert lowest < low < found["training_seconds"] < high < highest
    for line in (*found["layouts"], found["other_kind"]):
        assert line["low_step_seconds"] < line["step_seconds"] < line["high_step_seconds"]
    best, steps = (
        found["layouts"][0],
        found["training_seconds"] / found["layouts"][0]["step_seconds"],
    )
    ends = [steps * best[f"{end}_step_seconds"] for end in ("low", "high")]
    assert ends == pytest.approx([low, high], rel=1e-6)


@pytest.mark.long
@pytest.mark.usefixtures("same_answers")
def test_the_report_has_every_section_and_the_queries_on_demand(
    warehouse: Command, planned: tuple[Path, dict[str, Any], str]
) -> None:
    arguments = ("plan", *QUESTION, "--gpus", 8, "--db", planned[0], "--details", "--show-sql")
    code, out, err = warehouse(*arguments)
    assert code == 0
    for heading in (
        *("The best 3 layouts on 8 GPUs", "Cost of the best layout", "Energy", "Parts of the step"),
        *("Other GPU counts", "Uncertainty"),
    ):
        assert heading in out
    assert "warehouse explain model=gpt3_1.3B" in out
    assert "-- counts" in out
    assert "from configuration" in out
    # the question once, where the answer is
    assert out.count("batch 64,") == 1
    assert "batch 64" not in err
    assert "usual for its size" not in out


# ---- the batch ----


def test_the_batch_is_that_of_the_rule_unless_it_is_given() -> None:
    from warehouse.plan.question import PlanRequest, resolve

    # 80 layers of 2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 + 2 x 8192: 68.45e9 parameters;
    # 6 x 68.45e9 x 15e12 = 6.16e24 FLOPs; (0.616)^(1/6) x 2048^2 / 8192 = 472 sequences
    asked = PlanRequest("training_step", "llama3_70B", "H100", 15e12, num_gpus=8)
    run = resolve(asked)
    assert run.parameters == 80 * 855_654_400
    assert (run.batch, run.is_default_batch) == (512, True)
    sparse = resolve(PlanRequest("training_step", "mixtral_8x7B", "H100", 1e12, num_gpus=8))
    # 2 of 8 experts of 3 x 4096 x 14336 in each of 32 layers
    assert sparse.parameters - sparse.active_parameters == 32 * 6 * 3 * 4096 * 14336
