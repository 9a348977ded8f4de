"""`warehouse sweep`, `init` and `drop`: stored rows and messages."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.cli.planning import QUESTION
from tests.shared import Command, Program, digest
from warehouse.errors import DatabaseError
from warehouse.sweep.sizes import refuse_too_large


def num_rows(database: Path) -> int:
    with duckdb.connect(str(database), read_only=True) as connection:
        return int(connection.execute("select count(*) from roofline").fetchall()[0][0])


@pytest.mark.long
def test_init_creates_a_database(warehouse: Command, tmp_path: Path) -> None:
    """`test_init_brings_a_missing_view_back` has an init of a database that there is."""
    database = tmp_path / "new" / "warehouse.duckdb"
    code, out, err = warehouse("init", "--db", database)
    assert (code, out) == (0, "")
    assert re.fullmatch(rf"{database} created: \d+ tables, \d+ views\n", err)


def test_a_dry_run_counts_what_the_sweep_then_stores_and_writes_nothing(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    code, out, err = warehouse("sweep", tiny, "--dry-run", "--db", database)
    assert code == 0
    assert not database.exists()
    name, cells, rows, *missing = out.splitlines()[-1].split()
    assert missing == [cells, rows]
    said = rf"tiny: {rows} rows of {cells} cells to evaluate and store, about [\d,]+ s and \d+ MB\n"
    assert re.fullmatch(said, err)
    code, out, err = warehouse("sweep", tiny, "--db", database)
    assert (code, out) == (0, "")
    assert err.startswith(f"tiny: {rows} rows of {cells} cells evaluated and stored in ")
    assert (name, int(rows.replace(",", ""))) == ("tiny", num_rows(database))


def test_the_same_study_twice_does_nothing_with_a_message(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    warehouse("sweep", tiny, "--db", database)
    rows = num_rows(database)
    code, _, err = warehouse("sweep", tiny, "--db", database)
    assert code == 0
    assert err == f"tiny: nothing to do, all 2 cells ({rows:,} rows) are stored already\n"
    assert num_rows(database) == rows


def test_force_evaluates_again_and_replaces(warehouse: Command, database: Path, tiny: Path) -> None:
    warehouse("sweep", tiny, "--db", database)
    rows = num_rows(database)
    assert " of 2 cells evaluated" in warehouse("sweep", tiny, "--force", "--db", database)[2]
    assert num_rows(database) == rows


def test_fewer_than_one_worker_is_refused(warehouse: Command, database: Path, tiny: Path) -> None:
    code, out, err = warehouse("sweep", tiny, "--workers", "0", "--db", database)
    assert (code, out, err) == (2, "", "error: `--workers` 0 must be at least 1\n")
    assert not database.exists()


@pytest.mark.long
def test_a_larger_study_says_what_was_there(warehouse: Command, database: Path, tiny: Path) -> None:
    warehouse("sweep", tiny, "--db", database)
    rows = num_rows(database)
    tiny.write_text(tiny.read_text().replace("[5, 6]", "[5, 7]"))
    err = warehouse("sweep", tiny, "--db", database)[2]
    assert " of 1 cell evaluated" in err
    assert err.endswith(f"; 2 cells ({rows:,} rows) were stored already\n")


@pytest.mark.long
def test_a_study_of_the_package_is_found_by_its_name(warehouse: Command, database: Path) -> None:
    for spelt in ("gpt3_1T_1d", "GPT3-1t-1D"):
        code, out, _ = warehouse("sweep", spelt, "--dry-run", "--db", database)
        assert code == 0
        assert out.splitlines()[-1].split() == ["gpt3_1T_1d", *("234", "357,552") * 2]


def stored(database: Path) -> tuple[list[str], list[str]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        studies = connection.execute("select study from study order by study").fetchall()
        variants = connection.execute("select distinct variant from cell order by 1").fetchall()
    return [name for (name,) in studies], [variant for (variant,) in variants]


@pytest.mark.long
@pytest.mark.parametrize(
    ("option", "study", "variants"),
    [
        (("--variant", "corrected"), "tiny", ["corrected"]),
        (("--variant", "published"), "tiny published", ["published"]),
        (("--variant", "both"), "tiny both", ["corrected", "published"]),
        (("--mend", "R2, R1"), "tiny R1,R2", ["R1,R2"]),
        (("--variant", "R2, R1"), "tiny R1,R2", ["R1,R2"]),
    ],
)
def test_an_option_takes_the_place_of_the_studys_variant(
    warehouse: Command,
    database: Path,
    tiny: Path,
    option: tuple[str, ...],
    study: str,
    variants: list[str],
) -> None:
    code, _, err = warehouse("sweep", tiny, *option, "--db", database)
    assert (code, err.partition(":")[0]) == (0, study)
    assert stored(database) == ([study], variants)


@pytest.mark.long
def test_each_single_mend_comes_between_published_and_corrected(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    warehouse("sweep", tiny, "--db", database)
    err = warehouse("sweep", tiny, "--variant", "each", "--db", database)[2]
    assert " of 24 cells evaluated" in err
    assert "; 2 cells (" in err
    mends = {f"R{number}" for number in range(1, 12)}
    studies, variants = stored(database)
    assert studies == ["tiny", "tiny each"]
    assert set(variants) == {"published", "corrected"} | mends


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--variant", "broth"), "`--variant` broth is not known\nhint: use published, corrected"),
        (("--mend", "R99"), "`--mend` R99 is not a mend of roofline\nhint: known: R1, "),
        (("--mend", ""), '`--mend` "" names no erratum'),
        (("--mend", "R1", "--variant", "both"), "`--mend` and `--variant` exclude each other"),
    ],
)
def test_a_variant_that_is_none_exits_2(
    warehouse: Command, database: Path, tiny: Path, option: tuple[str, ...], says: str
) -> None:
    code, out, err = warehouse("sweep", tiny, *option, "--db", database)
    assert (code, out) == (2, "")
    assert says in err
    assert not database.exists()


@pytest.mark.parametrize(
    ("study", "says"),
    [
        ("nonsense", "one of: cluster_budget, cluster_memory, cluster_notebook"),
        ("nonsense.toml", "nonsense.toml: there is no such file"),
        ("no/such", "no/such: there is no such file"),
    ],
)
def test_a_study_that_is_not_there_exits_3(
    warehouse: Command, database: Path, study: str, says: str
) -> None:
    code, out, err = warehouse("sweep", study, "--db", database)
    assert (code, out) == (3, "")
    assert says in err
    assert not database.exists()


def test_a_faulty_study_exits_3_and_nothing_is_written(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    tiny.write_text(tiny.read_text().replace("nvlink_size = 8", "nvlink_size = -8"))
    code, out, err = warehouse("sweep", tiny, "--db", database)
    assert (code, out) == (3, "")
    assert f"{tiny}: `nvlink_size` -8" in err
    assert not database.exists()


@pytest.mark.long
def test_drop_removes_a_study_and_says_how_much(
    warehouse: Command, database: Path, tiny: Path
) -> None:
    warehouse("sweep", tiny, "--db", database)
    rows = num_rows(database)
    code, out, err = warehouse("drop", "tiny", "--db", database)
    assert (code, out) == (0, "")
    assert err.startswith(f"dropped tiny: 2 cells, {rows:,} rows, ")
    assert num_rows(database) == 0
    code, _, err = warehouse("drop", "tiny", "--db", database)
    assert code == 3
    assert '"tiny" is not in' in err


def test_drop_does_not_make_a_database(warehouse: Command, database: Path) -> None:
    assert warehouse("drop", "tiny", "--db", database)[0] == 5
    assert not database.exists()


def test_an_interrupted_sweep_says_that_it_can_be_resumed(
    warehouse: Command, database: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warehouse.sweep.runner.run_study", interrupted)
    code, out, err = warehouse("sweep", tiny, "--db", database)
    assert (code, out) == (130, "")
    assert err.startswith("tiny: stopped; stored rows stay, the same command resumes\n")


@pytest.mark.long
def test_a_terminal_shows_a_bar_and_a_pipe_only_the_last_line(
    database: Path, tiny: Path, program: Program
) -> None:
    done = program("sweep", tiny, "--db", database)
    assert done.stderr.count("\n") == 1

    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "warehouse.cli.main", "sweep", str(tiny), "--force"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    running = subprocess.Popen([*command, "--db", str(database)], stderr=end, env=environment)
    os.close(end)
    shown = b""
    with suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(terminal, 4096):
            shown += piece
    os.close(terminal)
    assert running.wait() == 0
    assert re.search(rb"tiny .*[\d,]+ of 806 rows, [\d,]+/s", shown)
    assert b"evaluated and stored in" in shown


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """Have every sweep be said, more rows than a number confirmed, and the disk have some space."""

    def sized(rows: int, free: float) -> None:
        usage = shutil.disk_usage(Path.cwd())._replace(free=int(free))
        monkeypatch.setattr("warehouse.sweep.sizes.LEAST_ROWS", 1)
        monkeypatch.setattr("warehouse.sweep.estimate.LEAST_ROWS", 1)
        monkeypatch.setattr("warehouse.sweep.sizes.MOST_ROWS", rows)
        monkeypatch.setattr("warehouse.sweep.sizes.shutil.disk_usage", lambda _: usage)

    return sized


@pytest.mark.long
def test_a_sweep_of_many_rows_is_confirmed_before_the_first_write(
    warehouse: Command, database: Path, tiny: Path, sized: Callable[[int, float], None]
) -> None:
    sized(100, 1e12)
    code, out, err = warehouse("sweep", tiny, "--db", database)
    assert (code, out) == (2, "")
    assert re.search(r"error: tiny: about [\d,]+ rows are more than 100\nhint: .*--yes", err)
    assert not database.exists()
    assert warehouse("sweep", tiny, "--yes", "--db", database)[0] == 0
    assert warehouse("sweep", tiny, "--db", database)[0] == 0  # nothing is missing


def test_a_sweep_that_the_disk_has_no_room_for_is_refused(
    database: Path, sized: Callable[[int, float], None]
) -> None:
    sized(10**9, 3e9)
    place = database.parent / "new" / "deep" / database.name
    refuse_too_large("tiny", 10**9, 2.9e9, place)
    with pytest.raises(DatabaseError, match=r"tiny: its rows take about 3\.1 GB.* 3\.0 GB free"):
        refuse_too_large("tiny", 1, 3.1e9, place)
    assert not place.parent.exists()


@pytest.mark.long
def test_a_plan_is_confirmed_as_a_sweep_is(
    warehouse: Command, planned_database: Path, sized: Callable[[int, float], None]
) -> None:
    sized(100, 1e12)
    before = digest(planned_database)
    code, out, err = warehouse("plan", *QUESTION, "--gpus", 16, "--db", planned_database)
    assert (code, out) == (2, "")
    assert "rows are more than 100\nhint: sweep them with --yes" in err
    assert digest(planned_database) == before
