"""Dropped measurements, and `warehouse drop` of the studies that they need."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, Shared, call, digest
from warehouse.database.facts import folder_of

pytestmark = pytest.mark.long

TEXT = (
    "run,model,accelerator,num_gpus,global_batch_size,tensor_parallel,step_seconds\n"
    "a,gpt3_1.3B,H100,8,64,{},0.5\nb,gpt3_1.3B,H100,16,64,{},0.4\n"
)
STUDY = """\
name = "{}"
estimator = "training_step"
[space]
model = "gpt3_1.3B"
accelerator = "H100"
num_gpus = 8
global_batch_size = 64
activation_recompute = "none"
{}
"""


def measured(place: Path, team: str, degree: int, path: Path) -> None:
    """Measure `runs.csv` in a directory of the team's own, from there."""
    (place / team).mkdir()
    with contextlib.chdir(place / team):
        Path("runs.csv").write_text(TEXT.format(degree, degree))
        code, _, err = call("measure", "runs.csv", "--name", team, "--db", path)
    assert code == 0, err


@pytest.fixture(scope="module")
def of_team_c(shared: Shared, empty_warehouse: Path) -> Path:
    """A database with the runs of teamC, of tensor-parallel degree 2, to copy."""

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        measured(place, "teamC", 2, path)

    return shared("measured by teamC", make) / "warehouse.duckdb"


@pytest.fixture
def _team_c(of_team_c: Path, database: Path) -> None:
    """Have the runs of teamC in the database, and its facts beside it."""
    shutil.copyfile(of_team_c, database)
    shutil.copytree(folder_of(of_team_c), folder_of(database))


@pytest.fixture(scope="module")
def of_two_teams(shared: Shared, of_team_c: Path) -> Path:
    """A database with the runs of teamD, of degree 4, as well, to copy."""

    def make(place: Path) -> None:
        path = shutil.copyfile(of_team_c, place / "warehouse.duckdb")
        measured(place, "teamD", 4, path)

    return shared("measured by two teams", make) / "warehouse.duckdb"


@pytest.fixture
def measure(warehouse: Command, database: Path, tmp_path: Path) -> Callable[..., None]:
    """Measure `runs.csv` of a directory of the team's own under the team's name."""

    def measure(team: str, degree: int, *options: object) -> None:
        (tmp_path / team).mkdir(exist_ok=True)
        file = tmp_path / team / "runs.csv"
        file.write_text(TEXT.format(degree, degree))
        code, _, err = warehouse("measure", file, "--name", team, *options, "--db", database)
        assert code == 0, err

    return measure


@pytest.fixture
def stored(database: Path) -> Callable[[str], list[Any]]:
    return lambda query: rows_in(database, query)


COMPARED = "select reference, count(*) from measurement_comparison group by all order by all"
COUNTS = "select {}".format(
    ", ".join(
        f"(select count(*) from {table})"
        for table in ("measurement", "study", "study_cell", "cell", "problem", "training_step")
    )
)


def rows_in(path: Path, query: str) -> list[Any]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_each_name_is_one_study_though_all_files_have_the_same_name(of_two_teams: Path) -> None:
    assert rows_in(of_two_teams, "select study, num_cells from study order by all") == [
        ("measure teamC", 2),
        ("measure teamD", 2),
    ]
    assert rows_in(of_two_teams, COMPARED) == [("teamC", 2), ("teamD", 2)]


def test_dropping_takes_out_the_runs_with_what_was_evaluated_for_them_alone(
    warehouse: Command,
    of_team_c: Path,
    of_two_teams: Path,
    database: Path,
    stored: Callable[[str], list[Any]],
) -> None:
    shutil.copyfile(of_two_teams, database)
    code, out, err = warehouse("measure", "--drop", "teamD", "--db", database)
    assert (code, out) == (0, "")
    assert err.startswith("dropped teamD: 2 runs, with 2 cells evaluated for them alone; ")
    assert stored(COUNTS) == rows_in(of_team_c, COUNTS)
    assert stored(COMPARED) == [("teamC", 2)]
    assert warehouse("measure", "--drop", "teamC", "--db", database)[0] == 0
    assert stored(COUNTS) == [(0,) * 6]


@pytest.mark.usefixtures("_team_c")
def test_cells_that_another_name_asks_for_stay(
    measure: Callable[..., None],
    warehouse: Command,
    database: Path,
    stored: Callable[[str], list[Any]],
) -> None:
    measure("teamD", 2)  # the same layouts
    assert warehouse("measure", "--drop", "teamC", "--db", database)[0] == 0
    assert stored(COMPARED) == [("teamD", 2)]
    assert stored("select study from study") == [("measure teamD",)]


@pytest.mark.usefixtures("_team_c")
def test_an_earlier_file_of_the_name_leaves_nothing_behind(
    measure: Callable[..., None],
    warehouse: Command,
    database: Path,
    stored: Callable[[str], list[Any]],
) -> None:
    measure("teamC", 4, "--replace")
    assert warehouse("measure", "--drop", "teamC", "--db", database)[0] == 0
    assert stored(COUNTS) == [(0,) * 6]


@pytest.mark.usefixtures("_team_c")
def test_dropping_says_on_a_terminal_that_it_works(
    warehouse: Command, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextlib.contextmanager
    def working(what: str) -> Iterator[None]:
        said.append(f"{what}, {len(rows_in(database, 'from measurement'))} runs")
        yield
        said.append(f"done, {len(rows_in(database, 'from measurement'))} runs")

    monkeypatch.setattr("warehouse.cli.measure.working", working)
    code, *_ = warehouse("measure", "--drop", "teamC", "--db", database)
    assert code == 0
    assert said == ["dropping rows, 2 runs", "done, 0 runs"]


@pytest.mark.usefixtures("_team_c")
def test_an_unknown_name_is_refused_before_anything_is_written(
    warehouse: Command, database: Path
) -> None:
    before = digest(database)
    code, out, err = warehouse("measure", "--drop", "team", "--db", database)
    assert (code, out) == (3, "")
    assert "`--drop` team: no measurements of that name" in err
    assert "hint: known: teamC" in err
    code, _, err = warehouse("drop", "measure team", "--db", database)
    assert (code, "hint: did you mean measure teamC?" in err) == (3, True)
    assert digest(database) == before


def test_nothing_is_made_to_drop_from(warehouse: Command, database: Path) -> None:
    assert warehouse("measure", "--drop", "teamC", "--db", database)[0] == 5
    assert not database.exists()


@pytest.mark.usefixtures("_team_c")
def test_the_study_of_measurements_is_not_dropped_from_under_them(
    warehouse: Command,
    database: Path,
    stored: Callable[[str], list[Any]],
) -> None:
    before = stored(COUNTS)
    code, out, err = warehouse("drop", "measure teamC", "--db", database)
    assert (code, out) == (3, "")
    assert "the measurements teamC need rows that it evaluated" in err
    assert "`warehouse measure --drop teamC` takes them out with it" in err
    code, _, err = warehouse("drop", "teamC", "--db", database)
    assert code == 3
    assert "hint: it names measurements: `warehouse measure --drop teamC`" in err
    assert stored(COUNTS) == before


@pytest.mark.usefixtures("_team_c")
def test_a_sweep_of_the_same_problem_can_be_dropped(
    warehouse: Command,
    database: Path,
    stored: Callable[[str], list[Any]],
    tmp_path: Path,
) -> None:
    study = tmp_path / "swept.toml"
    study.write_text(STUDY.format("swept", ""))
    assert warehouse("sweep", study, "--db", database)[0] == 0
    assert warehouse("drop", "swept", "--db", database)[0] == 0
    assert stored(COMPARED) == [("teamC", 2)]


@pytest.mark.usefixtures("_team_c")
def test_any_other_study_that_alone_holds_a_measured_problem_is_not_dropped_either(
    warehouse: Command, database: Path
) -> None:
    with duckdb.connect(str(database)) as connection:  # as stored by an earlier version
        connection.execute("update study set study = 'evaluate runs.csv published'")
        connection.execute("update study_cell set study = 'evaluate runs.csv published'")
    code, _, err = warehouse("drop", "evaluate runs.csv published", "--db", database)
    assert code == 3
    assert "`warehouse measure --drop teamC` first" in err
    assert warehouse("measure", "--drop", "teamC", "--db", database)[0] == 0
    assert warehouse("drop", "evaluate runs.csv published", "--db", database)[0] == 0


@pytest.mark.parametrize("more", [["runs.csv"], ["--name", "other"], ["--replace"]])
def test_dropping_takes_no_file_and_no_name(
    warehouse: Command, database: Path, more: list[str]
) -> None:
    code, out, err = warehouse("measure", *more, "--drop", "a", "--db", database)
    assert (code, out) == (2, "")
    assert "`--drop` removes stored runs" in err


def test_a_file_or_a_name_to_drop_is_needed(warehouse: Command, database: Path) -> None:
    code, _, err = warehouse("measure", "--db", database)
    assert code == 2
    assert "Missing argument 'FILE'" in err


def test_calibrate_calls_the_rows_of_the_file_what_measure_does(
    warehouse: Command, tmp_path: Path
) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(TEXT.format(3, 2))
    code, _, err = warehouse("calibrate", file)
    assert code == 3
    assert "runs.csv: run a: `tensor_parallel` 3 does not divide" in err
    code, _, err = warehouse("calibrate", file, "--rows", "row=b", "--rows", "row!=a")
    assert "run a" not in err
    file.write_text(TEXT.format(2, 2).replace(",0.4", ",x"))
    code, _, err = warehouse("calibrate", file)
    assert code == 3
    assert 'runs.csv: run b: `step_seconds` "x" must be a positive number' in err
    file.write_text(TEXT.format(2, 4) + "c,gpt3_1.3B,H100,8,32,1,0.3\n")
    code, out, err = warehouse("calibrate", file, "--fit", "host_seconds_per_launch", "--json")
    assert code == 0, err
    assert [row["published_row"] for row in json.loads(out)["rows"]] == ["a", "b", "c"]
