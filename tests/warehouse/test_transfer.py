"""One query as a file."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import polars as pl
import pytest

from warehouse.database.connection import open_for_read
from warehouse.database.sql_text import literal
from warehouse.errors import InputError, UsageError
from warehouse.transfer import query_file
from warehouse.transfer.query_file import export_query

# ---- one query as a file ----


def test_a_query_is_the_same_in_every_format(empty_warehouse: Path, tmp_path: Path) -> None:
    query = "select model, num_layers, uses_glu from model where model like 'gpt%' order by model;"
    with open_for_read(empty_warehouse) as connection:
        expected = connection.execute(query).fetchall()
    assert len(expected) > 1
    for ending in ("parquet", "csv", "json", "md"):
        out = tmp_path / f"models.{ending}"
        assert export_query(empty_warehouse, query, out) == len(expected)
    names = ("model", "num_layers", "uses_glu")
    assert pl.read_parquet(tmp_path / "models.parquet").rows() == expected
    assert pl.read_csv(tmp_path / "models.csv").rows() == expected
    found = json.loads((tmp_path / "models.json").read_text("utf-8"))
    assert [tuple(row[name] for name in names) for row in found] == expected
    lines = (tmp_path / "models.md").read_text("utf-8").splitlines()
    assert lines[0] == "| model | num_layers | uses_glu |"
    assert [line.split(" | ")[1] for line in lines[2:]] == [str(row[1]) for row in expected]
    assert len(list(tmp_path.iterdir())) == 4


def test_an_excel_sheet_keeps_long_numbers_texts_and_gaps(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    query = """
        select 9007199254740993 as id, '=1+1' as text, null::double as gap, [1, 2] as list,
            timestamptz '2026-01-02 03:04:05+00' as moment, 0.1 as share
    """
    assert export_query(empty_warehouse, query, tmp_path / "rows.xlsx") == 1
    cells = cells_of(tmp_path / "rows.xlsx")
    assert [cells[f"{column}1"] for column in "ABCDEF"] == [
        *("id", "text", "gap", "list", "moment", "share")
    ]
    assert (cells["A2"], cells["B2"], cells["D2"]) == ("9007199254740993", "=1+1", "[1, 2]")
    assert "C2" not in cells
    assert cells["E2"].startswith("2026-01-0")
    assert float(cells["F2"]) == 0.1


def cells_of(sheet: Path) -> dict[str, str]:
    """Return the values and texts of the first sheet of an Excel file by their places."""
    name = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(sheet) as archive:
        strings = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
        texts = ["".join(each.itertext()) for each in strings.iter(f"{name}si")]
        rows = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))
    assert not list(rows.iter(f"{name}f"))  # no formula
    found = {}
    for cell in rows.iter(f"{name}c"):
        value = cell.findtext(f"{name}v")
        if value is not None:
            found[cell.attrib["r"]] = texts[int(value)] if cell.get("t") == "s" else value
    return found


def test_a_sheet_has_numbers_that_are_not_finite_as_texts_among_numbers(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.xlsx"
    warnings: list[str] = []
    values = "('1.5', 1), ('nan', 2), ('-inf', 3), (null, 4), ('inf', 5)"
    query = f"select x::double as x, x::float as y, n from (values {values}) as t(x, n) order by n"
    export_query(empty_warehouse, query, out, warn=warnings.append)
    cells = cells_of(out)
    for column in "AB":
        assert [cells.get(f"{column}{row}") for row in range(2, 7)] == [
            *("1.5", "nan", "-inf", None, "inf")
        ]
    assert warnings == [f"{out}: NaN and infinities are texts among the numbers of `x`, `y`"]


def test_a_sheet_keeps_times_of_a_day_and_dates(empty_warehouse: Path, tmp_path: Path) -> None:
    query = "select time '12:00:00' as noon, date '2026-01-02' as day"
    export_query(empty_warehouse, query, tmp_path / "rows.xlsx", warn=pytest.fail)
    cells = cells_of(tmp_path / "rows.xlsx")
    assert (float(cells["A2"]), float(cells["B2"])) == (0.5, 46024)


def test_a_sheet_of_too_many_rows_is_refused(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_file, "SHEET_ROWS", 2)
    with pytest.raises(InputError, match="holds 2 rows"):
        export_query(empty_warehouse, "from range(3)", tmp_path / "rows.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_sheet_needs_a_package_that_the_error_names(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(InputError, match="Excel files need the package xlsxwriter") as caught:
        export_query(empty_warehouse, "select 1 as x", tmp_path / "rows.xlsx")
    assert caught.value.hint == (
        "install it with `pip install 'training-warehouse[excel]'`, or export CSV"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "kind", "written", "said"),
    [
        ("sum(i)", pl.Int64(), 3, ""),
        ("[sum(i)]", pl.List(pl.Int64()), [3], ""),
        ("{a: sum(i)}", pl.Struct({"a": pl.Int64()}), {"a": 3}, ""),
        ("sum(i + 9223372036854775807)", None, 27670116110564327424, "decimal(38, 0)"),
        ("max(170141183460469231731687303715884105727::hugeint)", None, str(2**127 - 1), "varchar"),
        ("max(interval '1 month 3 days')", pl.String(), "1 month 3 days", "varchar"),
        ("max(interval '-1 second')", pl.String(), "-00:00:01", "varchar"),
        ("max(interval '1 microsecond')", pl.String(), "00:00:00.000001", "varchar"),
        ("[max(interval '1 day')]", pl.List(pl.String()), ["1 day"], "varchar[]"),
        ("max('12:00:00+02'::timetz)", pl.String(), "12:00:00+02", "varchar"),
        ("max('101'::bit)", pl.String(), "101", "varchar"),
        ("first(union_value(a := 1))", pl.String(), "1", "varchar"),
        ("[first(union_value(a := 1))]", pl.List(pl.String()), ["1"], "varchar[]"),
        (
            "{a: sum(i), b: max(interval '1 day')}",
            *(None, {"a": 3, "b": "1 day"}, 'struct("a" bigint, "b" varchar)'),
        ),
    ],
)
def test_parquet_has_the_values_of_the_query(
    empty_warehouse: Path,
    tmp_path: Path,
    value: str,
    kind: pl.DataType | None,
    written: object,
    said: str,
) -> None:
    out = tmp_path / "rows.parquet"
    warnings: list[str] = []
    query = f"select {value} as x, count(*) as n from range(3) as r(i)"
    assert export_query(empty_warehouse, query, out, warn=warnings.append) == 1
    found = pl.read_parquet(out)
    assert found.row(0) == (written, 3)
    assert kind is None or found.schema["x"] == kind
    assert [text.endswith(f": `x` as {said}") for text in warnings] == [True] * bool(said)


def test_a_large_number_changes_only_its_own_column_of_parquet(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.parquet"
    warnings: list[str] = []
    query = (
        "select sum(i) as n, sum(i + 9223372036854775807) as d, [sum(i)] as l, count(*) as c, "
        f"max({2**127 - 1}::hugeint) as m from range(3) as r(i)"
    )
    assert export_query(empty_warehouse, query, out, warn=warnings.append) == 1
    found = pl.read_parquet(out)
    assert found.row(0) == (3, 27670116110564327424, [3], 3, str(2**127 - 1))
    assert found.schema["n"] == pl.Int64()
    assert [text.partition("others: ")[2] for text in warnings] == [
        "`d` as decimal(38, 0), `m` as varchar"
    ]


SHEET_VALUES = {
    "interval '1 month 3 days'": "1 month 3 days",
    "interval '-1 second'": "-00:00:01",
    "[interval '1 year']": "[1 year]",
    "'ab'::blob": "6162",
    "'101'::bit": "101",
    "42::variant": "42",
    "union_value(a := 1)": "1",
    "{a: 1}": "{'a': 1}",
    "12345678901234567890.1234567890::decimal(38, 10)": "12345678901234567890.1234567890",
    "9007199254740993::hugeint": "9007199254740993",
    "timestamp_ns '2026-01-02 03:04:05.123456789'": "2026-01-02 03:04:05.123456789",
    f"{2**127 - 1}::hugeint": str(2**127 - 1),
    "date '1800-01-01'": "1800-01-01",
    "timestamp '1900-01-01'": "1900-01-01 00:00:00",
    "timestamp '20000-01-01'": "20000-01-01 00:00:00",
    "'infinity'::timestamp": "infinity",
    "'-infinity'::date": "-infinity",
    "time '24:00:00'": "24:00:00",
    "time_ns '03:04:05.123456789'": "03:04:05.123456789",
}
"""Values that Excel has no type for, or would change -> their texts."""


@pytest.mark.parametrize("value", SHEET_VALUES)
def test_an_excel_sheet_has_texts_of_what_it_cannot_hold(
    empty_warehouse: Path, tmp_path: Path, value: str
) -> None:
    out = tmp_path / "rows.xlsx"
    warnings: list[str] = []
    export_query(empty_warehouse, f"select {value} as x", out, warn=warnings.append)
    assert cells_of(out)["A2"] == SHEET_VALUES[value]
    assert [text.endswith(": `x` as varchar") for text in warnings] == [True]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select repeat('x', 40000) as text", "column `text` has a text of 40,000 UTF-16 units"),
        ("select repeat('\U0001f600', 20000) as text", "a text of 40,000 UTF-16 units"),
        (f"select 1 as {'x' * 256}", "has a name of more than 255 characters"),
    ],
)
def test_a_sheet_that_would_change_values_is_refused(
    empty_warehouse: Path, tmp_path: Path, query: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        export_query(empty_warehouse, query, tmp_path / "rows.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_sheet_of_too_many_columns_is_refused(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_file, "_SHEET_COLUMNS", 1)
    with pytest.raises(InputError, match="holds 1 columns, and the query has 2"):
        export_query(empty_warehouse, "select 1 as a, 2 as b", tmp_path / "rows.xlsx")


def test_decimals_of_few_digits_are_numbers_in_a_sheet(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    query = "select 1.5::decimal(38, 10) as a, sum(i) as b from range(3) as r(i)"
    export_query(empty_warehouse, query, tmp_path / "rows.xlsx", warn=pytest.fail)
    cells = cells_of(tmp_path / "rows.xlsx")
    assert (float(cells["A2"]), float(cells["B2"])) == (1.5, 3)


FORMULAS = ("=1+1", "+cmd|x", "-2+3+cmd|x", "@sum(1)", "\t=1", "\r=1")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_csv_says_which_columns_a_spreadsheet_would_run(
    empty_warehouse: Path, tmp_path: Path, text: str
) -> None:
    out = tmp_path / "rows.csv"
    warnings: list[str] = []
    query = (
        f"select 'plain' as a, {literal(text)} as b, -1.5 as c, '-1e5' as d, "
        "interval '-1 year -3 days -1 second' as e, '-1 day' as f"
    )
    export_query(empty_warehouse, query, out, warn=warnings.append)
    assert warnings == [
        f"{out}: texts in `b` begin as formulas do: import the CSV into a spreadsheet as text"
    ]
    assert pl.read_csv(out)["b"].item() == text


def test_a_geometry_is_the_same_text_in_every_text_format(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    for ending in ("csv", "json", "md"):
        out = tmp_path / f"rows.{ending}"
        export_query(empty_warehouse, "select 'POINT (1 2)'::geometry as x", out)
        assert "POINT (1 2)" in out.read_text("utf-8")


def test_json_has_ids_as_texts_on_request(empty_warehouse: Path, tmp_path: Path) -> None:
    query = "select 7 as cell_id, 9007199254740993 as big, 5 as n, [9007199254740993, 1] as list"
    out = tmp_path / "rows.json"
    export_query(empty_warehouse, query, out, ids_as_text=True)
    assert json.loads(out.read_text("utf-8")) == [
        {"cell_id": "7", "big": "9007199254740993", "n": 5, "list": ["9007199254740993", 1]}
    ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "xlsx", "md"])
def test_ids_as_texts_are_refused_elsewhere(
    empty_warehouse: Path, tmp_path: Path, ending: str
) -> None:
    with pytest.raises(UsageError, match="`--ids-as-text` is for JSON"):
        export_query(empty_warehouse, "model", tmp_path / f"rows.{ending}", ids_as_text=True)
    assert not list(tmp_path.iterdir())


def test_a_query_without_rows_leaves_a_file_with_a_header(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    for ending in ("parquet", "csv", "json", "md"):
        out = tmp_path / f"none.{ending}"
        assert export_query(empty_warehouse, "select 1 as a where false", out) == 0
    assert pl.read_parquet(tmp_path / "none.parquet").columns == ["a"]
    assert (tmp_path / "none.csv").read_text() == "a\n"
    assert json.loads((tmp_path / "none.json").read_text()) == []
    assert (tmp_path / "none.md").read_text() == "| a |\n| --- |\n"


def test_a_parquet_file_names_its_query(empty_warehouse: Path, tmp_path: Path) -> None:
    out = tmp_path / "it's.parquet"
    export_query(empty_warehouse, "system", out)
    with duckdb.connect() as connection:
        found = connection.execute(
            "select decode(key), decode(value) from parquet_kv_metadata(?)", [str(out)]
        ).fetchall()
    assert ("query", 'from "system"') in found


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "the query is empty"),
        ("select 1; select 2", "has 2 statements"),
        ("delete from model", "not a SELECT"),
        ("nonsense", "nonsense does not exist"),
        ("from read_csv('/etc/hosts')", "file system operations are disabled"),
        ("select 'x'::integer", "Could not convert"),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_refused_query_leaves_the_file_as_it_was(
    empty_warehouse: Path, tmp_path: Path, query: str, said: str, ending: str
) -> None:
    out = tmp_path / f"rows.{ending}"
    out.write_text("old")
    with pytest.raises(InputError, match=said):
        export_query(empty_warehouse, query, out)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_without_a_known_ending_is_refused(empty_warehouse: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not say which format to write\nhint: end it in"):
        export_query(empty_warehouse, "model", tmp_path / "rows.txt")


def full(*_: object) -> int:
    raise duckdb.IOException(f'IO Error: Could not write file "{_[2]}": No space left on device')


def test_a_full_disk_names_the_file_and_leaves_none(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_file, "copy_to", full)
    out = tmp_path / "rows.parquet"
    with pytest.raises(InputError, match=r"rows.parquet: cannot be written: .* No space left"):
        export_query(empty_warehouse, "model", out)
    assert not list(tmp_path.iterdir())
