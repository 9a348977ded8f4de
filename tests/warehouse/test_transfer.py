"""Rows as files, all facts as a folder, and the way back."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import polars as pl
import pyarrow.dataset as dataset
import pytest
from warehouse.transfer.export_facts import export_facts, kept_tables
from warehouse.transfer.folder import MANIFEST, rows_path
from warehouse.transfer.import_facts import import_facts

from tests.shared import Quickstart
from tests.warehouse.test_drop import study
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.errors import InputError, UsageError
from warehouse.sweep.runner import run_study
from warehouse.transfer import export_facts as export_room
from warehouse.transfer import query_file
from warehouse.transfer.query_file import export_query

OWN = """
insert into calibration by name
select 'ours' as profile, 'published' as reference, 'training_step' as estimator,
    'launch_seconds' as step_constant, 0.1 + 0.2 as fitted_constant_value;
insert into calibration_row by name
select 'ours' as profile, 'published' as reference, 'row 1' as published_row;
insert into measurement by name
select 'cluster' as reference, 'run 1' as measured_row, min(problem_id) as problem_id,
    4.4 as measured_step_seconds, 'ours, "quoted"' as note
from problem
"""
"""A profile and a measured run: what no sweep brings back."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of two cells, a study, a profile and a measured run; nobody writes to it."""
    place = tmp_path_factory.mktemp("small")
    run_study(place / "small.duckdb", study(place, "small", "[32, 64]"))
    with open_for_write(place / "small.duckdb") as connection:
        connection.execute(OWN)
    return place / "small.duckdb"


@pytest.fixture(scope="module")
def folder(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its facts."""
    place = tmp_path_factory.mktemp("exported") / "facts"
    export_facts(small, place)
    return place


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "copied"))


def content(database: Path) -> dict[str, tuple[int, int]]:
    """Return the number of rows and an order-free hash of each stored table."""
    with open_for_read(database) as connection:
        tables = connection.execute(
            "select table_name from duckdb_tables() where not internal"
            " and table_name <> 'warehouse_meta' order by 1"
        ).fetchall()
        return {
            name: connection.execute(
                f"select count(*), coalesce(bit_xor(hash(stored)), 0) from {name} as stored"
            ).fetchall()[0]
            for (name,) in tables
        }


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


# ---- facts as a folder ----


def test_the_round_trip_is_equal(small: Path, folder: Path, tmp_path: Path) -> None:
    done = import_facts(tmp_path / "new.duckdb", folder)
    assert done.num_cells == 2
    assert done.named == {"study": ["small"], "calibration": ["ours"], "measurement": ["cluster"]}
    assert content(tmp_path / "new.duckdb") == content(small)


@pytest.mark.long
def test_the_round_trip_of_a_quickstart_is_equal(quickstart: Quickstart, tmp_path: Path) -> None:
    export_facts(quickstart.database, tmp_path / "facts")
    import_facts(tmp_path / "new.duckdb", tmp_path / "facts")
    assert content(tmp_path / "new.duckdb") == content(quickstart.database)


def test_a_second_import_changes_nothing(small: Path, folder: Path, tmp_path: Path) -> None:
    database = Path(shutil.copy(small, tmp_path / "same.duckdb"))
    done = import_facts(database, folder)
    assert (done.num_cells, done.num_known_cells, done.num_rows) == (0, 2, 0)
    assert not any(done.named.values())
    assert content(database) == content(small)


@pytest.mark.long
def test_only_missing_content_is_imported(small: Path, folder: Path, tmp_path: Path) -> None:
    database = tmp_path / "half.duckdb"
    run_study(database, study(tmp_path, "half", "[64]"))
    done = import_facts(database, folder)
    assert (done.num_cells, done.num_known_cells) == (1, 1)
    expected, found = content(small), content(database)
    assert found["roofline"] == expected["roofline"]
    assert found["measurement"] == expected["measurement"]
    assert found["study"][0] == 2


def test_other_programs_read_the_rows_with_their_cells(small: Path, folder: Path) -> None:
    with open_for_read(small) as connection:
        query = (
            "select count(*), min(step_seconds), max(num_gpus), min(model) from current_roofline"
        )
        expected = connection.execute(query).fetchall()
    with duckdb.connect() as connection:
        found = connection.execute(
            f"""
            select count(*), min(step_seconds), max(num_gpus), min(read.model)
            from read_parquet('{folder}/rows/roofline/*/*.parquet') as read
            inner join '{folder}/tables/cell.parquet' using (cell_id)
            inner join '{folder}/tables/problem.parquet' using (problem_id)
            """
        ).fetchall()
    assert found == expected
    rows = pl.read_parquet(folder / "rows" / "roofline")
    assert (rows.height, rows["model"].unique().to_list()) == (expected[0][0], ["gpt3"])
    arrow = dataset.dataset(folder / "rows" / "roofline", partitioning="hive").to_table()
    assert (len(arrow), set(arrow["model"].to_pylist())) == (expected[0][0], {"gpt3"})


def test_a_name_of_a_model_becomes_a_path_that_readers_decode() -> None:
    assert rows_path("roofline", "a/b c=%") == "rows/roofline/model=a%2Fb%20c%3D%25/rows.parquet"
    assert "__HIVE_DEFAULT_PARTITION__" in rows_path("roofline", None)


def test_a_folder_that_exists_is_left_alone(small: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    for place in (taken, taken / "mine.txt"):
        with pytest.raises(InputError, match="exists already"):
            export_facts(small, place)
    with pytest.raises(InputError, match="does not exist"):
        export_facts(small, tmp_path / "missing" / "facts")
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "mine.txt"]


def test_an_export_that_fails_leaves_no_folder(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export_room, "write_manifest", fail)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        export_facts(small, tmp_path / "facts")
    assert not list(tmp_path.iterdir())


def damage_bytes(folder: Path) -> None:
    path = next(folder.rglob("rows.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(folder: Path) -> None:
    path = folder / "tables" / "problem.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def remove_file(folder: Path) -> None:
    next(folder.rglob("rows.parquet")).unlink()


def forget_table(folder: Path) -> None:
    edit_manifest(folder, lambda document: document["files"].pop("tables/problem.parquet"))


def forget_rows(folder: Path) -> None:
    [path] = (path.relative_to(folder) for path in folder.rglob("rows.parquet"))
    edit_manifest(folder, lambda document: document["files"].pop(str(path)))


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((folder / MANIFEST).read_text("utf-8"))
    change(document)
    (folder / MANIFEST).write_text(json.dumps(document), encoding="utf-8")


DAMAGE = {
    "a byte": (damage_bytes, "its bytes are not those that were written"),
    "a short file": (cut_short, "bytes, and .* were written"),
    "a missing file": (remove_file, "rows.parquet: cannot be read: No such file"),
    "a missing table": (forget_table, "has no tables/problem.parquet"),
    "missing rows": (forget_rows, "cell .* of roofline has 0 rows, not"),
    "no manifest": (lambda f: (f / MANIFEST).unlink(), "is no folder of facts"),
    "a cut manifest": (lambda f: (f / MANIFEST).write_text("{"), "manifest.json: cannot be read"),
    "another format": (lambda f: (f / MANIFEST).write_text("{}"), "`format` is not"),
    "a list": (lambda f: (f / MANIFEST).write_text("[]"), "`format` is not"),
    "a newer format": (
        lambda f: edit_manifest(f, lambda d: d.update(format_version=99)),
        "`format_version` 99 is newer than this package",
    ),
    "a path outside": (
        lambda f: edit_manifest(f, lambda d: d["files"].update({"../x.parquet": {}})),
        "`files` does not list files",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_or_foreign_folder_changes_nothing(
    copied: Path, empty_warehouse: Path, tmp_path: Path, kind: str
) -> None:
    change, said = DAMAGE[kind]
    change(copied)
    database = Path(shutil.copy(empty_warehouse, tmp_path / "copy.duckdb"))
    with pytest.raises(InputError, match=said) as raised:
        import_facts(database, copied)
    assert raised.value.hint
    if kind == "missing rows":  # found in the transaction that would have stored the others
        assert not content(database)["cell"][0]
    else:
        assert database.read_bytes() == empty_warehouse.read_bytes()


def test_a_path_that_is_a_pattern_takes_no_other_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "fact?")
    with pytest.raises(InputError, match="in the path as a pattern"):
        import_facts(tmp_path / "new.duckdb", tmp_path / "fact?")
    assert [path.name for path in tmp_path.iterdir()] == ["fact?"]


def test_a_folder_that_is_none_makes_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        import_facts(tmp_path / "new.duckdb", tmp_path / "missing")
    assert not list(tmp_path.iterdir())


CHANGES = (
    ("update measurement set measured_step_seconds = 5", 'measurements "cluster"'),
    ("delete from calibration_row", 'profile "ours"'),
    ("update study set definition = '{}'", 'study "small"'),
)


@pytest.mark.long
def test_a_name_that_means_something_else_is_refused(
    small: Path, folder: Path, tmp_path: Path
) -> None:
    database = Path(shutil.copy(small, tmp_path / "other.duckdb"))
    for change, word in CHANGES:
        with open_for_write(database) as connection:
            connection.execute(change)
        with pytest.raises(InputError, match=f"{word}: others of that name are stored"):
            import_facts(database, folder)
    assert content(database)["roofline"] == content(small)["roofline"]


def test_every_stored_table_is_part_of_a_folder_or_made_again() -> None:
    assert {"cell", "problem", "study", "study_cell", "measurement", "calibration"} <= set(
        kept_tables()
    )
    assert "stored_best" not in kept_tables()
