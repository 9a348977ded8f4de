"""Dropping: what goes with a study, and that the file's place, rights and lock are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.shared import digest
from warehouse.database import copies
from warehouse.database.connection import open_for_write
from warehouse.database.facts import folder_of
from warehouse.errors import DatabaseError, InputError
from warehouse.studies.study import Study, load_study
from warehouse.sweep.record import drop_study
from warehouse.sweep.runner import run_study

STUDY = """
name = "{name}"
estimator = "roofline"
variant = "corrected"
[space]
model = "gpt3"
accelerator = "H200"
nvlink_size = 8
num_gpus = {num_gpus}
global_batch_size = 512
"""

OPEN = "import duckdb, sys; duckdb.connect(sys.argv[1], read_only=True)"


def study(directory: Path, name: str, num_gpus: str) -> Study:
    path = directory / f"{name}.toml"
    path.write_text(STUDY.format(name=name, num_gpus=num_gpus))
    return load_study(path)


def large(directory: Path) -> Study:
    return study(directory, "large", "{powers_of_two = [3, 12]}")


def count(database: Path, table: str) -> int:
    with duckdb.connect(str(database), read_only=True) as connection:
        return int(connection.execute(f"select count(*) from {table}").fetchall()[0][0])


@pytest.mark.long
def test_cells_that_no_study_asks_for_any_more_go_with_the_next_drop(
    database: Path, tmp_path: Path
) -> None:
    run_study(database, study(tmp_path, "kept", "[8]"))
    kept = count(database, "roofline")
    run_study(database, study(tmp_path, "edited", "[16, 32]"))
    run_study(database, study(tmp_path, "edited", "[64]"))
    assert count(database, "cell") == 4
    assert drop_study(database, "edited").cells == 3
    assert (count(database, "cell"), count(database, "problem")) == (1, 1)
    assert count(database, "roofline") == kept


@pytest.mark.long
def test_the_space_of_dropped_rows_is_taken_by_new_ones(database: Path, tmp_path: Path) -> None:
    run_study(database, large(tmp_path))
    before = database.stat().st_size
    dropped = drop_study(database, "large")
    assert dropped.free_bytes > 0.1 * before
    assert "`warehouse compact` shrinks it" in dropped.free_in_words
    run_study(database, large(tmp_path))
    assert database.stat().st_size < 1.1 * before
    drop_study(database, "large")
    copies.compact(database)
    assert database.stat().st_size < 0.8 * before  # what is left is an empty warehouse


def test_an_unknown_name_is_refused_and_nothing_is_written(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path, "kept", "[8]"))
    before = digest(database)
    with pytest.raises(InputError, match=r'"kep" is not in .*\nhint: did you mean kept'):
        drop_study(database, "kep")
    assert digest(database) == before


@pytest.mark.long
def test_a_file_that_shrinks_keeps_its_mode_and_the_link_to_it_stays_a_link(
    database: Path, tmp_path: Path
) -> None:
    link = tmp_path / "linked" / "link.duckdb"
    link.parent.mkdir()
    link.symlink_to(database)
    run_study(link, large(tmp_path))
    database.chmod(0o640)
    drop_study(link, "large")
    before = database.stat().st_size
    copies.compact(link)
    assert link.is_symlink()
    assert database.stat().st_mode & 0o777 == 0o640
    assert database.stat().st_size < before
    assert [path.name for path in link.parent.iterdir()] == [link.name]


@pytest.mark.long
def test_nobody_can_open_the_file_until_the_copy_has_taken_its_place(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(database, large(tmp_path))
    drop_study(database, "large")
    replace, refused = Path.replace, []

    def replace_watched(copy: Path, target: Path) -> Path:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, database], capture_output=True, check=False
        )
        refused.append(b"lock" in done.stderr)
        return replace(copy, target)

    monkeypatch.setattr(Path, "replace", replace_watched)
    copies.compact(database)
    assert refused
    assert all(refused)
    assert run_study(database, study(tmp_path, "next", "[8]")).cells == 1


@pytest.mark.long
def test_a_log_is_kept_next_to_the_file_for_any_link_to_it(database: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(database)
    with open_for_write(link) as connection:
        connection.execute("create table extra (number integer)")
        assert database.with_name(database.name + ".wal").exists()
    assert link.is_symlink()


@pytest.mark.long
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_file_that_cannot_be_shrunk_stays_as_it_was(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    run_study(database, large(tmp_path))
    drop_study(database, "large")
    before = database.stat().st_size

    def fail(_: object, copy: Path) -> None:
        copy.write_bytes(b"half")
        raise type(error)(*error.args)  # an exception that was raised keeps its frames

    with monkeypatch.context() as failing:
        failing.setattr(copies, "_copy", fail)
        with pytest.raises((KeyboardInterrupt, DatabaseError)):
            copies.compact(database)
    assert {*tmp_path.iterdir()} == {database, folder_of(database), tmp_path / "large.toml"}
    assert database.stat().st_size == before
    with pytest.raises(InputError, match=r"MB of the file are free for new rows: `warehouse comp"):
        drop_study(database, "large")
    copies.compact(database)
    assert database.stat().st_size < 0.8 * before
