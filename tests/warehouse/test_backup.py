"""Backups that are kept: the newest copies, and no file that is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from warehouse.database.connection import writing
from warehouse.database.copies import back_up_before_sweep, keep_backups
from warehouse.database.paths import is_database
from warehouse.errors import DatabaseError, InputError


@pytest.fixture
def stored(empty_warehouse: Path, database: Path) -> Path:
    """A database to copy."""
    return shutil.copyfile(empty_warehouse, database)


def note(database: Path, number: int) -> None:
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"create or replace table noted as select {number} as number")


def noted(database: Path) -> int:
    with duckdb.connect(str(database), read_only=True) as connection:
        [(number,)] = connection.execute("from noted").fetchall()
    return int(number)


@pytest.mark.long
def test_the_newest_copies_are_kept(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.duckdb"
    for number in range(4):
        note(stored, number)
        keep_backups(stored, out, 3)
    copies = [out, *(out.with_name(f"{out.name}.{number}") for number in (1, 2))]
    assert [noted(copy) for copy in copies] == [3, 2, 1]
    assert {*tmp_path.iterdir()} == {stored, *copies}


def test_a_file_that_is_no_database_is_not_replaced(stored: Path, tmp_path: Path) -> None:
    for name in ("notes.txt", "copy.1"):
        (tmp_path / name).write_text("mine")
    for out, most in ((tmp_path / "notes.txt", 1), (tmp_path / "copy", 2)):
        with pytest.raises(DatabaseError, match="is not a DuckDB database"):
            keep_backups(stored, out, most)
    with pytest.raises(InputError, match="is the database"):
        keep_backups(stored, stored, 1)
    assert {(tmp_path / name).read_text() for name in ("notes.txt", "copy.1")} == {"mine"}


def test_a_sweep_begins_with_a_backup_where_a_setting_asks_for_it(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAREHOUSE_BACKUPS", raising=False)
    assert back_up_before_sweep(stored) is None
    monkeypatch.setenv("WAREHOUSE_BACKUPS", "2")
    note(stored, 7)
    copy = back_up_before_sweep(stored)
    assert copy is not None
    assert noted(copy) == 7
    for wrong in ("abc", "-1", "3.5"):
        monkeypatch.setenv("WAREHOUSE_BACKUPS", wrong)
        with pytest.raises(InputError, match="is no number of copies"):
            back_up_before_sweep(stored)


def test_a_writer_keeps_its_lock_when_it_looks_at_its_file(stored: Path) -> None:
    program = "import duckdb, sys; duckdb.connect(sys.argv[1])"
    with writing(stored):
        assert is_database(stored)
        other = subprocess.run(
            [sys.executable, "-c", program, stored], capture_output=True, check=False
        )
        assert b"Could not set lock" in other.stderr
