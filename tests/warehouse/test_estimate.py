"""The size of a sweep before it runs: exact for few combinations, from a sample for many."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.studies.study import Study, read_study
from warehouse.sweep import cells
from warehouse.sweep.cells import counted_cells
from warehouse.sweep.estimate import cost_of, estimate
from warehouse.sweep.runner import rate_of_trial, run_study
from warehouse.sweep.sizes import Rate, remember_rate, remembered_rate


def study(**space: Any) -> Study:
    values = {"model": "gpt3_1T", "accelerator": "A100", "global_batch_size": 64, **space}
    return read_study({"name": "mine", "estimator": "roofline", "space": values}, "mine")


def test_stored_cells_are_not_missing_unless_they_are_forced(database: Path) -> None:
    run_study(database, study(num_gpus=[8, 16]))
    larger = study(num_gpus=[8, 16, 32])
    found = estimate(larger, database)
    of_cells = {c.problem.values["num_gpus"]: 0 for c, _ in found.cells.counted}
    for cell, rows in found.cells.counted:
        of_cells[cell.problem.values["num_gpus"]] += rows
    assert found.size.rows == sum(of_cells.values())
    assert found.size.missing_rows == of_cells[32]
    assert estimate(larger, database, force=True).size.missing_rows == found.size.rows


def test_nothing_missing_costs_nothing_with_a_message(database: Path) -> None:
    run_study(database, study(num_gpus=8))
    found = estimate(study(num_gpus=8), database)
    assert found.cost == (0.0, 0.0)
    assert found.in_words() == f"mine: all {found.size.rows:,} rows are stored already"


@pytest.mark.long
def test_a_sample_of_the_combinations_comes_close_to_all(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 480 combinations whose cells have up to a thousand times the rows of the smallest one
    wide = study(
        num_gpus={"powers_of_two": [6, 13]},
        global_batch_size={"powers_of_two": [6, 11]},
        seq_len=[1024, 2048, 4096, 8192, 16384],
        accelerator=["A100", "B200"],
    )
    exact = counted_cells(wide, packaged_catalog())
    monkeypatch.setattr(cells, "MOST_COUNTED", 100)
    found = estimate(wide, database)
    assert found.is_sampled
    assert found.size.rows == pytest.approx(exact.size().rows, rel=0.25)
    assert found.size.cells == pytest.approx(len(exact.counted), rel=0.25)
    assert found.in_words().startswith(f"mine: about {found.size.rows:,} rows of ")


def test_combinations_without_a_layout_count_as_none_in_a_sample(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 8 and 16 GPUs have no layout that splits tensors 32 ways
    narrow = study(num_gpus=[8, 16, 64, 128], tensor_parallel=[1, 32])
    exact = counted_cells(narrow, packaged_catalog())
    monkeypatch.setattr(cells, "MOST_COUNTED", 1)
    found = estimate(narrow, database)
    assert found.size.rows == pytest.approx(exact.size().rows, rel=0.25)


def test_a_fault_is_refused_in_a_sample_too(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "MOST_COUNTED", 0)
    with pytest.raises(InputError, match='`model` "no_such_model"'):
        estimate(study(model="no_such_model", num_gpus=8), database)


def test_the_cost_follows_from_the_last_long_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_CACHE", str(tmp_path))
    counted = counted_cells(study(num_gpus=8), packaged_catalog())
    remember_rate("roofline", Rate(rows_per_second=1000.0, bytes_per_row=40.0))
    assert cost_of(counted, 5000) == (5.0, 200_000.0)
    (tmp_path / "sweep-rate-roofline.json").write_text('{"rows_per_second": "fast"}')
    assert remembered_rate("roofline") is None


@pytest.mark.long
def test_a_trial_stores_some_cells_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rate = rate_of_trial(counted_cells(study(num_gpus=[8, 16, 32]), packaged_catalog()))
    assert rate.rows_per_second > 0
    assert rate.bytes_per_row >= 0.125
    assert not list(tmp_path.iterdir())
