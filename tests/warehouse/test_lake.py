"""Lakes: parts of a study on machines that share a folder, collected into one database."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from estimators.registry import get
from tests.warehouse.test_workers import stored, study
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError, UsageError, WarehouseError
from warehouse.files import digest_of
from warehouse.lake import engines, shard
from warehouse.lake.collect import collect
from warehouse.lake.engines import engine, run_shards
from warehouse.lake.folder import Lake, _checksum, complete_or_absent
from warehouse.lake.jobs import EngineName, Job, LostWorkerError, Shard, read_shard
from warehouse.lake.parts import cells_of_shard
from warehouse.lake.shard import prepare_lake, run_shard
from warehouse.processes import own_mark
from warehouse.studies.study import study_of_definition
from warehouse.sweep import cells as study_cells
from warehouse.sweep.cells import counted_cells
from warehouse.sweep.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from warehouse.lake.jobs import ShardReport


@pytest.fixture(scope="module")
def whole_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with every cell of a study, in two shards."""
    place = tmp_path_factory.mktemp("lake")
    asked = study(place)
    prepare_lake(place / "lake", asked)
    for number in (1, 2):
        run_shard(place / "lake", asked.name, Shard(number, 2))
    return place / "lake"


@pytest.fixture
def lake(whole_lake: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(whole_lake, tmp_path / "lake"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a sweep of the same study into a database."""
    place = tmp_path_factory.mktemp("swept")
    run_study(place / "alone.duckdb", study(place))
    return stored(place / "alone.duckdb")


def finished(lake: Path) -> set[int]:
    return Lake(lake).cells()


def a_cell(lake: Path) -> tuple[int, Path]:
    """Return one cell and the file of its rows."""
    cell = min(finished(lake))
    return cell, lake / Lake(lake).manifest(cell).file


def shard_of(lake: Path, cell: int) -> Shard:
    """Return which of the two shards of the lake's study has a cell."""
    asked = Lake(lake).study("small")
    first = {own.id for own in cells_of_shard(asked, packaged_catalog(), Shard(1, 2))}
    return Shard(1 if cell in first else 2, 2)


# ---- shards ----


def test_every_cell_is_dealt_to_one_shard(tmp_path: Path) -> None:
    asked, catalog = study(tmp_path), packaged_catalog()
    dealt = [[cell.id for cell in cells_of_shard(asked, catalog, Shard(n, 3))] for n in (1, 2, 3)]
    assert all(dealt)
    assert sorted(itertools.chain(*dealt)) == sorted(
        cell.id for cell, _ in counted_cells(asked, catalog).counted
    )


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1.5/2", "a/b", "1/2/3"])
def test_texts_that_are_not_shards_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be I/N"):
        read_shard(text)


def test_a_study_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    asked = study(tmp_path)
    definition = json.loads(json.dumps(asked.definition))
    assert study_of_definition(definition, asked.file) == asked


def test_collected_shards_are_what_a_sweep_stores(
    whole_lake: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    report = collect(database, whole_lake).studies[0]
    assert report.cells == len(swept["cell"])
    assert (report.missing, report.damaged) == ({}, [])
    assert stored(database) == swept
    again = collect(database, whole_lake).studies[0]
    assert (again.cells, again.cells_before) == (0, report.cells)
    assert stored(database) == swept


@pytest.mark.long
def test_a_shard_that_was_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    asked, place = study(tmp_path), tmp_path / "lake"
    prepare_lake(place, asked)
    whole = len(swept["cell"])
    write = shard._write_cell

    def killed(lake: Lake, *arguments: Any) -> int:
        if len(lake.cells()) == 3:
            with complete_or_absent(lake.folder / "rows" / "half.parquet") as half:
                half.write_bytes(b"half")
                raise KeyboardInterrupt
        return write(lake, *arguments)

    monkeypatch.setattr(shard, "_write_cell", killed)
    with pytest.raises(KeyboardInterrupt):
        run_shard(place, asked.name, Shard(1, 1))
    monkeypatch.undo()
    assert len(finished(place)) == 3
    assert not list(place.rglob("*half*"))
    report = run_shard(place, asked.name, Shard(1, 1))
    assert (report.cells_before, report.cells) == (3, whole - 3)
    database = tmp_path / "collected.duckdb"
    collect(database, place)
    assert stored(database) == swept


def test_missing_cells_are_named_with_their_shard(lake: Path, database: Path) -> None:
    cell, rows = a_cell(lake)
    (lake / "cells" / f"{cell}.json").unlink()
    report = collect(database, lake).studies[0]
    assert report.missing == {shard_of(lake, cell): 1}
    run_shard(lake, "small", shard_of(lake, cell))
    assert rows.exists()
    after = collect(database, lake).studies[0]
    assert (after.cells, after.missing) == (1, {})


@pytest.mark.long
@pytest.mark.parametrize("harm", ["cut", "bit", "gone"])
def test_damaged_rows_are_evaluated_again(
    harm: str, lake: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    cell, rows = a_cell(lake)
    content = rows.read_bytes()
    if harm == "gone":
        rows.unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        rows.write_bytes(content[:middle] if harm == "cut" else flipped)
    report = collect(database, lake).studies[0]
    assert report.cells == len(swept["cell"]) - 1
    assert report.missing == {shard_of(lake, cell): 1}
    assert [str(rows) in fault for fault in report.damaged] == [True]
    run_shard(lake, "small", shard_of(lake, cell))
    assert rows.read_bytes() == content
    collect(database, lake)
    assert {name: sorted(found, key=repr) for name, found in stored(database).items()} == {
        name: sorted(found, key=repr) for name, found in swept.items()
    }


def outside(place: Path) -> None:
    """Move a file out of the lake and leave a link to it."""
    moved = place.parents[2] / place.name
    place.replace(moved)
    place.symlink_to(moved)


def piped(place: Path) -> None:
    """Put a named pipe in the place of a file."""
    place.unlink()
    os.mkfifo(place)


def with_times(value: float | None) -> Callable[[pa.Table], pa.Table]:
    """Return a change of rows: each has this `step_seconds`."""

    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("step_seconds")
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array([value] * len(table), field.type))

    return change


def edited(place: Path, *, is_format_1: bool = False, **changes: Any) -> None:
    """Change values of a small file; those of format 1 have no checksum."""
    document = {**json.loads(place.read_text()), **changes}
    del document["checksum"]
    if not is_format_1:
        document["checksum"] = _checksum(document)
    place.write_text(json.dumps(document))


def rewritten(place: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a cell, and its manifest to fit."""
    rows = place.parents[1] / json.loads(place.read_text())["file"]
    table = change(pq.read_table(rows, partitioning=None))
    pq.write_table(table, rows)
    edited(place, num_bytes=rows.stat().st_size, sha256=digest_of(rows), num_rows=len(table))


def damaged(place: Path) -> None:
    """Damage pages of the rows of a cell, and change its manifest to fit."""
    rows = place.parents[1] / json.loads(place.read_text())["file"]
    content = bytearray(rows.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    rows.write_bytes(content)
    edited(place, sha256=digest_of(rows))


HARMS: dict[str, Callable[[Path], object]] = {
    "cut": lambda place: place.write_text(place.read_text()[:99]),
    "bit": lambda place: place.write_text(place.read_text().replace("gpt3", "gpt4")),
    "deep": lambda place: place.write_text("[" * 100_000),
    "bytes": lambda place: place.write_bytes(b"\xff"),
    "list": lambda place: place.write_text("[]"),
    "keys": lambda place: place.write_text('{"cell_id": 1}'),
    "text": lambda place: edited(place, num_bytes="many"),
    "path": lambda place: edited(place, file="../../other.parquet"),
    "id": lambda place: edited(place, cell_id=1),
    "unknown": lambda place: edited(place, unknown=1),
    "num_rows": lambda place: edited(place, num_rows=1),
    "no checksum": lambda place: edited(place, is_format_1=True),
    "fewer rows": lambda place: rewritten(place, lambda table: table[:-1]),
    "columns": lambda place: rewritten(place, lambda table: table.drop_columns("step_seconds")),
    "other rows": lambda place: rewritten(
        place, lambda table: table.set_column(0, "cell_id", pa.array([1] * len(table)))
    ),
    "link": outside,
    "pipe": piped,
    "pipe of rows": lambda place: piped(place.parents[1] / json.loads(place.read_text())["file"]),
}
"""What may become of the manifest of a cell."""


def test_a_bad_manifest_is_a_missing_cell(
    lake: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    """Each harm is done to another cell: one collection finds all of them."""
    harmed = dict(zip(HARMS, sorted(finished(lake)), strict=False))
    assert harmed.keys() == HARMS.keys()
    manifests = {cell: lake / "cells" / f"{cell}.json" for cell in harmed.values()}
    contents = {cell: place.read_bytes() for cell, place in manifests.items()}
    rows = {cell: lake / Lake(lake).manifest(cell).file for cell in manifests}
    missing = Counter(shard_of(lake, cell) for cell in manifests)
    for name, cell in harmed.items():
        HARMS[name](manifests[cell])
    report = collect(database, lake).studies[0]
    assert report.cells == len(swept["cell"]) - len(HARMS)
    assert len(report.damaged) == len(HARMS)
    for name, cell in harmed.items():
        names = {str(manifests[cell]), str(rows[cell])}
        faults = [fault for fault in report.damaged if any(place in fault for place in names)]
        assert len(faults) == 1, name
    assert report.missing == missing
    assert {shard: run_shard(lake, "small", shard).cells for shard in missing} == missing
    assert {cell: place.read_bytes() for cell, place in manifests.items()} == contents
    after = collect(database, lake).studies[0]
    assert (after.cells, after.missing, after.damaged) == (len(HARMS), {}, [])


@pytest.mark.parametrize("seconds", [None, float("nan")])
def test_rows_without_a_time_are_stored_and_lead_nothing(
    lake: Path, database: Path, seconds: float | None
) -> None:
    cell, _ = a_cell(lake)
    rewritten(lake / "cells" / f"{cell}.json", with_times(seconds))
    assert collect(database, lake).studies[0].damaged == []
    rows = [row for row in stored(database)["cell"] if cell in row]
    assert len(rows) == 1


def test_damaged_rows_whose_manifest_fits_are_refused_until_they_are_moved(
    lake: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    cell, rows = a_cell(lake)
    damaged(lake / "cells" / f"{cell}.json")
    with pytest.raises(InputError, match=f"{rows.name}: cannot be read: ") as refused:
        collect(database, lake)
    assert "move the file out of the lake" in refused.value.hint
    assert stored(database)["cell"] == []
    rows.rename(lake.parent / "aside")
    report = collect(database, lake).studies[0]
    assert (report.cells, report.missing) == (len(swept["cell"]) - 1, {shard_of(lake, cell): 1})


def test_a_shard_writes_a_cut_manifest_again_before_any_collect(lake: Path) -> None:
    cell, _ = a_cell(lake)
    place = lake / "cells" / f"{cell}.json"
    content = place.read_bytes()
    place.write_bytes(content[:99])
    assert run_shard(lake, "small", shard_of(lake, cell)).cells == 1
    assert place.read_bytes() == content


def test_damaged_files_of_shards_do_no_harm(lake: Path, database: Path) -> None:
    for place in (lake / "shards" / "small").iterdir():
        place.write_text('{"number": "x", "unknown": 1}')
    (lake / "shards" / "small" / "a-of-b.json").write_text("")
    cell, _ = a_cell(lake)
    (lake / "cells" / f"{cell}.json").unlink()
    assert collect(database, lake).studies[0].missing == {shard_of(lake, cell): 1}


def test_a_lake_of_format_1_is_collected(
    lake: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    for place in (*lake.glob("*.json"), *lake.glob("studies/*"), *lake.glob("cells/*")):
        version = {"format_version": 1} if place.name == "lake.json" else {}
        edited(place, is_format_1=True, **version)
    assert collect(database, lake).studies[0].missing == {}
    assert stored(database) == swept


def test_a_lake_of_another_division_is_completed(
    tmp_path: Path, database: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    asked, place = study(tmp_path), tmp_path / "lake"
    lake, catalog, whole = prepare_lake(place, asked), packaged_catalog(), len(swept["cell"])
    of_ids = [cell for cell, _ in counted_cells(asked, catalog).counted if cell.id % 3 == 0]
    for cell in of_ids:  # as shards were divided by content ids
        shard._write_cell(lake, get(asked.estimator), cell, catalog)
    reports = [run_shard(place, asked.name, Shard(number, 2)) for number in (1, 2)]
    assert sum(report.cells_before for report in reports) == len(of_ids) > 0
    assert sum(report.cells for report in reports) == whole - len(of_ids)
    assert collect(database, place).studies[0].missing == {}
    assert stored(database) == swept


# ---- the folder ----


def test_other_programs_read_a_lake(
    whole_lake: Path, swept: dict[str, list[tuple[Any, ...]]]
) -> None:
    rows = len(swept["roofline"])
    pattern = f"{whole_lake}/rows/roofline/*/*.parquet"
    [(model, accelerator, counted)] = duckdb.execute(f"""
        select any_value(model), list_sort(list(distinct cells.problem.accelerator)), count(*)
        from read_parquet('{pattern}', hive_partitioning = true)
        inner join read_json('{whole_lake}/cells/*.json') as cells using (cell_id)
    """).fetchall()
    assert (model, accelerator, counted) == ("gpt3", ["A100", "H200"], rows)
    assert pl.scan_parquet(pattern, hive_partitioning=True).select(pl.len()).collect().item() == (
        rows
    )
    found = pyarrow.dataset.dataset(whole_lake / "rows" / "roofline", partitioning="hive")
    assert found.count_rows() == rows


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "other"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="has files and is no lake"):
        prepare_lake(place, study(tmp_path))
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    for command in (
        lambda: collect(tmp_path / "d", place),
        lambda: run_shard(place, "a", Shard(1, 1)),
    ):
        with pytest.raises(InputError, match="is no lake"):
            command()
    assert not (tmp_path / "d").exists()


def test_a_lake_without_studies_and_a_study_that_it_lacks_are_refused(
    lake: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match='lake: has no `study` "another"'):
        run_shard(lake, "another", Shard(1, 1))
    Lake(tmp_path / "empty").prepare()
    with pytest.raises(InputError, match="empty: has no study") as caught:
        collect(tmp_path / "new.duckdb", tmp_path / "empty")
    assert "`warehouse sweep --lake`" in caught.value.hint
    assert not (tmp_path / "new.duckdb").exists()


def test_an_engine_without_its_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="`--engine` ray needs the package ray") as caught:
        engine(EngineName.RAY, tmp_path, {})
    assert "training-warehouse[ray]" in caught.value.hint


def test_another_study_of_the_name_is_refused(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another of that name"):
        prepare_lake(lake, study(tmp_path, num_gpus="[8]"))


def test_a_study_with_a_stored_profile_is_refused(tmp_path: Path) -> None:
    path = study(tmp_path, "training_step", variant="corrected")
    with_profile = study_of_definition(
        {
            **path.definition,
            "spaces": [{**space, "profile": ["ours"]} for space in path.definition["spaces"]],
        },
        path.file,
    )
    with pytest.raises(InputError, match='`profile` "ours"'):
        prepare_lake(tmp_path / "lake", with_profile)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("lake.json", "{}", "`format` is not"),
        ("lake.json", "[", "cannot be read"),
        ("lake.json", '{"format": "training-warehouse lake", "format_version": 9}', "9 is not one"),
        ("studies/small.json", '{"definition": {}, "file": "a"}', "has no `checksum`"),
        ("studies/small.json", "[]", "is no JSON object"),
        ("studies/small.json", '{"definition": {}, "file": "a", "checksum": ""}', "`checksum`"),
    ],
)
def test_damaged_small_files_are_named(
    file: str, text: str, reason: str, lake: Path, database: Path
) -> None:
    place = lake / file
    place.write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        collect(database, lake)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize(
    "harm",
    [
        lambda place: place.write_text("[]"),
        lambda place: edited(place, definition={}),
        lambda place: edited(place, definition=with_a_fault(place)),
    ],
    ids=["text", "no study", "refused"],
)
def test_a_bad_study_leaves_the_others_to_collect(
    harm: Callable[[Path], None],
    lake: Path,
    database: Path,
    swept: dict[str, list[tuple[Any, ...]]],
) -> None:
    small = lake / "studies" / "small.json"
    bad = small.with_name("another.json")
    definition = {**json.loads(small.read_text())["definition"], "name": "another"}
    shutil.copy(small, bad)
    edited(bad, definition=definition)
    harm(bad)
    report = collect(database, lake)
    assert [found.study for found in report.studies] == ["small"]
    assert report.num_foreign_cells == 0
    assert [str(bad) in reason for reason in report.refused] == [True]
    assert stored(database) == swept


def with_a_fault(place: Path) -> dict[str, Any]:
    """Return the definition of a study with a value that an estimator refuses."""
    definition: dict[str, Any] = json.loads(place.read_text())["definition"]
    return {**definition, "spaces": [{**definition["spaces"][0], "model": ["no model"]}]}


@pytest.mark.parametrize("is_a_stream", [False, True])
def test_a_lake_is_collected_chunk_by_chunk(
    is_a_stream: bool,
    lake: Path,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    swept: dict[str, list[tuple[Any, ...]]],
) -> None:
    cell, _ = a_cell(lake)
    missing = (lake / "cells" / f"{cell}.json").rename(lake / "away")
    if is_a_stream:
        monkeypatch.setattr(study_cells, "MOST_COUNTED", 0)
    report = collect(database, lake).studies[0]
    assert (report.cells, report.missing) == (len(swept["cell"]) - 1, {shard_of(lake, cell): 1})
    missing = missing.rename(lake / "cells" / f"{cell}.json")
    report = collect(database, lake).studies[0]
    assert (report.cells, report.cells_before) == (1, len(swept["cell"]) - 1)
    found = stored(database)
    assert {name: sorted(rows, key=repr) for name, rows in found.items()} == {
        name: sorted(rows, key=repr) for name, rows in swept.items()
    }


def test_cells_of_another_version_are_counted(
    lake: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(get("roofline")), "version", 99)
    report = collect(database, lake)
    assert report.num_foreign_cells == len(finished(lake))
    assert report.studies[0].cells == 0
    assert sum(report.studies[0].missing.values()) == len(finished(lake))


def test_a_full_disk_leaves_no_half_of_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, place = study(tmp_path), tmp_path / "lake"
    prepare_lake(place, asked)
    flush, flushed = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal flushed
        flushed += 1
        if flushed == 13:  # of a file: every second is of its folder
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left") as caught:
        run_shard(place, asked.name, Shard(1, 1))
    assert "goes on with the rest" in str(caught.value)
    monkeypatch.undo()
    assert not list(place.rglob("*.partial"))
    cells = finished(place)
    assert cells
    sized = [
        sized for sized in counted_cells(asked, packaged_catalog()).counted if sized[0].id in cells
    ]
    relation = get("roofline").relations[0]
    assert [Lake(place).fault_of(relation, *one) for one in sized] == [None] * len(cells)


def test_unfinished_files_of_ended_processes_are_removed_and_no_others(
    lake: Path, database: Path
) -> None:
    folder = next(lake.glob("rows/*/*"))

    def unfinished(name: str, mark: str) -> Path:
        place = folder / f".{name}.{mark}-0a1b.partial"
        place.write_bytes(b"PAR1")
        return place

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        ended = pool.apply(own_mark)
        pool.close()
        pool.join()
    yesterday = unfinished("4.parquet", "machine-1-1")
    os.utime(yesterday, (0, 0))
    complete = next(folder.glob("*.parquet"))
    gone = [unfinished("1.parquet", ended), unfinished(complete.name, "machine-1-1"), yesterday]
    kept = [unfinished("2.parquet", own_mark()), unfinished("3.parquet", "machine-1-1")]
    collect(database, lake)
    assert [place.exists() for place in (*gone, *kept)] == [False] * 3 + [True] * 2
    assert complete.exists()


# ---- engines ----


class Finished:
    """A job that has ended."""

    def __init__(self, outcome: Callable[[], ShardReport]) -> None:
        self._outcome = outcome
        self.is_cancelled = False

    def is_done(self) -> bool:
        return True

    def result(self) -> ShardReport:
        return self._outcome()

    def cancel(self) -> None:
        self.is_cancelled = True


class Flaky:
    """An engine in this process that loses a shard some times."""

    def __init__(self, losses: int, fault: Exception | None = None) -> None:
        self._left, self._fault = losses, fault
        self.started: list[Shard] = []
        self.is_closed = False

    def start(self, folder: Path, study: str, shards: Sequence[Shard]) -> list[Job]:
        self.started += shards
        return [Finished(partial(self._run, folder, study, part)) for part in shards]

    def _run(self, folder: Path, name: str, part: Shard) -> ShardReport:
        if part.number == 2 and self._left:
            self._left -= 1
            raise self._fault or LostWorkerError("killed")
        return run_shard(folder, name, part)

    def close(self) -> None:
        self.is_closed = True


def test_a_lost_shard_is_started_again(tmp_path: Path) -> None:
    asked = study(tmp_path)
    prepare_lake(tmp_path / "lake", asked)
    flaky = Flaky(losses=2)
    report = run_shards(flaky, tmp_path / "lake", asked.name, 3)
    assert report.restarts == 2
    assert report.cells == len(finished(tmp_path / "lake")) == 20
    assert flaky.started == [Shard(n, 3) for n in (1, 2, 3, 2, 2)]
    assert flaky.is_closed


def test_a_shard_that_is_always_lost_ends_the_sweep(tmp_path: Path) -> None:
    asked = study(tmp_path)
    prepare_lake(tmp_path / "lake", asked)
    flaky = Flaky(losses=99)
    with pytest.raises(WarehouseError, match="shard 2/2 of small was lost 2 times: killed"):
        run_shards(flaky, tmp_path / "lake", asked.name, 2, retries=1)
    assert flaky.is_closed


def test_a_refused_shard_is_not_started_again(tmp_path: Path) -> None:
    asked = study(tmp_path)
    prepare_lake(tmp_path / "lake", asked)
    flaky = Flaky(losses=1, fault=InputError("disk full"))
    with pytest.raises(InputError, match="disk full"):
        run_shards(flaky, tmp_path / "lake", asked.name, 2)
    assert len(flaky.started) == 2


def pids_of(words: str) -> list[int]:
    """Return the processes whose command line contains `words`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in command and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def test_shards_that_start_at_once_make_one_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, list_files = tmp_path / "lake", Path.iterdir
    place.mkdir()
    (place / ".lake.json.0a1b.partial").write_text("{")

    def made_meanwhile(folder: Path) -> Iterator[Path]:
        monkeypatch.setattr(Path, "iterdir", list_files)
        prepare_lake(folder, study(tmp_path))
        return folder.iterdir()

    monkeypatch.setattr(Path, "iterdir", made_meanwhile)
    Lake(place).prepare()
    assert Lake(place).studies() == ["small"]


def test_files_of_others_are_no_cells(lake: Path) -> None:
    cells = Lake(lake).cells()
    for name in ("._1.json", "notes.json"):
        (lake / "cells" / name).write_text("{}")
    assert Lake(lake).cells() == cells
    assert Lake(lake).num_cells() == len(cells) > 0


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(
    ("name", "words"), [(EngineName.LOCAL, "submitit"), (EngineName.RAY, "ray::run_shard")]
)
def test_a_killed_worker_loses_nothing(
    name: EngineName,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    swept: dict[str, list[tuple[Any, ...]]],
) -> None:
    monkeypatch.setattr(engines, "POLL_SECONDS", 0.02)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    asked, place = study(tmp_path), tmp_path / "lake"
    prepare_lake(place, asked)
    others = set(pids_of(words))
    killed: list[int] = []
    lock = threading.Lock()

    def kill_one(cells: int) -> None:
        with lock:
            if cells and not killed:
                for pid in set(pids_of(words)) - others:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    options = {"num_cpus": "2"} if name is EngineName.RAY else {}
    starter = engine(name, place, options)
    report = run_shards(starter, place, asked.name, 2, on_cells=kill_one)
    assert killed
    assert report.restarts >= 1
    database = tmp_path / "collected.duckdb"
    assert collect(database, place).studies[0].missing == {}
    assert stored(database) == swept
