"""The four formats: their text, and that reading it back gives the same values."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.show.formats import Format, write
from warehouse.show.tables import Terminal
from warehouse.show.values import Figure, json_value, shown


def written(
    columns: Sequence[str],
    *blocks: Sequence[Sequence[Any]],
    form: Format = Format.TABLE,
    width: int | None = None,
    first: Sequence[str] = (),
) -> str:
    stream = io.StringIO()
    write(stream, columns, blocks, form, None if width is None else Terminal(width, first=first))
    return stream.getvalue()


def test_a_table_aligns_numbers_right_and_text_left() -> None:
    assert written(("name", "n", "x"), [("ab", 1, 0.1 + 0.2), ("c", 1000, None)]) == (
        "name     n     x\n----  ----  ----\nab       1   0.3\nc     1000  NULL\n"
    )


def test_a_table_off_the_terminal_is_never_cut() -> None:
    long = "x" * 500
    assert written(("a", "b"), [(long, long)]).splitlines()[-1] == f"{long}  {long}"


def test_a_table_on_a_terminal_clips_cells() -> None:
    lines = written(("a",), [("x" * 500,)], width=80).splitlines()
    assert [len(line) for line in lines] == [1, 60, 60]
    assert lines[-1].endswith("x…")


def test_wide_characters_take_two_places() -> None:
    assert written(("a", "b"), [("日本語", 1), ("abc", 20)]) == (
        "a        b\n------  --\n日本語   1\nabc     20\n"
    )
    assert written(("a",), [("日" * 100,)], width=12).splitlines()[-1] == "日" * 5 + " …"


def test_columns_that_do_not_fit_a_terminal_are_named_below_it() -> None:
    columns, row = ("layout", "step", "mfu", "notes"), ("dp4 tp8", 1.5, 60, "n" * 40)
    other = ("dp8 tp4", 2.5, 50, "m" * 40)
    assert written(columns, [row, other], width=24).splitlines() == [
        "layout   step  mfu",
        "-------  ----  ---",
        "dp4 tp8   1.5   60",
        "dp8 tp4   2.5   50",
        "not shown: notes (--wide",
        "shows all, --columns",
        "chooses)",
    ]


def test_a_terminal_keeps_the_columns_that_matter_most_in_their_places() -> None:
    columns, row = ("model", "dp", "tp", "step"), ("gpt3", 128, 8, 12.5)
    rows = [row, ("gpt4", 256, 4, 13.5)]
    lines = written(columns, rows, width=12, first=("step", "model")).splitlines()
    assert lines[0] == "model  step"
    assert written(columns, rows, width=3, first=("step",)).splitlines()[0] == "step"


def test_a_terminal_hides_columns_with_one_value_first_and_says_it() -> None:
    rows = [("gpt3", 8, 1, 1.5), ("gpt3", 16, 1, 2.5)]
    lines = written(("model", "dp", "pp", "step"), rows, width=10, first=("model",)).splitlines()
    assert [line.split() for line in lines[:4:2]] == [["dp", "step"], ["8", "1.5"]]
    expected = (
        "not shown: the same in all rows: model gpt3, pp 1 (--wide shows all, --columns chooses)"
    )
    assert " ".join(lines[4:]) == expected


def test_a_terminal_never_hides_columns_that_tell_rows_apart() -> None:
    columns = ("step", "mfu", "cost", "gpu", "vp", "twice")
    rows = [(1.5, 50.5, 3.25, "H", 1, 2), (1.5, 50.5, 3.5, "H", 2, 4), (1.5, 50.5, 3.5, "B", 1, 2)]
    lines = written(columns, rows, width=14, first=("step", "mfu", "cost")).splitlines()
    assert lines[0].split() == ["cost", "gpu", "vp"]
    assert len({line.split()[1:][0] + line.split()[1:][1] for line in lines[2:5]}) == 3
    assert "twice; the same in all rows: step 1.5, mfu 50.5" in " ".join(lines[5:])


def test_long_names_keep_their_ends_on_a_terminal() -> None:
    names = [f"plan {'x' * 60} {digits}" for digits in ("9ed357", "8c6659")]
    stream = io.StringIO()
    terminal = Terminal(80, names=("study",))
    write(stream, ("study",), [[(name,) for name in names]], terminal=terminal)
    lines = stream.getvalue().splitlines()[2:]
    assert [line[-6:] for line in lines] == ["9ed357", "8c6659"]
    assert all(len(line) == 60 and line.startswith("plan ") for line in lines)


def test_wider_rows_of_later_blocks_never_leave_the_terminal() -> None:
    blocks = [[("a", 1), ("a", 1)], [("b" * 20, 2)], [("c" * 50, 3)]]
    lines = written(("name", "n"), *blocks, width=26).splitlines()
    assert lines[3:] == ["a     1", "b" * 20 + "  2", "c" * 19 + "…  3"]


def test_headings_are_bold_where_the_terminal_has_styles() -> None:
    stream = io.StringIO()
    write(stream, ("a", "b"), [[(1, 2), (3, 4)]], terminal=Terminal(80, has_styles=True))
    assert stream.getvalue().splitlines()[0] == "\x1b[1ma  b\x1b[0m"


def test_later_blocks_widen_a_table_and_lose_nothing() -> None:
    lines = written(("a", "b"), [("x", 1)], [("y" * 9, 22)], [("z", 3)]).splitlines()
    assert lines[2:] == ["x  1", "yyyyyyyyy  22", "z           3"]


@pytest.mark.parametrize("form", Format)
def test_no_rows_leave_what_a_reader_can_still_read(form: Format) -> None:
    text = written(("a", "b"), form=form)
    assert text == written(("a", "b"), [], form=form)
    expected = {
        Format.TABLE: "a  b\n-  -\n",
        Format.CSV: "a,b\n",
        Format.JSON: "[]\n",
        Format.MARKDOWN: "| a | b |\n| --- | --- |\n",
    }
    assert text == expected[form]


def test_nothing_in_a_table_can_break_its_lines_or_steer_a_terminal() -> None:
    text = written(("a\nb",), [("x\r\n\x1b[2Jy\u202e",)])
    assert text.splitlines() == ["a\\nb", "-" * 19, "x\\r\\n\\x1b[2Jy\\u202e"]


def test_markdown_escapes_its_bars() -> None:
    assert written(("a|b",), [("c|d\ne",)], form=Format.MARKDOWN).splitlines()[0::2] == [
        "| a\\|b |",
        "| c\\|d\\\\ne |",
    ]


def test_json_has_null_for_nan_and_iso_dates() -> None:
    columns = ("x", "y", "z", "at", "on", "t", "raw", "list", "map", "id", "took")
    row = (
        *(math.nan, math.inf, -0.5, datetime(2024, 5, 31, 12, 0, 0, 5), date(2024, 5, 31)),
        *(time(1, 2), b"\x00\xff", (1, math.nan, None), {1: date(2024, 1, 1)}, UUID(int=1)),
        timedelta(days=1),
    )
    found = json.loads(written(columns, [row], form=Format.JSON))[0]
    assert list(found.values()) == [
        *(None, None, -0.5, "2024-05-31T12:00:00.000005", "2024-05-31", "01:02:00", "00ff"),
        *([1, None, None], {"1": "2024-01-01"}, "00000000-0000-0000-0000-000000000001"),
        "1 day, 0:00:00",
    ]


def test_json_keeps_every_digit_of_an_integer() -> None:
    numbers = [(2**63 - 1,), (-(2**63),), (10**38,)]
    found = json.loads(written(("n",), numbers, form=Format.JSON))
    assert [(record["n"],) for record in found] == numbers


def test_json_keeps_both_of_two_columns_of_one_name() -> None:
    found = json.loads(written(("a", "a", "a_1"), [(1, 2, 3)], form=Format.JSON))
    assert found == [{"a": 1, "a_1": 2, "a_1_1": 3}]


@pytest.mark.parametrize(
    ("value", "expected"), [("0.10", 0.1), ("12345678901234567890.12", "12345678901234567890.12")]
)
def test_decimals_are_numbers_where_a_float_is_exact_and_text_elsewhere(
    value: str, expected: float | str
) -> None:
    assert json_value(Decimal(value)) == expected


def test_csv_distinguishes_null_from_an_empty_text() -> None:
    assert written(("a", "b"), [(None, ""), ("x", 'y "z"')], form=Format.CSV) == (
        'a,b\n,""\nx,"y ""z"""\n'
    )


cells = st.one_of(
    st.none(), st.text(st.characters(exclude_categories=["Cs"])), st.integers(), st.floats()
)
tables = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.tuples(*[cells] * size), min_size=1, max_size=5)
)


@given(tables)
def test_any_values_come_back_from_csv_as_they_went_in(rows: list[tuple[Any, ...]]) -> None:
    columns = [f"c{place}" for place in range(len(rows[0]))]
    text = written(columns, rows, form=Format.CSV)
    found = list(csv.reader(io.StringIO(text, newline="")))
    expected = [
        ["" if value is None else value if isinstance(value, str) else repr(value) for value in row]
        for row in rows
    ]
    # The csv module takes the line of a single NULL for an empty line.
    assert [row or [""] for row in found[1:]] == expected


@given(tables)
def test_any_values_come_back_from_json(rows: list[tuple[Any, ...]]) -> None:
    columns = [f"c{place}" for place in range(len(rows[0]))]
    found = json.loads(written(columns, rows, form=Format.JSON))
    expected = [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in row]
        for row in rows
    ]
    assert [list(record.values()) for record in found] == expected


def test_every_type_of_duckdb_can_be_written(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        types = connection.execute("describe from test_all_types()").fetchall()
        readable = [n for n, kind, *_ in types if "TIME ZONE" not in kind and "TZ" not in kind]
        chosen = ", ".join(f'"{name}"' for name in readable)
        rows = connection.execute(f"select {chosen} from test_all_types()").fetchall()
    assert len(readable) > 40
    assert len(json.loads(written(readable, rows, form=Format.JSON))) == len(rows)
    csv_file = tmp_path / "all.csv"
    csv_file.write_text(written(readable, rows, form=Format.CSV), encoding="utf-8", newline="")
    assert pl.read_csv(csv_file, infer_schema=False).shape == (len(rows), len(readable))
    assert written(readable, rows).count("\n") == 2 + len(rows)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (1 / 3, "0.333333"),
        (3.12e14, "3.12e+14"),
        (123456789, "123456789"),
        (math.inf, "inf"),
        (datetime(2024, 5, 31, 12), "2024-05-31 12:00:00"),
        ([1, "a", None], '[1, "a", null]'),
    ],
)
def test_a_table_shows_values_short(value: object, text: str) -> None:
    assert shown([value]) == [text]
    assert shown([None, value, Figure("7")]) == ["NULL", text, "7"]


def test_a_figure_is_aligned_as_a_number() -> None:
    lines = written(("size",), [(Figure("1,000"),), (Figure("2"),)]).splitlines()
    assert lines == [" size", "-----", "1,000", "    2"]
