"""One query as a file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import polars as pl
import pytest

from warehouse.database.connection import open_for_read
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
        select 9007199254740993 as id, '=1+1' as text, 'nan'::double as gap, [1, 2] as list,
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


def test_a_sheet_of_too_many_rows_is_refused(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_file, "SHEET_ROWS", 2)
    with pytest.raises(InputError, match="holds 2 rows"):
        export_query(empty_warehouse, "from range(3)", tmp_path / "rows.xlsx")
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
