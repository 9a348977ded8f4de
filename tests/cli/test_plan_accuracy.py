"""`warehouse plan`: memory that is left, the uncertainty of the answer, and other layouts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators import registry
from estimators.contract import PUBLISHED
from estimators.interval import fit_probability, memory_that_fits
from tests.cli.planning import errors_of
from tests.shared import Command, Document, Shared, call
from warehouse.calibrate.published import published_steps
from warehouse.cli.common import put_page
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_read, rows_as_dicts
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows
from warehouse.evaluate.one import show_configuration
from warehouse.evaluate.space import cells_of_problem, evaluated
from warehouse.plan import queries
from warehouse.plan.accuracy import (
    fit_probability_of,
    least_fit_probability,
    memory_factor,
    own_memory_bias,
)
from warehouse.plan.candidates import QueryCache, slowest_needed
from warehouse.plan.errors import Errors, known_errors
from warehouse.plan.page import plan_page
from warehouse.plan.published_runs import published_in_words, published_lines
from warehouse.plan.question import PlanRequest, RunLimits, resolve
from warehouse.plan.words import own_runs_in_words

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("same_answers")]

MODEL = "gpt3_1.3B"
RUN = ("--model", MODEL, "--accelerator", "H100 SXM 80GB", "--tokens", 2e10, "--batch", 8)
GPUS = ("--gpus", 4)
TORCHTITAN = ("published torchtitan",)
KIND = (
    *("data_parallel", "tensor_parallel", "context_parallel", "expert_parallel"),
    *("pipeline_parallel", "activation_recompute", "zero_stage"),
)


@pytest.fixture(scope="module")
def planned(shared: Shared, empty_warehouse: Path) -> tuple[Path, dict[str, Any]]:
    """A database that has a plan for 4 GPUs, and the plan."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        code, out, err = call("plan", *RUN, *GPUS, "--json", "--db", path)
        assert code == 0, err
        (place / "plan.json").write_text(out, encoding="utf-8")
        code, out, err = call("plan", *RUN, *GPUS, "--details", "--db", path)
        assert code == 0, err
        (place / "plan.txt").write_text(out, encoding="utf-8")

    place = shared("planned_sure", make)
    return place / "warehouse.duckdb", json.loads((place / "plan.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def said(planned: tuple[Path, dict[str, Any]]) -> str:
    """The plan as people read it."""
    return (planned[0].parent / "plan.txt").read_text("utf-8")


@pytest.fixture
def database(planned: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of that database, to be written to."""
    path = tmp_path / "copy.duckdb"
    shutil.copyfile(planned[0], path)
    return path


@pytest.fixture
def plan(warehouse: Command, database: Path) -> Document:
    """Ask for a plan; return its document."""

    def plan(*options: object) -> Any:
        code, out, err = warehouse("plan", *RUN, *options, "--json", "--db", database)
        assert code == 0, err
        return json.loads(out)

    return plan


@pytest.fixture
def report(warehouse: Command, database: Path) -> Callable[..., str]:
    """Ask for a plan; return what people read."""

    def report(*options: object) -> str:
        code, out, err = warehouse("plan", *RUN, *options, "--details", "--db", database)
        assert code == 0, err
        return out

    return report


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    """Every layout on 4 GPUs, evaluated without a database."""
    estimator = registry.get("training_step")
    relation = estimator.relations[0]
    given = {"model": MODEL, "accelerator": "H100 SXM 80GB", "num_gpus": "4"}
    given["global_batch_size"] = "8"
    shown = show_configuration(estimator, relation, given, frozenset(), packaged_catalog())
    cells = cells_of_problem(estimator, relation, shown.problem, frozenset())
    names = (*relation.keys, "step_seconds", "memory_bytes")
    found = evaluated(estimator, relation, cells, names, packaged_catalog())
    ends = [*(begin for _, begin in found.cells), len(found)]
    recompute = [cell.choices["activation_recompute"] for cell, _ in found.cells]
    return {**found.columns, "activation_recompute": np.repeat(np.array(recompute), np.diff(ends))}


def fastest_within(space: dict[str, Any], memory_bytes: float) -> float:
    return float(space["step_seconds"][space["memory_bytes"] <= memory_bytes].min())


# ---- memory ----


def test_layouts_that_leave_less_than_the_headroom_are_no_candidates(
    plan: Document, planned: tuple[Path, dict[str, Any]], space: dict[str, Any]
) -> None:
    _, free = planned
    spare_gb = (free["headroom_bytes"] + 5e9) / 1e9
    found = plan(*GPUS, "--headroom-gb", spare_gb)
    assert found["question"]["headroom_bytes"] == pytest.approx(spare_gb * 1e9)
    best = found["layouts"][0]
    assert best["step_seconds"] == fastest_within(space, best["hbm_bytes"] - spare_gb * 1e9)
    assert best["step_seconds"] > free["layouts"][0]["step_seconds"]
    assert all(line["headroom_bytes"] >= spare_gb * 1e9 for line in found["layouts"])
    # its dollars are those of its own hours, not those of the fastest layout that fits
    assert found["cost_usd"] == pytest.approx(found["gpu_hours"] * 4.5)
    assert {line["basis"]: line["cost_usd"] for line in found["costs"]}["on_demand"] == (
        pytest.approx(found["cost_usd"])
    )


def test_a_headroom_that_nothing_leaves_is_refused_with_what_is_left(
    warehouse: Command, database: Path
) -> None:
    code, out, err = warehouse("plan", *RUN, *GPUS, "--headroom-gb", 79.9, "--db", database)
    assert (code, out) == (3, "")
    assert "of which --headroom-gb 79.9 must stay free" in err
    assert "a smaller --headroom-gb" in err
    code, _, err = warehouse("plan", *RUN, *GPUS, "--headroom-gb", -1, "--db", database)
    assert code == 3
    assert "`--headroom-gb` -1 must be at least 0" in err


def test_at_the_memory_cliff_the_best_layout_with_room_is_named(
    plan: Document,
    report: Callable[..., str],
    planned: tuple[Path, dict[str, Any]],
    space: dict[str, Any],
) -> None:
    best = planned[1]["layouts"][0]
    # memory of which the best leaves 3 %: it is likely to fit, but in less than nine of ten cases
    capacity = round(best["memory_bytes"] / 0.97)
    found = plan(*GPUS, f"hbm_bytes={capacity}")
    safe = memory_that_fits(0.9, capacity, packaged_catalog())
    assert fit_probability(np.array([safe]), capacity, packaged_catalog())[0] == pytest.approx(
        0.9, abs=1e-6
    )
    roomy = fastest_within(space, safe)
    assert found["fit_probability"] >= 0.9
    assert found["layouts"][0]["step_seconds"] == roomy > best["step_seconds"]
    riskier = found["alternatives"][0]
    assert riskier["name"] == "riskier"
    assert riskier["step_seconds"] == best["step_seconds"]
    faster = 100 * (best["step_seconds"] / roomy - 1)
    [said] = [e for e in report(*GPUS, f"hbm_bytes={capacity}").splitlines() if "  riskier " in e]
    assert f" ({faster:+.1f} %), {riskier['memory_bytes'] / 1e9:.1f} GB, " in said


def test_a_layout_with_room_enough_needs_no_other(
    planned: tuple[Path, dict[str, Any]], said: str
) -> None:
    _, found = planned
    assert found["fit_probability"] > 0.9
    assert "riskier" not in [line["name"] for line in found["alternatives"]]
    assert "  riskier " not in said


def test_the_errors_on_published_memory_of_the_accelerator_are_reported(
    planned: tuple[Path, dict[str, Any]], said: str
) -> None:
    found = {line["reference"]: line for line in planned[1]["memory_errors"]}
    # the tables of H100s that publish memory; SimuMax's are of B200s
    assert set(found) == {"published playbook core", "published playbook rest", *TORCHTITAN}
    steps = published_steps().filter(pl.col("published_group") == "torchtitan")
    weighed = steps.filter(pl.col("published_memory_bytes").is_not_null())
    estimator = registry.get("training_step")
    resolved = resolve_rows(
        estimator, estimator.relations[0], weighed, packaged_catalog(), PUBLISHED
    )
    # torchtitan reports what the allocator holds
    reserved = evaluate_rows(resolved, ["reserved_bytes"])["reserved_bytes"].tolist()
    errors = [
        estimate / published - 1
        for estimate, published in zip(reserved, weighed["published_memory_bytes"], strict=True)
    ]
    [name] = TORCHTITAN
    assert found[name]["num_rows"] == len(errors) == 4
    assert found[name]["memory_bias"] == pytest.approx(sum(errors) / 4, rel=1e-9)
    assert "memory on 4 runs of published torchtitan (+: too large)" in said


@pytest.fixture(scope="module")
def measured(shared: Shared, planned: tuple[Path, dict[str, Any]]) -> Path:
    """That database with three runs, whose estimates are off by known shares."""
    pairs = (f"model={MODEL}", "accelerator=H100", "num_gpus=8", "global_batch_size=64")
    head = "run,model,accelerator,num_gpus,global_batch_size,tensor_parallel"
    lines = [f"{head},step_seconds,memory_bytes"]
    # the estimate of the time is a quarter too long, a fifth too short, right; that of the memory
    # a quarter above the one, a tenth below the other; the third run has none
    shares = {1: (1.25, 1.25), 2: (0.8, 0.9), 4: (1, None)}

    def make(place: Path) -> None:
        for degree, (slower, larger) in shares.items():
            _, out, _ = call(
                "show",
                "--estimator",
                "training_step",
                *pairs,
                f"tensor_parallel={degree}",
                "--json",
            )
            found = json.loads(out)["results"]
            memory = "" if larger is None else repr(found["memory_bytes"] / larger)
            step = repr(found["step_seconds"] / slower)
            lines.append(f"r{degree},{MODEL},H100,8,64,{degree},{step},{memory}")
        (place / "ours.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        path = shutil.copyfile(planned[0], place / "warehouse.duckdb")
        code, _, err = call("measure", place / "ours.csv", "--db", path)
        assert code == 0, err

    return shared("planned_measured", make) / "warehouse.duckdb"


@pytest.fixture
def of_measured(warehouse: Command, measured: Path) -> tuple[dict[str, Any], str]:
    """The plan with those runs, and what people read."""
    asked = ("plan", *RUN, *GPUS, "--db", measured)
    document, report = (warehouse(*asked, form) for form in ("--json", "--details"))
    assert document[0] == report[0] == 0
    return json.loads(document[1]), report[1]


def test_measured_memory_shows_its_error(
    of_measured: tuple[dict[str, Any], str],
) -> None:
    found, report = of_measured
    [line] = [e for e in found["memory_errors"] if e["reference"] == "ours"]
    assert line["num_rows"] == 2
    assert line["memory_mean_absolute_relative_error"] == pytest.approx((0.25 + 0.1) / 2)
    assert line["memory_max_absolute_relative_error"] == pytest.approx(0.25)
    assert line["memory_bias"] == pytest.approx((0.25 - 0.1) / 2)
    assert (
        "memory on 2 runs of ours (+: too large): mean |error| 17.5 %, max 25.0 %, bias +7.5 %"
    ) in report
    assert "no published figure" not in report
    # the runs are on the plan's accelerator: its memory follows with their bias
    assert found["own_memory_bias"] == pytest.approx((0.25 - 0.1) / 2)
    memory = found["layouts"][0]["memory_bytes"] / 1e9
    assert f", {memory / 1.075:.1f} GB with the bias of your runs (+7.5 %); " in report


def own_errors(*own: tuple[int, float | None]) -> Errors:
    lines = [
        {"num_memory_rows": number, "memory_bias": bias, "why_not": ""} for number, bias in own
    ]
    other = {"num_memory_rows": 9, "memory_bias": 0.9, "why_not": "on MI300X, not H100"}
    return Errors(memory=[], own_runs=[*lines, other])


def test_own_runs_that_needed_more_memory_make_the_plan_more_careful() -> None:
    run = resolve(PlanRequest("training_step", MODEL, "H100", 1e12, num_gpus=8))
    layout = {"memory_bytes": 70e9, "hbm_bytes": 85e9}

    def careful(*own: tuple[int, float | None]) -> tuple[float | None, float, float]:
        errors = own_errors(*own)
        factor = memory_factor(run, errors)
        room = fit_probability_of(run, layout, factor)
        assert room is not None
        return own_memory_bias(errors), room, least_fit_probability(run, factor)

    none, room, least = careful((0, None))
    assert (none, least) == (None, 0.9)
    bias, less_room, more = careful((1, -0.25), (3, -0.05))
    assert bias == pytest.approx(-0.1)
    assert less_room < room
    # a layout of this stored chance is 90 % likely to fit with the bias of the runs: it has 0.9 of
    # the memory of one without, and the mean error of published rows, -2 %, does not count
    just = {"memory_bytes": 85e9 * memory_that_fits(more, 1.0, run.catalog), "hbm_bytes": 85e9}
    safe = 85e9 * memory_that_fits(0.9, 1.0, run.catalog)
    assert just["memory_bytes"] == pytest.approx(safe * 0.9 * np.exp(-0.02))
    factor = memory_factor(run, own_errors((1, -0.1)))
    assert fit_probability_of(run, just, factor) == pytest.approx(0.9)
    # runs that needed less change nothing
    assert careful((2, 0.3))[1:] == (room, least)


def test_own_runs_are_no_published_steps(
    planned: tuple[Path, dict[str, Any]],
    of_measured: tuple[dict[str, Any], str],
    measured: Path,
    database: Path,
    report: Callable[..., str],
) -> None:
    _, before = planned
    after, said = of_measured
    assert after["track_record"] == before["track_record"]
    [line] = after["own_runs"]
    assert (line["reference"], line["num_rows"], line["num_fitted_rows"]) == ("ours", 3, 0)
    assert (line["accelerator"], line["why_not"]) == ("H100 SXM 80GB", "")
    assert line["time_mean_absolute_relative_error"] == pytest.approx((0.25 + 0.2 + 0) / 3)
    words = f"your 3 steps of ours ({MODEL}): 15.0 % mean error"
    assert f"  basis    {words}; " in said
    # once a profile was fitted to one of them, the line says so
    shutil.copyfile(measured, database)
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "insert into calibration_row by name select 'default' as profile, 'ours.csv' as "
            "reference, measured_row as published_row, measured_step_seconds as "
            "published_step_seconds from measurement where measured_row = 'r1'"
        )
        connection.execute(
            "insert into calibration by name select 'default' as profile, 'ours.csv' as reference, "
            "'training_step' as estimator, 'x' as step_constant, 1.0 as fitted_constant_value"
        )
    fitted = f"{words}, with profile default, which was fitted to some of them"
    assert fitted in " ".join(report(*GPUS).split())


@pytest.mark.parametrize(
    ("accelerator", "given", "why_not"),
    [
        ("H100", {}, ""),
        ("MI300X", {}, "on H100 SXM 80GB, not MI300X"),
        ("H100", {"framework": "fsdp"}, "with megatron_core, not fsdp"),
    ],
)
def test_runs_of_another_machine_or_program_do_not_count(
    measured: Path, accelerator: str, given: dict[str, str], why_not: str
) -> None:
    request = PlanRequest("training_step", "llama3_8B", accelerator, 1e12, num_gpus=8, inputs=given)
    with open_for_read(measured) as connection:
        errors = known_errors(resolve(request), QueryCache(connection))
    [line] = errors.own_runs
    assert line["why_not"] == why_not
    assert errors.counted_runs == ([] if why_not else [line])
    answer: Any = SimpleNamespace(uncertainty=errors)
    [words] = own_runs_in_words(answer)
    counted = f"your 3 steps of ours ({MODEL}): 15.0 % mean error"
    assert words == (f"your 3 steps of ours do not count: {why_not}" if why_not else counted)
    # nor does their memory
    assert (own_memory_bias(errors) is None) == bool(why_not)


# ---- published runs ----


def test_a_published_run_says_why_it_differs_and_how_to_plan_it_alike() -> None:
    run = resolve(PlanRequest("training_step", "deepseek_v3", "H800", 14.8e12, num_gpus=2048))
    best = {"training_seconds": 50 * 86400.0, "step_seconds": 1.0, "mfu": 0.4}
    line = {
        "model": "DeepSeek-V3",
        "run_kind": "pre-training",
        "accelerator": "H800",
        "num_gpus": 2048,
        "dataset_tokens": 14.8e12,
        "published_precision": "fp8",
        "number_recipe": "blockwise",
        "global_batch_size": 15360,
        # two and a half times the hours of the plan: 125 days
        "planned_share": 0.4,
    }
    answer: Any = SimpleNamespace(run=run, best=best, num_gpus=2048, published_runs=[line])
    assert published_in_words(answer) == [
        "DeepSeek-V3 as published: 125.0 days on as many GPUs, lost time included (2.50 times the "
        "plan)"
    ]
    why, command = published_lines(answer)
    assert why == (
        "DeepSeek-V3 (pre-training): its hours include lost time, the plan none (goodput 1); it "
        f"used FP8 and a batch of 15,360, the plan assumes BF16 and {run.batch:,}"
    )
    assert command == (
        "plan it with the published settings: warehouse plan --model deepseek_v3 --accelerator "
        "'H800 SXM 80GB' --gpus 2048 --tokens 14.8T --batch 15360 precision=fp8 "
        "number_recipe=blockwise"
    )
    unknown = dict.fromkeys(("published_precision", "number_recipe", "global_batch_size"))
    answer.published_runs = [{**line, **unknown, "planned_share": 0.9}]
    [why] = published_lines(answer)
    assert why.endswith(
        "its number format and batch are not published; over its hours it reached 36 % of "
        "the peak, the plan 40 %"
    )
    answer.published_runs = [{**line, "accelerator": "A100-80GB"}]
    [words] = published_lines(answer)
    assert "other GPUs (A100-80GB) than the plan's" in words
    assert published_in_words(answer) == ["the published run was on A100-80GB"]


# ---- queries ----


def test_the_candidates_of_a_problem_are_read_once(planned: tuple[Path, dict[str, Any]]) -> None:
    run = resolve(PlanRequest("training_step", MODEL, "H100 SXM 80GB", 2e10, num_gpus=4, batch=8))
    with open_for_read(planned[0]) as connection:
        [[problem]] = connection.execute(
            "select problem_id from problem where num_gpus = 4 and global_batch_size = 8"
        ).fetchall()
        asked = [
            queries.best_layouts(run, problem, 5),
            queries.costs(run, problem),
            queries.energies(run, problem),
            queries.published_runs(run, problem),
        ]
        of_views = [rows_as_dicts(connection, query) for query in asked]
        ask = QueryCache(connection)
        before = [ask(query) for query in asked]
        assert before == of_views
        assert [len(rows) > 0 for rows in before] == [True, True, True, False]
        with ask.layouts_of(run, problem):
            connection.execute("pragma explain_output = 'optimized_only'")
            for query, rows in zip(asked, before, strict=True):
                assert rows_as_dicts(connection, query) == rows
                [[_, plan]] = connection.execute(f"explain {query}").fetchall()
                assert "main.training_step" not in plan
        assert rows_as_dicts(connection, asked[0]) == before[0]
        [[_, plan]] = connection.execute(f"explain {asked[0]}").fetchall()
        assert "main.training_step" in plan


@pytest.mark.parametrize(("headroom", "held"), [(70.5e9, {}), (0.0, {"tensor_parallel": 1})])
def test_few_candidates_give_the_answers_of_all(
    planned: tuple[Path, dict[str, Any]], headroom: float, held: dict[str, int]
) -> None:
    request = PlanRequest("training_step", MODEL, "H100 SXM 80GB", 2e10, num_gpus=4, batch=8)
    run = resolve(replace(request, headroom_bytes=headroom, held=held))
    with open_for_read(planned[0]) as connection:
        [[problem]] = connection.execute(
            "select problem_id from problem where num_gpus = 4 and global_batch_size = 8"
        ).fetchall()
        ask = QueryCache(connection)
        best = queries.best_layouts(run, problem, 3)
        other = queries.best_layouts(run, problem, 1, unlike=ask(best)[0])
        riskier = queries.best_layouts(run, problem, 1, is_any_fit=True)
        of_runs = [queries.counts(run, [problem], queries.GpuRates()), queries.costs(run, problem)]
        of_layouts = [best, other, riskier]
        counted = f"select count(*) from configuration_flops where problem_id = {problem}"
        for query in (*of_runs, *of_layouts):
            assert ask(query)
        everything = rows_as_dicts(connection, counted)
        with ask.fastest_of(run, [problem]):
            assert [ask.rows_now(query) for query in of_runs] == [*map(ask, of_runs)]
            slowest = slowest_needed(run, ask, problem, 3)
            assert (slowest is None) == bool(held)
        with ask.layouts_of(run, problem, slowest):
            assert [ask.rows_now(query) for query in of_layouts] == [*map(ask, of_layouts)]
            [few], [every] = rows_as_dicts(connection, counted)[0].values(), everything[0].values()
            assert few < every or held


# ---- errors on published steps ----


def test_errors_are_found_once(
    planned: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_CACHE", str(tmp_path / "cache"))
    first = errors_of(planned[0])

    def found_again(*_: object) -> None:
        raise AssertionError("the errors are found again")

    for name in (
        "evaluated_steps.published_steps",
        "evaluated_steps.resolve_rows",
        "errors.memory_errors",
    ):
        monkeypatch.setattr(f"warehouse.plan.{name}", found_again)
    assert errors_of(planned[0]) == first
    assert [dict(line) for line in first.memory] == planned[1]["memory_errors"]


def test_properties_without_a_published_step_are_listed() -> None:
    from warehouse.plan.accuracy import unlike_published

    def unlike(
        model: str, accelerator: str, estimator: str = "training_step", **inputs: Any
    ) -> str:
        run = resolve(PlanRequest(estimator, model, accelerator, 1e12, num_gpus=8, inputs=inputs))
        return " | ".join(unlike_published(run))

    # Megatron's programs on A100 and H100 were measured, with dense models
    assert unlike("llama3_8B", "H100") == ""
    assert unlike("llama3_8B", "A100 SXM 80GB", framework="megatron_lm_2022") == ""
    assert unlike("gpt3", "A100", "roofline") == ""  # a system that represents that board
    # and mixtures, 8 bits and other programs in table published_measurement
    assert unlike("mixtral_8x7B", "H100") == ""
    assert unlike("llama3_8B", "H100", framework="fsdp", precision="fp8") == ""
    assert unlike("llama3_8B", "MI300X") == (
        "no published step is on MI300X: all are on A100 SXM 40GB or A100 SXM 80GB or "
        "B200 SXM 180GB or GB200 (per GPU) or H100 SXM 80GB"
    )
    assert "no published step is by deepspeed" in unlike("llama3_8B", "H100", framework="deepspeed")


# ---- limits at the slow end ----


def test_a_budget_that_the_slow_end_exceeds_is_warned_of(
    plan: Document,
    report: Callable[..., str],
    answers: dict[object, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = ("--max-gpus", 8, "--price", 2, "--budget-usd", "1M")
    found = plan(*limits)
    assert "--budget-usd 1,000,000 limits the median" in report(*limits)
    assert "the slow end exceeds it" not in report(*limits)
    slow = found["likely_training_seconds"][1] / found["training_seconds"] * found["cost_usd"]
    answer = list(answers.values())[-1]
    request = replace(answer.run.request, limits=RunLimits(budget_usd=0.99 * slow))
    tight = replace(answer, run=replace(answer.run, request=request))
    put_page(plan_page(tight, 3, has_details=False))
    assert "limits the median; the slow end exceeds it" in capsys.readouterr().out


# ---- other layouts, other prices ----


def test_the_best_of_another_kind_differs_in_more_than_chunks(
    planned: tuple[Path, dict[str, Any]], space: dict[str, Any]
) -> None:
    _, found = planned
    best, other = found["layouts"][0], found["other_kind"]
    differs = np.any([space[name] != best[name] for name in KIND], axis=0)
    # a twin that takes as long and as much memory is the same layout in other words
    twin = (space["step_seconds"] == best["step_seconds"]) & (
        space["memory_bytes"] == best["memory_bytes"]
    )
    fits = space["memory_bytes"] <= best["hbm_bytes"]
    assert other["step_seconds"] == space["step_seconds"][differs & fits & ~twin].min()
    assert any(other[name] != best[name] for name in KIND)
    # rank 2 stays what it is
    assert found["layouts"][1]["step_seconds"] <= other["step_seconds"]


def test_the_comparison_names_the_other_kind_and_rank_2(said: str) -> None:
    assert "other kind s" in said
    assert "with the default constants" not in " ".join(said.split())  # nobody asked for others
    assert "the best of another kind (degrees, recomputation or ZeRO stage) takes" in said


def test_bases_of_other_vendors_are_listed(said: str) -> None:
    from warehouse.ask.terms import price_vendors

    def line(basis: str, year: int | None, vendors: str | None) -> dict[str, Any]:
        return {"basis": basis, "year": year, "quote_vendors": vendors}

    same = [line(basis, 2025, "Alpha, Beta") for basis in ("on_demand", "one_year")]
    assert price_vendors([*same, line("owned", 2025, None), line("given", None, None)]) == ""
    assert price_vendors([*same, line("one_year", 2024, "Gamma")]) == ""
    assert price_vendors([*same, line("one_year", 2026, "Gamma")]) == (
        "prices come from different vendors or years, so do not compare them: "
        "on_demand of Alpha and Beta (2025), one_year of Gamma (2026)"
    )
    assert "one_year of Google Cloud and Qubrid (2026)" in said
