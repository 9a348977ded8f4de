"""`warehouse quickstart`: the main job, on the real studies."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.shared import Command, Program, Quickstart, Shared
from warehouse.calibrate.published import MEASUREMENTS, published_steps

SYSTEMS = [
    [accelerator, domain] for accelerator in ("A100", "B200", "H200") for domain in ("4", "8", "64")
]


def test_the_small_one_stores_every_one_dimensional_configuration_of_the_paper(
    quickstart: Quickstart,
) -> None:
    assert quickstart.exit_code == 0, quickstart.err
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        counts = connection.execute(
            "select variant, count(*) from configuration where model = 'gpt3_1T' group by variant"
        ).fetchall()
    assert dict(counts) == {"published": 178_776, "corrected": 178_776}


def test_it_says_what_it_did_and_how_fast(quickstart: Quickstart) -> None:
    assert re.search(r"gpt3_1T_1d: 357,552 rows .* in [\d.]+ s \([\d,]+ rows/s\)", quickstart.err)
    seconds = re.search(r"quickstart took ([\d.]+) s", quickstart.err)
    assert seconds is not None
    assert float(seconds[1]) > 0


@pytest.fixture
def sections(quickstart: Quickstart) -> dict[str, list[list[str]]]:
    """The tables of stdout by their heading, as lists of words."""
    pieces = [piece.splitlines() for piece in quickstart.out.strip().split("\n\n")]
    headings = [lines[0] for lines in pieces[0::2]]
    return dict(zip(headings, ([line.split() for line in p] for p in pieces[1::2]), strict=False))


def test_it_shows_the_best_layout_of_every_system(sections: dict[str, list[list[str]]]) -> None:
    for title in ("Best layout of each strategy", "The best layout as published and corrected"):
        [table] = [rows for heading, rows in sections.items() if heading.startswith(title)]
        assert [row[:2] for row in table[2:]] == SYSTEMS


def test_it_compares_ten_published_configurations_by_estimator_and_variant(
    sections: dict[str, list[list[str]]],
) -> None:
    [table] = [rows for heading, rows in sections.items() if heading.startswith("Published and")]
    assert len(table) == 2 + 40
    assert {row[0] for row in table[2:]} >= {"1.7B", "530B", "1T"}
    at_peak = [float(row[-1]) for row in table[2:] if "megatron_flops" in row]
    predicted = [float(row[-1]) for row in table[2:] if "megatron_flops" not in row]
    assert all(0 < abs(error) < 100 for error in predicted)
    assert len(at_peak) == 10
    assert all(error > 0 for error in at_peak)  # no run is faster than the peak


def test_it_tells_the_errors_of_every_reference_table_beside_the_baselines(
    sections: dict[str, list[list[str]]],
) -> None:
    [table] = [rows for heading, rows in sections.items() if heading.startswith("How far the")]
    references = {row[0] for row in table[2:] if "training_step" in row}
    assert references == {
        "published_measurement",
        *("published_megatron_scaling", "published_megatron_recompute"),
        *("published_megatron_training_time", "published_megatron_h100_scaling"),
        "published_training_stage",
    }


def test_it_tells_the_errors_of_every_group_of_measurements(
    sections: dict[str, list[list[str]]],
) -> None:
    [table] = [rows for heading, rows in sections.items() if heading.startswith("How far training")]
    steps = published_steps().filter(pl.col("reference") == MEASUREMENTS)
    groups = dict(steps["published_group"].value_counts().iter_rows())
    shown = {
        group: int(row[len(group.split())])
        for row in table[2:]
        for group in groups
        if row[: len(group.split())] == group.split()
    }
    assert shown == groups


def test_it_ranks_the_published_layouts(sections: dict[str, list[list[str]]]) -> None:
    [table] = [rows for heading, rows in sections.items() if heading.startswith("Where Megatron")]
    assert len(table) == 2 + 10
    assert all(int(row[3].replace(",", "")) >= 1 for row in table[2:])


@pytest.mark.long
def test_the_suggested_queries_run_and_return_rows(
    quickstart: Quickstart, program: Program
) -> None:
    commands = [line for line in quickstart.out.splitlines() if line.startswith("warehouse sql")]
    assert len(commands) == 3
    for command in commands:
        done = program(*shlex.split(command)[1:], "--format", "csv")
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) > 1


@pytest.mark.long
def test_a_second_run_evaluates_nothing_and_shows_the_same(
    warehouse: Command, quickstart: Quickstart, swept: Path
) -> None:
    code, out, err = warehouse("quickstart", "--small", "--db", swept)
    assert code == 0
    assert err.count("nothing to do") == 5
    assert out == quickstart.out.replace(str(quickstart.database), str(swept))


@pytest.mark.long
def test_the_whole_grid_of_the_paper_is_stored(
    whole_quickstart: Quickstart, shared: Shared
) -> None:
    path, err = whole_quickstart.database, whole_quickstart.err
    assert whole_quickstart.exit_code == 0, err
    assert re.search(r"paper_grid: 9,183,444 rows .* in [\d.]+ s \([\d,]+ rows/s\)", err)
    assert re.search(r"paper_grid corrected: [\d,]+ rows .* in [\d.]+ s \([\d,]+ rows/s\)", err)
    assert re.search(r"quickstart took [\d.]+ s", err)
    with shared.alone("whole"), duckdb.connect(str(path), read_only=True) as connection:
        [[published]] = connection.execute(
            "select count(*) from configuration where cell_id in"
            " (select cell_id from study_cell where study = 'paper_grid')"
        ).fetchall()
    assert published == 9_183_444


@pytest.mark.long
def test_the_best_layouts_of_the_whole_grid_cover_every_strategy(
    whole_quickstart: Quickstart,
) -> None:
    table = whole_quickstart.out.partition("Best layout of each strategy")[2].split("\n\n")[1]
    found = [line.split()[:4] for line in table.splitlines()[2:]]
    strategies = {"tensor_1d", "summa_2d", "context_2d"}
    assert [row[:2] for row in found[::3]] == SYSTEMS
    for first in range(0, len(found), 3):
        of_system = found[first : first + 3]
        assert {row[2] for row in of_system} == strategies
        assert of_system[0][3] == "1"
