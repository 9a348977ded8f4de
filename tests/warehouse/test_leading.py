"""Leading rows: the fastest of a cell and its front, in evaluated arrays and in the database."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from estimators.registry import all_estimators, get
from tests.warehouse.large_study import LARGE
from tests.warehouse.scans import rows_read
from tests.warehouse.test_derived import study
from warehouse.database import leading
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_write
from warehouse.database.leading import LeadingRows, front
from warehouse.database.record_batches import searched
from warehouse.database.tables import TOP
from warehouse.studies.study import load_study
from warehouse.sweep.cells import counted_cells
from warehouse.sweep.runner import run_study


def test_the_front_has_what_no_row_beats() -> None:
    step = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 2.0])
    memory = np.array([9.0, 5.0, 6.0, 4.0, 4.0, 5.0])
    # 3 s need less than 2 s only once; 4 s need no less; both rows of 2 s and 5 bytes stay
    assert front(step, memory).tolist() == [0, 1, 3, 5]


@pytest.mark.parametrize("size", [1, 9, 65, 700, 5000])
def test_the_front_of_many_rows_is_that_of_all_pairs(size: int) -> None:
    random = np.random.default_rng(size)
    step = random.integers(1, 60, size).astype(float)
    memory = (4000 / step + random.integers(0, 60, size)).round()
    is_beaten = np.zeros(size, dtype=bool)
    for row in range(size):
        as_good = (step <= step[row]) & (memory <= memory[row])
        is_beaten[row] = (as_good & ((step < step[row]) | (memory < memory[row]))).any()
    assert front(step, memory).tolist() == np.flatnonzero(~is_beaten).tolist()


def test_leading_rows_are_the_fastest_and_those_as_fast_as_the_last_of_them() -> None:
    step = np.repeat(np.arange(2000.0, 0.0, -1.0), 3)
    found = leading.leading(step, None)
    # the twentieth is one of three that take 7 s
    assert step[found].tolist() == np.repeat(np.arange(7.0, 0.0, -1.0), 3).tolist()
    memory = step[::-1].copy()  # the slower, the less
    assert leading.leading(step, memory).tolist() == list(range(len(step)))


def test_rows_within_five_percent_of_the_fastest_lead_where_memory_is_known() -> None:
    # 105 s are near, 105.0001 s are not; all need the same memory
    step = np.concatenate([np.linspace(100.0, 105.0, 40), np.linspace(105.0001, 300.0, 500)])
    found = leading.leading(step, np.full(len(step), 7.0))
    assert found.tolist() == list(range(40))
    assert leading.leading(step, None).tolist() == list(range(TOP))
    for memory, kept in ((7.0, 40), (0.0, TOP)):
        rows = LeadingRows(get("training_step").relations[0])
        # the first piece has near rows of its own, and both others have some of the first 40
        for part in (slice(200, 540), slice(20, 200), slice(0, 20)):
            bytes_ = np.full(len(step[part]), memory)
            rows.add(1, {"step_seconds": step[part], "memory_bytes": bytes_})
        assert sorted(rows.columns()["step_seconds"].tolist()) == step[:kept].tolist()


def test_the_fastest_that_are_likely_to_fit_lead_beside_the_fastest() -> None:
    step = np.arange(1.0, 201.0)
    sure = leading.leading(step, None, np.where(step <= 100, 0.3, 0.0))
    assert step[sure].tolist() == [*range(1, 21), *range(101, 121)]
    # five are likely to fit; of the others the slower ones are likelier: fifteen of them follow
    few = leading.leading(step, None, np.where(step > 195, 0.0, 0.5 - step / 1000))
    assert step[few].tolist() == [*range(1, 21), *range(181, 201)]
    # none is likely to fit, all are as risky: the fastest
    assert leading.leading(step, None, np.full(200, 0.2)).tolist() == list(range(20))


def test_rows_near_the_best_that_is_likely_to_fit_lead_where_memory_is_known() -> None:
    # 22 risky rows of 50 s; of the others those of 100 to 105 s are near the best
    step = np.concatenate([np.full(22, 50.0), np.linspace(100.0, 105.0, 40), np.arange(106.0, 150)])
    risk = np.where(step < 100, 0.4, 0.0)
    found = leading.leading(step, np.full(len(step), 7.0), risk)
    assert found.tolist() == list(range(62))
    rows = LeadingRows(get("training_step").relations[0])
    chance = np.where(step < 100, 0.6, 0.9)
    for part in (slice(50, 106), slice(0, 50)):
        pieces = {"step_seconds": step, "memory_bytes": np.full(len(step), 7.0)}
        pieces |= {"fit_probability": chance}
        rows.add(1, {name: column[part] for name, column in pieces.items()})
    assert sorted(rows.columns()["step_seconds"].tolist()) == step[:62].tolist()


def test_rows_without_a_time_lead_nothing() -> None:
    times = np.arange(1.0, 101)
    times[::2] = np.nan
    assert times[leading.leading(times, None)].tolist() == list(range(2, 42, 2))
    assert len(leading.leading(np.full(100, np.nan), np.ones(100))) == 0


def test_rows_of_a_cell_may_come_in_any_order() -> None:
    random = np.random.default_rng(2)
    step, memory = random.random(4000), random.random(4000)
    cells = random.integers(1, 3, 4000)
    fits = random.random(4000) < 0.8
    rows = {"cell_id": cells, "step_seconds": step, "memory_bytes": memory, "fits_memory": fits}
    taken = LeadingRows(get("training_step").relations[0], [1, 2, 3])
    for first, last in ((0, 1000), (1000, 2500), (2500, 4000)):
        for cell in (2, 1):
            part = first + np.flatnonzero(cells[first:last] == cell)
            taken.add(cell, {name: column[part] for name, column in rows.items()})
    found = taken.columns()
    assert taken.counts[3] == (0, 0)
    for cell in (1, 2):
        own = (cells == cell) & fits
        assert taken.counts[cell] == ((cells == cell).sum(), own.sum())
        place = leading.leading(step[own], memory[own])
        expected = list(zip(step[own][place], memory[own][place], strict=True))
        of_cell = found["cell_id"] == cell
        pairs = zip(found["step_seconds"][of_cell], found["memory_bytes"][of_cell], strict=True)
        assert sorted(pairs) == sorted(expected)


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["roofline", "training_step"])
def test_memory_in_the_evaluation_is_that_of_the_view(
    estimator: str, database: Path, tmp_path: Path
) -> None:
    """Bit by bit: otherwise another row of the same time could lead."""
    asked = study(tmp_path, num_gpus="[8]", estimator=estimator, accelerator="A100 SXM 80GB")
    relation = get(estimator).relations[0]
    planned = counted_cells(asked, packaged_catalog())
    cells = [cell for cell, _ in planned.counted]
    evaluated = []
    for _, size, fill in searched(planned.estimator, relation, cells, planned.catalog):
        out = {name: np.empty(size) for name in ("step_seconds", "memory_bytes")}
        out["fits_memory"] = np.empty(size, dtype=bool)
        fill(out)
        evaluated += list(zip(*(out[name].tolist() for name in out), strict=True))
    run_study(database, asked)
    with open_for_write(database) as connection:
        shown = connection.execute(
            "select step_seconds, memory_bytes, fits_memory from configuration_source"
        ).fetchall()
    assert sorted(shown) == sorted(evaluated) != []


def test_staging_views_of_leading_rows_have_one_place_for_each_relation() -> None:
    kept = [r for e in all_estimators() for r in e.relations if r.keeps_leading]
    assert {relation.name for relation in kept} >= {"roofline", "training_step"}
    for relation in kept:
        assert "step_seconds" in relation.stored
        assert not relation.real


@pytest.mark.long
def test_ranks_beyond_the_first_are_those_of_all_rows(database: Path, tmp_path: Path) -> None:
    run_study(database, study(tmp_path))
    with open_for_write(database) as connection:
        shown = connection.execute(
            "select problem_id, rank_by_time, step_seconds from ranked_layouts(100000) order by all"
        ).fetchall()
        expected = connection.execute(
            "select problem_id, row_number() over (partition by problem_id order by step_seconds)"
            " as place, step_seconds from configuration where fits_memory order by all"
        ).fetchall()
    assert shown == expected
    assert max(place for _, place, _ in shown) > 2 * TOP


@pytest.mark.long
def test_ranks_and_fronts_hardly_read_another_row(database: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(LARGE)
    run_study(database, load_study(path))
    queries = (
        "from configuration_rank where rank_by_time <= 20",
        "from configuration_rank where rank_by_time <= 20 and model = 'gpt3_1T'",
        "from strategy_rank where rank_in_strategy between 11 and 20",
        "from configuration_rank where rank_by_time = 1 and problem_id ="
        " (select min(problem_id) from problem)",
        "from strategy_rank where rank_in_strategy between 2 and 5",
        "from configuration_pareto where problem_id in (select problem_id from problem)",
        "from near_optimal",
        "from near_optimal_layouts(5) where num_gpus > 1",
    )
    with open_for_write(database) as connection:
        [(rows,)] = connection.execute("select count(*) from roofline").fetchall()
        for query in queries:
            read = rows_read(connection, query)
            # the first rows that each thread takes before it knows that none is wanted
            assert read.get("roofline", 0) < rows / 4
            assert read["leading_row"] > 0


@pytest.mark.long
def test_the_effect_of_mends_reads_cells_whose_leading_rows_lack_a_published_winner(
    database: Path, tmp_path: Path
) -> None:
    for variant in ('variant = "published"', 'mends = ["R2"]'):
        path = tmp_path / "large.toml"
        path.write_text(f"{variant}\n{LARGE}")
        run_study(database, load_study(path))
    with open_for_write(database) as connection:
        [(rows,)] = connection.execute("select count(*) from roofline").fetchall()
        effects = "from erratum_effect order by all"
        found = connection.execute(effects).fetchall()
        assert found != []
        assert rows_read(connection, effects).get("roofline", 0) < rows / 4
        # of a mended cell only the best is left: published winners are looked up among all layouts
        connection.execute(
            "delete from leading_row where cell_id in"
            " (select cell_id from cell where variant <> 'published')"
            " and rank_in_cell is distinct from 1"
        )
        assert rows_read(connection, effects)["roofline"] >= rows / 4
        assert connection.execute(effects).fetchall() == found
