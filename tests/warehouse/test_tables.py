"""Tables on a terminal never hide what was asked for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from warehouse.cli.query import named_columns
from warehouse.show.formats import write
from warehouse.show.tables import Terminal

LONG = "time = 2 x parameters x tokens / (GPUs x peak rate x efficiency of the products)"


def lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], terminal: Terminal) -> list[str]:
    stream = io.StringIO()
    write(stream, columns, [rows], terminal=terminal)
    written = stream.getvalue().splitlines()
    assert all(len(line) <= terminal.width for line in written)
    return written


def test_one_row_has_a_line_a_column() -> None:
    rows = [(9126743205268106227, "gpt3", 0.5, LONG)]
    columns = ("problem_id", "model", "mfu", "how")
    assert lines(columns, rows, Terminal(60)) == [
        "model       gpt3",
        "mfu         0.5",
        "how         time = 2 x parameters x tokens / (GPUs x peak",
        "            rate x efficiency of the products)",
        "problem_id  9126743205268106227",
    ]
    assert lines(("n",), [(3,)], Terminal(60)) == ["n", "-", "3"]


def test_headings_of_columns_that_were_asked_for_are_broken_first() -> None:
    columns = ("time_mean_absolute_relative_error", "model", "tokens_per_second_per_gpu", "other")
    rows = [(0.25, "gpt3", 10, "a" * 30), (0.5, "gpt4", 20, "b" * 30)]
    written = lines(columns, rows, Terminal(40, kept=columns[:3]))
    assert written[:8] == [
        "    time_         tokens_",
        "    mean_            per_",
        "absolute_         second_",
        "relative_            per_",
        "    error  model      gpu",
        "---------  -----  -------",
        "     0.25  gpt3        10",
        "      0.5  gpt4        20",
    ]
    assert written[8].startswith("not shown: other ")


def test_a_table_whose_columns_cannot_fit_is_turned_on_its_side() -> None:
    columns = [f"column_{number}" for number in range(12)]
    rows = [[1e6 + number for number in range(12)], [2e6 + number for number in range(12)]]
    written = lines(columns, rows, Terminal(40, kept=columns))
    assert written[:2] == ["column_0   1e+06", "column_1   1e+06"]
    assert written.count("") == 1
    assert len(written) == 25
    stream = io.StringIO()
    write(stream, columns, [rows, rows], terminal=Terminal(40, kept=columns))
    assert stream.getvalue().count("column_11") == 4


def test_texts_are_broken_and_never_cut_off_where_the_table_wraps() -> None:
    rows = [("time", 1.5, LONG), ("memory", 2.5, LONG)]
    written = lines(("part", "seconds", "formula"), rows, Terminal(50, wraps=True))
    assert "…" not in "".join(written)
    words = " ".join(line[17:].strip() for line in written[2:])
    assert words == f"{LONG} {LONG}"


def test_ids_are_last_unless_a_query_names_them() -> None:
    columns, rows = ("cell_id", "model"), [(1, "a"), (2, "b")]
    assert lines(columns, rows, Terminal(40))[0].split() == ["model", "cell_id"]
    assert lines(columns, rows, Terminal(40, kept=columns))[0].split() == ["cell_id", "model"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("select a, b as c from t", ["a", "c", "d"]),
        ("select count(*) as a, max(b) from t", ["a", "c", "d"]),
        ("select * from t where C > 1 order by d", ["c", "d"]),
        ("from t", []),
        ("select a, t.* from t", ["a"]),
        ("SELECT DISTINCT * from t", []),
    ],
)
def test_the_columns_that_a_query_names(query: str, named: list[str]) -> None:
    assert list(named_columns(query, ["a", "c", "d"])) == named
