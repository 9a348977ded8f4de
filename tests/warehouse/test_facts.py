"""The folder of facts: what each accident leaves of it, and what the next command does then."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.shared import call, digest, held
from tests.warehouse.facts_cases import (
    copied,
    edit_lines,
    facts_of,
    flip,
    forget_profile,
    outcomes,
    profiles,
    store_profile,
)
from warehouse.database import facts as facts_module
from warehouse.database import recording
from warehouse.database.access import Access, accessing
from warehouse.database.connection import open_for_read, open_for_write
from warehouse.database.facts import (
    CALIBRATION,
    COMMITTED,
    ENTRIES,
    FORMAT_VERSION,
    OPEN,
    REMOVAL,
    STUDY,
    WITHDRAWN,
    append_copies,
    append_entry,
    append_outcome,
    begin_folder,
    folder_of,
    inputs_path,
    new_entry,
    read_facts,
    remove_dead_inputs,
)
from warehouse.database.sink import transaction
from warehouse.errors import DatabaseError, InputError, LockedError
from warehouse.files import digest_of


@pytest.fixture
def database(empty_warehouse: Path, tmp_path: Path) -> Path:
    """An empty database: it has no folder of facts yet."""
    return copied(empty_warehouse, tmp_path / "warehouse.duckdb")


@pytest.fixture(scope="module")
def known(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two profiles, to be copied."""
    path = copied(empty_warehouse, tmp_path_factory.mktemp("known") / "known.duckdb")
    store_profile(path, "one", 1)
    store_profile(path, "two", 2)
    return path


@pytest.fixture
def stored(known: Path, tmp_path: Path) -> Path:
    """A copy of the database with two profiles, with its folder."""
    return copied(known, tmp_path / "stored.duckdb")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of facts without entries."""
    path = tmp_path / "x.facts"
    begin_folder(path)
    return path


def entries(folder: Path, *made: tuple[int, str, str, str]) -> None:
    """Append entries with a number, kind, name and outcome."""
    for number, kind, name, outcome in made:
        content = {"kind": CALIBRATION} if kind == REMOVAL else {}
        append_entry(folder, new_entry(number, kind, name, content), outcome)


@contextmanager
def said(**options: Any) -> Iterator[list[str]]:
    """Collect the lines that are said to the user."""
    lines: list[str] = []
    with accessing(Access(say=lines.append, **options)):
        yield lines


# ---- the folder ----


def test_an_entry_is_read_as_it_was_written(folder: Path) -> None:
    content = {
        "numbers": [0.1 + 0.2, 5e-324, math.inf, 2**63 - 1, -0.0],
        "text": 'a "quoted"\nline, ü, \u2028',
        "time": datetime(2026, 1, 2, 3, 4, 5, 6),
    }
    entry = new_entry(1, STUDY, "naïve", content)
    append_entry(folder, entry)
    append_outcome(folder, [entry], COMMITTED)
    facts = read_facts(folder)
    [found] = facts.entries
    assert found.content == {**content, "time": "2026-01-02T03:04:05.000006"}
    assert math.copysign(1, found.content["numbers"][-1]) == -1
    assert (found.number, found.name, found.outcome) == (1, "naïve", COMMITTED)
    assert (facts.is_whole, facts.last) == (True, found)


def cut_last(lines: list[str]) -> None:
    lines[-2:] = [lines[-2][:-20]]


def cut_in_the_middle(lines: list[str]) -> None:
    lines[1] = lines[1][:-20] + "\n"


def remove(place: int) -> Callable[[list[str]], None]:
    return lambda lines: lines.__delitem__(slice(place, place + 2))


def repeat(lines: list[str]) -> None:
    lines.append(lines[1])


def garble(lines: list[str]) -> None:
    lines.insert(3, "\0\0\ufffd\n")


def change(**values: Any) -> Callable[[list[str]], None]:
    """Return a change of the first entry to one with other values and the checksum of these."""

    def changed(lines: list[str]) -> None:
        record = {**json.loads(lines[1]), **values}
        del record["checksum"]
        lines[1] = facts_module._text({**record, "checksum": facts_module._checksum(record)}) + "\n"

    return changed


def nest(lines: list[str]) -> None:
    lines[1] = "[" * 100_000 + "\n"


DAMAGE: dict[str, tuple[Callable[[list[str]], Any], list[int], list[str]]] = {
    "a last line that was cut": (cut_last, [], ["one"]),
    "a line cut in the middle": (cut_in_the_middle, [2, 3], ["two"]),
    "a damaged entry": (flip(1), [2, 3], ["two"]),
    "a damaged outcome": (flip(2), [3], ["two"]),
    "a damaged first line": (flip(0), [1], ["one", "two"]),
    "foreign bytes": (garble, [4], ["one", "two"]),
    "an entry twice": (repeat, [6], ["one", "two"]),
    "an entry that was removed": (remove(1), [], ["two"]),
    "an entry with another key": (change(no_such_key=1), [2, 3], ["two"]),
    "an entry whose number is a text": (change(number="1"), [2, 3], ["two"]),
    "lists without an end": (nest, [2, 3], ["two"]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_all_else_is_read(folder: Path, kind: str) -> None:
    change, damaged, live = DAMAGE[kind]
    entries(folder, (1, CALIBRATION, "one", COMMITTED), (2, CALIBRATION, "two", COMMITTED))
    edit_lines(folder, change)
    facts = read_facts(folder)
    assert list(facts.damaged) == damaged
    assert [entry.name for entry in facts.live()] == live
    # a cut last line is no damage: its transaction had not begun to commit
    assert facts.is_whole is (kind == "a last line that was cut")


def test_a_cut_last_line_is_cut_off_before_the_next(folder: Path) -> None:
    entries(folder, (1, CALIBRATION, "one", COMMITTED), (2, CALIBRATION, "two", COMMITTED))
    edit_lines(folder, cut_last)
    entries(folder, (2, CALIBRATION, "three", COMMITTED))
    facts = read_facts(folder)
    assert (facts.damaged, [entry.name for entry in facts.live()]) == ((), ["one", "three"])


def test_a_folder_of_a_newer_format_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "FORMAT_VERSION", FORMAT_VERSION - 1)
    with pytest.raises(InputError, match=f"`format_version` {FORMAT_VERSION} is newer") as refused:
        read_facts(folder)
    assert "pip install --upgrade" in refused.value.hint


@pytest.mark.parametrize("text", ["", "{}\n", '{"format": "other"}\n'])
def test_another_folder_is_refused(tmp_path: Path, text: str) -> None:
    if text:
        (tmp_path / ENTRIES).write_text(text)
    with pytest.raises(InputError, match="is no folder of facts") as refused:
        read_facts(tmp_path)
    assert "FILE.facts" in refused.value.hint


def test_the_facts_in_force_are_neither_replaced_nor_removed(folder: Path) -> None:
    entries(
        folder,
        (1, CALIBRATION, "kept", COMMITTED),
        (2, CALIBRATION, "replaced", COMMITTED),
        (3, STUDY, "removed", COMMITTED),
        (4, CALIBRATION, "removed", COMMITTED),
        (5, CALIBRATION, "replaced", COMMITTED),
        (6, CALIBRATION, "kept", WITHDRAWN),
        (7, REMOVAL, "removed", COMMITTED),
        (8, REMOVAL, "kept", OPEN),
        (9, CALIBRATION, "begun", OPEN),
    )
    facts = read_facts(folder)
    assert [entry.number for entry in facts.live()] == [1, 3, 5]
    assert [entry.number for entry in facts.live(with_open=True)] == [1, 3, 5, 9]
    assert facts.last is not None
    assert facts.last.number == 7


def test_inputs_are_those_that_were_written_and_go_with_their_entry(folder: Path) -> None:
    for number in (1, 2, 3):
        inputs_path(folder, number).write_bytes(b"rows %d" % number)
        digest = digest_of(inputs_path(folder, number))
        outcome = OPEN if number == 3 else COMMITTED
        append_entry(folder, new_entry(number, STUDY, "same", {}, digest), outcome)
    # the third may not have committed: then the second is in force
    remove_dead_inputs(folder)
    assert sorted(path.name for path in (folder / "inputs").iterdir()) == ["2.parquet", "3.parquet"]
    facts = read_facts(folder)
    [live] = facts.live()
    assert facts.inputs_of(live).read_bytes() == b"rows 2"
    facts.inputs_of(live).write_bytes(b"rows x")
    with pytest.raises(InputError, match=r"2.parquet: its bytes are not those that were written"):
        facts.inputs_of(live)
    (folder / "inputs" / "2.parquet").unlink()
    with pytest.raises(InputError, match=r"2.parquet: cannot be read: No such file"):
        facts.inputs_of(live)


def test_inputs_stay_where_a_damaged_line_may_name_them(folder: Path) -> None:
    inputs_path(folder, 1).write_bytes(b"rows")
    append_entry(folder, new_entry(1, STUDY, "one", {}, "digest"), COMMITTED)
    edit_lines(folder, flip(1))
    remove_dead_inputs(folder)
    assert inputs_path(folder, 1).exists()


def test_copies_of_entries_get_the_next_numbers_and_their_inputs(
    folder: Path, tmp_path: Path
) -> None:
    for number in (3, 4):
        inputs_path(folder, number).write_bytes(b"rows %d" % number)
        digest = digest_of(inputs_path(folder, number))
        append_entry(folder, new_entry(number, STUDY, f"s{number}", {}, digest), COMMITTED)
    entries(folder, (7, REMOVAL, "one", OPEN))
    inputs_path(folder, 4).write_bytes(b"damaged")
    begin_folder(copy := tmp_path / "copy.facts")
    entries(copy, (1, CALIBRATION, "one", COMMITTED))
    facts = read_facts(folder)
    append_copies(copy, facts, facts.entries)
    found = read_facts(copy)
    assert found.is_whole
    assert [(entry.number, entry.name, entry.outcome) for entry in found.entries] == [
        (1, "one", COMMITTED),
        (2, "s3", COMMITTED),
        (3, "s4", COMMITTED),
        (4, "one", OPEN),
    ]
    assert found.inputs_of(found.entries[1]).read_bytes() == b"rows 3"
    with pytest.raises(InputError, match=r"3.parquet: cannot be read"):
        found.inputs_of(found.entries[2])


# ---- a transaction and its entries ----


def test_a_fact_is_appended_before_its_transaction_commits(database: Path) -> None:
    store_profile(database, "one")
    assert (outcomes(database), facts_of(database)) == ([COMMITTED], ["one"])
    forget_profile(database, "one")
    assert (outcomes(database), facts_of(database)) == ([COMMITTED, COMMITTED], [])


def test_a_writer_that_stores_no_fact_makes_no_folder(database: Path) -> None:
    open_for_write(database).close()
    assert not folder_of(database).exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_rollback_withdraws_its_entries(database: Path, is_first: bool) -> None:
    before = [] if is_first else [COMMITTED]
    if not is_first:
        store_profile(database, "one")
    with open_for_write(database) as connection:
        with pytest.raises(KeyboardInterrupt), transaction(connection):
            recording.record(connection, CALIBRATION, "one")
            raise KeyboardInterrupt
        assert outcomes(database) == [*before, WITHDRAWN]
    store_profile(database, "two")
    assert outcomes(database) == [*before, WITHDRAWN, COMMITTED]


KILLED = """
import os, sys
from pathlib import Path
from tests.warehouse.facts_cases import store_profile
from warehouse.database import recording

def killed(*_):
    os._exit(9)

append, settle = recording.append_entry, recording.append_outcome
if sys.argv[2] == "before":
    recording.append_entry = lambda *entry: (append(*entry), killed())
elif sys.argv[2] == "after":
    recording.append_outcome = killed
elif sys.argv[2] == "later":
    recording.append_outcome = lambda *entries: (settle(*entries), killed())
store_profile(Path(sys.argv[1]), "new")
"""


def kill(database: Path, moment: str) -> None:
    """Store a profile in a process that is killed before or after the commit."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, database, moment], cwd=root, check=False)
    assert done.returncode == 9


@pytest.mark.parametrize(("moment", "outcome"), [("before", WITHDRAWN), ("after", COMMITTED)])
def test_the_next_writer_sees_whether_a_killed_process_had_committed(
    stored: Path, moment: str, outcome: str
) -> None:
    kill(stored, moment)
    assert outcomes(stored)[-1] == OPEN
    # without the database nobody knows: it counts, and no removal of it would
    assert facts_of(stored, with_open=True) == ["one", "two", "new"]
    open_for_write(stored).close()
    assert outcomes(stored) == [COMMITTED, COMMITTED, outcome]
    assert (outcome == COMMITTED) == ("new" in profiles(stored)) == ("new" in facts_of(stored))
    store_profile(stored, "next")
    assert facts_of(stored)[-1] == "next"


def test_the_entry_of_a_process_killed_in_the_first_transaction_is_withdrawn(
    database: Path,
) -> None:
    kill(database, "before")
    with said() as lines:
        store_profile(database, "next")
    assert (facts_of(database), lines) == (["next"], [])
    assert outcomes(database) == [WITHDRAWN, COMMITTED]


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_writer_makes_a_damaged_folder_again(stored: Path, place: int) -> None:
    edit_lines(folder_of(stored), flip(place))
    open_for_write(stored).close()
    assert read_facts(folder_of(stored)).is_whole
    assert facts_of(stored) == ["one", "two"]


@pytest.mark.parametrize(
    "change", [('"format"', '"fxrmat"'), ('_version": 2', '_version": 3'), ('"id": "', '"id": "x')]
)
def test_a_writer_sees_a_damaged_first_line_while_the_database_has_the_facts(
    stored: Path, change: tuple[str, str]
) -> None:
    edit_lines(folder_of(stored), lambda lines: lines.__setitem__(0, lines[0].replace(*change)))
    store_profile(stored, "next")
    assert read_facts(folder_of(stored)).is_whole
    assert facts_of(stored) == ["one", "two", "next"]


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size, as a full disk does."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("room", [0, 50])
def test_a_full_disk_stores_nothing_and_leaves_no_half_line(stored: Path, room: int) -> None:
    path = folder_of(stored) / ENTRIES
    before = digest(path)
    with largest_file(path.stat().st_size + room), pytest.raises(DatabaseError) as refused:
        store_profile(stored, "new")
    assert "there is no space left for it" in refused.value.message
    assert digest(path) == before
    assert profiles(stored) == {"one": 1, "two": 2}
    store_profile(stored, "new")
    assert facts_of(stored) == ["one", "two", "new"]


def test_a_folder_that_cannot_be_written_stores_nothing(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def refuse(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        if path.name == ENTRIES and mode.startswith("a"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, mode, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(DatabaseError, match=r"facts: cannot be written: Permission denied"):
            store_profile(stored, "new")
    assert (list(profiles(stored)), facts_of(stored)) == (["one", "two"], ["one", "two"])


def test_a_file_in_the_place_of_the_folder_is_left_alone(stored: Path) -> None:
    shutil.rmtree(folder_of(stored))
    folder_of(stored).write_text("mine")
    with pytest.raises(DatabaseError, match=r"facts: is a file") as refused:
        open_for_write(stored)
    assert f"`mv {folder_of(stored)} {folder_of(stored)}.kept`" in refused.value.hint
    assert folder_of(stored).read_text() == "mine"


def test_a_folder_that_goes_while_the_database_is_open_is_named(stored: Path) -> None:
    with open_for_write(stored) as connection:
        shutil.rmtree(folder_of(stored))
        with (
            pytest.raises(DatabaseError, match=r"is gone since the database was opened"),
            transaction(connection),
        ):
            recording.record(connection, CALIBRATION, "one")
    open_for_write(stored).close()
    assert facts_of(stored) == ["one", "two"]


# ---- a database and the folder beside it ----


def test_one_process_writes_at_a_time(stored: Path) -> None:
    before = (folder_of(stored) / ENTRIES).read_bytes()
    with held(stored), pytest.raises(LockedError):
        store_profile(stored, "new")
    assert (folder_of(stored) / ENTRIES).read_bytes() == before
    kill(stored, "later")
    store_profile(stored, "last")
    assert [entry.number for entry in read_facts(folder_of(stored)).entries] == [1, 2, 3, 4]


def test_a_database_without_its_folder_gets_one_from_its_content(
    known: Path, tmp_path: Path
) -> None:
    database = copied(known, tmp_path / "alone.duckdb", with_facts=False)
    with open_for_read(database):
        assert not folder_of(database).exists()
    with said() as lines:
        open_for_write(database).close()
    assert lines == []
    assert facts_of(database) == ["one", "two"]
    assert read_facts(folder_of(database)).id != read_facts(folder_of(known)).id
    with said() as lines:
        open_for_write(database).close()
    assert lines == []


def test_a_killed_process_leaves_no_folder_that_its_database_does_not_name(
    known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = copied(known, tmp_path / "alone.duckdb", with_facts=False)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((recording, "_note"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stop)
            with pytest.raises(KeyboardInterrupt):
                open_for_write(database)
        assert not folder_of(database).exists()
    open_for_write(database).close()
    assert facts_of(database) == ["one", "two"]


def test_the_folder_of_another_database_is_refused_and_left_alone(
    stored: Path, database: Path
) -> None:
    store_profile(database, "other")
    shutil.rmtree(folder_of(stored))
    shutil.copytree(folder_of(database), folder_of(stored))
    before = (folder_of(stored) / ENTRIES).read_bytes()
    with pytest.raises(DatabaseError, match="has the facts of another database") as refused:
        store_profile(stored, "new")
    assert f"`mv {folder_of(stored)} {folder_of(stored)}.kept`" in refused.value.hint
    assert (folder_of(stored) / ENTRIES).read_bytes() == before
    folder_of(stored).rename(f"{folder_of(stored)}.kept")
    store_profile(stored, "new")
    assert facts_of(stored) == ["one", "two", "new"]


def test_copies_that_went_apart_are_two_databases(stored: Path, tmp_path: Path) -> None:
    other = copied(stored, tmp_path / "other.duckdb")
    store_profile(stored, "here")
    store_profile(other, "there")
    shutil.rmtree(folder_of(stored))
    shutil.copytree(folder_of(other), folder_of(stored))
    with pytest.raises(DatabaseError, match="has the facts of another database"):
        open_for_write(stored)


def test_a_database_older_than_its_folder_is_refused_to_writers_and_readers_are_warned(
    stored: Path, tmp_path: Path
) -> None:
    backup = copied(stored, tmp_path / "backup.duckdb", with_facts=False)
    store_profile(stored, "new")
    shutil.copyfile(backup, stored)
    with said() as lines, open_for_read(stored):
        pass
    assert lines == [
        f"warning: {stored}: lacks facts that {folder_of(stored).name} has\n"
        f"hint: `warehouse rebuild --db {stored}` stores them"
    ]
    with pytest.raises(DatabaseError, match=r"lacks 1 facts .* such as calibration new") as refused:
        open_for_write(stored)
    assert f"`warehouse rebuild --db {stored}` stores them" in refused.value.hint
    assert facts_of(stored) == ["one", "two", "new"]
    folder_of(stored).rename(f"{folder_of(stored)}.kept")
    open_for_write(stored).close()
    assert facts_of(stored) == ["one", "two"]


@pytest.mark.parametrize("change", [Path.unlink, lambda log: log.write_bytes(bytes(4096))])
def test_a_log_that_is_lost_is_noticed_by_the_facts_in_it(
    stored: Path, change: Callable[[Path], object]
) -> None:
    """DuckDB takes a log that is gone or begins with a zero for one without a commit."""
    kill(stored, "later")
    change(stored.with_name(f"{stored.name}.wal"))
    with said() as lines, open_for_read(stored):
        pass
    assert "lacks facts that" in lines[0]
    with pytest.raises(DatabaseError, match=r"lacks 1 facts .* such as calibration new"):
        open_for_write(stored)


def test_a_damaged_folder_with_facts_that_the_database_lacks_is_not_replaced(
    stored: Path, tmp_path: Path
) -> None:
    backup = copied(stored, tmp_path / "backup.duckdb", with_facts=False)
    store_profile(stored, "new")
    shutil.copyfile(backup, stored)
    edit_lines(folder_of(stored), flip(1))
    with pytest.raises(DatabaseError, match="lacks 1 facts"):
        open_for_write(stored)


def test_a_damaged_folder_is_kept_and_made_again_from_the_database(stored: Path) -> None:
    """A writer reads both ends of the folder, and all of it where they do not agree."""
    edit_lines(folder_of(stored), flip(0))
    store_profile(stored, "new")
    assert facts_of(stored) == ["one", "two", "new"]
    assert read_facts(folder_of(stored)).is_whole
    assert read_facts(Path(f"{folder_of(stored)}.kept")).damaged == (1,)


@pytest.mark.parametrize("kind", sorted({*DAMAGE} - {"a last line that was cut"}))
def test_validate_names_damage_within_the_folder(stored: Path, kind: str) -> None:
    edit_lines(folder_of(stored), DAMAGE[kind][0])
    code, _, err = call("validate", "--db", stored)
    [place, *_] = DAMAGE[kind][1] or [0]
    said = f"line {place} is damaged" if place else "entry 1 was removed"
    assert (code, f"error: {folder_of(stored)}: {said}" in err) == (4, True), err
    assert f"`warehouse rebuild --db {stored}`" in err


def test_a_folder_older_than_its_database_is_kept_and_made_again(
    stored: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder_of(stored), tmp_path / "older")
    store_profile(stored, "new")
    shutil.rmtree(folder_of(stored))
    (tmp_path / "older").rename(folder_of(stored))
    for name in ("again", "and again"):
        store_profile(stored, name)
    assert facts_of(stored) == ["one", "two", "new", "again", "and again"]
    assert len(read_facts(Path(f"{folder_of(stored)}.kept")).entries) == 2
    assert len(list(tmp_path.iterdir())) == 3


def test_a_new_database_does_not_hide_the_facts_of_one_that_is_gone(
    stored: Path, empty_warehouse: Path
) -> None:
    stored.unlink()
    with pytest.raises(DatabaseError, match=r"is gone, but .* has 2 facts of it") as refused:
        open_for_write(stored)
    assert f"`warehouse rebuild --db {stored}`" in refused.value.hint
    assert not stored.exists()
    with pytest.raises(DatabaseError, match="there is no such database") as refused:
        open_for_read(stored)
    assert f"`warehouse rebuild --db {stored}`" in refused.value.hint
    # an empty database put there by hand
    shutil.copyfile(empty_warehouse, stored)
    with pytest.raises(DatabaseError, match="lacks 2 facts"):
        open_for_write(stored)
    folder_of(stored).rename(f"{folder_of(stored)}.kept")
    store_profile(stored, "new")
    assert facts_of(stored) == ["new"]


def test_the_facts_of_a_database_are_found_through_a_link(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.duckdb"
    link.symlink_to(stored)
    store_profile(link, "new")
    assert facts_of(stored) == ["one", "two", "new"]
    assert list(link.parent.iterdir()) == [link]


def test_the_entries_are_text_of_one_line_each(stored: Path) -> None:
    lines = (folder_of(stored) / ENTRIES).read_text("utf-8").splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == [
        *("format", "number", "committed", "number", "committed")
    ]
