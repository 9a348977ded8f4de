"""The scripts of examples/ run, and print what follows from what they read."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.shared import Quickstart
from warehouse import Warehouse

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "explore.py"
SCRIPTS = sorted(set(EXAMPLES.glob("*.py")) - {NOTEBOOK})


def loaded(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 80
    assert f"python examples/{path.name}" in (loaded(path.stem)["__doc__"] or "")


@pytest.mark.long
def test_the_constants_of_a_plan_are_in_order_of_the_days_that_they_move(
    quickstart: Quickstart, capsys: pytest.CaptureFixture[str]
) -> None:
    script = loaded("sensitivity_of_a_plan")
    run: dict[str, Any] = {
        "model": "megatron_1.7B",
        "accelerator": "A100 SXM 80GB",
        "num_gpus": 32,
        "global_batch_size": 512,
        "framework": "megatron_lm_2021",
    }
    reader = Warehouse(quickstart.database)
    with reader:
        days = 10.0
        found = script["sensitivity"](reader, run, days)
        script["main"](reader, run, "300G")
    assert found.height > 10
    assert found.filter(
        (pl.col("fast_days") > days * (1 + 1e-9)) | (pl.col("slow_days") < days * (1 - 1e-9))
    ).is_empty()
    assert (found["slow_days"] - found["fast_days"]).is_sorted(descending=True)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"megatron_1.7B on 32 GPUs: \d+\.\d days", lines[0])
    assert [line.split()[0] for line in lines[3:]] == found["name"].head(10).to_list()


@pytest.mark.long
def test_own_steps_are_compared_with_their_estimates(
    empty_warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Warehouse(shutil.copyfile(empty_warehouse, tmp_path / "own.duckdb"), writable=True)
    script = loaded("own_measurements")
    script["main"](own)
    runs = pl.read_csv(script["STEPS"])
    *lines, last = capsys.readouterr().out.splitlines()[1:]
    assert [line[:20].strip() for line in lines] == runs["run"].to_list()
    stored = own.view("measurement_comparison").sort("num_gpus")
    assert stored["measured_step_seconds"].to_list() == runs["step_seconds"].to_list()
    inside = sum("outside" not in line for line in lines)
    assert last.endswith(f"{inside} of {runs.height} inside")


@pytest.mark.long
def test_a_fleet_costs_its_hours_at_the_prices_of_the_file(
    quickstart: Quickstart, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = loaded("repricing_a_fleet")
    reader = Warehouse(quickstart.database)
    prices = pl.read_csv(script["PRICES"])
    found = script["cheapest"](reader, prices, 1e12, "roofline", "corrected")
    half = prices.with_columns(pl.col("usd_per_gpu_hour") / 2)
    cheaper = script["cheapest"](reader, half, 1e12, "roofline", "corrected")
    assert cheaper["cost_usd"].to_list() == pytest.approx((found["cost_usd"] / 2).to_list())
    priced = found.join(prices, on=["offer", "accelerator"])
    hours = priced["num_gpus"] * priced["days"] * 24
    assert priced["cost_usd"].to_list() == pytest.approx(
        (hours * priced["usd_per_gpu_hour"]).to_list()
    )
    monkeypatch.setattr(sys, "argv", ["repricing_a_fleet.py", str(quickstart.database)])
    runpy.run_path(str(EXAMPLES / "repricing_a_fleet.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert re.findall(r"^\S+(?=, 1 T tokens)", out, re.MULTILINE) == sorted(set(found["model"]))
