"""What DuckDB reports of damaged, misplaced and foreign files: each has a message with a remedy."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from tests.shared import Shared
from warehouse.database.connection import open_as_it_is, open_for_read, open_for_write
from warehouse.database.facts import begin_folder, folder_of
from warehouse.database.failures import database_error
from warehouse.errors import DatabaseError, InputError

WRITE_AND_DIE = """
import os, sys, duckdb
connection = duckdb.connect(sys.argv[1], config={"storage_compatibility_version": "v1.5.0"})
connection.execute("insert into study by name select ? as study, 'e' as estimator, "
                   "'{}' as definition", [sys.argv[2]])
os._exit(9)
"""


@dataclass(frozen=True)
class Logged:
    """Databases whose last commit is in their log, as a killed process leaves them."""

    first: Path
    second: Path
    """The same database after its log was applied, with a newer log."""
    other: Path
    """Another database."""


@pytest.fixture(scope="module")
def logged(shared: Shared, empty_warehouse: Path) -> Logged:
    """Databases with a log each, to be copied."""

    def written(path: Path, study: str) -> None:
        done = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, path, study], check=False)
        assert done.returncode == 9
        assert path.with_name(f"{path.name}.wal").stat().st_size > 64

    def make(place: Path) -> None:
        names = [place / name for name in ("first.duckdb", "second.duckdb", "other.duckdb")]
        shutil.copyfile(empty_warehouse, names[0])
        written(names[0], "one")
        copied(names[0], names[0], names[1])
        with duckdb.connect(str(names[1])) as connection:
            connection.execute("checkpoint")
        written(names[1], "two")
        with duckdb.connect(str(names[2])) as connection:
            connection.execute("create table study (study text, estimator text, definition text)")
        written(names[2], "three")

    place = shared("logged", make)
    return Logged(place / "first.duckdb", place / "second.duckdb", place / "other.duckdb")


def copied(database: Path, log: Path, target: Path) -> Path:
    """Copy a database, with the log of that or another one, to `target`; return the copy's log."""
    shutil.copyfile(database, target)
    return shutil.copyfile(f"{log}.wal", target.with_name(f"{target.name}.wal"))


Opener = Callable[[Path], duckdb.DuckDBPyConnection]
OPENERS: list[Opener] = [open_as_it_is, open_for_read, open_for_write]


def refused(path: Path) -> DatabaseError:
    """Return the error of every way to open a database; none changes a file."""
    directory = path.parent if path.parent.is_dir() else Path()
    before = {each: each.read_bytes() for each in directory.iterdir()}
    errors = []
    for opener in OPENERS:
        with pytest.raises(DatabaseError) as caught:
            opener(path)
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == 1
    assert {each: each.read_bytes() for each in directory.iterdir()} == before
    assert "delete" not in errors[0].hint
    return errors[0]


def studies(path: Path) -> list[str]:
    with open_for_read(path) as connection:
        return [name for (name,) in connection.execute("select study from study").fetchall()]


@pytest.mark.parametrize(
    ("database_of", "log_of", "said"),
    [
        ("first", "second", "newer version of this database"),
        ("second", "first", "older version of this database"),
        ("first", "other", "does not match database file"),
    ],
)
def test_a_database_with_a_log_that_is_not_its_own_is_refused(
    logged: Logged, database: Path, database_of: str, log_of: str, said: str
) -> None:
    copied(getattr(logged, database_of), getattr(logged, log_of), database)
    error = refused(database)
    assert error.message.startswith(f"{database}: is damaged: its log cannot be taken in: ")
    assert said in error.message
    assert "put a backup in its place, and keep the damaged file and its log" in error.hint


@pytest.mark.parametrize("place", [60, 90])
def test_a_database_with_a_damaged_log_is_refused(
    logged: Logged, database: Path, place: int
) -> None:
    log = copied(logged.second, logged.second, database)
    content = bytearray(log.read_bytes())
    content[place] ^= 0xFF
    log.write_bytes(content)
    error = refused(database)
    assert error.message.startswith(f"{database}: is damaged: its log cannot be taken in: ")


@pytest.mark.parametrize("content", [b"", b"d\0", bytes(4096)])
def test_a_log_without_a_commit_is_no_hindrance(
    logged: Logged, database: Path, content: bytes
) -> None:
    copied(logged.second, logged.second, database).write_bytes(content)
    assert studies(database) == ["one"]


def test_the_log_of_a_database_that_is_gone_is_kept(logged: Logged, database: Path) -> None:
    log = copied(logged.second, logged.second, database)
    content = log.read_bytes()
    for ending in ("kept", "kept2"):
        log.write_bytes(content)
        database.unlink()
        with open_for_write(database) as connection:
            assert connection.execute("select study from study").fetchall() == []
        assert Path(f"{log}.{ending}").read_bytes() == content


def checksum(content: bytes) -> int:
    """Return the checksum of a block of DuckDB: 5381 and each word times a constant, by xor."""
    found = 5381
    for (word,) in struct.iter_unpack("<Q", content):
        found ^= (word * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    return found


@pytest.mark.parametrize("version", [1, 63, 2000])
def test_a_storage_version_that_duckdb_cannot_read_is_one_of_another_duckdb(
    empty_warehouse: Path, database: Path, version: int
) -> None:
    content = bytearray(empty_warehouse.read_bytes())
    assert struct.unpack("<Q", content[:8]) == (checksum(bytes(content[8:4096])),)
    content[12:20] = struct.pack("<Q", version)
    content[:8] = struct.pack("<Q", checksum(bytes(content[8:4096])))
    database.write_bytes(content)
    error = refused(database)
    assert error.message == f"{database}: was written by another version of DuckDB"


@pytest.mark.parametrize(("place", "size"), [(4100, 1), (100_000, 400_000)])
def test_a_database_that_cannot_be_opened_is_kept_for_what_may_be_inside(
    empty_warehouse: Path, database: Path, place: int, size: int
) -> None:
    content = bytearray(empty_warehouse.read_bytes())
    content[place : place + size] = bytes(byte ^ 0xFF for byte in content[place : place + size])
    database.write_bytes(content)
    error = refused(database)
    assert error.message.startswith(f"{database}: is damaged: ")
    assert "put a backup in its place, and keep the damaged file" in error.hint


ADDRESSES = ("md:foo", "http://localhost:1/x.db", "s3://b/x.db", "sqlite:x.db", ":memory:")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_not_looked_up(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refused(Path(address))
    assert error.message == f"{Path(address)}: is an address, not a file"
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_the_name_of_an_address_opens_by_its_whole_path(
    tmp_path: Path, empty_warehouse: Path
) -> None:
    shutil.copyfile(empty_warehouse, tmp_path / "md:foo")
    assert studies(tmp_path / "md:foo") == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for opener in OPENERS:
        with pytest.raises(DatabaseError, match="is a pipe or a device, not a file"):
            opener(pipe)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(DatabaseError, match="cannot be opened: embedded null byte"):
        open_for_write(Path("a\0b"))


def test_a_value_that_duckdb_refuses_is_no_damage() -> None:
    with duckdb.connect() as connection, pytest.raises(duckdb.Error) as caught:
        connection.execute("select cast('x' as integer)").fetchall()
    error = database_error(caught.value, Path("w.duckdb"))
    assert isinstance(error, InputError)
    assert error.message.startswith("w.duckdb: DuckDB refuses a value: Conversion Error: ")


@pytest.mark.parametrize("has_facts", [True, False])
def test_damage_in_an_open_database_names_a_remedy_that_is_there(
    tmp_path: Path, has_facts: bool
) -> None:
    path = tmp_path / "w.duckdb"
    if has_facts:
        begin_folder(folder_of(path))
    said = "Corrupt database file: computed checksum 1 does not match stored checksum 2"
    error = database_error(duckdb.Error(said), path)
    assert error.message == f"{path}: is damaged: {said}"
    assert (f"`warehouse rebuild --db {path}`" in error.hint) is has_facts
    assert ("put a backup in its place" in error.hint) is not has_facts
