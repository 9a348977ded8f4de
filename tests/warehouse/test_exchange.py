"""Facts of one database for another: a copy of the folder, and its import."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from pytest import approx

from estimators.columns import LAYOUT_COLUMNS
from tests.shared import digest
from tests.warehouse.facts_cases import (
    content,
    copied,
    edit_lines,
    facts_of,
    flip,
    forget_profile,
    outcomes,
    profiles,
    store_profile,
)
from tests.warehouse.test_drop import study
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.facts import ENTRIES, append_entry, folder_of, new_entry, read_facts
from warehouse.database.sink import delete_cells, transaction
from warehouse.errors import DatabaseError, InputError
from warehouse.rebuild.exchange import export_facts, import_facts
from warehouse.rebuild.first_format import MANIFEST
from warehouse.sweep.runner import run_study

FIRST = Path(__file__).parent / "first_facts.tar.xz"
"""A folder of the first format, without the tables of reference, which no import reads: a study, an
evaluated file, measured runs that were estimated with a profile, and the profile."""


@pytest.fixture(scope="module")
def small(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two profiles and a study; nobody writes to it."""
    place = tmp_path_factory.mktemp("small")
    path = copied(empty_warehouse, place / "small.duckdb")
    store_profile(path, "one", 1)
    run_study(path, study(place, "small", "[8]"))
    store_profile(path, "two", 2)
    return path


@pytest.fixture(scope="module")
def folder(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its facts."""
    place = tmp_path_factory.mktemp("exported") / "facts"
    assert export_facts(small, place).num_facts == 3
    return place


@pytest.fixture
def given(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "given"))


@pytest.fixture
def new(empty_warehouse: Path, tmp_path: Path) -> Path:
    """An empty database."""
    return copied(empty_warehouse, tmp_path / "new.duckdb")


@pytest.mark.long
def test_an_import_stores_the_same_facts_and_evaluates_the_rest(
    every_kind: Path,
    new: Path,
    tmp_path: Path,
) -> None:
    export_facts(every_kind, tmp_path / "facts")
    done = import_facts(new, tmp_path / "facts")
    assert (done.num_known, done.replayed.lost) == (0, {})
    assert content(new) == content(every_kind)
    # the profile that a study used and that was replaced since is a fact here, too
    assert sorted(facts_of(new)) == sorted(facts_of(every_kind))
    again = import_facts(new, tmp_path / "facts")
    assert (again.num_known, again.replayed.names) == (len(facts_of(new)), {})


def test_an_export_has_every_outcome_and_no_more_than_the_folder(
    small: Path, tmp_path: Path
) -> None:
    database = copied(small, tmp_path / "small.duckdb")
    forget_profile(database, "one")
    append_entry(folder_of(database), new_entry(5, "calibration", "never", {"rows": []}))
    assert export_facts(database, tmp_path / "facts").num_facts == 2
    assert outcomes(database)[-1] == "open"  # reading changes nothing
    assert [each.outcome for each in read_facts(tmp_path / "facts").entries][-1] == "withdrawn"


def test_a_database_without_its_folder_is_exported_all_the_same(
    small: Path, tmp_path: Path
) -> None:
    database = copied(small, tmp_path / "alone.duckdb", with_facts=False)
    export_facts(database, tmp_path / "facts")
    assert not folder_of(database).exists()
    names = {entry.name for entry in read_facts(tmp_path / "facts").live()}
    assert names == {"one", "two", "small"}


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

    monkeypatch.setattr(shutil, "copytree", fail)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        export_facts(small, tmp_path / "facts")
    assert not list(tmp_path.iterdir())


def test_only_missing_facts_are_imported(folder: Path, new: Path) -> None:
    store_profile(new, "two", 2)
    store_profile(new, "three", 3)
    done = import_facts(new, folder)
    assert done.num_known == 1
    assert done.replayed.names == {"calibration": ["one"], "study": ["small"]}
    assert facts_of(new) == ["two", "three", "one", "small"]


def test_a_fact_that_means_something_else_is_refused(folder: Path, new: Path) -> None:
    store_profile(new, "two", 3)
    before = digest(new)
    with pytest.raises(InputError, match="has other facts of these names: calibration 'two'"):
        import_facts(new, folder)
    assert digest(new) == before
    assert profiles(new) == {"two": 3}


@pytest.mark.long
def test_an_interrupted_import_is_taken_up_again(folder: Path, new: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_facts(new, folder, stop)
    assert facts_of(new) == ["one"]
    assert import_facts(new, folder).num_known == 1
    assert facts_of(new) == ["one", "small", "two"]


@pytest.mark.long
def test_a_study_that_an_import_began_is_completed(folder: Path, new: Path) -> None:
    import_facts(new, folder)
    with open_for_write(new) as connection:
        [(cell,)] = connection.execute("select max(cell_id) from cell").fetchall()
        with transaction(connection):
            delete_cells(connection, [cell])
    import_facts(new, folder)
    with open_for_read(new) as connection:
        query = "select count(*) from cell where cell_id = ?"
        assert connection.execute(query, [cell]).fetchall() == [(1,)]


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a line": (lambda f: edit_lines(f, flip(1)), "line 2 is damaged"),
    "the first line": (lambda f: edit_lines(f, flip(0)), "line 1 is damaged"),
    "a line that is gone": (
        lambda f: edit_lines(f, lambda lines: lines.__delitem__(slice(1, 3))),
        "entry 1 was removed",
    ),
    "no lines": (lambda f: (f / ENTRIES).unlink(), "is no folder of facts"),
    "another format": (lambda f: (f / ENTRIES).write_text("{}\n"), "is no folder of facts"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_or_foreign_folder_changes_nothing(
    given: Path, tmp_path: Path, kind: str
) -> None:
    change, said = DAMAGE[kind]
    change(given)
    with pytest.raises(InputError, match=said) as raised:
        import_facts(tmp_path / "new.duckdb", given)
    assert raised.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_the_folder_of_another_database_is_not_exported(small: Path, tmp_path: Path) -> None:
    database = copied(small, tmp_path / "one.duckdb")
    other = tmp_path / "other.duckdb"
    store_profile(other, "other")
    shutil.rmtree(folder_of(database))
    shutil.copytree(folder_of(other), folder_of(database))
    with pytest.raises(DatabaseError, match="has the facts of another database"):
        export_facts(database, tmp_path / "facts")


# ---- the first format ----


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A folder of the first format."""
    with tarfile.open(FIRST) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "facts"


@pytest.mark.long
def test_a_folder_of_the_first_format_is_imported(first: Path, new: Path) -> None:
    """The import evaluates every row again.

    The folder has figures of a former version of training_step. Version 8 differs from them by less
    than 2 %. Layouts, and every column of roofline, are equal.
    """
    done = import_facts(new, first)
    assert done.replayed.lost == {}
    assert done.replayed.names == {
        "calibration": ["own"],
        "study": ["measure ours", "evaluate rows.csv corrected", "swept"],
        "measurement": ["ours"],
    }
    with open_for_read(new) as connection:
        for table in ("roofline", "training_step"):
            rows = f"read_parquet('{first}/rows/{table}/*/*.parquet', hive_partitioning = false)"
            columns = set(connection.sql(f"from {rows}").columns) - {"cell_id"}
            columns &= set(connection.table(table).columns)
            layout = [name for name in LAYOUT_COLUMNS if name in columns]
            same = layout if table == "training_step" else sorted(columns)
            one, other = (
                connection.sql(f"select * from {source} order by {', '.join(layout)}").pl()
                for source in (rows, table)
            )
            assert_frame_equal(one[same], other[same], check_dtypes=False, check_exact=True)
            assert other["step_seconds"].to_list() == approx(
                one["step_seconds"].to_list(), rel=0.02
            )
        compared = "select count(*) from measurement semi join problem using (problem_id)"
        assert connection.execute(compared).fetchall() == [(2,)]
    assert import_facts(new, first).num_known == 5


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads((folder / MANIFEST).read_text("utf-8"))
    change(document)
    (folder / MANIFEST).write_text(json.dumps(document), encoding="utf-8")


def cut_short(folder: Path) -> None:
    path = folder / "tables" / "problem.parquet"
    path.write_bytes(path.read_bytes()[:-1])


FIRST_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a short file": (cut_short, "its bytes are not those that were written"),
    "a missing file": (lambda f: next(f.rglob("rows.parquet")).unlink(), "cannot be read"),
    "a missing table": (
        lambda f: edit_manifest(f, lambda d: d["files"].pop("tables/problem.parquet")),
        "cannot be read",
    ),
    "a cut manifest": (lambda f: (f / MANIFEST).write_text("{"), "manifest.json: cannot be read"),
    "a deep manifest": (
        lambda f: (f / MANIFEST).write_text("[" * 100_000),
        "manifest.json: cannot be read",
    ),
    "a file without a hash": (
        lambda f: edit_manifest(f, lambda d: d["files"].update({"x.parquet": {"num_bytes": "1"}})),
        "cannot be read",
    ),
    "files in a list": (
        lambda f: edit_manifest(f, lambda d: d.update(files=["tables/problem.parquet"])),
        "manifest.json: cannot be read",
    ),
    "another format": (lambda f: (f / MANIFEST).write_text("[]"), "`format` is not"),
    "a newer format": (
        lambda f: edit_manifest(f, lambda d: d.update(format_version=99)),
        "`format_version` is not 1",
    ),
    "a path outside": (
        lambda f: edit_manifest(f, lambda d: d["files"].update({"../x.parquet": {}})),
        "is not in the folder",
    ),
    "a pattern": (lambda f: f.rename(f.with_name("facts?")), "in the path as a pattern"),
}


@pytest.mark.parametrize("kind", FIRST_DAMAGE)
def test_a_damaged_folder_of_the_first_format_changes_nothing(
    first: Path, tmp_path: Path, kind: str
) -> None:
    change, said = FIRST_DAMAGE[kind]
    change(first)
    [place] = tmp_path.iterdir()
    with pytest.raises(InputError, match=said) as raised:
        import_facts(tmp_path / "new.duckdb", place)
    assert raised.value.hint
    assert list(tmp_path.iterdir()) == [place]
