"""`warehouse plot`: the list, the file, the query, and wrong calls."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli.plot import wrapped_entry
from warehouse.database.connection import open_for_read
from warehouse.plot.draw import rows_of
from warehouse.plot.registry import PLOTS


@pytest.mark.long
def test_the_command_writes_the_file_and_says_what_it_shows(
    warehouse: Command, quickstart: Quickstart, tmp_path: Path
) -> None:
    out = tmp_path / "days.svg"
    code, sql, said = warehouse(
        *("plot", "training-days", "--model", "GPT3 1T", "--strategy", "tensor_1d"),
        *("--out", out, "--show-sql", "--db", quickstart.database),
    )
    assert code == 0, said
    assert "and model = 'gpt3_1T'" in sql
    assert said.splitlines()[0] == "variant corrected; also stored: published"
    assert said.splitlines()[1].startswith(f"{out}: 2,048 B200 train gpt3_1T in 22 days, ")
    assert said.splitlines()[1].endswith(", for 1 T tokens")
    assert ElementTree.parse(out).getroot().tag.endswith("svg")
    code, rows, error = warehouse("sql", sql, "--format", "csv", "--db", quickstart.database)
    assert (code, error) == (0, "")
    assert "gpt3_1T" in rows


@pytest.mark.long
def test_plans_with_assumptions_are_drawn_or_named(warehouse: Command, tmp_path: Path) -> None:
    db = tmp_path / "plans.duckdb"
    plan = (*("plan", "--model", "llama3_8B", "--tokens", "1e12", "--accelerator", "H100"),)
    fp8 = (*plan, "--gpus", "16", "--precision", "fp8", "--db", db)
    assert warehouse(*fp8)[0] == 0

    def said(*arguments: str) -> str:
        code, sql, error = warehouse("plot", *arguments, "--show-sql", "--db", db)
        assert code == 0, error
        # the query that is shown has the rows that are drawn
        assert "assumptions" in sql and len(warehouse("sql", sql, "--db", db)[1].splitlines()) > 2
        return error

    alone = "assumptions precision fp8; nothing is stored without them\n"
    for name in ("pareto", "training_days", "configurations", "tornado"):
        assert alone in said(name, "--model", "llama3_8B")
    assert alone in said("cost", "--model", "llama3_8B", "--tokens", "1e12")
    assert warehouse(*plan, "--gpus", "16", "--db", db)[0] == 0
    both = "assumptions none; also stored: 'precision fp8'; --assumptions draws them\n"
    assert both in said("pareto")
    assert "assumptions" not in said("pareto", "--assumptions", "precision fp8")
    code, _, error = warehouse("plot", "pareto", "--assumptions", "fp8", "--show-sql", "--db", db)
    assert code == 3
    assert "no stored row to show with assumptions fp8" in error
    assert "stored: assumptions none, precision fp8" in error
    # each is the step of its own problem, though the other one is faster
    steps = {}
    with open_for_read(db) as connection:
        for assumed in ("", "precision fp8"):
            rows, _, _ = rows_of(connection, PLOTS["tornado"], {"assumptions": assumed})
            [stored] = rows["step_seconds"].to_list()
            drawn = PLOTS["tornado"].completed(rows, connection)["step_seconds"][0]
            assert drawn == pytest.approx(stored)
            steps[assumed] = drawn
    assert steps[""] > steps["precision fp8"]


def test_a_filter_that_a_plot_lacks_names_the_plots_that_have_it(
    warehouse: Command, quickstart: Quickstart
) -> None:
    code, _, error = warehouse(
        *("plot", "training_days", "--study", "megatron", "--show-sql"),
        *("--db", quickstart.database),
    )
    assert code == 2
    named = error.partition("plots with this filter: ")[2].split("\n")[0].split(", ")
    assert named == [plot.name for plot in PLOTS.values() if "study" in plot.filters]
    assert "nvlink_domain" in named


def test_the_list_names_every_plot_and_what_fills_it(warehouse: Command) -> None:
    code, listed, _ = warehouse("plot")
    assert code == 0
    for plot in PLOTS.values():
        assert f"{plot.name} " in listed and plot.summary in listed
        assert all(command in listed for command in plot.filled_by)


def test_the_list_is_rows_in_every_other_format(warehouse: Command, tmp_path: Path) -> None:
    code, listed, _ = warehouse("plot", "--json")
    assert code == 0
    assert json.loads(listed) == [
        {"plot": one.name, "summary": one.summary, "filled_by": " or ".join(one.filled_by)}
        for one in PLOTS.values()
    ]
    out = tmp_path / "plots.csv"
    assert warehouse("plot", "--out", out, "--columns", "plot")[:2] == (0, "")
    assert out.read_text(encoding="utf-8").split() == ["plot", *PLOTS]


@pytest.mark.parametrize("columns", [100, 120])
def test_the_list_fits_a_terminal_and_keeps_commands_whole(columns: int) -> None:
    width = max(map(len, PLOTS))
    for plot in PLOTS.values():
        label = f"{plot.name:<{width}}  "
        lines = wrapped_entry(label, plot.summary, plot.filled_by, columns)
        assert max(map(len, lines)) <= columns
        assert " ".join("\n".join(lines).split()) == (
            f"{plot.name} {plot.summary} filled by {' or '.join(plot.filled_by)}"
        )
        for command in plot.filled_by:
            assert any(command in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--out", "a.svg"), "`NAME` is missing"),
        (("--out", "a.pdf"), "`--out` a.pdf does not say which format to write"),
        (("training_days", "--json"), "`--json` is for the list of plots, not for a picture"),
        (("training_days",), "`--out` is missing: plot training_days needs a file"),
        (("training_days", "--out", "a.pdf"), "`--out` a.pdf does not say which picture"),
    ],
)
def test_wrong_calls_are_reported(
    warehouse: Command, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    code, out, error = warehouse("plot", *arguments, "--db", tmp_path / "none.duckdb")
    assert (code, out) == (2, "")
    assert expected in error
