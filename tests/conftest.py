"""Fixtures that several packages' tests share."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from estimators.columns import COLUMNS
from estimators.registry import ESTIMATORS
from tests.shared import Quickstart, Shared, call
from tests.toy_estimator import TOY_COLUMNS, TOY_ENTRY
from warehouse.database import connection, resources
from warehouse.database.connection import open_for_write

TOY_SQL = Path(__file__).parent / "toy_sql"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A path at which there is no database yet."""
    return tmp_path / "warehouse.duckdb"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """The directory that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    return Shared(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session")
def empty_warehouse(shared: Shared) -> Path:
    """A warehouse without a study, to copy: making one takes seconds."""

    def make(place: Path) -> None:
        open_for_write(place / "warehouse.duckdb").close()

    return shared("empty", make) / "warehouse.duckdb"


@pytest.fixture(autouse=True)
def _new_databases_are_copies(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, empty_warehouse: Path
) -> None:
    """Start new databases as copies of an empty one: making a hundred views takes seconds.

    Tests of how a database comes to be are marked `makes_database`; programs in processes of
    their own make theirs anyway.
    """
    if request.node.get_closest_marker("makes_database"):
        return
    create = connection._create

    def copy(path: Path) -> None:
        create(path)
        shutil.copyfile(empty_warehouse, path)

    monkeypatch.setattr(connection, "_create", copy)


@pytest.fixture(scope="session")
def quickstart(shared: Shared, empty_warehouse: Path) -> Quickstart:
    """One run of the small quickstart, shared by all tests that only read."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        done = call("quickstart", "--small", "--db", path)
        (place / "done.json").write_text(json.dumps(done), encoding="utf-8")

    place = shared("quickstart", make)
    done = json.loads((place / "done.json").read_text(encoding="utf-8"))
    return Quickstart(place / "warehouse.duckdb", *done)


@pytest.fixture
def warehouse_connection(
    database: Path, empty_warehouse: Path
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that may write to an up-to-date warehouse at `database`."""
    shutil.copyfile(empty_warehouse, database)
    with open_for_write(database) as opened:
        yield opened


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy estimator beside the real ones: its entry, its columns and its staging view."""
    for name, entry in TOY_ENTRY.items():
        monkeypatch.setitem(ESTIMATORS, name, entry)
    for name, column in TOY_COLUMNS.items():
        monkeypatch.setitem(COLUMNS, name, column)
    directory = tmp_path / "sql"
    shutil.copytree(resources.sql_directory(), directory)
    shutil.copytree(TOY_SQL, directory, dirs_exist_ok=True)
    monkeypatch.setattr(resources, "sql_directory", lambda: directory)
