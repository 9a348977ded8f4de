"""Fixtures that several packages' tests share."""

from __future__ import annotations

import gc
import json
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import settings

from estimators.columns import COLUMNS
from estimators.registry import ESTIMATORS
from tests.examples import EXAMPLES
from tests.shared import TINY_STUDY, Quickstart, Shared, build_wheel, call, run_program
from tests.toy_estimator import TOY_COLUMNS, TOY_ENTRY
from warehouse.cli.options import DEFAULT_DATABASE
from warehouse.database import resources
from warehouse.database.connection import open_for_write
from warehouse.database.paths import CONFIG

TOY_SQL = Path(__file__).parent / "toy_sql"

# An example may take any time: a busy machine is no fault. Every run draws the same examples, so
# that a run that fails can be repeated, and few of them: the next run would repeat them.
# `--hypothesis-profile=random` looks for new ones.
settings.register_profile("few", deadline=None, derandomize=True, max_examples=EXAMPLES // 5)
settings.register_profile("random", deadline=None, max_examples=EXAMPLES)
settings.load_profile("few")

_THREADS = {name: value for name, value in CONFIG.items() if name == "threads"}
"""The setting of the package, if it has one."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give DuckDB one thread, and all threads to long tests: their tables are large enough.

    Workers of the run share the cores; a second thread makes a small query cost more, not less.
    """
    CONFIG.pop("threads", None)
    CONFIG.update(_THREADS if item.get_closest_marker("long") else {"threads": 1})


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn garbage collection off while tests are collected, and exclude their objects from it
    later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Unfreeze objects at the end: DuckDB's bindings report remaining objects as leaks."""
    gc.unfreeze()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A path at which there is no database yet."""
    return tmp_path / "warehouse.duckdb"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """The directory that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    return Shared(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session", autouse=True)
def _cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """A cache of empty databases for the tests, and for the programs that they start.

    It outlives a run: a database is found by a hash of all that it is made from.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(request.config.cache.mkdir("no-settings")))
        patch.setenv("WAREHOUSE_CACHE", str(request.config.cache.mkdir("empty-databases")))
        yield


@pytest.fixture(scope="session")
def empty_warehouse(shared: Shared) -> Path:
    """A warehouse without a study, to read or to copy."""

    def make(place: Path) -> None:
        open_for_write(place / "warehouse.duckdb").close()

    return shared("empty", make) / "warehouse.duckdb"


@pytest.fixture(scope="session")
def tiny_swept(shared: Shared, empty_warehouse: Path) -> Path:
    """A database of the two cells of the tiny study, to read or to copy."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        (place / "tiny.toml").write_text(TINY_STUDY, encoding="utf-8")
        code, _, err = call("sweep", place / "tiny.toml", "--db", path)
        assert code == 0, err

    return shared("tiny", make) / "warehouse.duckdb"


@pytest.fixture(scope="session")
def quickstart(shared: Shared) -> Quickstart:
    """One run of the small quickstart, shared by all tests that only read."""

    def make(place: Path) -> None:
        done = call("quickstart", "--small", "--db", place / "warehouse.duckdb")
        (place / "done.json").write_text(json.dumps(done), encoding="utf-8")

    place = shared("quickstart", make)
    done = json.loads((place / "done.json").read_text(encoding="utf-8"))
    return Quickstart(place / "warehouse.duckdb", *done)


@pytest.fixture(scope="session")
def whole_quickstart(shared: Shared) -> Quickstart:
    """One run of `warehouse quickstart` as a user types it, in a folder of its own.

    Its database is most of a gigabyte: all tests of the whole grid share it, so none may change a
    row of the quickstart's studies.
    """

    def make(place: Path) -> None:
        done = run_program("quickstart", cwd=place)
        (place / "done.json").write_text(
            json.dumps((done.returncode, done.stdout, done.stderr)), encoding="utf-8"
        )

    place = shared("whole", make)
    done = json.loads((place / "done.json").read_text(encoding="utf-8"))
    return Quickstart(place / DEFAULT_DATABASE, *done)


@pytest.fixture(scope="session")
def unpacked_wheel(shared: Shared) -> Path:
    """A directory with the files that the wheel installs."""
    project = Path(__file__).parents[1]
    return shared("wheel", lambda place: build_wheel(project, place)) / "installed"


@pytest.fixture
def warehouse_connection(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that may write to an up-to-date warehouse at `database`."""
    with open_for_write(database) as opened:
        yield opened


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy estimator next to the real ones: its entry, its columns and its staging view."""
    add_toy(monkeypatch, tmp_path / "sql")


@pytest.fixture(scope="module")
def toy_in_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy estimator, in all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        add_toy(patch, tmp_path_factory.mktemp("toy") / "sql")
        yield


def add_toy(patch: pytest.MonkeyPatch, directory: Path) -> None:
    """Register the toy estimator; `directory` gets its view and those of the package."""
    for name, entry in TOY_ENTRY.items():
        patch.setitem(ESTIMATORS, name, entry)
    for name, column in TOY_COLUMNS.items():
        patch.setitem(COLUMNS, name, column)
    shutil.copytree(resources.sql_directory(), directory)
    shutil.copytree(TOY_SQL, directory, dirs_exist_ok=True)
    patch.setattr(resources, "sql_directory", lambda: directory)
