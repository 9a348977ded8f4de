"""The answer of a plan in its first lines."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cli.planning import ACCELERATOR, MODEL, QUESTION
from tests.shared import Command
from warehouse.database.stamp import reference_in_words
from warehouse.plan.candidates import QueryCache
from warehouse.plan.question import PlanRequest, resolve
from warehouse.plan.track_record import TrackRecord, track_record
from warehouse.plan.words import probability_in_words, record_in_words
from warehouse.show.units import with_digits

pytestmark = pytest.mark.usefixtures("same_answers")

Planned = tuple[Path, dict[str, Any], str]


def lines_of(out: str) -> dict[str, str]:
    """Return the lines of the answer by their names, each with those that continue it."""
    found: dict[str, str] = {}
    for line in out.split("\n\n")[1].splitlines():
        name = line[2:9].strip() or list(found)[-1]
        found[name] = f"{found[name]} {line[11:]}" if name in found else line[11:]
    return found


EIGHT = ["layout", "time", "step", "cost", "energy", "memory", "basis", "assumes"]


def test_the_answer_comes_before_the_tables_and_has_their_figures(
    warehouse: Command, planned: Planned
) -> None:
    database, found, _ = planned
    code, out, _ = warehouse("plan", *QUESTION, "--gpus", 8, "--db", database)
    assert code == 0
    lines = lines_of(out)
    assert list(lines) == EIGHT
    head, answer, others, further = out.split("\n\n")
    assert head == f"{MODEL}, 20 B tokens on 8 {ACCELERATOR} with megatron_core"
    assert max(map(len, out.splitlines())) <= 100
    assert len(out.splitlines()) <= 27  # one layout is longer than a line
    assert len(answer.splitlines()) <= 10
    hours = found["training_seconds"] / 3600 / 0.9
    assert lines["assumes"] == (
        "BF16, batch 64, fast domains of 8 GPUs, network 50 GB/s a GPU of the bare chip, num_heads "
        f"16 without a source, no lost time (--goodput 0.9: {hours:.1f} hours), the middle of 10 "
        "prices"
    )
    named = [line.split()[0] for line in others.splitlines() if line[2] != " "]
    assert named == [line["name"].split()[0] for line in found["alternatives"]]
    assert len(found["alternatives"]) == 3
    said = rf"further tables, with --details \({reference_in_words()}\):\n  layouts "
    assert re.match(said, further)
    best = found["layouts"][0]
    assert f"tp{best['tensor_parallel']}" in lines["layout"] or best["tensor_parallel"] == 1
    assert lines["step"].startswith(
        f"{with_digits(best['step_seconds'], 3)} s at {100 * best['mfu']:.0f} % of the peak; "
    )
    low, high = (end / 3600 for end in found["likely_training_seconds"])
    assert lines["time"] == (
        f"{found['training_seconds'] / 3600:.1f} hours; {low:.1f} to {high:.1f} hours is the range "
        "of a steady step of a tuned program"
    )
    [on_demand] = [line for line in found["costs"] if line["basis"] == "on_demand"]
    assert lines["cost"] == (
        f"{with_digits(on_demand['cost_usd'], 3)} USD at "
        f"{on_demand['usd_per_gpu_hour']:.2f} USD per GPU-hour (on demand, {on_demand['year']})"
    )
    energy = found["energies"][0]
    assert lines["energy"] == (
        f"{with_digits(energy['energy_kwh'] / 1e3, 2)} MWh, "
        f"{with_digits(energy['power_watts'] / 1e6, 2)} MW, PUE "
        f"{energy['pue']:.3g} included"
    )
    assert lines["memory"].startswith(f"{best['memory_bytes'] / 1e9:.1f} of ")


def test_the_accuracy_is_that_of_steps_like_the_plan(warehouse: Command, planned: Planned) -> None:
    _, found, _ = planned
    # dense models in 16 bits by Megatron-Core on H100s, among them those of Nemotron-4 15B
    record = found["track_record"]
    groups = {line["published_group"]: line["num_rows"] for line in record["groups"]}
    assert groups == {"dgxc bf16": 22, "megatron_h100_scaling": 9, "training_stage": 3}
    words = "dense models in 16 bits with megatron_core on Hopper GPUs"
    assert (record["wanted"], record["found"]) == (words, words)
    assert record["num_steps"] == sum(groups.values())
    assert record["accelerators"] == ["H100 SXM 80GB"]
    errors = sorted(line["time_mean_absolute_relative_error"] for line in record["groups"])
    assert record["worst_group"] == "training_stage"
    assert record["worst_error"] == errors[-1]
    assert record["middle_error"] == pytest.approx(errors[1])
    out = warehouse("plan", *QUESTION, "--gpus", 8, "--db", planned[0])[1]
    assert lines_of(out)["basis"] == (
        f"{100 * record['mean_error']:.1f} % mean error on {record['num_steps']} published steps "
        "of dense models in 16 bits with megatron_core on Hopper GPUs: H100 SXM 80GB"
    )


def test_the_groups_of_the_accuracy_are_listed_and_make_its_figures(
    warehouse: Command, planned: Planned
) -> None:
    database, found, _ = planned
    record = found["track_record"]
    groups = record["groups"]
    assert sum(line["num_rows"] for line in groups) == record["num_steps"]
    for name, figure in (
        ("time_mean_absolute_relative_error", "mean_error"),
        ("time_bias", "bias"),
    ):
        whole = sum(line[name] * line["num_rows"] for line in groups) / record["num_steps"]
        assert whole == pytest.approx(record[figure])
    out = warehouse("plan", *QUESTION, "--gpus", 8, "--details", "--db", database)[1]
    inside = f"{100 * record['inside_fraction']:.0f} % of the published steps like it lie in their"
    assert f"{inside} ranges, {100 * record['all_inside_fraction']:.0f} % of all" in out
    table = out.split("errors of the time on the published steps like it (-: too fast):")[1]
    names = [line.split("  ")[0] for line in table.splitlines()[3:]]
    assert names == [line["published_group"] for line in groups]
    assert record["worst_group"] in names


def test_conditions_are_dropped_in_order_and_the_line_says_what_is_lacking() -> None:
    def said(model: str, accelerator: str, **inputs: Any) -> tuple[TrackRecord, str]:
        request = PlanRequest("training_step", model, accelerator, 1e12, num_gpus=8, inputs=inputs)
        record = track_record(resolve(request), cast(QueryCache, no_query))
        assert record is not None
        return record, record_in_words(record)

    # published mixtures in 16 bits on Hopper GPUs are five, on H100s
    record, words = said("deepseek_v3", "H800")
    assert (record.num_steps, record.accelerators) == (5, ["H100 SXM 80GB"])
    assert "in 16 bits with megatron_core on Hopper GPUs: H100 SXM 80GB, none on H800" in words
    assert words.startswith("11.2 % mean error, all 5 too fast, on 5 published steps of mixtures")
    both = dataclasses.replace(record, num_too_fast=4, bias=-0.1).bias_in_words()
    assert both == " (bias -10.0 %)"
    assert dataclasses.replace(record, num_too_fast=3, bias=0.01).bias_in_words() == ""
    # none in FP4: the number format goes first
    record, words = said("mixtral_8x7B", "GB200", precision="fp4")
    assert words.startswith(
        "no published steps are of mixtures of experts in FP4 with megatron_core on Blackwell GPUs"
        "; "
    )
    assert (
        " on 33 published steps of mixtures of experts with megatron_core on Blackwell GPUs: GB200 "
        "(per GPU)"
    ) in words
    # none on GPUs of that design: then the architecture, and the number format holds again
    record, words = said("mixtral_8x7B", "MI300X")
    assert (record.num_like, record.num_steps) == (0, 12)
    assert " of mixtures of experts in 16 bits: GB200 (per GPU), H100 SXM 80GB, none on MI" in words
    record, _ = said("mixtral_8x7B", "MI300X", precision="fp8")
    assert (record.found, record.num_steps) == ("mixtures of experts in FP8", 37)


def no_query(query: str) -> list[Any]:
    raise AssertionError(f"asked: {query}")


@pytest.mark.long
def test_the_best_layout_is_likely_to_fit_and_a_riskier_one_follows(
    warehouse: Command, planned: Planned, planned_database: Path
) -> None:
    _, found, _ = planned
    tight = round(found["layouts"][0]["memory_bytes"] / 0.95)
    asked = (*QUESTION, "--gpus", 8, f"hbm_bytes={tight}", "--db", planned_database)
    lines = lines_of(warehouse("plan", *asked)[1])
    plan = json.loads(warehouse("plan", *asked, "--json")[1])
    best, riskier = plan["layouts"][0], plan["alternatives"][0]
    assert riskier["name"] == "riskier"
    assert plan["fit_probability"] == pytest.approx(best["fit_probability"])
    assert riskier["fit_probability"] < 0.9 <= best["fit_probability"]
    assert "likely to fit" in lines["memory"]
    faster = 100 * (riskier["step_seconds"] / best["step_seconds"] - 1)
    assert faster < 0
    # with less caution the riskier layout is the best one; no layout is faster than the fastest
    any_fit = json.loads(warehouse("plan", *asked, "--fit-probability", 0.1, "--json")[1])
    assert any_fit["layouts"][0]["step_seconds"] == riskier["step_seconds"]
    assert "riskier" not in [line["name"] for line in any_fit["alternatives"]]
    assert found["fit_probability"] >= 0.9
    assert "riskier" not in [line["name"] for line in found["alternatives"]]


@pytest.mark.long
def test_where_no_layout_is_likely_to_fit_the_likeliest_is_shown(
    warehouse: Command, planned: Planned, planned_database: Path
) -> None:
    asked = (*QUESTION, "--gpus", 8, "--fit-probability", 0.999, "--db", planned_database)
    query = "select min(memory_bytes) as least from configuration where num_gpus = 8"
    found = warehouse("sql", query, "--format", "json", "--db", planned[0])[1]
    least = json.loads(found)[0]["least"]
    tight = (*asked, f"hbm_bytes={round(least * 1.1)}")
    code, out, _ = warehouse("plan", *tight)
    assert code == 0
    assert lines_of(out)["memory"].startswith("unlikely to fit: ")
    plan = json.loads(warehouse("plan", *tight, "--json")[1])
    assert plan["layouts"][0]["memory_bytes"] == pytest.approx(least)
    assert plan["alternatives"][0]["step_seconds"] < plan["layouts"][0]["step_seconds"]
    code, _, err = warehouse("plan", *tight, "--strict-fit")
    assert code == 3
    assert "no layout on 8 GPUs is 99.9 % likely to fit in memory" in err
    assert "leave --strict-fit out" in err


@pytest.mark.long
def test_each_price_and_grid_that_is_given_has_its_figure(
    warehouse: Command, planned: Planned
) -> None:
    database, found, _ = planned
    given = ("--price", 2, "--price", 4, "--carbon", "france", "--carbon", 0.5)
    asked = ("plan", *QUESTION, "--gpus", 8, "--details", *given, "--db", database)
    code, out, err = warehouse(*asked)
    assert code == 0, err
    short = warehouse("plan", *QUESTION, "--gpus", 8, *given, "--db", database)[1]
    lines = lines_of(short)
    hours = found["layouts"][0]["gpu_hours"]
    assert lines["cost"] == "; ".join(
        f"{with_digits(price * hours, 3)} USD at {price:.2f} USD per GPU-hour (given)"
        for price in (2, 4)
    )
    assert re.fullmatch(
        r"[\d.]+ MWh, [\d.]+ MW, PUE [\d.]+ included; [\d.]+ t CO2e on grid France; "
        r"[\d.]+ t CO2e on grid given",
        lines["energy"],
    )
    # two figures, of a year and of none: they are named with both
    both = warehouse(*asked, "--carbon", "texas")
    assert "France: annual average, life cycle, 2023" in both[1]
    assert "Texas (2016): annual average of a US state, 2016" in both[1]
    assert "figures of different years or kinds do not compare" in both[1]
    assert "figures of different years or kinds" not in out
    table = out.split("Cost of the best layout\n\n")[1].split("\n\n")[0].splitlines()[2:]
    assert [line.split()[1] for line in table[:2]] == ["2.00", "4.00"]
    assert table[2:] == ["published prices of rented hours include electricity; owned adds it"]


@pytest.mark.long
def test_each_site_and_price_of_a_kwh_has_its_row_and_the_first_counts(
    warehouse: Command, planned: Planned
) -> None:
    database, _, _ = planned
    given = ("--pue", 1.5, "--pue", 1.2, "--electricity-price", 0.2, "--electricity-price", 0.1)
    asked = ("plan", *QUESTION, "--gpus", 8, "--carbon", "france", "--db", database)
    code, out, err = warehouse(*asked, *given, "--json")
    assert code == 0, err
    plan = json.loads(out)
    one = json.loads(warehouse(*asked, "--pue", 1.5, "--electricity-price", 0.2, "--json")[1])
    assert (plan["energy_kwh"], plan["cost_usd"]) == (one["energy_kwh"], one["cost_usd"])
    each = [(1.5, 0.2), (1.5, 0.1), (1.2, 0.2), (1.2, 0.1)]
    it = one["energy_kwh"] / 1.5
    for line, (pue, price) in zip(plan["energies"], each, strict=True):
        assert (line["pue"], line["usd_per_kwh"]) == (pue, price)
        assert line["energy_kwh"] == pytest.approx(it * pue)
        assert line["electricity_usd"] == pytest.approx(it * pue * price)
    owned = [line for line in plan["costs"] if line["basis"] == "owned"]
    amortised = owned[0]["cost_usd"] - it * 1.5 * 0.2
    for line, (pue, price) in zip(owned, each, strict=True):
        assert line["cost_usd"] == pytest.approx(amortised + it * pue * price)
    rented = [line["basis"] for line in plan["costs"] if line["basis"] != "owned"]
    assert len(rented) == len({*rented})
    _, out, _ = warehouse(*asked, *given, "--details")
    assert "PUE 1.5 included; " in lines_of(out)["energy"]
    assert lines_of(out)["energy"].count("on grid France") == 1
    heading = out.split("Energy and carbon of the best layout\n\n")[1].splitlines()[0]
    assert {"pue", "USD/kWh"} <= {*heading.split()}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.003, "under 1 %"),
        (0.012, "1 %"),
        (0.9, "90 %"),
        (0.985, "98 %"),
        (0.992, "over 99 %"),
        (1.0, "over 99 %"),
    ],
)
def test_no_probability_is_certain(share: float, words: str) -> None:
    assert probability_in_words(share) == words


def test_a_budget_is_compared_with_one_price(warehouse: Command, database: Path) -> None:
    prices = ("--price", 2, "--price", 4, "--budget-usd", "1M")
    code, out, err = warehouse("plan", *QUESTION, *prices, "--db", database)
    assert (code, out) == (2, "")
    assert "`--budget-usd` is compared with one price" in err


@pytest.mark.parametrize(
    ("seq_len", "says_so"), [pytest.param(1408, False, marks=pytest.mark.long), (1664, True)]
)
def test_the_answer_says_that_the_mfu_counts_all_of_attention_where_it_is_much(
    warehouse: Command, tmp_path: Path, seq_len: int, says_so: bool
) -> None:
    # attention has s / (6 h + s) of the FLOPs without a vocabulary: a third at s = 3 h = 1536
    shape = ("num_layers=4", "hidden_size=512", "num_heads=4", f"seq_len={seq_len}")
    asked = ("--accelerator", "H100", "--tokens", "1B", "--gpus", 8, "--batch", 16)
    code, out, err = warehouse("plan", *asked, *shape, "--db", tmp_path / "plan.duckdb")
    assert code == 0, err
    said = " % of the peak (MFU counts all of attention, causal or not); "
    assert (said in lines_of(out)["step"]) == says_so
