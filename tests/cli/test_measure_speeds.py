"""`warehouse measure` of runs that give a speed in place of the seconds of a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import duckdb
import polars as pl
import pytest

from estimators import registry
from tests.shared import Command
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.measure.read import Measured, read_measurements

# Of gpt3_1.3B (24 layers of width 2048, 2048 tokens, vocabulary 50257) a token has
# 6 x 12 x 24 x 2048^2 = 7,247,757,312 FLOPs in products, 6 x 2048 x 50257 = 617,558,016 in the
# logits, and 12 x 24 x 2048 x 2048 = 1,207,959,552 in attention with its whole square.
TOKENS = 64 * 2048
FLOPS = TOKENS * (7_247_757_312 + 617_558_016 + 1_207_959_552)
HALF = FLOPS - TOKENS * 1_207_959_552 / 2
PEAK = 989.5e12
RUN = {"model": "gpt3_1.3B", "accelerator": "H100", "num_gpus": 8, "global_batch_size": 64}
OPTIONS = ("--model", "gpt3_1.3B", "--accelerator", "H100", "--gpus", "8", "--batch", "64")

SPEEDS = {
    "step_seconds": 0.5,
    "tokens_per_second": TOKENS / 0.5,
    "tokens_per_second_per_gpu": TOKENS / 0.5 / 8,
    "model_flops_per_second_per_gpu": FLOPS / 0.5 / 8,
    "mfu": FLOPS / 0.5 / 8 / PEAK,
}
"""Speeds of a step of half a second."""


def measured(speeds: Mapping[str, object], estimator: str = "training_step") -> Measured:
    """Read one run."""
    frame = pl.DataFrame([{**RUN, **speeds}])
    return read_measurements(frame, registry.get(estimator), packaged_catalog())


@pytest.mark.parametrize("column", SPEEDS)
def test_the_seconds_of_a_step_follow_from_any_speed(column: str) -> None:
    [run] = measured({column: SPEEDS[column]}).records
    assert run["measured_step_seconds"] == pytest.approx(0.5, rel=1e-4)


def test_other_estimators_take_tokens_but_no_flops_that_they_do_not_count() -> None:
    speed = {"tokens_per_second": SPEEDS["tokens_per_second"]}
    [run] = measured(speed, "roofline").records
    assert run["measured_step_seconds"] == pytest.approx(0.5)
    with pytest.raises(
        InputError, match="needs the model FLOPs of a step, which roofline does not"
    ):
        measured({"mfu": 0.3}, "roofline")


def test_each_run_of_a_table_has_a_speed_of_its_own() -> None:
    rows = [{"run": name, **RUN, **dict.fromkeys(SPEEDS), name: SPEEDS[name]} for name in SPEEDS]
    rows.append({**rows[-1], "run": "again", "note": "of the log"})
    found = read_measurements(pl.DataFrame(rows), registry.get("training_step"), packaged_catalog())
    seconds = [run["measured_step_seconds"] for run in found.records]
    assert seconds == pytest.approx([0.5] * 6, rel=1e-4)
    tokens, per_gpu, rate, mfu = found.derived
    assert tokens == "tokens_per_second: tokens_per_second 262,144: 0.5 s, by 131,072 tokens a step"
    assert per_gpu.startswith("tokens_per_second_per_gpu: ")
    assert f"TFLOP/s/GPU {FLOPS / 4e12:,.4g}: 0.5 s" in rate
    assert f"by {FLOPS:.3g} model FLOPs a step with the whole attention square" in mfu
    assert f"; {0.5 * HALF / FLOPS:.4g} s if the program counts half of it" in mfu
    assert mfu.endswith("; 1 more run likewise")
    notes = [run["note"] for run in found.records]
    assert notes[0] is None
    assert notes[-1].startswith("of the log; MFU 30.05 % of 989.5 TFLOP/s: 0.5 s, by ")


def test_speeds_beside_the_seconds_are_not_read() -> None:
    said: list[str] = []
    frame = pl.DataFrame([{**RUN, "step_seconds": 0.5, "mfu": 2.0, "tokens_per_second": 1.0}])
    found = read_measurements(frame, registry.get("training_step"), packaged_catalog(), said.append)
    assert found.records[0]["measured_step_seconds"] == 0.5
    assert said == ["frame: not read beside `step_seconds`: `tokens_per_second`, `mfu`"]


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({"mfu": 0.0}, '`mfu` "0.0" must be a positive number'),
        ({"mfu": float("nan")}, "must be a positive number"),
        ({"mfu": None}, "`mfu` (none) must be a positive number"),
        ({"mfu": 41.0}, '`mfu` "41.0" must be at most 1'),
        ({"mfu": 1e-14}, "s, over 1,000,000,000"),
        ({"tokens_per_second": "many"}, '`tokens_per_second` "many" must be a positive number'),
        ({"tokens_per_second": 1e12}, "`tokens_per_second` 1000000000000 means a step of 1.31e-07"),
        ({"mfu": 0.3, "tokens_per_second": 1e5}, '`mfu` "0.3" is given beside `tokens_per_second`'),
        ({"model_flops_per_second_per_gpu": 400.0}, "must be at least 1e+09 FLOP/s"),
        ({"model_flops_per_second_per_gpu": 990e12}, "is above the peak of a GPU, 9.895e+14"),
        ({}, "has no column `step_seconds`"),
    ],
)
def test_a_speed_that_no_run_can_have_is_refused(speeds: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as refused:
        measured(speeds)
    assert said in str(refused.value)


def test_one_run_needs_no_file(warehouse: Command, database: Path) -> None:
    stored = ("--name", "mine", "--db", database)
    run = ("measure", "tp2", *OPTIONS, "--tflops", "300", *stored)
    code, out, err = warehouse(*run, "--json")
    assert code == 0, err
    [line] = json.loads(out)
    assert line["measured_step_seconds"] == pytest.approx(FLOPS / 8 / 300e12)
    assert (line["measured_row"], line["tensor_parallel"], line["data_parallel"]) == ("mine", 2, 4)
    assert "mine: TFLOP/s/GPU 300: 0.4955 s, by 1.19e+15 model FLOPs a step" in err
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select measured_row, measurement_file, note from measurement"
        [(row, file, note)] = connection.execute(query).fetchall()
    assert (row, file) == ("mine", "the run")
    assert note.startswith("TFLOP/s/GPU 300: 0.4955 s")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((*OPTIONS, "--name", "a"), 2, "a run without a file needs its speed"),
        (("tp2", "dp4", "--name", "a"), 2, "a run without a file needs its speed"),
        ((*OPTIONS, "--mfu", "0.4"), 2, "Missing option '--name'"),
        ((*OPTIONS, "--mfu", "1.5", "--name", "a"), 3, "`--mfu` 1.5 must be at most 1"),
        ((*OPTIONS, "--tflops", "0", "--name", "a"), 3, "`--tflops` 0 must be above 0"),
        ((*OPTIONS, "--seconds", "nan", "--name", "a"), 3, "`--seconds` nan must be above 0"),
        (
            (*OPTIONS, "--mfu", "0.4", "--tflops", "300", "--name", "a"),
            2,
            "`--tflops` and `--mfu`: a run has one speed",
        ),
        (("runs.csv", "--mfu", "0.4"), 2, "runs.csv and a speed: give one of them"),
        (("--drop", "a", "--mfu", "0.4"), 2, "`--drop` removes stored runs: give no"),
        ((*OPTIONS, "tp3", "--mfu", "0.4", "--name", "a"), 3, "`tensor_parallel` 3 does not div"),
    ],
)
def test_a_run_that_is_not_given_well_is_refused(
    warehouse: Command, database: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = warehouse("measure", *options, "--db", database)
    assert (found, out) == (code, "")
    assert said in err
