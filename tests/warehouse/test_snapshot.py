"""Readers next to a sweep: its snapshots, read by this package, by polars and by the shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import duckdb
import pytest

from tests.cli.conftest import TINY_STUDY
from warehouse import Warehouse
from warehouse.database import snapshot
from warehouse.database.connection import open_for_write, snapshot_path
from warehouse.database.snapshot import Snapshots
from warehouse.errors import LockedError
from warehouse.studies.study import Study, load_study
from warehouse.sweep import runner

SHELL = Path(sysconfig.get_path("scripts")) / "duckdb"

QUERY = "select num_cells_done, num_cells from study_progress"

READ = """
import json, sys, warnings
import duckdb
from warehouse import Warehouse
from warehouse.cli.main import run
from warehouse.database.connection import snapshot_path
from warehouse.errors import LockedError
from pathlib import Path

database, query = Path(sys.argv[1]), sys.argv[2]
found = {"codes": [run(["sql", query, "--db", str(database), "--wait", "0"])]}
found["codes"].append(run(["sql", query, "--snapshot", "--csv-is-no-option"]))
found["codes"].append(run(["sql", query, "--snapshot", "--format", "csv", "--db", str(database)]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["api"] = Warehouse(database, snapshot=True).sql(query).rows()
found["warnings"] = [str(one.message) for one in caught]
try:
    Warehouse(database).sql(query)
except LockedError as error:
    found["locked"] = str(error)
with duckdb.connect(str(snapshot_path(database)), read_only=True) as connection:
    found["polars"] = connection.sql(query).pl().rows()
print(json.dumps(found))
"""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish the first snapshot however short the sweep is."""
    monkeypatch.setattr(snapshot, "FIRST_SECONDS", 0)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_STUDY, encoding="utf-8")
    return load_study(path)


@pytest.mark.long
@pytest.mark.usefixtures("at_once")
def test_readers_see_the_committed_groups_of_a_running_sweep(
    database: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of two cells is a group each; between them other processes read."""
    seen: list[tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]] = []
    publish = Snapshots.publish

    def publish_and_read(self: Snapshots, connection: duckdb.DuckDBPyConnection) -> bool:
        assert publish(self, connection)
        published = snapshot_path(database)
        command = [str(SHELL), "-readonly", "-csv", "-noheader", str(published), QUERY]
        seen.append(
            (
                subprocess.run(
                    [sys.executable, "-c", READ, database, QUERY], capture_output=True, text=True
                ),
                subprocess.run(command, capture_output=True, text=True),
            )
        )
        assert published.stat().st_mode & 0o777 == database.stat().st_mode & 0o444
        return True

    monkeypatch.setattr(runner, "COMMIT_ROWS", 1)
    monkeypatch.setattr(Snapshots, "publish", publish_and_read)
    report = runner.run_study(database, study, workers=1)
    [(ours, shell)] = seen

    assert report.cells == 2
    assert (shell.returncode, shell.stdout) == (0, "1,2\n"), shell.stderr
    printed, _, document = ours.stdout.rstrip().rpartition("\n")
    assert printed == "num_cells_done,num_cells\n1,2"
    found = json.loads(document)
    assert found["codes"] == [5, 2, 0]
    assert found["api"] == found["polars"] == [[1, 2]]
    [warning] = found["warnings"]
    assert warning.startswith(f"{database}: a sweep has it; this is what it had stored at ")
    assert f"{database}: a sweep has it; " in ours.stderr
    assert f"is in use by process {os.getpid()} (`" in found["locked"]
    assert "--snapshot" in found["locked"]
    # The sweep has ended: nothing is left, and readers take the database.
    assert [path.name for path in database.parent.iterdir() if path != database] == ["tiny.toml"]
    assert Warehouse(database, snapshot=True).sql(QUERY).rows() == [(2, 2)]


def test_without_a_snapshot_the_reader_learns_when_there_will_be_one(
    database: Path, empty_warehouse: Path
) -> None:
    database.write_bytes(empty_warehouse.read_bytes())
    ask = "import sys; from warehouse.cli.main import run; sys.exit(run(sys.argv[1:]))"
    with open_for_write(database):
        done = subprocess.run(
            [sys.executable, "-c", ask, "sql", "select 1", "--snapshot", "--db", database],
            capture_output=True,
            text=True,
        )
    assert (done.returncode, done.stdout) == (5, "")
    assert "hint: it has published no snapshot yet" in done.stderr


def test_snapshots_take_a_twentieth_of_the_time(
    database: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is made after 10 seconds; one that takes 2 seconds is followed by none for 40."""
    database.write_bytes(empty_warehouse.read_bytes())
    now = [100.0]
    monkeypatch.setattr("warehouse.database.snapshot.time.monotonic", lambda: now[0])
    copied = Snapshots._copy

    def slow(self: Snapshots) -> bool:
        now[0] += 2
        return copied(self)

    monkeypatch.setattr(Snapshots, "_copy", slow)
    with Snapshots(database) as snapshots, open_for_write(database) as connection:
        made = []
        for time in (100.0, 109.9, 110.0, 112.0, 149.9, 150.0, 155.0):
            now[0] = time
            made.append(snapshots.publish(connection))
    assert made == [False, False, True, False, False, True, False]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("has_copy_file_range", [True, False])
def test_a_snapshot_has_every_byte_of_the_file(
    database: Path,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_copy_file_range: bool,
) -> None:
    if not has_copy_file_range:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    database.write_bytes(empty_warehouse.read_bytes())
    with Snapshots(database) as snapshots, open_for_write(database) as connection:
        connection.execute("create table extra as select range as number from range(300_000)")
        assert snapshots.publish(connection)
        published = snapshot_path(database)
        assert published.read_bytes() == database.read_bytes()
        with duckdb.connect(str(published), read_only=True) as reader:
            assert reader.execute("select count(*) from extra").fetchall() == [(300_000,)]
    assert not published.exists()


@pytest.mark.usefixtures("at_once")
def test_a_disk_without_room_for_a_snapshot_is_no_reason_to_stop(
    database: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write_bytes(empty_warehouse.read_bytes())
    monkeypatch.setattr(snapshot, "SPARE_BYTES", 1 << 62)
    with Snapshots(database) as snapshots, open_for_write(database) as connection:
        assert not snapshots.publish(connection)
    assert list(database.parent.iterdir()) == [database]


def test_a_published_state_of_another_package_is_refused(
    database: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warehouse.database import connection as opening

    database.write_bytes(empty_warehouse.read_bytes())
    snapshot_path(database).write_bytes(empty_warehouse.read_bytes())
    with duckdb.connect(str(snapshot_path(database))) as changed:
        changed.execute("update warehouse_meta set value = 'x' where key in ('views', 'stamp')")

    def locked(_: Path) -> duckdb.DuckDBPyConnection:
        raise LockedError("in use")

    monkeypatch.setattr(opening, "open_as_it_is", locked)
    with pytest.raises(Exception, match="was published by another version of this package"):
        Warehouse(database, snapshot=True).sql("select 1")
