"""New databases as copies of one that is kept: always whole, never out of date, never needed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from estimators import registry
from estimators.registry import ESTIMATORS
from tests.shared import digest
from tests.warehouse.small_package import SMALL_VIEW
from warehouse import settings
from warehouse.database import new_file, schema, stamp
from warehouse.database.connection import open_for_write
from warehouse.database.new_file import contents_of, create_missing, in_memory
from warehouse.database.schema import prepare
from warehouse.database.stamp import is_stamped
from warehouse.errors import InputError

MAKE = """
import sys
from pathlib import Path
from warehouse.database.connection import open_for_write
open_for_write(Path(sys.argv[1])).close()
"""

SEEN = (
    ("duckdb_tables()", "table_name, sql, comment"),
    ("duckdb_views()", "view_name, sql, comment"),
    ("duckdb_columns()", "table_name, column_name, data_type, column_default, comment"),
    ("duckdb_functions()", "function_name, macro_definition, comment"),
)


def seen(connection: duckdb.DuckDBPyConnection) -> list[list[str]]:
    """Everything that a user can see in a database: names, DDL, comments and rows."""
    parts = [
        connection.execute(f"select {columns} from {kind} where not internal").fetchall()
        for kind, columns in SEEN
    ]
    tables = sorted(name for name, *_ in parts[0])
    rows = [connection.execute(f"from {name}").fetchall() for name in tables]
    return [sorted(map(repr, part)) for part in (*parts, *rows)]


@pytest.fixture
def cache(small_package: Path) -> Path:
    """An empty cache, of a package with few tables and views: it fills the cache in a moment."""
    return small_package / "cache"


@pytest.fixture
def times_prepared(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each call of `prepare` found to do, in order."""
    found: list[bool] = []

    def counted(connection: duckdb.DuckDBPyConnection) -> None:
        found.append(not is_stamped(connection))
        prepare(connection)

    monkeypatch.setattr(schema, "prepare", counted)
    return found


def rows_of_model(path: Path) -> list[tuple[str, int]]:
    with open_for_write(path) as connection:
        assert is_stamped(connection)
        return connection.execute("select model, hidden_size from models").fetchall()


def files(cache: Path) -> list[Path]:
    return sorted(cache.glob("*"))


def test_the_second_database_is_a_copy_of_the_first(
    cache: Path, tmp_path: Path, times_prepared: list[bool]
) -> None:
    assert rows_of_model(tmp_path / "one.duckdb") == [("a", 8)]
    assert times_prepared == [True]  # the one that is kept; its copy is up to date

    assert rows_of_model(tmp_path / "two.duckdb") == [("a", 8)]
    assert times_prepared == [True]
    assert len(files(cache)) == 1


@pytest.mark.usefixtures("cache")
def test_a_copy_is_what_would_have_been_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with in_memory() as connection:
        copies = [seen(connection)]
    with open_for_write(tmp_path / "copy.duckdb") as connection:
        copies.append(seen(connection))
    monkeypatch.setattr(settings, "cache", lambda: None)
    open_for_write(tmp_path / "made.duckdb").close()  # DuckDB stores views in words of its own
    with open_for_write(tmp_path / "made.duckdb") as connection:
        made = seen(connection)

    assert copies == [made, made]
    assert all(any(word in each for each in made[3]) for word in ("'plus'", "'wider'"))


def test_a_database_keeps_nothing_from_the_one_it_was_copied_from(
    cache: Path, tmp_path: Path
) -> None:
    with open_for_write(tmp_path / "one.duckdb") as connection:
        connection.execute("create table mine as select 1 as one")
    (kept,) = files(cache)
    (tmp_path / "one.duckdb").chmod(0o600)
    kept.chmod(0o400)

    assert rows_of_model(tmp_path / "two.duckdb") == [("a", 8)]
    with open_for_write(tmp_path / "two.duckdb") as connection:  # which may be written to
        assert connection.execute(
            "select count(*) from duckdb_tables() where table_name = 'mine'"
        ).fetchall() == [(0,)]


def change(what: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change one of the things that an empty database is made from."""
    match what:
        case "view":
            text = SMALL_VIEW.replace("Models", "All models")
            (directory / "sql" / "marts" / "models.sql").write_text(text)
        case "reference table":
            text = "model,hidden_size,source\na,9,here\n"
            (directory / "reference" / "model.csv").write_text(text)
        case "code":
            (directory / "code").mkdir()
            (directory / "code" / "tables.py").write_text("FACTS = 1\n")
            monkeypatch.setattr(stamp, "_CODE", (*stamp._CODE, str(directory / "code")))
        case "estimator":
            found = {"pipeline": ESTIMATORS["pipeline"], **registry.ESTIMATORS}
            monkeypatch.setattr(registry, "ESTIMATORS", found)
        case "duckdb":
            monkeypatch.setattr(new_file, "duckdb_version", lambda: "99.0")


def test_the_version_of_duckdb_is_known_before_it_is_imported() -> None:
    code = """if True:
        import sys
        from warehouse.database.paths import duckdb_version
        installed = duckdb_version()
        assert "duckdb" not in sys.modules
        import duckdb
        print(installed == f"duckdb-{duckdb.__version__}.dist-info")
    """
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.usefixtures("cache")
def test_a_copy_has_as_many_tables_and_views_as_its_name_says(tmp_path: Path) -> None:
    assert create_missing(tmp_path / "made.duckdb") is not None  # the cache was empty
    found = create_missing(tmp_path / "copied.duckdb")
    with open_for_write(tmp_path / "copied.duckdb") as connection:
        assert contents_of(connection) == found
        assert is_stamped(connection)  # opening it changed nothing
    assert create_missing(tmp_path / "copied.duckdb") is None


@pytest.mark.usefixtures("cache")
def test_a_database_that_another_process_put_there_first_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(source: Path, target: Path) -> None:
        shutil.copyfile(source, target)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", late)
    assert create_missing(tmp_path / "new.duckdb") is None
    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]


@pytest.mark.usefixtures("cache")
def test_a_new_database_next_to_files_of_an_earlier_one_is_opened(tmp_path: Path) -> None:
    (tmp_path / "new.duckdb.snapshot").write_text("")
    assert create_missing(tmp_path / "new.duckdb") is None
    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    assert not (tmp_path / "new.duckdb.snapshot").exists()


@pytest.mark.parametrize("what", ["view", "reference table", "code", "estimator", "duckdb"])
def test_a_database_of_something_else_is_made_anew(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with in_memory():
        (before,) = files(cache)

    change(what, tmp_path, monkeypatch)

    with in_memory() as connection:
        assert is_stamped(connection)
    assert len(files(cache)) == 2
    with in_memory():
        pass
    assert len(files(cache)) == 2
    assert before in files(cache)  # another version of the package may need it


def test_only_the_files_used_last_are_kept(cache: Path, tmp_path: Path) -> None:
    view = tmp_path / "sql" / "marts" / "models.sql"
    with in_memory():
        (first,) = files(cache)
    for number in range(3):
        view.write_text(f"{SMALL_VIEW}-- {number}\n")
        with in_memory():
            pass
    for age, path in enumerate(sorted(files(cache), key=lambda path: path.stat().st_mtime)[1:]):
        os.utime(path, (1e9 + age, 1e9 + age))
    (oldest,) = (path for path in files(cache) if path.stat().st_mtime == 1e9)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (abandoned := cache / f".empty-1.duckdb.{gone.pid}.partial").touch()
    (in_work := cache / f".empty-1.duckdb.{os.getppid()}.partial").touch()

    view.write_text(f"{SMALL_VIEW}-- one more\n")
    with in_memory():
        pass

    kept = files(cache)
    assert first in kept
    assert in_work in kept
    assert oldest not in kept
    assert abandoned not in kept
    assert len(kept) == 5


@pytest.mark.parametrize(
    "place",
    [0, pytest.param(5000, marks=pytest.mark.long), pytest.param(-1, marks=pytest.mark.long)],
)
def test_a_damaged_copy_is_replaced_and_damages_no_database(
    cache: Path, tmp_path: Path, place: int
) -> None:
    with in_memory():
        (kept,) = files(cache)
    content = bytearray(kept.read_bytes())
    content[place] ^= 1
    kept.write_bytes(content)

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    assert len(files(cache)) == 1
    assert files(cache)[0].read_bytes() != content


@pytest.mark.parametrize("length", [0, 100_000])
def test_half_a_copy_is_replaced(cache: Path, tmp_path: Path, length: int) -> None:
    with in_memory():
        (kept,) = files(cache)
    kept.write_bytes(kept.read_bytes()[:length])

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    assert [path.stat().st_size > length for path in files(cache)] == [True]


@pytest.mark.usefixtures("cache")
def test_a_file_that_is_damaged_while_it_is_copied_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100_000])

    monkeypatch.setattr(shutil, "copyfile", copy_half)

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]


@pytest.mark.usefixtures("cache")
def test_a_file_that_goes_while_it_is_copied_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*paths: Path) -> None:
        raise FileNotFoundError(*paths)

    monkeypatch.setattr(shutil, "copyfile", gone)

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]


def test_a_cache_that_cannot_be_written_is_not_used(
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache.write_text("a file, not a directory")

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    with in_memory() as connection:
        assert connection.execute("select model from models").fetchall() == [("a",)]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        pytest.param(OSError(errno.EROFS, "Read-only file system"), marks=pytest.mark.long),
        duckdb.IOException("Could not write file: No space left on device"),
    ],
    ids=["full", "read-only", "full while DuckDB writes"],
)
def test_a_cache_that_takes_no_file_is_not_needed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> Path:
        raise type(error)(*error.args)  # an exception that was raised keeps its frames

    monkeypatch.setattr(new_file, "_made", refuse)

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    with in_memory() as connection:
        assert connection.execute("select model from models").fetchall() == [("a",)]
    assert files(cache) == []


def test_a_cache_that_may_only_be_read_serves_its_file(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times_prepared: list[bool]
) -> None:
    assert rows_of_model(tmp_path / "one.duckdb") == [("a", 8)]

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert rows_of_model(tmp_path / "two.duckdb") == [("a", 8)]
    assert times_prepared == [True]
    assert len(files(cache)) == 1


def test_a_faulty_file_is_refused_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "sql" / "marts" / "models.sql").write_text(SMALL_VIEW.replace("model\n", "none\n"))

    with pytest.raises(InputError, match=r"models\.sql"):
        open_for_write(tmp_path / "new.duckdb")
    with pytest.raises(InputError, match=r"models\.sql"):
        in_memory()

    assert files(cache) == []
    assert not (tmp_path / "new.duckdb").exists()


def test_two_processes_may_fill_the_cache_at_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare_with_another(connection: duckdb.DuckDBPyConnection) -> None:
        monkeypatch.setattr(schema, "prepare", prepare)
        command = [sys.executable, "-c", MAKE, str(tmp_path / "other.duckdb")]
        subprocess.run(command, check=True)
        prepare(connection)

    monkeypatch.setattr(schema, "prepare", prepare_with_another)

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]
    assert not [path for path in files(cache) if path.is_dir()]


def test_a_kill_while_the_cache_is_filled_leaves_no_file_that_is_used(
    cache: Path, tmp_path: Path
) -> None:
    code = """if True:
        import os
        from warehouse.database import new_file, schema
        def die(connection):
            connection.execute("create table half as select 1 as one")
            os.kill(os.getpid(), 9)
        schema.prepare = die
        new_file.in_memory()
    """
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    assert files(cache)
    assert all(".partial" in path.name for path in files(cache))

    assert rows_of_model(tmp_path / "new.duckdb") == [("a", 8)]


@pytest.mark.usefixtures("empty_warehouse")
def test_programs_share_the_cache(tmp_path: Path) -> None:
    cache = settings.cache()
    assert cache is not None
    before = [(path, digest(path)) for path in cache.glob("*.duckdb")]
    assert before

    subprocess.run([sys.executable, "-c", MAKE, tmp_path / "new.duckdb"], check=True)

    assert [(path, digest(path)) for path in cache.glob("*.duckdb")] == before


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WAREHOUSE_CACHE": "here", "XDG_CACHE_HOME": "/caches"}, "here"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/training-warehouse"),
        ({"XDG_CACHE_HOME": "caches"}, "/home/me/.cache/training-warehouse"),
        ({"WAREHOUSE_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/me/.cache/training-warehouse"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("WAREHOUSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert settings.cache() == Path(expected)


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("WAREHOUSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert settings.cache() is None
