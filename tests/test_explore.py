"""The notebook of `warehouse explore` runs without a page, and follows its controls."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import marimo as mo
import polars as pl
import pytest

from tests.shared import Quickstart
from warehouse import Warehouse
from warehouse.database.resources import examples_directory

Run = Callable[..., tuple[str, dict[str, Any]]]
"""Runs the notebook on a database; returns the text of its outputs, and its definitions."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    app = runpy.run_path(str(examples_directory() / "explore.py"))["app"]

    def run(database: Path, **definitions: Any) -> tuple[str, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["explore.py", "--db", str(database)])
        outputs, defined = app.run(defs=definitions)
        return "\n".join(o.text for o in outputs if hasattr(o, "text")), dict(defined)

    return run


def controls(**values: Any) -> mo.ui.dictionary:
    ranges = {"mfu_percent": (0, 100), "num_gpus": (1, 16384)}
    return mo.ui.dictionary(
        {
            name: mo.ui.range_slider(*ranges[name], value=value)
            if name in ranges
            else mo.ui.number(0, 1e6, value=value)
            for name, value in values.items()
        }
    )


@pytest.mark.long
def test_days_dollars_and_energy_follow_the_controls(run: Run, quickstart: Quickstart) -> None:
    given = {"price": 3.5, "billion_tokens": 2000, "goodput": 0.8, "pue": 1.5}
    bounds = {"electricity_price": 0.2, "mfu_percent": [0, 65], "num_gpus": [512, 4096]}
    query = mo.ui.code_editor("select max(cost_usd) / $price as hours, $model as model from runs")
    _, found = run(quickstart.database, controls=controls(**given, **bounds), query=query)
    asked = ("gpt3_1T", "B200", "roofline", "corrected")
    assert tuple(found["asked"].values())[:4] == asked

    assert found["asked"]["nvlink_size"] == 8  # as it is sold
    ranked = Warehouse(quickstart.database).rank(
        model="gpt3_1T",
        accelerator="B200",
        nvlink_size=8,
        estimator="roofline",
        variant="corrected",
        top=1,
    )
    steps = ceil(2000e9 / (4096 * 2048))
    seconds = dict(
        ranked.group_by("num_gpus").agg(pl.col("step_seconds").min()).sort("num_gpus").iter_rows()
    )
    assert min(seconds) < 512
    assert max(seconds) > 4096
    # 512 and 1024 GPUs reach 70 and 66 % of their peak
    runs = found["runs"]
    assert runs["num_gpus"].to_list() == [2048, 4096]
    for row in runs.to_dicts():
        hours = steps * seconds[row["num_gpus"]] / 0.8 / 3600
        gpu_hours = row["num_gpus"] * hours
        # a DGX B200 draws 14.3 kW with 8 GPUs, three quarters of it on average
        energy = gpu_hours * 14.3 / 8 * 0.75 * 1.5
        assert row["training_days"] == pytest.approx(hours / 24)
        assert row["cost_usd"] == pytest.approx(gpu_hours * 3.5)
        assert row["energy_kwh"] == pytest.approx(energy)
        assert row["electricity_usd"] == pytest.approx(energy * 0.2)
    assert found["shown"]["days"].to_list() == runs["training_days"].round(2).to_list()
    assert found["answer"].data.rows() == [(pytest.approx(runs["gpu_hours"].max()), "gpt3_1T")]

    title = found["costs"].to_dict()["title"]
    assert title["text"][0].startswith("2,048 GPUs cost least")
    assert "3.5 USD per GPU-hour, PUE 1.5, goodput 0.8" in title["subtitle"][0]
    days = found["days"].filter(pl.col("accelerator") == "B200", pl.col("nvlink_size") == 8)
    fastest = days.group_by("num_gpus").agg(pl.col("training_days").min())
    fastest = fastest.filter(pl.col("num_gpus").is_in([2048, 4096])).sort("num_gpus")
    assert fastest["training_days"].to_list() == pytest.approx(runs["training_days"].to_list())
    assert found["days"]["num_gpus"].is_between(512, 4096).all()


@pytest.mark.long
def test_controls_begin_at_published_values_and_a_faulty_query_is_a_sentence(
    run: Run, quickstart: Quickstart
) -> None:
    # an accelerator on one number of GPUs: the slider of GPUs has a single place
    columns = ("estimator", "variant", "model", "accelerator", "global_batch_size", "seq_len")
    values = ("roofline", "corrected", "gpt3_1T", "H200", 4096, 2048)
    stored = pl.DataFrame([dict(zip(columns, values, strict=True))])
    stored = stored.with_columns(assumptions=pl.lit(""), nvlink_size=8, gpu_counts=[1024])
    query = mo.ui.code_editor("select $nonsense")
    said, found = run(quickstart.database, stored=stored, query=query)
    # a hyperscaler's PUE, as Epoch has it; the price of 2026 on demand
    assert found["controls"].value["pue"] == 1.1
    assert found["controls"].value["price"] == pytest.approx(6.3, abs=0.01)
    assert found["runs"]["num_gpus"].to_list() == [1024]
    assert "nonsense" in found["answer"].text
    assert "is none of" in said


@pytest.mark.long
def test_bounds_without_a_run_are_a_sentence(run: Run, quickstart: Quickstart) -> None:
    given = {"price": 2, "billion_tokens": 1, "goodput": 1, "pue": 1, "electricity_price": 0}
    bounds = {"mfu_percent": [99, 100], "num_gpus": [128, 16384]}
    said, found = run(quickstart.database, controls=controls(**given, **bounds))
    assert "No stored run is within these bounds" in said
    assert "costs" not in found


def test_an_empty_warehouse_says_what_fills_it(run: Run, empty_warehouse: Path) -> None:
    said, found = run(empty_warehouse)
    assert "No run is stored yet" in said
    assert "warehouse sweep gpt3_1T_1d --db" in said
    assert "model" not in found


def test_a_missing_warehouse_says_so(run: Run, tmp_path: Path) -> None:
    said, _ = run(tmp_path / "missing.duckdb")
    assert "missing.duckdb" in said
    assert "warehouse init" in said or "hint" in said
