"""`warehouse rebuild`: every fact comes back to the last bit, whatever became of the file."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators.registry import get
from tests.cli.planning import QUESTION
from tests.faults.phases import RUNS
from tests.faults.state import TIMED
from tests.shared import call, digest, held
from tests.warehouse.facts_cases import (
    ROWS,
    content,
    copied,
    done,
    edit_lines,
    facts_of,
    flip,
    profiles,
    store_profile,
)
from tests.warehouse.test_drop import study
from tests.warehouse.test_old_schemas import FIRST, WITH_LEADING_ROWS, made
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.facts import ENTRIES, folder_of, read_facts
from warehouse.database.failures import Damage, deep_check
from warehouse.database.sql_text import quoted
from warehouse.database.views import Check
from warehouse.errors import CheckError, DatabaseError, LockedError
from warehouse.rebuild import rebuild as rebuilding
from warehouse.rebuild.rebuild import rebuild
from warehouse.sweep import cells
from warehouse.sweep.runner import run_study


@pytest.fixture(scope="module")
def known(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two profiles, to be copied."""
    path = copied(empty_warehouse, tmp_path_factory.mktemp("known") / "known.duckdb")
    store_profile(path, "one", 1)
    store_profile(path, "two", 2)
    return path


@pytest.fixture(scope="module")
def known_swept(known: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That database with a swept study, to be copied."""
    place = tmp_path_factory.mktemp("swept")
    path = copied(known, place / "swept.duckdb")
    run_study(path, study(place, "swept", "[8]"))
    return path


@pytest.fixture
def swept(known_swept: Path, tmp_path: Path) -> Path:
    """A copy of the database with the study."""
    return copied(known_swept, tmp_path / "swept.duckdb")


@pytest.fixture
def stored(known: Path, tmp_path: Path) -> Path:
    """A copy of that database, with its folder."""
    return copied(known, tmp_path / "stored.duckdb")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the checks out, which take a second each time."""
    monkeypatch.setattr(rebuilding, "checks", list)


def deep(database: Path) -> list[Damage]:
    with open_for_read(database) as connection:
        return deep_check(connection)


def names(database: Path) -> list[str]:
    """Return the names of the files and folders beside a database."""
    return sorted(path.name for path in database.parent.iterdir())


# ---- every kind of fact ----


VIEWS = (
    *("configuration_rank", "configuration_pareto", "best_of_problem", "strong_scaling"),
    *("published_comparison", "measurement_comparison", "uncompared_measurement", "study_progress"),
)
"""Views over all kinds of facts. Every view is compared by `make faults`."""


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_every_fact_comes_back_to_the_last_bit_where_the_file_is_gone(
    every_kind: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "MOST_COUNTED", 3)
    database = copied(every_kind, tmp_path / "warehouse.duckdb")
    done("plan", *QUESTION, "--gpus", 8, "--db", database)
    before, views = content(database), view_contents(database)
    folder = (folder_of(database) / ENTRIES).read_bytes()
    database.unlink()
    report = rebuild(database)
    assert (report.replayed.lost, report.replayed.other_versions) == ({}, {})
    assert report.replayed.names["calibration"] == ["own"]
    assert report.replayed.names["measurement"] == ["ours", "tuned"]
    studies = report.replayed.names["study"]
    assert [name.split()[0] for name in studies] == [
        *("measure", "measure", "evaluate", "evaluate", "evaluate", "operations", "swept"),
        *("streamed", "published_measurement", "plan"),
    ]
    assert content(database) == before
    assert view_contents(database) == views
    assert (folder_of(database) / ENTRIES).read_bytes() == folder
    assert names(database) == [database.name, folder_of(database).name]


def view_contents(database: Path) -> dict[str, list[Any]]:
    """Return the number of rows of each view, and a hash of them."""
    found = {}
    with duckdb.connect(str(database), read_only=True) as connection:
        for view in VIEWS:
            columns = ", ".join(
                quoted(name)
                for name, kind, *_ in connection.execute(f"describe {view}").fetchall()
                if kind != "TIMESTAMP" and name not in TIMED
            )
            query = f"select count(*), sum(hash(row({columns}))) from {view}"
            found[view] = connection.execute(query).fetchall()
    return found


# ---- what became of the file ----


def flip_in_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4100] ^= 0xFF
    path.write_bytes(data)


def flip_everywhere(path: Path) -> None:
    """Damage every block but the first ones, so that the file opens."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(byte ^ 0xFF for byte in data[len(data) // 2 :])
    path.write_bytes(data)


GONE: dict[str, Callable[[Path], object]] = {
    "damaged": flip_in_header,
    "damaged within": flip_everywhere,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:20_000]),
    "empty": lambda path: path.write_bytes(b""),
    "of foreign bytes": lambda path: path.write_bytes(b"a,b\n1,2\n" * 1000),
    "gone": Path.unlink,
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("damaged within", "gone") else pytest.mark.long)
        for kind in GONE
    ],
)
def test_a_file_that_is_damaged_or_gone_is_made_again(swept: Path, kind: str) -> None:
    before = content(swept)
    GONE[kind](swept)
    damaged = digest(swept) if swept.exists() else None
    report = rebuild(swept)
    assert content(swept) == before
    if damaged is None:
        assert (report.former_file, report.reason) == (None, "")
    elif report.former_file is None:  # it opened, and the new file has all that could be read
        assert report.missing == ()
    else:
        assert digest(report.former_file) == damaged
        assert report.reason or report.missing
    kept = [] if report.former_file is None else [report.former_file.name]
    assert names(swept) == sorted([swept.name, folder_of(swept).name, *kept])
    store_profile(swept, "new")
    assert facts_of(swept) == ["one", "two", "swept", "new"]


def test_the_command_says_what_it_made_again_and_kept(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("rebuild", ""), ("repair", "2")):
        GONE["cut"](swept)
        code, _, err = call("status", "--db", swept)
        assert code == 5
        assert f"`warehouse rebuild --db {swept}`" in err
        code, out, err = call(name, "--db", swept)
        assert (code, out) == (0, ""), err
        assert "profiles: one, two" in err
        assert "studies: swept" in err
        assert f"{swept}.old{number} is the former file" in err
        assert f"{swept}: made again, every check passed" in err
        monkeypatch.setattr(rebuilding, "checks", list)
    assert deep(swept) == []


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_a_backup_gets_the_facts_that_came_after_it(stored: Path, tmp_path: Path) -> None:
    backup = copied(stored, tmp_path / "backup.duckdb", with_facts=False)
    store_profile(stored, "new")
    before = content(stored)
    shutil.copyfile(backup, stored)
    assert rebuild(stored).former_file is None
    assert content(stored) == before
    open_for_write(stored).close()


OF_EACH_AGE = (FIRST, "first_measured_runs_and_profiles", WITH_LEADING_ROWS)
"""Some of the databases that test_old_schemas opens."""


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", OF_EACH_AGE)
def test_a_database_of_an_older_version_is_made_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    columns, before = made(name, path)
    former = digest(path)
    report = rebuild(path)
    assert report.replayed.lost == {}
    with open_for_read(path) as connection:
        for table in ("calibration", "calibration_row", "measurement"):
            if table in columns:
                listed = ", ".join(
                    each for each in columns[table].split(", ") if "problem_id" not in each
                )
                kept = columns[table].split(", ")
                places = [kept.index(each) for each in listed.split(", ")]
                expected = sorted(
                    (tuple(row[place] for place in places) for row in before[table]), key=repr
                )
                found = connection.execute(f"select {listed} from {table}").fetchall()
                assert sorted(found, key=repr) == expected
        studies = connection.execute("select study from study order by 1").fetchall()
        counted = connection.execute("select count(*) from roofline").fetchall()
    place = columns["study"].split(", ").index("study")
    assert studies == sorted((row[place],) for row in before["study"])
    assert counted[0][0] >= len(before["roofline"])
    if report.former_file is not None:
        assert digest(report.former_file) == former
        assert report.missing


# ---- another version of an estimator ----


@pytest.mark.usefixtures("unchecked")
def test_an_older_version_is_named_and_measured_runs_are_compared_again(
    empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = copied(empty_warehouse, tmp_path / "warehouse.duckdb")
    (tmp_path / "runs.csv").write_text(RUNS.format(degree=2, seconds=0.5))
    done("measure", tmp_path / "runs.csv", "--name", "ours", "--db", database)
    compared = (
        "select measurement.*, training_step.step_seconds from measurement inner join cell using"
        " (problem_id) inner join training_step using (cell_id) order by all"
    )
    with open_for_read(database) as connection:
        before = connection.execute(compared).fetchall()
        assert len(before) == 2
    estimator = get("training_step")
    monkeypatch.setattr(type(estimator), "version", estimator.version + 1)
    resolve = type(estimator).resolve

    def other(*given: Any) -> Any:  # another version finds other problems
        columns, refusals = resolve(*given)
        return {**columns, "seq_len": columns["seq_len"] + 1}, refusals

    monkeypatch.setattr(type(estimator), "resolve", other)
    code, _, err = call("rebuild", "--db", database)
    assert code == 0, err
    then = f"version {estimator.version - 1} of training_step had evaluated it"
    assert f"measure ours: {then}, version {estimator.version} has now" in err
    with open_for_read(database) as connection:
        found = connection.execute(compared).fetchall()
    assert [row[:2] for row in found] == [row[:2] for row in before]
    assert found != before


# ---- what has no fact ----

OWN = """
create schema mine;
create sequence mine.numbers;
create table mine.runs (id integer primary key default nextval('mine.numbers'), note text);
insert into mine.runs values (1, 'a'), (2, 'b');
create table plain as select 1.5 as x;
comment on table plain is 'x is a number';
create macro longer(given, ending := '!') as given || ending;
create view above as select note, longer(note) as more from mine.runs;
create macro mine.over(low := 1) as table select * from above where length(more) > low;
create view "odd ""name" as from plain
"""


@pytest.mark.usefixtures("unchecked")
def test_own_tables_views_and_macros_are_copied(stored: Path) -> None:
    with duckdb.connect(str(stored)) as connection:
        connection.execute(OWN.replace("default nextval('mine.numbers')", ""))
        connection.execute("drop sequence mine.numbers")
    report = rebuild(stored)
    assert (report.missing, report.former_file) == ((), None)
    assert set(report.copied) == {
        *("table mine.runs", "table main.plain", 'view main.odd "name', "view main.above"),
        *("macro main.longer", "macro mine.over"),
    }
    with duckdb.connect(str(stored)) as connection:
        assert connection.execute("from mine.over(low := 1)").fetchall() == [
            ("a", "a!"),
            ("b", "b!"),
        ]
        assert connection.execute('from "odd ""name"').fetchall() == [(1.5,)]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("insert into mine.runs values (1, 'again')")
        comment = "select comment from duckdb_tables() where table_name = 'plain'"
        assert connection.execute(comment).fetchall() == [("x is a number",)]
    assert set(rebuild(stored).copied) == set(report.copied)


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_copied_is_named_and_the_former_file_is_kept(stored: Path) -> None:
    with duckdb.connect(str(stored)) as connection:
        connection.execute(OWN)  # the default of a column needs the sequence
        connection.execute("create table gone (x integer); create view broken as from gone")
        connection.execute("drop table gone")
        connection.execute("create table of_old (x integer)")
        connection.execute("comment on table of_old is 'Numbers. One row per x'")
        connection.execute("create index places on plain(x)")
    report = rebuild(stored)
    assert {each.split(":")[0] for each in report.missing} == {
        "table main.of_old of a former version",
        *("table mine.runs", "view main.above", "view main.broken", "macro mine.over"),
        "index places of plain, which is not copied",
        "sequence numbers, which is not copied",
    }
    assert any("numbers does not exist" in each for each in report.missing)
    assert "table main.plain" in report.copied
    assert report.former_file == Path(f"{stored}.old")
    with duckdb.connect(str(report.former_file)) as connection:
        assert connection.execute("select count(*) from mine.runs").fetchall() == [(2,)]


EDITS = """
insert into calibration by name select 'by hand' as profile, 'steps' as reference,
    'training_step' as estimator, 'launch_seconds' as step_constant, 1 as fitted_constant_value;
update calibration set fitted_constant_value = 3 where profile = 'one';
update roofline set step_seconds = step_seconds * 2 where rowid < 2;
insert into cell select * replace (1 as cell_id, 7 as num_rows) from cell limit 1;
insert into cell select * replace (2 as cell_id, 1 as num_rows, 0 as estimator_version)
from cell limit 1
"""


@pytest.mark.usefixtures("unchecked")
def test_rows_and_values_that_a_shell_stored_are_named(swept: Path) -> None:
    with duckdb.connect(str(swept)) as connection:
        connection.execute(EDITS)
    report = rebuild(swept)
    assert report.missing == (
        "calibration 'by hand'",
        "1 cell of roofline with 1 row: version 0 of roofline evaluated them",
        "1 cell of roofline with 7 rows: no study asks for them",
        "other values of calibration 'one'",
        "other rows of 1 cell in roofline",
    )
    assert report.former_file == Path(f"{swept}.old")
    assert profiles(swept) == {"one": 1, "two": 2}


# ---- what goes wrong ----


def unchanged(database: Path) -> dict[str, str]:
    return {str(p): digest(p) for p in database.parent.rglob("*") if p.is_file()}


def failing(*_: object) -> list[Check]:
    return [Check("never_empty", "", "select 1")]


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "instead", "error", "has_folder"),
    [
        ("checks", failing, CheckError, True),
        ("checks", failing, CheckError, False),
        ("_replace", stop, KeyboardInterrupt, True),
    ],
)
def test_a_rebuild_that_fails_leaves_everything_as_it_was(
    known: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    instead: Callable[..., object],
    error: type[BaseException],
    has_folder: bool,
) -> None:
    database = copied(known, tmp_path / "stored.duckdb", with_facts=has_folder)
    monkeypatch.setattr(rebuilding, "checks", list)
    before = unchanged(database)
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(rebuilding, name, instead)
        rebuild(database)
    assert unchanged(database) == before
    store_profile(database, "new")
    assert "new" in facts_of(database)


KILLED = """
import os, sys
from pathlib import Path
from warehouse.rebuild import rebuild

rebuild.checks = lambda: []
rebuild._refuse_failed_checks = lambda *_: os._exit(9)
rebuild.rebuild(Path(sys.argv[1]))
"""


@pytest.mark.usefixtures("unchecked")
def test_a_killed_rebuild_leaves_the_former_file_and_the_next_one_ends(
    stored: Path,
) -> None:
    flip_in_header(stored)
    before, lines = digest(stored), (folder_of(stored) / ENTRIES).read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, stored], check=False)
    assert done.returncode == 9
    assert digest(stored) == before
    assert (folder_of(stored) / ENTRIES).read_bytes() == lines
    report = rebuild(stored)
    assert names(stored) == [stored.name, folder_of(stored).name, f"{stored.name}.old"]
    assert report.former_file is not None
    assert list(profiles(stored)) == ["one", "two"]


@contextmanager
def rebuilding_elsewhere(database: Path) -> Iterator[None]:
    with Path(f"{database}.rebuilt.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    ("other", "said"),
    [(rebuilding_elsewhere, "another process rebuilds it"), (held, "is in use by")],
)
def test_one_process_rebuilds_and_no_other_writes(
    stored: Path, other: Callable[[Path], Any], said: str
) -> None:
    before = digest(stored)
    with other(stored), pytest.raises(LockedError, match=said):
        rebuild(stored)
    assert digest(stored) == before


@pytest.mark.usefixtures("unchecked")
def test_a_reader_keeps_the_file_that_it_has_open(stored: Path) -> None:
    with open_for_read(stored) as connection:
        rebuild(stored)
        query = "select count(*) from calibration"
        assert connection.execute(query).fetchall() == [(2,)]
    assert list(profiles(stored)) == ["one", "two"]


@pytest.mark.usefixtures("unchecked")
def test_a_link_leads_to_the_new_file(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.duckdb"
    link.symlink_to(stored)
    stored.unlink()
    rebuild(link)
    assert link.is_symlink()
    assert list(link.parent.iterdir()) == [link]
    assert list(profiles(stored)) == ["one", "two"]


@pytest.mark.usefixtures("unchecked")
def test_without_the_file_a_damaged_folder_gives_what_can_be_read(stored: Path) -> None:
    edit_lines(folder_of(stored), flip(1))
    stored.unlink()
    code, _, err = call("rebuild", "--db", stored)
    assert code == 4, err
    assert "in its folder of facts line 2 is damaged" in err
    assert f"{folder_of(stored)}.kept is the former folder of facts" in err
    assert list(profiles(stored)) == ["two"]
    assert facts_of(stored) == ["two"]
    assert read_facts(folder_of(stored)).is_whole
    store_profile(stored, "new")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_file_makes_a_damaged_folder_again(stored: Path, place: int) -> None:
    edit_lines(folder_of(stored), flip(place))
    report = rebuild(stored)
    assert (report.former_file, report.damage) == (None, "")
    assert report.former_folder == Path(f"{folder_of(stored)}.kept")
    assert facts_of(stored) == ["one", "two"]
    open_for_write(stored).close()
    assert names(stored) == [stored.name, folder_of(stored).name, f"{folder_of(stored).name}.kept"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("place", "kept", "code"),
    [
        (0, ["one", "two", "new", "later"], 0),
        pytest.param(2, ["one", "two", "new", "later"], 0, marks=pytest.mark.long),
        pytest.param(5, ["one", "two", "later"], 4, marks=pytest.mark.long),
        (7, ["one", "two", "new"], 4),
    ],
)
def test_an_older_file_gives_the_facts_of_damaged_lines(
    stored: Path, tmp_path: Path, place: int, kept: list[str], code: int
) -> None:
    backup = copied(stored, tmp_path / "backup.duckdb", with_facts=False)
    store_profile(stored, "new")
    store_profile(stored, "later")
    shutil.copyfile(backup, stored)
    edit_lines(folder_of(stored), flip(place))
    found, _, err = call("rebuild", "--db", stored)
    assert found == code, err
    assert ("in its folder of facts line" in err) == bool(code)
    assert facts_of(stored) == kept
    assert sorted(profiles(stored)) == sorted(kept)
    assert read_facts(folder_of(stored)).is_whole
    store_profile(stored, "last")


@pytest.mark.long
@pytest.mark.usefixtures("unchecked")
def test_damaged_configurations_are_taken_from_the_file(stored: Path, tmp_path: Path) -> None:
    database = stored
    (tmp_path / "rows.csv").write_text(ROWS)
    into = ("--out", tmp_path / "out.csv", "--into-db", "--db", database)
    done("evaluate", "--estimator", "roofline", tmp_path / "rows.csv", *into)
    before, folder = content(database), folder_of(database)
    damaged = sorted((folder / "inputs").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    code, _, err = call("validate", "--db", database)
    assert code == 4
    assert f"{folder}: inputs/{damaged.name} is damaged" in err
    done("export", "--facts", tmp_path / "exported", "--db", database)
    assert read_facts(tmp_path / "exported").with_inputs().is_whole
    report = rebuild(database)
    assert (report.replayed.lost, report.damage) == ({}, "")
    assert read_facts(folder).with_inputs().is_whole
    assert content(database) == before


@pytest.mark.usefixtures("unchecked")
def test_a_damaged_first_line_loses_no_fact(stored: Path) -> None:
    edit_lines(folder_of(stored), flip(0))
    stored.unlink()
    assert rebuild(stored).damage == ""
    assert read_facts(folder_of(stored)).is_whole
    assert facts_of(stored) == ["one", "two"]


def change_facts(database: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the first fact of a database, as another version of the package writes it."""
    import json

    from warehouse.database import facts

    def changed(lines: list[str]) -> None:
        record = json.loads(lines[1])
        del record["checksum"]
        change(record)
        checksum = facts._checksum(record)
        lines[1] = facts._text({**record, "checksum": checksum}) + "\n"
        lines[2] = facts._text({"committed": 1, "checksum": checksum}) + "\n"

    edit_lines(folder_of(database), changed)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "lost", "left"),
    [
        (
            lambda record: record["content"]["rows"][0].update(no_such_column=1),
            "no_such_column of calibration one",
            ["one", "two"],
        ),
        (
            lambda record: record.update(kind="study", content=NOT_KNOWN),
            "study one",
            ["two"],
        ),
        (
            lambda record: record.update(kind="study", content=NO_DEFINITION),
            "study one",
            ["two"],
        ),
        (
            lambda record: record.update(kind="measurement", content={}),
            "measurement one",
            ["two"],
        ),
        (lambda record: record["content"].clear(), "calibration one", ["two"]),
    ],
)
def test_a_fact_that_this_version_cannot_store_is_named(
    stored: Path, change: Callable[[dict[str, Any]], object], lost: str, left: list[str]
) -> None:
    change_facts(stored, change)
    GONE["cut"](stored)
    code, _, err = call("rebuild", "--db", stored)
    assert code == 4, err
    assert f"warning: {lost} could not be stored: " in err
    assert f"{stored}.old is the former file" in err
    assert list(profiles(stored)) == left


NOT_KNOWN: dict[str, Any] = {
    "estimator": "of_a_plugin",
    "estimator_version": 1,
    "study_file": None,
    "created_at": None,
    "definition": {"spaces": []},
}
NO_DEFINITION: dict[str, Any] = {**NOT_KNOWN, "estimator": "roofline"}


def foreign(path: Path) -> None:
    path.unlink()
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table mine as select 1 as x")


def in_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def damaged_without_facts(path: Path) -> None:
    flip_in_header(path)
    shutil.rmtree(folder_of(path))


def nothing(path: Path) -> None:
    path.unlink()
    shutil.rmtree(folder_of(path))


def newer(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("update warehouse_meta set value = '99' where key = 'schema_version'")


def with_other_facts(path: Path) -> None:
    other = path.with_name("other.duckdb")
    store_profile(other, "other")
    shutil.rmtree(folder_of(path))
    folder_of(other).rename(folder_of(path))
    other.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (foreign, "is a DuckDB database, but not a warehouse"),
        (in_a_directory, "is a directory"),
        (newer, "which is newer than this one"),
        (with_other_facts, "has the facts of another database"),
        (damaged_without_facts, "nor is there a folder"),
        (nothing, "there is no such database"),
    ],
)
def test_what_is_no_database_of_this_version_or_has_no_facts_is_left_alone(
    stored: Path, change: Callable[[Path], object], said: str
) -> None:
    change(stored)
    before = unchanged(stored)
    with pytest.raises(DatabaseError, match=said) as refused:
        rebuild(stored)
    assert refused.value.hint
    assert unchanged(stored) == before
    with pytest.raises(DatabaseError, match="there is no such database"):
        rebuild(stored.parent / "missing" / "x.duckdb")
