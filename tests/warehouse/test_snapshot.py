"""Readers next to a writer: its snapshots, read by this package, by polars and by the shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import TINY_STUDY, held, held_and_published
from warehouse import Warehouse
from warehouse.database import snapshot
from warehouse.database.access import Access, access_for, accessing
from warehouse.database.connection import (
    is_snapshot,
    open_as_it_is,
    open_file,
    open_for_read,
    open_for_write,
    writing,
)
from warehouse.database.facts import folder_of
from warehouse.database.snapshot import Snapshots, is_being_copied, is_published, snapshot_path
from warehouse.errors import DatabaseError, LockedError
from warehouse.files import partial_path
from warehouse.studies.study import Study, load_study
from warehouse.sweep import runner

SHELL = Path(sysconfig.get_path("scripts")) / "duckdb"

QUERY = "select num_cells_done, num_cells from study_progress"

READ = """
import json, sys, warnings
import duckdb
from warehouse import Warehouse
from warehouse.cli.main import run
from warehouse.database.snapshot import snapshot_path
from warehouse.errors import LockedError
from pathlib import Path

database, query = Path(sys.argv[1]), sys.argv[2]
found = {"codes": [run(["sql", query, "--format", "csv", "--db", str(database)])]}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["api"] = Warehouse(database).sql(query).rows()
found["warnings"] = [str(one.message) for one in caught]
with duckdb.connect(str(snapshot_path(database)), read_only=True) as connection:
    found["polars"] = connection.sql(query).pl().rows()
print(json.dumps(found))
"""

LONGEST = 120
"""Seconds after which a test gives up."""


def until(happened: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    end = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish each state as soon as it is there."""
    monkeypatch.setattr(snapshot, "FIRST_SECONDS", 0)
    monkeypatch.setattr(snapshot, "MOST_OF_THE_TIME", 1e9)
    monkeypatch.setattr(snapshot, "_POLL_SECONDS", 0.001)


@pytest.fixture
def made(empty_warehouse: Path, database: Path) -> Path:
    return shutil.copyfile(empty_warehouse, database)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_STUDY, encoding="utf-8")
    return load_study(path)


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on a file, as another process would read it."""
    with duckdb.connect(str(path), read_only=True) as reader:
        return reader.execute(query).fetchall()


@pytest.mark.long
@pytest.mark.usefixtures("at_once")
def test_readers_see_the_committed_groups_of_a_running_sweep(
    database: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of two cells is a group each; after the first, other processes read."""
    seen: list[tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]] = []
    published = snapshot_path(database)

    def read(_rows: int, _all_rows: int, cells: int, _all_cells: int) -> None:
        if cells != 1 or seen:
            return
        until(lambda: published.exists() and rows_of(published, QUERY) == [(1, 2)])
        command = [str(SHELL), "-readonly", "-csv", "-noheader", str(published), QUERY]
        seen.append(
            (
                subprocess.run(
                    [sys.executable, "-c", READ, database, QUERY],
                    capture_output=True,
                    text=True,
                    check=False,
                ),
                subprocess.run(command, capture_output=True, text=True, check=False),
            )
        )
        assert published.stat().st_mode & 0o777 == database.stat().st_mode & 0o444

    monkeypatch.setattr(runner, "COMMIT_ROWS", 1)
    report = runner.run_study(database, study, workers=1, on_progress=read)
    [(ours, shell)] = seen

    assert report.cells == 2
    assert (shell.returncode, shell.stdout) == (0, "1,2\n"), shell.stderr
    printed, _, document = ours.stdout.rstrip().rpartition("\n")
    assert printed == "num_cells_done,num_cells\n1,2"
    found = json.loads(document)
    assert found["codes"] == [0]
    assert found["api"] == found["polars"] == [[1, 2]]
    assert f"(process {os.getpid()}) writes to it; these are its rows of " in ours.stderr
    # The state is named once.
    assert found["warnings"] == []
    # The sweep has ended: no snapshot is left, and readers take the database.
    left = {database.name, folder_of(database).name, "tiny.toml"}
    assert {path.name for path in database.parent.iterdir()} == left
    assert Warehouse(database).sql(QUERY).rows() == [(2, 2)]


@pytest.mark.long
@pytest.mark.usefixtures("at_once")
def test_a_snapshot_is_the_last_checkpoint_even_in_the_middle_of_a_transaction(made: Path) -> None:
    """Each transaction writes and frees blocks; every snapshot has whole transactions."""
    published = snapshot_path(made)
    query = "select number, count(*), count(distinct value) from extra group by all order by all"

    def shows(rows: list[tuple[Any, ...]] | None) -> bool:
        return published.exists() and rows in (None, rows_of(published, query))

    with open_for_write(made) as connection:
        connection.execute("create table extra (number int, value double)")
    with writing(made) as connection:
        before: list[tuple[Any, ...]] | None = None
        for number in range(6):
            connection.begin()
            connection.execute("delete from extra where number = ?", [number - 2])
            connection.execute("insert into extra select ?, random() from range(300_000)", [number])
            until(partial(shows, before))
            connection.commit()
            connection.execute("checkpoint")
            before = connection.execute(query).fetchall()
            assert len(before) == min(number + 1, 2)
    assert not published.exists()


def test_a_short_write_copies_nothing(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "FIRST_SECONDS", LONGEST)
    snapshots = Snapshots(made)
    with open_for_write(made) as connection, snapshots:
        connection.execute("create table extra as select 1 as number")
        connection.execute("checkpoint")
    snapshots.close()
    assert snapshots.seconds == 0
    assert list(made.parent.iterdir()) == [made]


def test_copies_take_a_twentieth_of_the_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is made after 2 seconds, the next when those before have taken a twentieth."""
    now = [100.0]
    monkeypatch.setattr("warehouse.database.snapshot.time.monotonic", lambda: now[0])
    copied = Snapshots._copy

    def slow(self: Snapshots, *given: Any) -> bool:
        now[0] += 3
        return copied(self, *given)

    monkeypatch.setattr(Snapshots, "_copy", slow)
    monkeypatch.setattr(Snapshots, "_publish_often", lambda _: None)
    snapshots = Snapshots(made)
    made_at = []
    with open_for_write(made) as connection, snapshots:
        for moment in (100.0, 101.9, 102.0, 150.0, 190.0, 215.0, 250.0):
            now[0] = moment
            connection.execute("create or replace table extra as select ?", [moment])
            connection.execute("checkpoint")
            before = snapshots.seconds
            snapshots.publish_if_due()
            if snapshots.seconds > before:
                made_at.append(moment)
    snapshots.close()
    assert made_at == [102.0, 190.0, 250.0]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("has_copy_file_range", [True, False])
def test_a_snapshot_has_every_byte_of_the_file(
    made: Path, monkeypatch: pytest.MonkeyPatch, *, has_copy_file_range: bool
) -> None:
    if not has_copy_file_range:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.setattr(snapshot, "_CHUNK_BYTES", 100_000)
    published = snapshot_path(made)
    query = "select count(*) from extra"
    with writing(made) as connection:
        connection.execute("create table extra as select range as number from range(300_000)")
        connection.execute("checkpoint")
        until(lambda: published.exists() and published.read_bytes() == made.read_bytes())
        assert rows_of(published, query) == [(300_000,)]
    assert not published.exists()


@pytest.mark.usefixtures("at_once")
def test_a_copy_that_a_checkpoint_interrupts_is_not_published(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = snapshot._copy_content
    monkeypatch.setattr(Snapshots, "_publish_often", lambda _: None)
    with open_for_write(made) as connection:
        snapshots = Snapshots(made)

        def interrupted(*given: Any) -> bool:
            connection.execute("create or replace table extra as select 1 as number")
            connection.execute("checkpoint")
            return copied(*given)

        with snapshots:
            monkeypatch.setattr(snapshot, "_copy_content", interrupted)
            snapshots.publish_if_due()
            assert list(made.parent.iterdir()) == [made]
            monkeypatch.setattr(snapshot, "_copy_content", copied)
            snapshots.publish_if_due()
            assert rows_of(snapshot_path(made), "from extra") == [(1,)]
    snapshots.close()


@pytest.mark.usefixtures("at_once")
def test_a_disk_without_room_for_a_snapshot_is_no_reason_to_stop(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SPARE_BYTES", 1 << 62)
    monkeypatch.setattr(Snapshots, "_publish_often", lambda _: None)
    with open_for_write(made), Snapshots(made) as snapshots:
        snapshots.publish_if_due()
        assert list(made.parent.iterdir()) == [made]
    snapshots.close()


# ---- readers ----


@pytest.fixture
def published(made: Path) -> Iterator[Path]:
    """A database that another process holds, with a snapshot that this one has published."""
    with held_and_published(made):
        yield snapshot_path(made)


@pytest.mark.parametrize("opener", [open_for_read, open_as_it_is])
def test_a_reader_takes_the_snapshot_and_says_how_old_it_is_once(
    made: Path, published: Path, opener: Callable[[Path], duckdb.DuckDBPyConnection]
) -> None:
    os.utime(published, (time.time() - 7230,) * 2)
    said: list[str] = []
    for _ in range(2):
        with accessing(Access(say=said.append)), opener(made) as connection:
            assert is_snapshot(connection, made)
    [line] = said
    assert line.startswith(f"{made}: `python")
    assert line.endswith(") writes to it; these are its rows of 2 hours ago")


def test_an_error_about_the_snapshot_names_it_and_closes_it(
    made: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[duckdb.DuckDBPyConnection] = []

    def damaged(connection: duckdb.DuckDBPyConnection) -> bool:
        opened.append(connection)
        raise duckdb.IOException("checksum does not match")

    monkeypatch.setattr("warehouse.database.connection.is_stamped", damaged)
    with pytest.raises(DatabaseError) as caught:
        open_for_read(made)
    assert caught.value.message == f"{published}: cannot be read: checksum does not match"
    assert "--wait" in caught.value.hint
    assert "rebuild" not in caught.value.hint
    with pytest.raises(duckdb.ConnectionException):
        opened[0].execute("select 1")


def test_a_reader_of_the_file_itself_takes_no_snapshot(made: Path, published: Path) -> None:
    assert published.exists()
    with pytest.raises(LockedError):
        open_file(made)


def test_a_reader_waits_for_the_first_snapshot(made: Path) -> None:
    """It is made while the reader waits, and needs longer than the reader would wait for it."""
    copy, new = snapshot_path(made), partial_path(snapshot_path(made))
    shutil.copyfile(made, new)
    said: list[str] = []

    def publish() -> None:
        until(lambda: bool(said))
        time.sleep(0.2)
        new.rename(copy)

    with held(made) as pid, new.open("rb") as file:
        snapshot._lock(file)
        assert is_being_copied(made)
        thread = threading.Thread(target=publish)
        thread.start()
        access = Access(snapshot_seconds=0.05, say=said.append)
        with accessing(access), open_for_read(made) as connection:
            assert is_snapshot(connection, made)
        thread.join()
    assert f"is in use by process {pid} (" in said[0]


def test_the_snapshot_of_a_killed_process_is_not_read(made: Path, published: Path) -> None:
    """Nobody has a lock on it, even if another process has the database by now."""
    with published.open("rb"):
        assert is_published(published)
    shutil.copyfile(made, published.with_name("other"))
    published.with_name("other").replace(published)
    assert not is_published(published)
    with pytest.raises(LockedError):
        open_for_read(made)


def test_a_free_database_is_read_itself_even_with_a_snapshot(made: Path) -> None:
    shutil.copyfile(made, snapshot_path(made))
    with open_for_read(made) as connection:
        assert not is_snapshot(connection, made)


def test_rows_of_another_package_are_refused(made: Path, published: Path) -> None:
    published.chmod(0o644)
    with duckdb.connect(str(published)) as changed:
        changed.execute("update warehouse_meta set value = 'x' where key in ('views', 'stamp')")
    with pytest.raises(DatabaseError, match="another version of this package writes to it"):
        open_for_read(made)


@pytest.mark.parametrize(
    ("wait", "writes", "access"),
    [
        (None, True, Access(30, 0.2, 30)),
        (None, False, Access(30, 0.2, 5)),
        (60, True, Access(60, 0.2, 60)),
        (60, False, Access(60, 60, 60)),
        (0, True, Access(0, 0, 0)),
        (0, False, Access(0, 0, 0)),
    ],
)
def test_a_reader_waits_a_moment_and_a_writer_for_long(
    wait: float | None, access: Access, *, writes: bool
) -> None:
    assert access_for(wait, writes=writes) == access
