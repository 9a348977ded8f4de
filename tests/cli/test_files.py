"""`warehouse export`, `import`, `backup` and `compact`: messages and refusals."""

from __future__ import annotations

import csv
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command, digest
from tests.warehouse.facts_cases import copied, store_profile
from warehouse import files
from warehouse.database import copies
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.copies import row_counts
from warehouse.database.paths import CONFIG
from warehouse.database.snapshot import Snapshots

# ---- export and import ----


def test_a_file_is_replaced_with_force_alone(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command
) -> None:
    out = tmp_path / "rows.csv"
    command = ("export", "select 1 as a", "--out", out, "--db", empty_warehouse)
    assert warehouse(*command) == (0, "", f"{out}: 1 row, 0.0 MB\n")
    out.write_text("old")
    code, _, err = warehouse(*command)
    assert (code, out.read_text()) == (3, "old")
    assert err.startswith(f"error: {out}: exists already\nhint:")
    assert warehouse(*command, "--force")[0] == 0
    with out.open() as file:
        assert list(csv.reader(file)) == [["a"], ["1"]]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("model",),
        ("--out", "rows.csv"),
        ("model", "--facts", "facts"),
        ("--facts", "facts", "--out", "rows.csv"),
        ("--facts", "facts", "--force"),
        ("--facts", "facts", "--ids-as-text"),
        ("model", "--out", "rows.csv", "--ids-as-text"),
    ],
)
def test_half_a_question_is_refused(
    empty_warehouse: Path, warehouse: Command, arguments: tuple[str, ...]
) -> None:
    code, out, err = warehouse("export", *arguments, "--db", empty_warehouse)
    assert (code, out) == (2, "")
    assert "\nhint: " in err


def test_the_database_is_no_file_to_export_to(empty_warehouse: Path, warehouse: Command) -> None:
    before = digest(empty_warehouse)
    command = ("export", "model", "--out", empty_warehouse, "--force", "--db", empty_warehouse)
    assert warehouse(*command)[0] == 3
    assert digest(empty_warehouse) == before


def test_facts_are_exported_and_imported(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command
) -> None:
    facts, database = tmp_path / "facts", tmp_path / "new.duckdb"
    store_profile(copied(empty_warehouse, tmp_path / "one.duckdb"), "one")
    code, _, err = warehouse("export", "--facts", facts, "--db", tmp_path / "one.duckdb")
    assert (code, err.split(",")[0]) == (0, f"{facts}: 1 fact")
    code, _, err = warehouse("import", facts, "--db", database)
    said = f"{database}: 1 new fact; 0 facts stored before\n"
    assert (code, err) == (0, f"profiles: one\n{said}")
    code, _, err = warehouse("import", tmp_path, "--db", database)
    assert code == 3
    assert "is no folder of facts" in err


# ---- backup ----


def rows_of(database: Path) -> list[tuple[int]]:
    with open_for_read(database) as connection:
        return connection.execute("select count(*) from model").fetchall()


def test_a_backup_is_made_while_another_process_reads(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command
) -> None:
    out = tmp_path / "copy.duckdb"
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True); input(print())"
    with subprocess.Popen(
        [sys.executable, "-uc", code, empty_warehouse], stdin=-1, stdout=-1
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        done = warehouse("backup", out, "--db", empty_warehouse)
        reader.kill()
    assert done[0] == 0
    assert done[2].startswith(f"{out}: ")
    assert list(tmp_path.iterdir()) == [out]
    assert rows_of(out) == rows_of(empty_warehouse)


def test_a_backup_holds_what_only_the_log_holds(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command
) -> None:
    database = Path(shutil.copy(empty_warehouse, tmp_path / "killed.duckdb"))
    with open_for_write(database) as connection:
        connection.execute(
            "pragma disable_checkpoint_on_shutdown"
        )  # as in a process that is killed
        connection.execute(
            "insert into study (study, estimator, definition) values ('x', 'y', '{}')"
        )
    assert database.with_name("killed.duckdb.wal").exists()
    out = tmp_path / "copy.duckdb"
    assert warehouse("backup", out, "--db", database)[0] == 0
    assert not out.with_name("copy.duckdb.wal").exists()
    with duckdb.connect(str(out), read_only=True) as connection:
        assert connection.execute("select study from study").fetchall() == [("x",)]


def test_a_backup_that_differs_or_fails_gets_no_name(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "copy.duckdb"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("shutil.copyfile", full)
        code, _, err = warehouse("backup", out, "--db", empty_warehouse)
    assert (code, err.splitlines()[0]) == (
        3,
        f"error: {out}: cannot be written: No space left on device",
    )
    numbers = itertools.count(1)
    monkeypatch.setattr(copies, "row_counts", lambda c: row_counts(c) | {"model": next(numbers)})
    code, _, err = warehouse("backup", out, "--db", empty_warehouse)
    assert code == 5
    assert "table model has" in err
    assert not list(tmp_path.iterdir())


def test_a_backup_replaces_no_file_unasked(
    empty_warehouse: Path, tmp_path: Path, warehouse: Command
) -> None:
    out = tmp_path / "copy.duckdb"
    out.write_text("mine")
    code, _, err = warehouse("backup", out, "--db", empty_warehouse)
    assert (code, out.read_text()) == (3, "mine")
    assert "exists already\nhint: " in err
    assert warehouse("backup", out, "--force", "--db", empty_warehouse)[0] == 0
    assert rows_of(out) == rows_of(empty_warehouse)
    code, _, err = warehouse("backup", out, "--force", "--db", out)
    assert code == 3
    assert "is the database; it would be overwritten" in err


def test_a_database_that_is_not_there_is_not_copied(tmp_path: Path, warehouse: Command) -> None:
    for command in (("backup", tmp_path / "copy.duckdb"), ("compact",)):
        code, _, err = warehouse(*command, "--db", tmp_path / "none.duckdb")
        assert code == 5
        assert "there is no such database" in err
    assert not list(tmp_path.iterdir())


# ---- compact ----


@pytest.fixture
def grown(empty_warehouse: Path, tmp_path: Path) -> Path:
    """A database that has much more space than rows."""
    database = Path(shutil.copy(empty_warehouse, tmp_path / "grown.duckdb"))
    with open_for_write(database) as connection:
        connection.execute("create table filling as select random() as x from range(2_000_000)")
        connection.execute("checkpoint")
        connection.execute("create table behind as select 1 as x")
        connection.execute("checkpoint")
        connection.execute("drop table filling")
    return database


def test_compact_gives_space_back_and_keeps_every_row(grown: Path, warehouse: Command) -> None:
    before, rows = grown.stat().st_size, rows_of(grown)
    code, out, err = warehouse("compact", "--db", grown)
    assert (code, out) == (0, "")
    assert grown.stat().st_size < before - 10e6
    assert err.endswith("MB freed\n")
    assert rows_of(grown) == rows
    assert list(grown.parent.iterdir()) == [grown]
    size = grown.stat().st_size
    assert warehouse("compact", "--db", grown)[2].endswith(" 0.0 MB freed\n")
    assert grown.stat().st_size == size


def test_a_copy_with_other_rows_does_not_take_the_place(
    grown: Path, warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copies._copy

    def lossy(connection: duckdb.DuckDBPyConnection, target: Path) -> None:
        copied(connection, target)
        with duckdb.connect(str(target), config=CONFIG) as copy:
            copy.execute("delete from model where model = 'gpt3'")

    monkeypatch.setattr(copies, "_copy", lossy)
    rows, before = rows_of(grown), grown.stat().st_size
    code, _, err = warehouse("compact", "--db", grown)
    assert code == 5
    assert "table model has" in err
    assert grown.stat().st_size == before
    assert rows_of(grown) == rows
    assert list(grown.parent.iterdir()) == [grown]


def test_a_full_disk_leaves_the_database_and_says_how_to_go_on(
    grown: Path, warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies, "_copy", full)
    rows = rows_of(grown)
    code, _, err = warehouse("compact", "--db", grown)
    assert code == 5
    assert "could not be shrunk: [Errno 28] No space left on device\nhint: " in err
    assert "dropped" not in err
    assert rows_of(grown) == rows


def test_files_of_a_killed_compact_disturb_nobody(
    grown: Path, warehouse: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, size = digest(grown), grown.stat().st_size

    def end(*_: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", end)
        killed.setattr(files, "_remove", lambda _: None)
        killed.setattr(Snapshots, "publish_if_due", lambda _: None)  # a slow one has files, too
        assert warehouse("compact", "--db", grown)[0] == 137
    assert digest(grown) == before
    left = files.partial_path(grown)
    left.write_bytes(left.read_bytes()[:5000])
    assert warehouse("compact", "--db", grown)[0] == 0
    assert grown.stat().st_size < size
    assert list(grown.parent.iterdir()) == [grown]


def test_what_a_killed_export_left_goes_with_the_next(
    warehouse: Command, empty_warehouse: Path, tmp_path: Path
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = [tmp_path / f".facts.{gone.pid}.partial", tmp_path / f".best.csv.{gone.pid}.partial"]
    running = tmp_path / f".facts.{os.getppid()}.partial"
    for folder in (left[0], running):
        (folder / "rows").mkdir(parents=True)
    left[1].write_text("half")
    rows = ("export", "select 1 as n", "--db", empty_warehouse, "--out")
    assert warehouse(*rows, tmp_path / "best.csv")[0] == 0
    facts = ("export", "--facts", tmp_path / "facts", "--db", empty_warehouse)
    assert warehouse(*facts)[0] == 0
    assert not any(path.exists() for path in left)
    assert running.exists()
