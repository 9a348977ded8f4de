"""`warehouse measure --profile`: estimates of measured runs with the constants of a profile too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from tests.shared import Command
from warehouse import Warehouse
from warehouse.database.connection import open_for_write
from warehouse.errors import InputError

HEAD = "run,model,accelerator,num_gpus,global_batch_size,step_seconds"
RUN = "gpt3_1.3B,A100 SXM 80GB,8,64,2"
CONSTANT = "product_rate_factor@A100 SXM 80GB"


@pytest.fixture
def database(empty_warehouse: Path, tmp_path: Path) -> Path:
    """A database with two profiles of A100, in which products run at 0.8 and 0.9 of their rates."""
    path = Path(shutil.copyfile(empty_warehouse, tmp_path / "measured.duckdb"))
    with duckdb.connect(str(path)) as connection:
        for profile, factor in (("mine", 0.8), ("other", 0.9)):
            connection.execute(
                "insert into calibration (profile, estimator, reference, step_constant,"
                " fitted_constant_value) values (?, 'training_step', 'steps', ?, ?)",
                [profile, CONSTANT, factor],
            )
    open_for_write(path).close()  # makes the folder of facts
    return path


@pytest.fixture
def measured(warehouse: Command, database: Path, tmp_path: Path) -> Any:
    """Measure the runs of a text; returns the records of the comparison, and what was said."""

    def measured(text: str, *options: str) -> tuple[list[dict[str, Any]], str]:
        file = tmp_path / "runs.csv"
        file.write_text(text, encoding="utf-8")
        code, out, err = warehouse("measure", file, *options, "--json", "--db", database)
        assert code == 0, err
        return json.loads(out), err

    return measured


def test_a_run_is_estimated_with_published_constants_and_with_those_of_the_profile(
    measured: Any, warehouse: Command, database: Path
) -> None:
    text = f"{HEAD}\na,{RUN}\n"
    [plain], _ = measured(text)
    both, err = measured(text, "--profile", "mine", "--replace")
    assert [one["profile"] for one in both] == ["default", "mine"]
    assert both[0]["step_seconds"] == plain["step_seconds"]
    asked = ("model=gpt3_1.3B", "accelerator=A100 SXM 80GB", "num_gpus=8", "global_batch_size=64")
    out = warehouse(
        *(
            "show",
            "--estimator",
            "training_step",
            *asked,
            "profile=mine",
            "--json",
            "--db",
            database,
        )
    )[1]
    shown = json.loads(out)
    assert both[1]["step_seconds"] == pytest.approx(shown.get("results", shown)["step_seconds"])
    assert both[1]["step_seconds"] > 1.05 * plain["step_seconds"]
    assert "estimated in 2 cells, 1 of them new" in err
    assert "not in published_accuracy" not in err  # its estimate with published constants counts


@pytest.mark.long
def test_a_run_that_names_its_profile_keeps_it(measured: Any) -> None:
    text = f"{HEAD},profile\na,{RUN},other\nb,{RUN},default\nc,{RUN},\n"
    found, _ = measured(text, "--profile", "mine")
    seconds = {one["profile"]: one["step_seconds"] for one in found}
    # one configuration: each run is compared with every profile's estimate of it
    assert len(seconds) == 3
    assert seconds["default"] < seconds["other"] < seconds["mine"]


@pytest.mark.long
def test_a_run_on_another_system_is_compared_with_the_profile_on_that_system(
    measured: Any,
) -> None:
    plain = f"{HEAD},hbm_bytes_per_second\nplain,{RUN},\nslow,{RUN},1e12\n"
    found, _ = measured(plain, "--profile", "mine")
    seconds = {(one["measured_row"], one["profile"]): one["step_seconds"] for one in found}
    assert len(seconds) == len(found) == 4
    for profile in ("default", "mine"):
        assert seconds["slow", profile] > seconds["plain", profile]


@pytest.mark.parametrize(
    ("profile", "run", "said"),
    [
        ("nobody", RUN, '`profile` "nobody" is not a stored profile'),
        (
            "mine",
            RUN.replace("A100 SXM 80GB", "H100"),
            'line 2: `profile` "mine" has no constant for H100 SXM 80GB under megatron_core',
        ),
    ],
)
def test_a_profile_that_cannot_be_taken_is_refused_and_nothing_is_stored(
    warehouse: Command, database: Path, tmp_path: Path, profile: str, run: str, said: str
) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(f"{HEAD}\na,{run}\n", encoding="utf-8")
    code, out, err = warehouse("measure", file, "--profile", profile, "--db", database)
    assert (code, out) == (3, "")
    assert err.count(said) == 1
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("select count(*) from measurement").fetchall() == [(0,)]


def test_a_faulty_row_is_named_once(warehouse: Command, database: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(f"{HEAD},tensor_parallel\na,{RUN},3\n", encoding="utf-8")
    code, _, err = warehouse("measure", file, "--profile", "mine", "--db", database)
    assert code == 3
    assert err.count("`tensor_parallel` 3") == 1


def test_a_faulty_column_is_named_once(database: Path) -> None:
    row = dict(zip(HEAD.split(",")[1:], [[part] for part in RUN.split(",")], strict=True))
    runs = pl.DataFrame({**row, "num_gpus": [True], "global_batch_size": [64], "step_seconds": [2]})
    with pytest.raises(InputError) as refused:
        Warehouse(database, writable=True).measure(runs, "mine", profile="mine")
    assert str(refused.value).count("`num_gpus`") == 1


def test_drop_takes_no_profile(warehouse: Command, database: Path) -> None:
    code, _, err = warehouse("measure", "--drop", "a", "--profile", "mine", "--db", database)
    assert code == 2
    assert "`--drop` removes stored runs: give no FILE, --name, --replace or --profile" in err


def test_python_takes_the_profile_too(database: Path) -> None:
    runs = pl.DataFrame(
        {
            "model": ["gpt3_1.3B"],
            "accelerator": ["A100 SXM 80GB"],
            "num_gpus": [8],
            "global_batch_size": [64],
            "step_seconds": [2.0],
        }
    )
    found = Warehouse(database, writable=True).measure(runs, "mine", profile="mine")
    assert found["profile"].to_list() == ["default", "mine"]
