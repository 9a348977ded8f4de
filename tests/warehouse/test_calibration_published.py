"""Calibration on published steps: which rows take part, and what the others get."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest

from warehouse.calibrate.published import (
    filtered,
    published_reference,
    published_steps,
    published_tables,
)
from warehouse.calibrate.run import run_calibration

# ---- published tables ----


def test_published_rows_are_those_of_the_view_in_a_database(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = warehouse_connection.execute(
        "select reference, published_row, published_step_seconds, num_gpus from published_step"
    ).fetchall()
    names = ("reference", "published_row", "published_step_seconds", "num_gpus")
    assert sorted(published_steps().select(names).rows()) == sorted(rows)
    assert {"published_megatron_scaling", "published_megatron_recompute"} <= set(published_tables())


def test_the_output_layer_of_published_models_is_that_of_table_model() -> None:
    h100 = published_reference("published_megatron_h100_scaling")
    assert h100["ties_embedding"].to_list() == [False] * 9
    assert published_reference("published_megatron_scaling")["ties_embedding"].all()


def leave_out_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit only: what other tables are predicted with takes longer than the fit."""
    monkeypatch.setattr("warehouse.calibrate.run.published_tables", list)


@pytest.mark.long
def test_rows_of_a_program_that_no_framework_describes_are_left_out_unless_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "published_megatron_training_time"
    found = run_calibration(name, Path(name), constants=["gemm_efficiency"])
    assert all(row.startswith("PTD-P") for row in found.row_names)
    assert "6 rows of a program" in found.notes[0]
    rest = {(o.reference, o.is_own_framework, o.num_rows) for o in found.others}
    assert (name, False, 6) in rest
    assert (name, True) not in {one[:2] for one in rest}
    leave_out_other_tables(monkeypatch)
    named = run_calibration(
        name, Path(name), constants=["gemm_efficiency"], conditions=["group=ZeRO-3"]
    )
    assert all(row.startswith("ZeRO-3") for row in named.row_names)


@pytest.mark.long
def test_other_tables_and_rows_are_predicted_with_the_constants_that_they_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "published_megatron_scaling"
    found = run_calibration(
        name, Path(name), constants=["gemm_efficiency"], conditions=["row!=76B,1T", "num_gpus!=32"]
    )
    assert len(found.row_names) == 7
    others = {(each.reference, each.is_own_framework): each for each in found.others}
    [rest] = [each for each in found.others if each.reference == name]
    assert rest.num_rows == 3
    h100 = others["published_megatron_h100_scaling", True]
    assert not h100.takes_fitted
    assert h100.fitted == h100.untuned
    recompute = others["published_megatron_recompute", True]
    assert recompute.takes_fitted
    frame = published_reference("published_megatron_recompute")
    leave_out_other_tables(monkeypatch)
    again = run_calibration("published_megatron_recompute", Path(), constants=["gemm_efficiency"])
    assert recompute.untuned == again.fit.errors["untuned"]
    assert recompute.fitted != recompute.untuned
    assert recompute.num_rows == frame.height


def test_a_filter_compares_numbers_flags_and_texts_as_they_are_written() -> None:
    frame = pl.DataFrame({"n": [8, 16], "f": [True, False], "t": ["PTD-P", "ZeRO-3"]})
    assert filtered(frame, ["n=8.0"]).to_list() == [True, False]
    assert filtered(frame, ["f=False"]).to_list() == [False, True]
    assert filtered(frame, ["t=ptd-p,x"]).to_list() == [True, False]
    assert filtered(frame, ["n=8", "f=false"]).to_list() == [False, False]
