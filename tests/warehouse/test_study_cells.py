"""Studies of many cells are swept as a stream, which stores what a list of the cells stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators import search
from estimators.id_set import IdSet
from estimators.registry import get
from estimators.roofline.search import RooflineSearch
from warehouse.database import sink
from warehouse.database.catalog import packaged_catalog
from warehouse.database.facts import STUDY, folder_of, read_facts
from warehouse.errors import InputError
from warehouse.lake.jobs import Shard
from warehouse.lake.parts import cells_of_shard
from warehouse.studies.study import Study, read_study
from warehouse.sweep import cells as cells_module
from warehouse.sweep import runner
from warehouse.sweep.cells import StudyCells, counted_cells, num_cells, study_cells
from warehouse.sweep.runner import run_study
from warehouse.sweep.study import study_under_options


def study(name: str = "mine", **space: Any) -> Study:
    values = {"model": "gpt3", "accelerator": ["A100", "H200"], "global_batch_size": 64, **space}
    table = {"name": name, "estimator": "roofline", "variant": "both", "space": values}
    return read_study(table, name)


SMALL = study(num_gpus=[8, 16, 32])
"""Twelve cells."""


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every study be a stream, its cells be made two at a time and stored five at a time."""
    monkeypatch.setattr(cells_module, "MOST_COUNTED", 0)
    monkeypatch.setattr(cells_module, "_DRAWS", 1)
    monkeypatch.setattr(search, "CHUNK_CELLS", 2)
    monkeypatch.setattr(runner, "CHUNK_CELLS", 2)
    monkeypatch.setattr(sink, "MOST_CELLS", 5)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose study was listed."""
    database = tmp_path_factory.mktemp("listed") / "warehouse.duckdb"
    run_study(database, SMALL)
    return database


def stored(database: Path) -> list[list[tuple[Any, ...]]]:
    """Return what a sweep stores, rows and cells in the order of the file."""
    with duckdb.connect(str(database), read_only=True) as connection:
        return [
            connection.execute(query).fetchall()
            for query in (
                "from roofline",
                "select * exclude (evaluated_at, sibling_record) from cell",
                "select study, num_cells, num_rows from study order by study",
                "from study_cell order by all",
                "from leading_row order by all",
            )
        ]


@pytest.mark.usefixtures("streams")
def test_a_stream_stores_what_a_list_does_in_the_same_order(database: Path, listed: Path) -> None:
    report = run_study(database, SMALL)
    assert stored(database) == stored(listed)
    assert (report.cells, report.rows) == (12, len(stored(listed)[0]))
    again = run_study(database, SMALL)
    assert (again.cells, again.cells_before, again.rows_before) == (0, 12, report.rows)


@pytest.mark.usefixtures("streams")
def test_an_interrupted_stream_keeps_whole_groups_and_goes_on(database: Path, listed: Path) -> None:
    def interrupt(_rows: int, _total: int, cells: int, _cells: int) -> None:
        if cells >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(database, SMALL, on_progress=interrupt)
    rows, cells, _, asked, _ = stored(database)
    assert 5 <= len(cells) < 12
    assert {row[0] for row in rows} == {cell[0] for cell in cells}
    assert {cell[0] for cell in cells} <= {cell for _, cell in asked}
    resumed = run_study(database, SMALL)
    assert (resumed.cells, resumed.cells_before) == (12 - len(cells), len(cells))
    assert stored(database) == stored(listed)


@pytest.mark.usefixtures("streams")
def test_a_forced_stream_replaces_each_cell_once(database: Path, listed: Path) -> None:
    run_study(database, SMALL)
    with duckdb.connect(str(database)) as connection:
        connection.execute("update roofline set step_seconds = -1")
    report = run_study(database, SMALL, force=True)
    assert (report.cells, report.cells_before) == (12, 0)
    assert sorted(stored(database)[0]) == sorted(stored(listed)[0])


@pytest.mark.usefixtures("streams")
def test_a_stream_forgets_the_cells_of_its_former_definition(database: Path) -> None:
    run_study(database, study(num_gpus=[8, 16]))
    run_study(database, study(num_gpus=[16, 32]))
    run_study(database, study(num_gpus=[16]))
    _, cells, studies, asked, _ = stored(database)
    assert len(cells) == 12
    assert [(name, number) for name, number, _ in studies] == [("mine", 4)]
    assert len(asked) == 4


def test_a_newer_version_of_the_estimator_is_a_new_fact(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = get("roofline")
    version = estimator.version
    run_study(database, SMALL)
    monkeypatch.setattr(type(estimator), "version", version + 1)
    assert run_study(database, SMALL).cells == 12
    entries = read_facts(folder_of(database)).entries
    versions = [entry.content["estimator_version"] for entry in entries if entry.kind == STUDY]
    assert versions == [version, version + 1]


@pytest.mark.usefixtures("streams")
def test_a_cell_that_two_spaces_have_is_evaluated_once(database: Path) -> None:
    table = {
        "name": "twice",
        "estimator": "roofline",
        "variant": "published",
        "space": {"model": "gpt3", "accelerator": "A100", "global_batch_size": 64},
        "case": [{"num_gpus": [8, 16]}, {"num_gpus": [16, 32]}],
    }
    assert run_study(database, read_study(table, "twice")).cells == 3


def _unseen(asked: Study, catalog: Any, _profiles: Any) -> StudyCells:
    """Return cells whose sample has none: no draw finds a fault."""
    return StudyCells(asked, get(asked.estimator), catalog, (), 1.0)


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({"num_gpus": [8, 16, 32, 0]}, "`num_gpus` 0 must be at least 1"),
        ({"num_gpus": [8, 16], "tensor_parallel": [1, 7]}, "`tensor_parallel` 7"),
        ({"num_gpus": 7919}, "leaves no layout"),
    ],
)
def test_a_fault_in_the_last_combination_is_refused_before_anything_is_written(
    database: Path, space: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "_sampled_cells", _unseen)
    with pytest.raises(InputError, match=says):
        run_study(database.parent / "new.duckdb", study(**space))
    assert not (database.parent / "new.duckdb").exists()


@pytest.mark.usefixtures("streams")
def test_the_check_says_how_far_it_is(database: Path) -> None:
    said: list[tuple[int, int]] = []
    run_study(database, SMALL, on_checked=lambda done, total: said.append((done, total)))
    assert said[-1] == (num_cells(SMALL), 12) == (12, 12)
    assert len(said) > 3
    assert [done for done, _ in said] == sorted(done for done, _ in said)


@pytest.mark.usefixtures("streams")
def test_few_cells_of_a_stream_are_in_memory_at_once(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    cells = RooflineSearch.cells

    def noted(*arguments: Any) -> Any:
        for cell in cells(*arguments):
            made.append(cell.id)
            yield cell

    asked = study_cells(SMALL, packaged_catalog())
    monkeypatch.setattr(RooflineSearch, "cells", noted)
    ahead: list[int] = []

    def look(_rows: int, _total: int, cells: int, _cells: int) -> None:
        ahead.append(len(made) - cells)

    run_study(database, SMALL, on_progress=look, workers=1, cells=asked)
    assert len(made) == 12
    assert max(ahead) <= 5 + 2, "a group and a chunk"


def test_a_stream_of_idle_choices_has_the_cells_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    space = {
        "model": "gpt3_1.3B",
        "accelerator": "A100 SXM 80GB",
        "num_gpus": [2, 4],
        "global_batch_size": [8, 16],
        "schedule": ["zb_h1", "zb_h2"],
        "microbatch_group": [2, 4],
    }
    table = {"name": "idle", "estimator": "training_step", "space": space}
    asked = read_study(table, "idle")
    expected = [cell.id for cell, _ in counted_cells(asked, packaged_catalog()).counted]
    assert len(expected) > num_cells(asked), "some have a choice that changes nothing"
    monkeypatch.setattr(cells_module, "MOST_COUNTED", 0)
    monkeypatch.setattr(cells_module, "_DRAWS", 1)
    monkeypatch.setattr(search, "CHUNK_CELLS", 20)
    found = study_cells(asked, packaged_catalog())
    assert found.is_sampled
    assert [cell.id for cell in found.of("training_step")] == expected


def test_a_shard_counts_no_layouts_of_cells_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, counted = packaged_catalog(), []
    count = RooflineSearch.count

    def noted(self: RooflineSearch, cell: Any) -> int:
        counted.append(cell.id)
        return count(self, cell)

    monkeypatch.setattr(RooflineSearch, "count", noted)
    shards = [list(cells_of_shard(SMALL, catalog, Shard(number, 3))) for number in (1, 2, 3)]
    assert sum(map(len, shards)) == len({cell.id for shard in shards for cell in shard}) == 12
    assert len(counted) <= 3 * 2 * 2, "one for each space, variant and shard"


def test_a_shard_checks_parts_that_differ_in_one_axis_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, made = packaged_catalog(), []
    cells = RooflineSearch.cells

    def noted(*arguments: Any) -> Any:
        made.append(arguments)
        return cells(*arguments)

    monkeypatch.setattr(RooflineSearch, "cells", noted)
    asked = study(num_gpus=[8, 16, 32, 64, 128, 256, 512, 1024])
    shards = [list(cells_of_shard(asked, catalog, Shard(number, 2))) for number in (1, 2)]
    assert [len(shard) for shard in shards] == [16, 16]
    assert len(made) <= 2 * 2 * 2, "one for each accelerator, variant and shard"


@pytest.mark.parametrize(
    ("name", "of"),
    [
        *((name, 3) for name in ("cluster_notebook", "errata", "roofline_published")),
        *(("megatron", 3), ("megatron", 100), ("run_optimizer", 3)),
    ],
)
def test_shards_of_a_packaged_study_have_its_cells_and_no_others(name: str, of: int) -> None:
    asked, catalog = study_under_options(name, Path("missing.duckdb")), packaged_catalog()
    catalog = asked.defined.added_to(catalog)
    shards = [
        {cell.id for cell in cells_of_shard(asked, catalog, Shard(number, of))}
        for number in range(1, of + 1)
    ]
    assert set().union(*shards) == {cell.id for cell, _ in counted_cells(asked, catalog).counted}
    assert of > 3 or all(shards)


def test_a_set_of_ids_has_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("estimators.id_set._WAITING", 3)
    ids = IdSet([5, 3, 5, 2**62, 0])
    assert [ids.add(number) for number in (3, 4, 2**62, 4, 1)] == [False, True, False, False, True]
    assert len(ids) == 6
    assert ids.ids().tolist() == [0, 1, 3, 4, 5, 2**62]
    assert 5 in ids
    assert 6 not in ids
