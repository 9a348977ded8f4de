"""`warehouse plan`: the best layouts of a run, its time, dollars, energy, and what limits it."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from estimators import registry
from warehouse.catalog import packaged_catalog
from warehouse.showing import show_configuration
from warehouse.whole_space import cells_of_problem, evaluated

MODEL, ACCELERATOR, TOKENS = "gpt3_1.3B", "H100 SXM 80GB", 2e10
QUESTION = ("--model", MODEL, "--accelerator", ACCELERATOR, "--tokens", TOKENS, "--batch", 64)
SHELL = Path(sys.executable).parent / "duckdb"

# of the reference tables: the price of the last year, the server's power, a hyperscaler's overhead
USD_PER_GPU_HOUR = 3.29
WATTS = 10_200 / 8 * 0.75
PUE = 1.1


@pytest.fixture(scope="session")
def planned(tmp_path_factory, program):
    """A database that has a plan for 8 GPUs, and the plan."""
    path = tmp_path_factory.mktemp("plan") / "warehouse.duckdb"
    done = program("plan", *QUESTION, "--gpus", 8, "--json", "--db", path)
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout), done.stderr


@pytest.fixture
def database(planned, tmp_path):
    """A copy of that database, to be written to."""
    path = tmp_path / "copy.duckdb"
    shutil.copyfile(planned[0], path)
    return path


@pytest.fixture
def plan(warehouse, database):
    """Ask for a plan; return its document and what was said."""

    def plan(*options):
        code, out, err = warehouse("plan", *QUESTION, *options, "--json", "--db", database)
        assert code == 0, err
        return json.loads(out), err

    return plan


@pytest.fixture
def refusal(warehouse, database):
    """Ask for a plan that there is none of; return exit code and error."""

    def refusal(*options):
        code, out, err = warehouse("plan", *options, "--db", database)
        assert (code != 0, out) == (True, "")
        return code, err.partition("error: ")[2]

    return refusal


# ---- a number of GPUs ----


def test_the_best_layout_is_the_fastest_that_fits_of_the_whole_space(planned):
    _, found, _ = planned
    estimator = registry.get("training_step")
    relation = estimator.relations[0]
    given = {"model": MODEL, "accelerator": ACCELERATOR, "num_gpus": "8", "global_batch_size": "64"}
    shown = show_configuration(estimator, relation, given, frozenset(), packaged_catalog())
    cells = cells_of_problem(estimator, relation, shown.problem, frozenset())
    space = evaluated(estimator, relation, cells, ["step_seconds", "fits_memory", "memory_bytes"])
    fastest = np.where(space["fits_memory"], space["step_seconds"], math.inf).min()
    best = found["layouts"][0]
    assert best["step_seconds"] == pytest.approx(fastest, rel=1e-12)
    assert found["problem_id"] == cells[0].problem.id
    assert [line["step_seconds"] for line in found["layouts"]] == sorted(
        line["step_seconds"] for line in found["layouts"]
    )
    keys = [tuple(line[name] for name in relation.keys) for line in found["layouts"]]
    assert len(set(keys)) == len(keys)
    assert found["runner_up"] == found["layouts"][1]


def test_the_step_is_that_of_the_same_layout_by_itself(planned):
    best = planned[1]["layouts"][0]
    estimator = registry.get("training_step")
    relation = estimator.relations[0]
    given = {"model": MODEL, "accelerator": ACCELERATOR, "global_batch_size": "64"}
    given |= {name: str(best[name]).lower() for name in relation.keys}
    given["activation_recompute"] = best["activation_recompute"]
    shown = show_configuration(estimator, relation, given, frozenset(), packaged_catalog())
    assert shown.results["step_seconds"] == pytest.approx(best["step_seconds"], rel=1e-12)
    assert best["headroom_bytes"] == pytest.approx(80e9 - shown.results["memory_bytes"])


def test_days_dollars_energy_and_carbon_follow_from_the_step(planned):
    _, found, _ = planned
    step = found["layouts"][0]["step_seconds"]
    # 64 sequences of 2,048 tokens: 131,072 a step; 2e10 take 152,588 steps, the last not full
    seconds = 152_588 * step
    hours = 8 * seconds / 3600
    assert found["training_seconds"] == pytest.approx(seconds)
    assert found["gpu_hours"] == pytest.approx(hours)
    dollars = {line["basis"]: line["cost_usd"] for line in found["costs"]}
    assert dollars["on_demand"] == pytest.approx(hours * USD_PER_GPU_HOUR)
    assert found["cost_usd"] == pytest.approx(dollars["on_demand"])
    assert {"owned", "on_demand", "one_year", "three_year"} == set(dollars)
    kwh = hours * WATTS / 1000 * PUE
    assert found["energy_kwh"] == pytest.approx(kwh)
    assert found["power_watts"] == pytest.approx(8 * WATTS * PUE)
    carbon = {line["grid"]: line["kg_co2e"] for line in found["energies"]}
    assert carbon["France (BLOOM)"] == pytest.approx(kwh * 0.057)


def test_terms_that_are_given_take_the_place_of_the_published_ones(plan, planned):
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


def test_rates_may_be_given_by_name(plan):
    found, _ = plan("--gpus", 8, "--carbon", "France (BLOOM)", "--goodput", "Llama 3 405B")
    assert [line["grid"] for line in found["energies"]] == ["France (BLOOM)"]
    assert found["question"]["goodput"] == 0.9


def test_half_and_double_the_gpus_stand_beside_it(planned):
    _, found, _ = planned
    assert [line["num_gpus"] for line in found["counts"]] == [4, 8, 16]
    assert found["next_smaller"]["training_seconds"] > found["training_seconds"]
    assert found["next_larger"]["training_seconds"] < found["training_seconds"]


def test_what_is_stored_is_not_swept_again(planned, plan):
    _, first, said = planned
    assert first["swept"]["cells"] == 9
    assert f"{first['swept']['rows']:,} rows of 9 cells to evaluate and store" in said
    again, said = plan("--gpus", 8)
    assert again["swept"] == {"cells": 0, "rows": 0}
    assert "all of them are stored already" in said
    assert {**again, "swept": 0} == {**first, "swept": 0}


def test_a_dry_run_writes_nothing(warehouse, tmp_path):
    path = tmp_path / "none.duckdb"
    code, out, err = warehouse("plan", *QUESTION, "--gpus", 8, "--dry-run", "--db", path)
    assert (code, out) == (0, "")
    assert "rows of 9 cells would be evaluated and stored" in err
    assert not path.exists()


def test_the_parts_of_the_step_add_up_and_the_largest_is_named(planned):
    from warehouse.plan_queries import SHARES

    _, found, _ = planned
    best = found["layouts"][0]
    assert math.fsum(best[name] for name in SHARES) == pytest.approx(best["step_seconds"])
    assert best[found["limited_by"]] == max(best[name] for name in SHARES)


def test_every_query_runs_in_the_shell_and_gives_the_figures(planned):
    path, found, _ = planned
    for name, query in found["queries"].items():
        if name == "accuracy":
            continue
        done = subprocess.run(
            [SHELL, "-readonly", "-json", "-bail", path],
            input=f"{query};",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        if name == "layouts":
            assert rows[0]["step_seconds"] == pytest.approx(found["layouts"][0]["step_seconds"])
            assert rows[0]["gpu_hours"] == pytest.approx(found["gpu_hours"])
        if name == "counts":
            assert rows[1]["cost_usd"] == pytest.approx(found["cost_usd"])
            assert rows[1]["power_watts"] == pytest.approx(found["power_watts"])


def test_the_interval_holds_the_answer_and_the_extreme_one_is_wider(planned):
    _, found, _ = planned
    low, high = found["likely_training_seconds"]
    lowest, highest = found["extreme_training_seconds"]
    assert lowest < low < found["training_seconds"] < high < highest


def rows_of(found, reference):
    return {e["published_group"]: e for e in found["errors"] if e["reference"] == reference}


def test_errors_on_published_steps_are_those_of_every_row_where_none_is_stored(planned):
    _, found, _ = planned
    assert "accuracy" not in found["queries"]
    assert not any(line["is_stored"] for line in found["errors"])
    # none is left out: the rows of each table's groups are all that were published
    for name in {line["reference"] for line in found["errors"]}:
        groups = rows_of(found, name).values()
        assert sum(line["num_rows"] for line in groups) == next(iter(groups))["num_published"]
    # of 12 runs 6 are ZeRO-3, by another program: they are told, and are further off
    times = rows_of(found, "published_megatron_training_time")
    assert {name: line["num_rows"] for name, line in times.items()} == {
        "its own programs": 6,
        "other programs, by the nearest one": 6,
    }
    own, other = (times[name]["time_mean_absolute_relative_error"] for name in sorted(times))
    assert own < 0.1 < other


RECOMPUTE = """\
name = "part"
estimator = "training_step"
[space]
model = ["megatron_22B", "megatron_175B", "megatron_530B", "megatron_1T"]
accelerator = "A100 SXM 80GB"
framework = "megatron_lm_2022"
attention = "unfused"
activation_recompute = "full"
uses_sequence_parallel = false
zero_stage = 0
num_gpus = 8
global_batch_size = 4
tensor_parallel = 8
microbatch_size = 4
"""


def test_a_table_that_is_stored_in_part_is_evaluated_whole(warehouse, database, tmp_path, plan):
    study = tmp_path / "part.toml"
    text = RECOMPUTE.replace(
        '["megatron_22B", "megatron_175B", "megatron_530B", "megatron_1T"]', '"megatron_22B"'
    )
    study.write_text(text)
    assert warehouse("sweep", study, "--db", database)[0] == 0
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select num_rows from estimator_accuracy where estimator = 'training_step'"
        assert connection.execute(query).fetchall() == [(1,)]
    [line] = rows_of(plan("--gpus", 8)[0], "published_megatron_recompute").values()
    assert (line["num_rows"], line["num_published"], line["is_stored"]) == (8, 8, False)


def test_a_table_that_is_stored_whole_is_taken_from_the_view(warehouse, database, plan, planned):
    assert warehouse("sweep", "training_step_published", "--db", database)[0] == 0
    found, _ = plan("--gpus", 8)
    assert "estimator_accuracy" in found["queries"]["accuracy"]
    stored = rows_of(found, "published_megatron_recompute")["all groups"]
    assert (stored["num_rows"], stored["num_published"], stored["is_stored"]) == (8, 8, True)
    # the same rows evaluated now have the same error
    [now] = rows_of(planned[1], "published_megatron_recompute").values()
    assert stored["time_mean_absolute_relative_error"] == pytest.approx(
        now["time_mean_absolute_relative_error"]
    )


def test_the_report_has_every_section_and_the_queries_on_demand(warehouse, database):
    arguments = ("plan", *QUESTION, "--gpus", 8, "--db", database, "--show-sql", "--top", 1)
    code, out, err = warehouse(*arguments)
    assert code == 0
    for heading in ("best layouts on 8 GPUs", "Dollars", "Energy", "What limits", "Other numbers"):
        assert heading in out
    assert "warehouse explain model=gpt3_1.3B" in out
    assert "-- counts" in out
    assert "from configuration" in out
    assert "batch 64 sequences (131,072 tokens)" in err
    assert "by the rule" not in err


# ---- the batch ----


def test_the_batch_is_that_of_the_rule_unless_it_is_given():
    from warehouse.plan import Asked, resolve

    # 80 layers of 2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 + 2 x 8192: 68.45e9 parameters;
    # 6 x 68.45e9 x 15e12 = 6.16e24 FLOPs; (0.616)^(1/6) x 2048^2 / 8192 = 472 sequences
    asked = Asked("training_step", "llama3_70B", "H100", 15e12, num_gpus=8)
    run = resolve(asked)
    assert run.parameters == 80 * 855_654_400
    assert (run.batch, run.is_default_batch) == (512, True)
    sparse = resolve(Asked("training_step", "mixtral_8x7B", "H100", 1e12, num_gpus=8))
    # 2 of 8 experts of 3 x 4096 x 14336 in each of 32 layers
    assert sparse.parameters - sparse.active_parameters == 32 * 6 * 3 * 4096 * 14336


# ---- limits ----


def test_in_so_many_days_the_cheapest_count_is_taken(plan):
    # 8 GPUs take some days; in half the time it takes more than 8 and at most 32
    base, _ = plan("--gpus", 8)
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


def test_for_so_many_dollars_the_fastest_count_is_taken(plan):
    base, _ = plan("--gpus", 8)
    budget = 1.05 * base["cost_usd"]
    found, said = plan("--budget-usd", budget, "--max-gpus", 64)
    assert found["cost_usd"] <= budget
    faster = [
        line
        for line in found["counts"]
        if line["note"] is None and line["training_seconds"] < found["training_seconds"]
    ]
    assert all(line["cost_usd"] > budget for line in faster)
    again, said = plan("--budget-usd", budget, "--max-gpus", 64)
    assert again["swept"] == {"cells": 0, "rows": 0}
    assert said.count("stored already") == 2


def test_with_so_many_megawatts_no_more_gpus_are_taken_than_they_feed(plan):
    fed = 11.9
    found, _ = plan("--max-mw", fed * WATTS * PUE / 1e6)
    assert found["power_watts"] <= fed * WATTS * PUE
    assert found["num_gpus"] in (8, 10)
    assert {line["num_gpus"] for line in found["counts"]} >= {8, 10, 12, 14, 16}


def test_several_limits_hold_together(plan):
    base, _ = plan("--gpus", 8)
    days = base["training_seconds"] / 86400
    limits = ("--days", days * 1.01, "--max-mw", 8.5 * WATTS * PUE / 1e6)
    found, _ = plan(*limits, "--budget-usd", 2 * base["cost_usd"])
    assert found["num_gpus"] <= 8
    assert found["training_seconds"] <= days * 1.01 * 86400


def test_limits_that_only_a_count_between_two_powers_keeps_are_not_refused(plan):
    # 12 GPUs end in days that 8 do not make, and draw what 16 exceed: no power of two does both
    base, _ = plan("--gpus", 8)
    between, _ = plan("--gpus", 12)
    assert between["training_seconds"] < base["training_seconds"]
    days = between["training_seconds"] * 1.001 / 86400
    found, _ = plan("--days", days, "--max-mw", 12.5 * WATTS * PUE / 1e6)
    assert found["num_gpus"] == 12
    powers = [line for line in found["counts"] if line["num_gpus"].bit_count() == 1]
    fed = 12.5 * WATTS * PUE
    assert not [
        line
        for line in powers
        if line["training_seconds"] <= days * 86400 and line["power_watts"] <= fed
    ]


def test_a_dry_run_of_a_limit_says_that_more_counts_follow(warehouse, database):
    limit = ("--max-mw", 0.01)
    code, _, err = warehouse("plan", *QUESTION, *limit, "--dry-run", "--db", database)
    assert code == 0
    assert "up to three counts between" in err


def test_a_budget_below_the_peak_rate_is_refused_before_a_sweep(refusal, database):
    with duckdb.connect(str(database), read_only=True) as connection:
        before = connection.execute("select count(*) from cell").fetchone()
    code, error = refusal(*QUESTION, "--budget-usd", 100)
    # 24 layers of 12 x 2048^2 parameters and 36,864 more: 1.209e9; 6 x 1.209e9 x 2e10 FLOPs at
    # 989.5e12 a second are 40.7 GPU-hours, 134 dollars
    assert code == 3
    assert "cost at least 134 USD at 3.29 USD/GPU-hour" in error
    assert "hint: raise it" in error
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("select count(*) from cell").fetchone() == before


def test_a_budget_that_no_layout_keeps_names_the_cheapest(refusal):
    code, error = refusal(*QUESTION, "--budget-usd", 140, "--max-gpus", 8)
    assert code == 3
    assert "no run that was tried keeps within the limits" in error
    assert "`--budget-usd` 140: the cheapest costs" in error


def test_too_few_gpus_for_the_days_names_how_many_it_takes(refusal):
    code, error = refusal(*QUESTION, "--days", 0.5, "--max-gpus", 2)
    # 40.7 GPU-hours at the peak rate in 12 hours
    assert code == 3
    assert "at the peak rate of H100 SXM 80GB the run takes 4 GPUs" in error
    assert "--max-gpus is 2" in error
    code, error = refusal(*QUESTION, "--days", 0.5, "--max-gpus", 4)
    assert code == 3
    assert "`--days` 0.5: the fastest takes" in error
    assert "on 4 GPUs" in error


def test_a_power_that_feeds_no_gpu_is_refused(refusal):
    code, error = refusal(*QUESTION, "--max-mw", 0.0001)
    assert code == 3
    assert "--max-mw feeds 0.1" in error


# ---- what does not fit, and what is not published ----


def test_of_gpus_that_do_not_hold_it_the_least_memory_is_told_and_what_would(refusal):
    big = ("--model", "llama3_70B", "--accelerator", "H100", "--tokens", 1e9, "--batch", 16)
    code, error = refusal(*big, "--gpus", 3)
    assert code == 3
    assert "none of" in error
    assert "the least takes" in error
    assert "GPUs hold it" in error


def test_a_count_without_any_layout_names_its_neighbours(refusal):
    code, error = refusal(*QUESTION, "--gpus", 1009)
    assert code == 3
    assert "there is no layout of gpt3_1.3B on so many" in error
    assert "hint: ask for 512" in error


def test_three_gpus_are_planned_if_a_layout_divides_by_three(plan):
    found, _ = plan("--gpus", 3)
    best = found["layouts"][0]
    degrees = ("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel")
    assert math.prod(best[name] for name in degrees) == 3
    assert [line["num_gpus"] for line in found["counts"]] == [2, 3, 6]


def test_where_no_price_was_published_the_option_that_gives_it_is_named(warehouse, database):
    run = ("plan", "--model", MODEL, "--tokens", TOKENS, "--batch", 64, "--db", database)
    own = ("--accelerator", "B200 SXM 180GB", "--gpus", 2)
    code, out, err = warehouse(*run, *own, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["cost_usd"] is None
    assert found["energy_kwh"] is None
    lines = {line["basis"]: line for line in found["costs"]}
    assert lines["on_demand"]["option"] == "--price"
    assert lines["on_demand"]["price_note"]
    assert lines["owned"]["option"] == "--watts"
    assert {line["option"] for line in found["energies"]} == {"--watts"}
    _, out, _ = warehouse(*run, *own)
    assert "give one: --price" in out
    for limit, option in (("--budget-usd", "--price"), ("--max-mw", "--watts")):
        code, _, err = warehouse(*run, "--accelerator", "B200 SXM 180GB", limit, 1000)
        assert code == 3
        assert option in err


def test_the_roofline_plans_as_well(plan):
    found, _ = plan("--gpus", 8, "--estimator", "roofline")
    assert found["question"]["variant"] == "corrected"
    assert found["likely_training_seconds"] is None
    assert "sweep roofline_published" in found["errors_note"]
    assert found["costs"][0]["cost_usd"] > 0


# ---- wrong questions ----


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--gpus", 8, "--days", 3), 2, "`--gpus` cannot stand beside a limit"),
        ((), 2, "neither a number of GPUs nor a limit"),
        (("--gpus", 0), 2, ""),
        (("--gpus", 8, "--basis", "gold"), 2, "`--basis` gold is not known"),
        (("--gpus", 8, "--basis", "owned", "--price", 2), 2, "`--basis` cannot stand beside"),
        (("--gpus", 8, "--estimator", "pipeline"), 2, "cannot plan a run"),
        (("--gpus", 8, "--estimator", "roofline", "--framework", "fsdp"), 2, "no such input"),
        (("--budget-usd", -5), 3, "`budget-usd` -5: cannot be"),
        (("--budget-usd", "nan"), 3, "`budget-usd` nan: cannot be"),
        (("--days", "inf"), 3, "`days` inf: cannot be"),
        (("--max-mw", 0), 3, "`max-mw` 0: cannot be"),
        (("--gpus", 8, "--goodput", 1.5), 3, "`goodput` 1.5: cannot be"),
        (("--gpus", 8, "--pue", "nowhere"), 3, '`pue` "nowhere"'),
        (("--gpus", 8, "--framework", "nope"), 3, '`framework` "nope" is not in'),
    ],
)
def test_a_wrong_question_is_refused(refusal, options, code, said):
    found, error = refusal(*QUESTION, *options)
    assert found == code
    assert said in error


@pytest.mark.parametrize(
    ("model", "accelerator", "tokens", "said"),
    [
        ("nosuch", "H100", 1e9, '`model` "nosuch" is not in the `model` table'),
        (MODEL, "Z100", 1e9, '`accelerator` "Z100" is neither'),
        (MODEL, "B200", 1e9, "use B200 SXM 180GB"),
        (MODEL, "H100", 0, "`tokens` 0: cannot be"),
        (MODEL, "H100", "nan", "`tokens` nan: cannot be"),
        (MODEL, "H100", -1, "`tokens` -1: cannot be"),
    ],
)
def test_unknown_names_and_impossible_tokens_are_refused(refusal, model, accelerator, tokens, said):
    asked = ("--model", model, "--accelerator", accelerator, "--tokens", tokens)
    code, error = refusal(*asked, "--gpus", 8)
    assert code == 3
    assert said in error


def test_a_database_that_another_process_writes_to_is_told(database, program):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('ready', flush=True); "
            "sys.stdin.read()",
            str(database),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "ready\n"
        done = program("plan", *QUESTION, "--gpus", 8, "--db", database)
        assert done.returncode == 5
        assert f"is in use by process {holder.pid}" in done.stderr
    finally:
        holder.communicate("")
