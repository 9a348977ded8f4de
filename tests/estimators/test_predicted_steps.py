"""The gate: no estimate of a measured step changes unseen.

`predicted_steps.csv` has the estimate of every published step. It is no measurement: whether an
estimate is good is shown in docs/accuracy.md.
"""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from benchmarks.predictions import MEASURES, Prediction, Row, changes, predicted, read, write
from estimators.training_step.estimator import TRAINING_STEP
from warehouse.calibrate.published import published_steps

WHAT_TO_DO = (
    "if that is meant: raise `version` in estimators/training_step/estimator.py (once a release), "
    "say in CHANGELOG.md what users now see, and run `python -m benchmarks.predictions`"
)


def test_no_estimate_of_a_measured_step_changes_unseen() -> None:
    versions, before = read()
    found = changes(before, predicted())
    listed = "\n".join(found)
    assert not found, f"{len(found)} estimates changed; {WHAT_TO_DO}\n{listed}"
    assert versions == {TRAINING_STEP.version}, (
        f"the file is of version {versions}, the estimator has {TRAINING_STEP.version}; "
        "run `python -m benchmarks.predictions`"
    )


def test_the_file_has_every_published_step_once() -> None:
    _, estimates = read()
    steps = published_steps()
    assert len(estimates) == steps.height
    assert any(math.isnan(estimate.step_seconds) for estimate in estimates.values())
    assert all(len(estimate) == len(MEASURES) for estimate in estimates.values())


def test_a_changed_a_new_and_a_lost_row_are_named() -> None:
    before: dict[Row, Prediction] = {
        ("table", "group", "same"): Prediction(1.0, 1e9),
        ("table", "group", "slower"): Prediction(1.0, 1e9),
        ("table", "group", "larger"): Prediction(1.0, 1e9),
        ("table", "group", "refused"): Prediction(math.nan, math.nan),
        ("table", "group", "taken"): Prediction(math.nan, math.nan),
        ("table", "group", "lost"): Prediction(1.0, 1e9),
    }
    now: dict[Row, Prediction] = {
        ("table", "group", "same"): Prediction(1.0 + 1e-12, 1e9),
        ("table", "group", "slower"): Prediction(1.0 + 1e-6, 1e9),
        ("table", "group", "larger"): Prediction(1.0, 2e9),
        ("table", "group", "refused"): Prediction(math.nan, math.nan),
        ("table", "group", "taken"): Prediction(1.0, 1e9),
        ("table", "group", "new"): Prediction(1.0, 1e9),
    }
    assert changes(before, now) == [
        "table / group / slower: 1 s, 1 GB -> 1 s, 1 GB",
        "table / group / larger: 1 s, 1 GB -> 1 s, 2 GB",
        "table / group / taken: refused -> 1 s, 1 GB",
        "table / group / lost: is no published step any more",
        "table / group / new: is new, 1 s, 1 GB",
    ]


def test_an_input_of_a_measurement_reaches_its_estimate() -> None:
    steps = published_steps().filter(pl.col("published_group") == "torchtitan")
    slower = steps.with_columns(hbm_bytes_per_second=pl.col("hbm_bytes_per_second") / 2)
    before, now = predicted(steps), predicted(slower)
    assert len(changes(before, now)) == steps.height > 0
    assert all(now[key].step_seconds > before[key].step_seconds for key in before)


@pytest.mark.parametrize("broken", [1e-6, math.nan])
def test_the_gate_sees_one_row_of_the_file(broken: float) -> None:
    _, estimates = read()
    key = next(k for k, estimate in estimates.items() if not math.isnan(estimate.step_seconds))
    changed = {**estimates, key: Prediction(broken, estimates[key].memory_bytes)}
    [line] = changes(changed, estimates)
    assert " / ".join(key) in line


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "predicted.csv"
    write(path)
    versions, estimates = read(path)
    assert versions == {TRAINING_STEP.version}
    assert changes(estimates, predicted()) == []
