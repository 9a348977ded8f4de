"""Locks of other processes: waited for, and named; and what killed processes leave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from warehouse import Warehouse
from warehouse.database.access import Access, accessing
from warehouse.database.connection import open_for_read, open_for_write, writing
from warehouse.database.openings import OPENING
from warehouse.database.paths import remove_leftovers
from warehouse.database.snapshot import Snapshots
from warehouse.errors import DatabaseError, LockedError
from warehouse.processes import age_seconds, command_of, in_words

HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reads",
                            config={"storage_compatibility_version": "v1.5.0"})
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def made(empty_warehouse: Path, database: Path) -> Path:
    return shutil.copyfile(empty_warehouse, database)


@pytest.fixture(params=["reads", "writes"])
def holder(request: pytest.FixtureRequest, made: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the database open; its last argument says how."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, made, request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    yield process
    if process.poll() is None:
        process.communicate()


def test_a_writer_waits_until_a_reader_or_writer_has_closed_the_database(
    made: Path, holder: subprocess.Popen[bytes]
) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        holder.communicate()  # ends it

    with accessing(Access(write_seconds=60, say=say)), open_for_write(made) as connection:
        assert connection.execute("select count(*) from study").fetchall() == [(0,)]
    [line] = said
    assert line.startswith(f"{made}: is in use by process {holder.pid} (`python")
    assert "`, runs for " in line
    assert line.endswith("; waiting for it, 60 s at most")


def test_a_lock_is_not_waited_for_longer_than_asked(
    made: Path, holder: subprocess.Popen[bytes]
) -> None:
    said: list[str] = []
    access = Access(write_seconds=0.05, say=said.append)
    with accessing(access), pytest.raises(LockedError, match=f"process {holder.pid}"):
        open_for_write(made)
    assert len(said) == 1
    with accessing(Access(say=said.append)), pytest.raises(LockedError):
        open_for_write(made)
    assert len(said) == 1


def test_this_process_is_known_by_its_command_and_age() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    age, command = age_seconds(os.getpid()), command_of(os.getpid())
    assert age is not None
    assert age > 0
    assert command is not None
    assert len(command) <= 80
    assert command_of(2**22 + 1) is None
    assert in_words(2**22 + 1) == f"process {2**22 + 1}"
    assert in_words(None) == "another process"


def test_a_writer_removes_what_killed_processes_left(made: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    name = made.name
    left = [
        *(f".{name}.{gone.pid}.partial", f".{name}.{gone.pid}.partial.wal"),
        *(f".{name}.snapshot.{gone.pid}.partial", f".{name}.progress.json.{gone.pid}.partial"),
        *(f"{name}.snapshot", f"{name}.progress.json", f"{name}.rebuilt", f"{name}.rebuilt.wal"),
        *(f"{name}.rebuilt.snapshot", f"{name}.rebuilt.progress.json"),
    ]
    stays = [f".{name}.{os.getpid()}.partial", f".{name}.x.partial", f"{name}.kept"]
    stays += [f".other.{gone.pid}.partial", f"{name}.wal.kept"]
    for file in (*left, *stays):
        made.with_name(file).write_text("")
    open_for_read(made).close()
    assert len(list(made.parent.iterdir())) == 1 + len(left) + len(stays)
    open_for_write(made).close()
    names = {path.name for path in made.parent.iterdir()}
    assert names == {name, *stays}


def test_a_directory_that_may_not_be_listed_has_no_leftovers(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "missing" / "warehouse.duckdb")


def test_a_database_that_cannot_be_made_leaves_nothing(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("warehouse.database.new_file._create", fail)
    with pytest.raises(DatabaseError, match="there is no space left for it") as caught:
        open_for_write(database)
    assert "free some disk space" in caught.value.hint
    assert list(database.parent.iterdir()) == []


@pytest.fixture
def written(made: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The connection of a thread that writes to the database."""
    opened: Future[duckdb.DuckDBPyConnection] = Future()
    end = threading.Event()

    def write() -> None:
        with writing(made) as connection:
            opened.set_result(connection)
            end.wait()

    thread = threading.Thread(target=write)
    thread.start()
    yield opened.result()
    end.set()
    thread.join()


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.usefixtures("written")
def test_a_second_writer_of_the_same_process_is_refused(made: Path, link: bool) -> None:
    path = made
    if link:
        path = made.with_name("another.duckdb")
        path.hardlink_to(made)
    with pytest.raises(LockedError, match="another thread of this process, which writes to it"):
        open_for_write(path)


def test_a_second_writer_of_the_same_process_waits_for_the_first(
    made: Path, written: duckdb.DuckDBPyConnection
) -> None:
    access = Access(write_seconds=60, say=lambda _: written.close())
    with accessing(access), open_for_write(made) as connection:
        assert connection.execute("select count(*) from study").fetchall() == [(0,)]


def test_a_thread_does_not_wait_for_itself(made: Path) -> None:
    said: list[str] = []
    with writing(made), accessing(Access(write_seconds=60, say=said.append)):
        with pytest.raises(DatabaseError, match="this thread has it open for writing") as caught:
            open_for_write(made)
        assert not isinstance(caught.value, LockedError)
    assert said == []


def test_a_writer_does_not_wait_for_a_reader_of_its_thread(made: Path) -> None:
    said: list[str] = []
    with open_for_read(made), accessing(Access(write_seconds=60, say=said.append)):
        with pytest.raises(DatabaseError, match="this thread has it open for reading") as caught:
            open_for_write(made)
        assert not isinstance(caught.value, LockedError)
    assert said == []


def test_a_writer_waits_for_a_reader_of_another_thread(made: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(open_for_read, made).result()
        with accessing(Access(write_seconds=0)), pytest.raises(LockedError, match="this process"):
            open_for_write(made)
        access = Access(write_seconds=60, say=lambda _: reader.close())
        with accessing(access), open_for_write(made) as connection:
            assert connection.execute("select count(*) from study").fetchall() == [(0,)]


def test_blocks_of_two_warehouses_in_two_threads_take_turns(made: Path) -> None:
    has_read, says = threading.Event(), threading.Event()

    def read() -> None:
        with Warehouse(made) as reader:
            reader.sql("select 1")
            has_read.set()
            assert says.wait(60)

    with ThreadPoolExecutor(1) as pool, Warehouse(made, writable=True, wait=60) as writer:
        reading = pool.submit(read)
        assert has_read.wait(60)
        with warnings.catch_warnings():
            warnings.showwarning = lambda *_, **__: says.set()  # it waits for the reader
            warnings.simplefilter("always")
            writer.execute("create table note (text varchar)")
        reading.result()
        assert writer.sql("select count(*) as n from note")["n"].to_list() == [0]


def test_no_writer_opens_before_the_first_has_closed_its_handles(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing one of them ends the locks of the process, those of a second writer too."""
    found: list[bool] = []
    monkeypatch.setattr(Snapshots, "close", lambda _: found.append(OPENING.locked()))
    with writing(made):
        pass
    assert found == [True]
    assert not OPENING.locked()
