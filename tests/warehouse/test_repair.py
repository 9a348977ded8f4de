"""Damaged blocks: every one is found, and a repaired database has the rows of an undamaged one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from warehouse.sweep.repair import repair, study_of_record

from tests.shared import Quickstart, Shared, call
from warehouse.database.connection import open_as_it_is, open_for_write
from warehouse.database.deep_check import ROW_GROUP, deep_check
from warehouse.errors import DatabaseError
from warehouse.sweep import repair as repairs

BLOCKS_AT, BLOCK_BYTES = 3 * 4096, 262_144
"""Where the blocks of a DuckDB file begin, and their size."""

TABLE, COLUMN = "roofline", "step_seconds"
CONTENT = f"select count(*), sum(hash({TABLE})::hugeint), bit_xor(hash({TABLE})) from {TABLE}"


@pytest.fixture(scope="module")
def stored(shared: Shared, quickstart: Quickstart) -> Path:
    """The small quickstart's database, with a file of configurations evaluated into it."""

    def make(place: Path) -> None:
        path = shutil.copyfile(quickstart.database, place / "warehouse.duckdb")
        configs = place / "configs.csv"
        configs.write_text(
            "model,accelerator,nvlink_size,num_gpus,global_batch_size\ngpt3,H200,8,64,64\n"
        )
        out = (configs, "--out", place / "out.csv", "--into-db", "--db", path)
        assert call("evaluate", TABLE, *out)[0] == 0
        with duckdb.connect(str(path)) as connection:
            connection.execute("checkpoint")

    return shared("with_configs", make) / "warehouse.duckdb"


@pytest.fixture
def hurt(stored: Path, database: Path) -> Callable[[str, str, int], Path]:
    """Copy the database and flip a bit of a column in one of its row groups."""

    def hurt(table: str, column: str, group: int) -> Path:
        if not database.exists():
            shutil.copyfile(stored, database)
        with open_as_it_is(stored) as connection:
            [(block,)] = connection.execute(
                f"select min(block_id) from pragma_storage_info('{table}') where block_id >= 0"
                f" and column_name = '{column}' and row_group_id = {group}"
            ).fetchall()
        with database.open("r+b") as file:
            file.seek(BLOCKS_AT + block * BLOCK_BYTES + 1000)
            [byte] = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte ^ 1]))
        return database

    return hurt


def content(database: Path) -> list[tuple[object, ...]]:
    with open_as_it_is(database) as connection:
        return connection.execute(CONTENT).fetchall()


def cells_of(database: Path, first: int, last: int) -> set[int]:
    query = f"select distinct cell_id from {TABLE} where rowid between {first} and {last}"
    with open_as_it_is(database) as connection:
        return {cell for (cell,) in connection.execute(query).fetchall()}


@pytest.mark.long
def test_a_database_without_damage_is_left_as_it_is(stored: Path, database: Path) -> None:
    before = shutil.copyfile(stored, database).read_bytes()
    with open_as_it_is(database) as connection:
        assert deep_check(connection) == []
    report = repair(database)
    assert (report.damage, report.cells, report.kept) == ((), 0, None)
    assert database.read_bytes() == before
    assert list(database.parent.iterdir()) == [database]


def test_a_flipped_bit_is_found_in_its_column_rows_and_cells(
    stored: Path, hurt: Callable[[str, str, int], Path]
) -> None:
    path = hurt(TABLE, COLUMN, 1)
    with open_as_it_is(path) as connection:
        found = [each for each in deep_check(connection) if each.table == TABLE]
    [damage] = found
    assert COLUMN in damage.columns
    assert (ROW_GROUP, 2 * ROW_GROUP - 1) in damage.spans
    assert damage.cells >= cells_of(stored, ROW_GROUP, 2 * ROW_GROUP - 1)
    assert "checksum" in damage.reason


@pytest.mark.long
def test_the_cells_of_rows_whose_numbers_are_lost_are_those_that_lack_rows(
    stored: Path, hurt: Callable[[str, str, int], Path]
) -> None:
    path = hurt(TABLE, "cell_id", 1)
    with open_as_it_is(path) as connection:
        [damage] = [each for each in deep_check(connection) if each.table == TABLE]
    assert "cell_id" in damage.columns
    assert damage.cells == {
        cell for first, last in damage.spans for cell in cells_of(stored, first, last)
    }


@pytest.mark.parametrize("column", [COLUMN, pytest.param("cell_id", marks=pytest.mark.long)])
def test_a_repaired_database_has_every_row_again_and_the_damaged_one_is_kept(
    stored: Path, hurt: Callable[[str, str, int], Path], column: str
) -> None:
    path = hurt(TABLE, column, 0)
    damaged = path.read_bytes()
    code, out, err = call("validate", "--deep", "--db", path)
    assert (code, out) == (4, "")
    assert f"{TABLE}: " in err
    assert "cells are damaged\nhint: `warehouse repair` " in err

    code, out, err = call("repair", "--db", path)
    assert (code, out) == (0, ""), err
    kept = path.with_name(f"{path.name}.damaged")
    assert kept.read_bytes() == damaged
    assert f"{kept} is the damaged file" in err
    assert {each.name for each in path.parent.iterdir()} == {path.name, kept.name}
    lost = "1 cell of evaluate " in err
    with open_for_write(path) as connection:
        assert deep_check(connection) == []
        missing = connection.execute(
            "select count(*) from study_cell anti join cell using (cell_id)"
        ).fetchall()
        assert missing == [(int(lost),)]
        for table in ("stored_best", "roofline_leading"):
            [(own,)] = connection.execute(
                f"select count(*) from {table} semi join cell using (cell_id)"
            ).fetchall()
            assert own > 0
    if not lost:
        assert content(path) == content(stored)


@pytest.mark.long
@pytest.mark.parametrize(("table", "column"), [("study", "definition"), ("problem", "model")])
def test_a_table_that_nothing_brings_back_is_refused_and_nothing_is_changed(
    hurt: Callable[[str, str, int], Path], table: str, column: str
) -> None:
    path = hurt(table, column, 0)
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="no evaluation brings them back"):
        repair(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_configurations_is_no_study_that_can_be_evaluated_again() -> None:
    assert study_of_record("evaluate a.csv", "a.csv", TABLE, {"name": "evaluate a.csv"}) is None


def test_the_name_of_a_damaged_file_is_free_for_its_log_too(tmp_path: Path) -> None:
    file = tmp_path / "a.duckdb"
    file.touch()
    first, second = (tmp_path / f"a.duckdb{repairs.DAMAGED}{number}" for number in ("", 2))
    assert repairs._free_name(file) == first
    log = tmp_path / f"{first.name}.wal"
    log.write_text("the log of another database")
    assert repairs._free_name(file) == second
    # a killed repair had given the file its name already
    log.unlink()
    first.hardlink_to(file)
    assert repairs._free_name(file) == first
