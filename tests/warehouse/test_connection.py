"""Opening a database: made whole, kept up to date, and plain words when it cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import warehouse
from tests.shared import digest
from tests.sql.test_sql_cases import VIEWS
from warehouse.database import new_file, schema, stamp
from warehouse.database.connection import open_for_read, open_for_write, open_once
from warehouse.database.facts import folder_of
from warehouse.database.failures import database_error
from warehouse.database.paths import CONFIG
from warehouse.database.stamp import is_stamped
from warehouse.errors import DatabaseError, InputError

SHELL = Path(sysconfig.get_path("scripts")) / "duckdb"

HOLD = """
import sys
from pathlib import Path
from warehouse.database.connection import open_for_write
with open_for_write(Path(sys.argv[1])) as connection:
    print("open", flush=True)
    sys.stdin.read()
"""

DIE_WRITING = """
import os, sys
from pathlib import Path
from warehouse.database.connection import open_for_write
connection = open_for_write(Path(sys.argv[1]))
connection.execute("insert into study by name select 'kept' as study, 'e' as estimator, "
                   "'{}' as definition")
connection.begin()
connection.execute("insert into study by name select 'lost' as study, 'e' as estimator, "
                   "'{}' as definition")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def made(database: Path, warehouse_connection: duckdb.DuckDBPyConnection) -> Path:
    """An up-to-date database that nothing has open."""
    warehouse_connection.close()
    return database


Opener = Callable[[Path], duckdb.DuckDBPyConnection]


def refusal(path: Path, opener: Opener = open_for_read) -> DatabaseError:
    with pytest.raises(DatabaseError) as caught:
        opener(path)
    return caught.value


def test_a_database_is_made_with_its_directory_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "warehouse.duckdb"
    with open_for_write(path) as opened:
        assert opened.execute("select count(*) from cell").fetchone() == (0,)

    assert [each.name for each in path.parent.iterdir()] == ["warehouse.duckdb"]


@pytest.mark.long
def test_the_duckdb_1_5_shell_selects_from_every_view_without_a_case(made: Path) -> None:
    """The views of sql/ have cases in tests/sql, which the shell answers as well."""
    with open_for_read(made) as opened:
        found = opened.execute(
            "select view_name from duckdb_views() where not internal order by view_name"
        ).fetchall()
        names = [name for (name,) in found if name not in VIEWS]
        counts = [
            opened.execute(f"select '{name}', count(*) from {name}").fetchall()[0] for name in names
        ]
    assert len(names) > 5
    version = subprocess.run([SHELL, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("v1.5.")

    queries = "".join(f"select '{name}', count(*) from {name};" for name in names)
    done = subprocess.run(
        [SHELL, "-readonly", "-csv", "-noheader", made, queries],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{name},{count}" for name, count in counts]


def test_a_file_changed_after_it_was_made_still_opens_in_the_shell(made: Path) -> None:
    with open_for_write(made) as opened:
        opened.execute("create table extra as select range as number from range(300_000)")

    done = subprocess.run(
        [SHELL, "-readonly", "-csv", "-noheader", made, "select count(*) from extra"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "300000\n"


def test_a_reader_cannot_write(made: Path) -> None:
    with open_for_read(made) as opened, pytest.raises(duckdb.InvalidInputException):
        opened.execute("delete from cell")


def test_a_missing_database_is_not_made_by_reading(database: Path) -> None:
    error = refusal(database)

    assert error.exit_code == 5
    assert error.message == f"{database}: there is no such database"
    assert "warehouse quickstart" in error.hint
    assert not database.exists()


@pytest.mark.parametrize("opener", [open_for_read, open_for_write])
def test_a_locked_database_names_file_and_process_in_one_line(made: Path, opener: Opener) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, made], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        error = refusal(made, opener)
    finally:
        holder.communicate()

    assert error.message.startswith(f"{made}: is in use by process {holder.pid} (`")
    assert "`, runs for " in error.message
    assert "--wait SECONDS" in error.hint
    assert "--db" in error.hint
    opener(made).close()  # free again once the holder is gone


def test_a_directory_is_refused(tmp_path: Path) -> None:
    for opener in (open_for_read, open_for_write):
        assert refusal(tmp_path, opener).message == f"{tmp_path}: is a directory"


@pytest.mark.parametrize(
    "content", [b"", b"name,value\n" * 5000, b"SQLite format 3\0" + bytes(8192)]
)
def test_a_file_of_another_kind_is_refused_and_left_alone(database: Path, content: bytes) -> None:
    database.write_bytes(content)
    for opener in (open_for_read, open_for_write):
        error = refusal(database, opener)
        assert error.message == f"{database}: is not a DuckDB database"
        assert "--db" in error.hint

    assert database.read_bytes() == content


@pytest.mark.parametrize(("keep", "rest"), [(4096, b""), (20_000, b""), (12_288, b"\xa5")])
def test_a_truncated_or_damaged_database_is_refused(made: Path, keep: int, rest: bytes) -> None:
    content = made.read_bytes()
    made.write_bytes(content[:keep] + rest * (len(content) - keep))

    for opener in (open_for_read, open_for_write):
        error = refusal(made, opener)
        assert error.message.startswith(f"{made}: is damaged: ")
        assert "put a backup in its place" in error.hint


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "warehouse.duckdb"
    for opener in (open_for_read, open_for_write):
        assert refusal(path, opener).message.startswith(f"{path}: cannot be opened: ")


def test_a_directory_that_cannot_be_made_is_refused() -> None:
    path = Path("/proc/no-such-directory/warehouse.duckdb")
    if not path.parent.parent.is_dir():
        pytest.skip("there is no /proc here")

    assert refusal(path, open_for_write).message.startswith(f"{path}: cannot be created: ")


def test_a_database_of_something_else_is_refused_and_left_alone(database: Path) -> None:
    with duckdb.connect(str(database)) as other:
        other.execute("create table customer (name varchar)")
    content = database.read_bytes()
    for opener in (open_for_read, open_for_write):
        assert refusal(database, opener).message == (
            f"{database}: is a DuckDB database, but not a warehouse"
        )

    assert database.read_bytes() == content


def test_a_database_of_a_newer_package_is_refused_with_the_way_out(made: Path) -> None:
    with open_for_write(made) as opened:
        opened.execute("update warehouse_meta set value = '7.1' where key = 'package_version'")
        opened.execute("update warehouse_meta set value = '99' where key = 'schema_version'")
    for opener in (open_for_read, open_for_write):
        error = refusal(made, opener)
        assert error.message.startswith(
            f"{made}: was made by training-warehouse 7.1, which is newer"
        )
        assert "pip install --upgrade training-warehouse" in error.hint


def test_a_writer_refreshes_what_another_version_left_and_a_reader_changes_nothing(
    database: Path, small_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_write(database) as opened:
        opened.execute("drop view models")
    with (small_package / "sql" / "macros.sql").open("a") as file:
        file.write("\n")
    monkeypatch.setattr(warehouse, "__version__", "99.0", raising=False)

    before = digest(database)
    error = refusal(database, open_for_read)
    assert error.message.startswith(f"{database}: was made by another version of this package")
    assert f"`warehouse init --db {database}`" in error.hint
    assert digest(database) == before
    open_for_write(database).close()
    with open_for_read(database) as opened:
        assert opened.execute("select count(*) from models").fetchone() == (1,)
        stored = "select value from warehouse_meta where key = 'package_version'"
        assert opened.execute(stored).fetchone() == ("99.0",)


def test_init_makes_a_database_of_another_version_once(
    database: Path, small_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_for_write(database).close()
    with (small_package / "sql" / "macros.sql").open("a") as file:
        file.write("\n")
    prepared: list[bool] = []
    prepare = schema.prepare

    def counted(connection: duckdb.DuckDBPyConnection, *, keeps_rows: bool) -> None:
        prepared.append(keeps_rows)
        prepare(connection, keeps_rows=keeps_rows)

    monkeypatch.setattr(schema, "prepare", counted)
    open_for_write(database, remakes=True).close()
    open_for_write(database).close()
    open_for_write(database, remakes=True).close()
    open_for_write(database, remakes=True, keeps_rows=False).close()
    assert prepared == [False, True, False]


@pytest.mark.usefixtures("small_package")
def test_a_table_of_the_user_with_the_name_of_the_dictionary_stays(database: Path) -> None:
    with open_for_write(database) as opened:
        opened.execute("drop table column_meaning")
        opened.execute("create table column_meaning as select 1 as mine")
    with pytest.raises(DatabaseError, match=r"a table of yours .*: column_meaning"):
        open_for_write(database, remakes=True)
    with duckdb.connect(str(database)) as opened:
        assert opened.execute("from column_meaning").fetchall() == [(1,)]


def test_reading_an_up_to_date_database_does_not_write(made: Path) -> None:
    before = (digest(made), made.stat().st_mtime_ns)
    with open_for_read(made) as opened:
        opened.execute("select count(*) from configuration").fetchall()

    assert (digest(made), made.stat().st_mtime_ns) == before


def test_what_was_committed_before_a_kill_is_read_and_the_rest_is_gone(made: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DIE_WRITING, made], check=False)
    assert killed.returncode == -9

    for opener in (open_for_read, open_for_write):
        with opener(made) as opened:
            assert opened.execute("select study from study").fetchall() == [("kept",)]


def test_the_log_of_a_deleted_database_does_not_stop_a_new_one(made: Path) -> None:
    subprocess.run([sys.executable, "-c", DIE_WRITING, made], check=False)
    assert made.with_name(f"{made.name}.wal").exists()
    made.unlink()

    with open_for_write(made) as opened:
        assert opened.execute("select study from study").fetchall() == []


def test_two_processes_may_make_the_database_at_once(
    database: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process finishes its file between our look at the path and our rename."""
    create = new_file._create
    others: list[Path] = []

    def create_later(path: Path) -> None:
        create(path)
        shutil.copyfile(empty_warehouse, database)
        with duckdb.connect(str(database), config=CONFIG) as other:
            other.execute(
                "insert into study by name select 'other' as study, 'e' as estimator, "
                "'{}' as definition"
            )
        others.append(database)

    monkeypatch.setattr(new_file, "_create", create_later)
    with open_for_write(database) as opened:
        assert opened.execute("select study from study").fetchall() == [("other",)]

    assert len(others) == 1
    assert {*database.parent.iterdir()} == {database, folder_of(database)}


@pytest.mark.usefixtures("small_package")
def test_a_file_system_without_hard_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "place" / "warehouse.duckdb"

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    open_for_write(database).close()

    assert [each.name for each in database.parent.iterdir()] == [database.name]


def test_a_second_mode_in_one_process_is_explained(made: Path) -> None:
    with open_for_read(made):
        error = refusal(made, open_for_write)
    assert error.message == f"{made}: this thread has it open for reading"
    assert error.hint == "close that connection first"


def test_a_faulty_resource_closes_the_connection_and_writes_nothing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "model.csv").write_text("model,source\ngpt,\n")
    before = digest(made)
    monkeypatch.setattr(
        "warehouse.database.resources.reference_directory", lambda: tmp_path / "reference"
    )
    caught = []  # a caught error keeps the frames it went through, and what they hold, alive
    for opener, kind, said in (
        (open_for_read, DatabaseError, "another version of this package"),
        (open_for_write, InputError, "every row needs a source"),
    ):
        with pytest.raises(kind, match=said) as error:
            opener(made)
        caught.append(error)
    monkeypatch.undo()

    assert digest(made) == before
    open_for_read(made).close()
    assert len(caught) == 2


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            "IO Error: Trying to read a database file with storage version number 99, but we can "
            "only read storage versions between 64 and 69.\nThe database file was created with a "
            "newer version of DuckDB.",
            "was written by another version of DuckDB",
            "pip install --upgrade duckdb",
        ),
        (
            'IO Error: Could not set lock on file "w.duckdb": Resource temporarily unavailable',
            "is in use by another process",
            "wait for it with --wait SECONDS",
        ),
        (
            'IO Error: Cannot open file "w.duckdb": Permission denied',
            "may not be written by this user",
            "change its permissions",
        ),
        (
            'IO Error: Could not write file "w.duckdb.wal": No space left on device',
            "there is no space left for it",
            "free some disk space and run the same command again",
        ),
        (
            'IO Error: Could not write file "w.duckdb.wal": File too large',
            "there is no space left for it",
            "raise the largest size of a file (`ulimit -f`) and run the same command again",
        ),
        (
            'IO Error: Cannot open file "w.duckdb.wal": Too many open files',
            'cannot be opened: IO Error: Cannot open file "w.duckdb.wal": Too many open files',
            "let this user read and write it",
        ),
        ("Some Error: first line\nsecond line", "DuckDB failed: Some Error: first line", "again"),
    ],
)
def test_what_duckdb_says_becomes_one_line_and_a_hint(said: str, message: str, hint: str) -> None:
    error = database_error(duckdb.IOException(said), Path("w.duckdb"))

    assert error.message == f"w.duckdb: {message}"
    assert hint in error.hint


def test_a_database_of_other_code_is_brought_up_to_date_by_a_writer(
    database: Path, small_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_for_write(database).close()
    (code := small_package / "code").mkdir()
    (code / "formulas.py").write_text("TWO = 2\n")
    monkeypatch.setattr(stamp, "_CODE", (*stamp._CODE, str(code)))
    before = digest(database)

    assert "another version" in refusal(database, open_for_read).message
    assert digest(database) == before

    with open_for_write(database) as opened:
        assert is_stamped(opened)
    with open_for_read(database) as opened:
        assert is_stamped(opened)


def test_readers_of_a_database_that_is_kept_open_share_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    connect = duckdb.connect

    def counted(path: str, **options: Any) -> duckdb.DuckDBPyConnection:
        opened.append(Path(path).name)
        return connect(path, **options)

    monkeypatch.setattr(duckdb, "connect", counted)
    with open_once(made):
        assert opened == []
        with open_for_read(made) as first:
            first.execute("create temp table mine as select 1 as one")
        with open_for_read(made) as second, pytest.raises(duckdb.CatalogException):
            second.execute("from mine")
        assert opened == [made.name]
        with open_for_write(made) as writer:  # a database that readers have open refuses writers
            writer.execute(
                "insert into study by name select 'new' as study, 'e' as estimator, "
                "'{}' as definition"
            )
        with open_for_read(made) as third:
            assert third.execute("select study from study").fetchall() == [("new",)]
        assert opened == [made.name] * 3
        with open_for_write(tmp_path / "other.duckdb"):
            pass
    with open_for_write(made):
        pass
    assert opened[3:] == ["other.duckdb", made.name]
