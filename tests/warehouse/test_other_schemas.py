"""Schemas of the user, attached files and temporary tables may have any names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import call
from warehouse.api.warehouse import Warehouse
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description
from warehouse.database.lineage import reads_of

MINE = """
create schema raw;
create table raw.runs as select 1 as id;
create table raw.cell as select 1 as id;
create view raw.model as select 1 as x;
create view raw.configuration as select 1 as x;
create macro raw.best(x) as table select x;
create table mine as select 2 as z
"""


@pytest.fixture
def shared_file(tiny_swept: Path, database: Path) -> Path:
    """A copy of a database with a study, and with a schema of the user."""
    shutil.copyfile(tiny_swept, database)
    with duckdb.connect(str(database)) as connection:
        connection.execute(MINE)
    return database


def described(database: Path) -> list[Any]:
    """What `warehouse schema` knows of each object, but of `mine`."""
    with open_for_read(database) as connection:
        found = Description(connection)
        return [
            (thing, found.columns(name), found.rows.get(name))
            for name, thing in found.things.items()
            if name != "mine"
        ]


@pytest.mark.long
def test_objects_of_another_schema_disturb_nothing(shared_file: Path, tmp_path: Path) -> None:
    for arguments in (
        ("schema",),
        ("schema", "configuration"),
        ("validate", "--deep"),
        ("backup", tmp_path / "copy.duckdb"),
        ("compact",),
        ("init", "--anew"),
        ("drop", "tiny"),
        ("status",),
    ):
        code, _, err = call(*arguments, "--db", shared_file)
        assert code == 0, (arguments, err)
    for path in (shared_file, tmp_path / "copy.duckdb"):
        with duckdb.connect(str(path), read_only=True) as connection:
            assert connection.execute("from raw.runs").fetchall() == [(1,)]
            assert connection.execute("from raw.model").fetchall() == [(1,)]
            assert connection.execute("from mine").fetchall() == [(2,)]


@pytest.mark.long
def test_they_are_not_taken_for_those_of_the_package(shared_file: Path, tiny_swept: Path) -> None:
    assert described(shared_file) == described(tiny_swept)
    with open_for_read(shared_file) as mine, open_for_read(tiny_swept) as usual:
        assert reads_of(mine) == reads_of(usual)
    assert Warehouse(shared_file).view("MODEL").width > 1
