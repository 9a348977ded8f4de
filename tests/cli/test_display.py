"""Columns of tables: `--columns`, `--wide`, and the width of a terminal."""

from __future__ import annotations

import json
import re

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli.common import put_document, put_for_people
from warehouse.cli.display import fitted
from warehouse.cli.output import Output
from warehouse.show.units import for_people

RANK = ("rank", "--model", "gpt3_1T", "--num-gpus", 4096)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda: 60)


def test_chosen_columns_are_shown_in_the_order_they_were_named(
    warehouse: Command, quickstart: Quickstart
) -> None:
    named = ("--columns", "mfu, TP,step_seconds", "--db", quickstart.database)
    _, out, _ = warehouse(*RANK, *named)
    assert out.splitlines()[0].split() == ["MFU", "%", "TP", "step", "s"]
    _, out, _ = warehouse(*RANK, *named, "--json")
    assert list(json.loads(out)[0]) == ["mfu", "tensor_parallel", "step_seconds"]


def test_columns_are_chosen_by_headings_with_units(
    warehouse: Command, quickstart: Quickstart
) -> None:
    named = ("--columns", "step s,MEMORY gb,rank,step s", "--db", quickstart.database)
    _, out, _ = warehouse(*RANK, *named)
    assert out.splitlines()[0].split() == ["step", "s", "memory", "GB", "rank"]


def test_columns_of_a_document_are_refused(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse(
        "status", "--json", "--columns", "study", "--db", quickstart.database
    )
    assert (code, out) == (2, "")
    assert "this JSON is a document" in err


def test_a_column_that_no_table_has_is_refused(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse(*RANK, "--columns", "mfu,setting", "--db", quickstart.database)
    assert (code, out) == (2, "")
    assert "`--columns` setting: the result has no such column" in err
    assert "hint: " in err
    code, out, err = warehouse(*RANK, "--columns", "mfu,modle", "--db", quickstart.database)
    assert (code, out) == (2, "")
    assert "`--columns` modle: the result has no such column\nhint: did you mean model?" in err


def test_no_column_is_not_all_of_them(warehouse: Command, quickstart: Quickstart) -> None:
    code, out, err = warehouse(*RANK, "--columns", " , ", "--db", quickstart.database)
    assert (code, out) == (2, "")
    assert '`--columns` "" names no column' in err


@pytest.mark.usefixtures("narrow")
def test_a_table_fits_the_terminal_and_names_what_it_leaves_out(
    warehouse: Command, quickstart: Quickstart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, out, _ = warehouse(*RANK, "--db", quickstart.database)
    assert all(len(line) <= 60 for line in out.splitlines())
    assert {"step", "MFU"} <= set(out.splitlines()[0].split())
    assert "not shown: " in out
    assert " rank 1" in out  # the same in all rows
    assert "\x1b" not in out


@pytest.mark.usefixtures("narrow")
def test_wide_shows_every_column(warehouse: Command, quickstart: Quickstart) -> None:
    _, out, _ = warehouse(*RANK, "--wide", "--db", quickstart.database)
    assert "not shown" not in out
    assert len(out.splitlines()[0]) > 60


def test_a_narrow_table_keeps_the_layout(
    warehouse: Command, quickstart: Quickstart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda: 80)
    monkeypatch.setenv("NO_COLOR", "1")
    _, out, _ = warehouse("rank", "--model", "gpt3_1T", "--db", quickstart.database)
    header = out.splitlines()[0].split()
    assert {"GPUs", "DP", "TP", "PP", "step"} <= set(header)
    assert " rank 1" in " ".join(out.split())  # the same in all rows


def test_long_lines_are_broken_between_words_for_a_terminal_alone() -> None:
    text = (
        "a line of words that go on\n  time       some days and so on\nnext: warehouse rank --db x"
    )
    assert fitted(text, None) == text
    assert fitted(text, 20).splitlines() == [
        "a line of words that",
        "go on",
        "  time       some",
        "             days",
        "             and so",
        "             on",
        "next: warehouse rank --db x",
    ]


def test_a_terminal_keeps_errors_and_high_ends_before_numbers_of_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    def shown(width: int, *columns: str) -> set[str]:
        monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: width)
        put_for_people(columns, [[0.5] * len(columns), [0.6] * len(columns)])
        heading = capsys.readouterr().out.splitlines()[0]
        headings, _ = for_people(columns, [[0.5] * len(columns)])
        return {c for c, h in zip(columns, headings, strict=True) if f" {h} " in f" {heading} "}

    errors = ("time_mean_absolute_relative_error", "time_bias", "time_max_absolute_relative_error")
    kept = shown(60, "num_rows", "num_published", "figures", *errors)
    assert kept >= set(errors)
    ends = ("low_step_seconds", "high_step_seconds")
    assert shown(22, "rank", *ends) == {"rank", "high_step_seconds"}
    measured = ("estimator", "profile", "model", "measured_step_seconds", "time_relative_error")
    assert shown(34, *measured) >= {"measured_step_seconds", "time_relative_error"}


def test_a_terminal_keeps_dollars_and_the_columns_that_distinguish_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    columns = (
        *("model", "accelerator", "num_runs", "num_gpus", "training_seconds", "best_layout"),
        *("lowest_gpu_hours", "basis", "usd_per_gpu_hour", "lowest_cost_usd", "highest_cost_usd"),
    )
    rows = [
        [model, "A100 SXM 80GB", 9, 64, 9e6, "dp8 tp2 cp4 pp128 micro1", 1e6, basis, *dollars]
        for model, price in (("12 x 1024, ffn 4096, experts", 1.0), ("llama3_8B", 2.0))
        for basis, dollars in (
            ("owned", (0.5, price * 3e7, price * 5e7)),
            ("three_year", (0.7, price * 4e7, price * 6e7)),
        )
    ]

    def shown(width: int) -> list[str]:
        monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: width)
        put_for_people(columns, rows)
        heading, *lines = capsys.readouterr().out.splitlines()
        assert len(heading) <= width
        assert len({line for line in lines if " owned" in line or " three_year" in line}) == 4
        return re.split(r" {2,}", heading)

    dollars = ["lowest USD", "highest USD"]
    assert shown(100)[-3:] == ["USD/GPU-hour", *dollars]
    assert {"model", "basis", *dollars} <= {*shown(66)}
    assert {"model", "basis", "lowest USD"} <= {*shown(60)}


def test_a_terminal_distinguishes_rows_if_only_figures_are_important(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: 40)
    columns = ("rank", "step_seconds", "mfu", "pipeline_parallel", "virtual_pipeline")
    put_for_people(columns, [[1, 1.5, 0.5, 4, 2], [2, 1.6, 0.5, 4, 4]])
    assert "VP" in capsys.readouterr().out.splitlines()[0].split()
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: 20)
    put_for_people(columns, [[1, 1.5, 0.5, 4, 2], [2, 1.6, 0.5, 4, 4]])
    heading, _, first, second, *hidden = capsys.readouterr().out.splitlines()
    assert "VP" in heading.split()
    assert first.split()[-1] != second.split()[-1]
    assert "the same in all rows: MFU % 50.0" in " ".join(hidden)


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    text = "  chance     that it fits is 99 % on 2,048 GPUs; 1.5 s a step, 12 seconds"
    assert fitted(text, 32).splitlines() == [
        "  chance     that it fits is",
        "             99 % on 2,048 GPUs;",
        "             1.5 s a step, 12",
        "             seconds",
    ]


def test_a_document_has_ids_as_texts_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"best": [{"problem_id": 2**60, "num_gpus": 8, "tokens": 2**53 + 1}], "is_new": True}
    with Output(as_json=True, ids_as_text=True).opened():
        put_document(document)
    assert json.loads(capsys.readouterr().out) == {
        "best": [{"problem_id": str(2**60), "num_gpus": 8, "tokens": str(2**53 + 1)}],
        "is_new": True,
    }


def test_a_text_is_broken_rather_than_left_out(
    warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.cli.display.terminal_width", lambda *_: 80)
    monkeypatch.setenv("NO_COLOR", "1")
    layout = ("tensor_parallel=2", "pipeline_parallel=2", "--gpus", 64)
    _, out, _ = warehouse("explain", *layout, "--model", "llama3_8B", "--accelerator", "H100")
    parts = out.partition("\nconstant")[0].splitlines()
    assert max(map(len, parts)) <= 80
    assert any(re.match("gemm .* microbatches x", line) for line in parts)
    assert "sum over matmuls" in " ".join(out.split())
