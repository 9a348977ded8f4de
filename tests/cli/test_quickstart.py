"""`warehouse quickstart`: the main job, on the real studies.

tests/test_wheel.py runs it a second time: that evaluates nothing, and shows the same.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import duckdb
import pytest

from tests.shared import Command, Quickstart, Shared
from warehouse.cli.commands import COMMANDS
from warehouse.limits import read_number
from warehouse.show.units import with_digits

PLANNING = Path(__file__).parents[2] / "docs" / "planning.md"


def test_the_small_one_stores_every_one_dimensional_configuration_of_the_paper(
    quickstart: Quickstart,
) -> None:
    assert quickstart.exit_code == 0, quickstart.err
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        counts = connection.execute(
            "select variant, count(*) from configuration where model = 'gpt3_1T' group by variant"
        ).fetchall()
    assert dict(counts) == {"published": 178_776, "corrected": 178_776}


def test_it_prints_the_outcome_and_the_speed(quickstart: Quickstart) -> None:
    assert re.search(r"gpt3_1T_1d: 357,552 rows .* in [\d.]+ s \([\d,]+ rows/s\)", quickstart.err)
    seconds = re.search(r"quickstart took ([\d.]+) s", quickstart.err)
    assert seconds is not None
    assert float(seconds[1]) > 0


@pytest.fixture
def answer(quickstart: Quickstart) -> dict[str, str]:
    """The lines of the answer by their first word."""
    lines = [line.split(maxsplit=1) for line in quickstart.out.splitlines() if line[:2] == "  "]
    return {line[0]: line[1] for line in lines if line[0] != "warehouse"}


def test_the_first_screen_is_short_and_fits_a_terminal(quickstart: Quickstart) -> None:
    lines = quickstart.out.splitlines()
    place = str(quickstart.database)
    assert len(lines) <= 24
    assert all(len(line.replace(place, "db/warehouse.duckdb")) <= 115 for line in lines)


def test_the_answer_is_that_of_the_stored_rows(
    quickstart: Quickstart, answer: dict[str, str]
) -> None:
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        [(step, mfu, memory)] = connection.execute(
            "select step_seconds, mfu, memory_bytes from configuration where fits_memory"
            " and estimator = 'training_step' and model = 'megatron_1.7B' and num_gpus = 32"
            " order by step_seconds limit 1"
        ).fetchall()
    days = 300e9 / (512 * 2048) * step / 86400
    assert answer["time"].startswith(f"{days:.1f} days; ")
    assert answer["step"].startswith(f"{with_digits(step, 3)} s at {100 * mfu:.0f} % of the peak; ")
    assert answer["memory"].startswith(f"{memory / 1e9:.1f} of ")


def test_the_published_run_follows_with_its_error(quickstart: Quickstart) -> None:
    with duckdb.connect(str(quickstart.database), read_only=True) as connection:
        [(measured, predicted)] = connection.execute(
            "select published_step_seconds, step_seconds from published_comparison where"
            " reference = 'published_megatron_scaling' and estimator = 'training_step'"
            " and published_row = '1.7B'"
        ).fetchall()
    steps = 300e9 / (512 * 2048)
    error = 100 * (predicted / measured - 1)
    assert (
        f" published dp32 tp1 pp1 micro16 recompute full: {steps * measured / 86400:.1f} days"
        f" at the measured step, predicted {steps * predicted / 86400:.1f} days ({error:+.1f} %); "
    ) in " ".join(quickstart.out.split())
    assert "on the 10 steps of its table (arXiv 2104.04473)\n" in quickstart.out


def questions(words: list[str]) -> set[tuple[str, object]]:
    """Return the options of a command with their values, numbers as numbers."""
    options = zip(words[1::2], words[2::2], strict=True)
    return {(name, read_number(value) or value) for name, value in options}


@pytest.mark.long
def test_the_suggested_commands_run(
    warehouse: Command, quickstart: Quickstart, swept: Path
) -> None:
    lines = [line.split(maxsplit=1) for line in quickstart.out.splitlines()]
    suggested = [line[1] for line in lines if line[:1] == ["warehouse"]]
    words = [shlex.split(line.replace(str(quickstart.database), "A")) for line in suggested]
    assert [line[-2:] for line in words] == [["--db", "A"]] * 3
    plan, rank, validate = (line[:-2] for line in words)
    # the test of the page runs it
    shown = re.findall(r"^\$ warehouse (plan [^|\n=]*)$", PLANNING.read_text("utf-8"), re.MULTILINE)
    pairs = [shlex.split(line.replace(" --details", "")) for line in shown]
    pairs = [parts for parts in pairs if len(parts) % 2]
    assert questions(plan) in [questions(parts) for parts in pairs]
    # tests/cli/test_validate.py runs it, on the same database
    [example] = [entry.example for entry in COMMANDS if entry.name == "validate"]
    assert ["warehouse", *validate] == example.split()
    code, out, err = warehouse(*rank, "--db", swept)
    assert code == 0, err
    assert len(out.splitlines()) > 1


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
