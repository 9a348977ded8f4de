"""`warehouse plot`: the list, the file, the query, and wrong calls."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.shared import Command, Quickstart
from warehouse.cli.plot import wrapped_entry
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
