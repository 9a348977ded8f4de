"""`warehouse profiles` lists and drops the profiles that `calibrate` stored."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.shared import Command, Shared, call

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("same_fits")]

STUDY = """\
name = "steps"
estimator = "training_step"

[space]
model = "gpt3_1.3B"
accelerator = "A100 SXM 80GB"
framework = "megatron_lm_2022"
num_gpus = 8
global_batch_size = 16
activation_recompute = "full"
tensor_parallel = 4
"""


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, shared: Shared, empty_warehouse: Path
) -> tuple[Path, Path]:
    """A database with two profiles and a study swept under one of them, to copy."""
    request.getfixturevalue("same_fits")

    def make(place: Path) -> None:
        path = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        fit = ("--fit", "product_rate_factor", "--db", path)
        for name in ("tuned", "other"):
            code, _, err = call("calibrate", "published_megatron_recompute", "--name", name, *fit)
            assert code == 0, err
        (place / "steps.toml").write_text(STUDY)
        code, _, err = call("sweep", place / "steps.toml", "--profile", "tuned", "--db", path)
        assert code == 0, err

    place = shared("profiles", make)
    return place / "warehouse.duckdb", place / "steps.toml"


@pytest.fixture
def calibrated(made: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of that database."""
    path = tmp_path / "calibrated.duckdb"
    path.write_bytes(made[0].read_bytes())
    return path


def rows_of(database: Path, query: str) -> list[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_profiles_are_listed_with_what_their_constants_were(
    warehouse: Command, calibrated: Path
) -> None:
    code, out, err = warehouse("profiles", "--format", "json", "--db", calibrated)
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert [line["profile"] for line in listed] == ["other", "tuned"]
    for line in listed:
        assert line["step_constant"] == "product_rate_factor@A100 SXM 80GB"
        assert line["reference"] == "published_megatron_recompute"
        # docs/calibration.md: of one constant, 8 rows
        assert line["num_rows"] == 8
        assert line["default_constant_value"] == 1
        assert line["fitted_constant_value"] == pytest.approx(1, abs=0.03)
    assert "tuned" in warehouse("profiles", "--db", calibrated)[1]


def test_without_a_profile_it_says_how_to_make_one(
    warehouse: Command, empty_warehouse: Path
) -> None:
    code, _, err = warehouse("profiles", "--db", empty_warehouse)
    assert code == 0
    assert "no profile is stored" in err
    assert "warehouse calibrate" in err


def test_a_dropped_profile_is_gone_and_the_rows_of_it_stay(
    warehouse: Command, calibrated: Path, made: tuple[Path, Path]
) -> None:
    query = "from current_training_step order by all"
    before = rows_of(calibrated, query)
    assert before
    code, out, err = warehouse("profiles", "--drop", "tuned", "--db", calibrated)
    assert (code, out) == (0, "")
    assert "dropped profile tuned: 1 constant\n" in err
    assert f"{len(before)} rows evaluated with it do not change (steps tuned)" in err
    assert rows_of(calibrated, "select distinct profile from calibration") == [("other",)]
    assert rows_of(calibrated, "select distinct profile from calibration_row") == [("other",)]
    assert rows_of(calibrated, query) == before
    # the name is no longer listed, so that nobody takes constants that are not there
    code, _, err = warehouse("sweep", made[1], "--profile", "tuned", "--db", calibrated)
    assert code == 3
    assert '`profile` "tuned" is not a stored profile' in err
    assert "known: default, other" in err
    # and may be given again
    again = ("calibrate", "published_megatron_recompute", "--name", "tuned")
    assert warehouse(*again, "--fit", "product_rate_factor", "--db", calibrated)[0] == 0


def test_a_profile_that_nothing_was_evaluated_with_leaves_nothing(
    warehouse: Command, calibrated: Path
) -> None:
    _, _, err = warehouse("profiles", "--drop", "other", "--db", calibrated)
    assert err == "dropped profile other: 1 constant\n"


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("default", "is table step_constant without changes", "that `warehouse calibrate` stored"),
        ("turned", "`--drop` turned: is not a stored profile", "stored: other, tuned"),
        ("", "is not a stored profile", "stored: other, tuned"),
    ],
)
def test_only_a_stored_profile_can_be_dropped(
    warehouse: Command, calibrated: Path, name: str, said: str, hint: str
) -> None:
    code, _, err = warehouse("profiles", "--drop", name, "--db", calibrated)
    assert code == 3
    assert said in err
    assert hint in err
    assert rows_of(calibrated, "select count(*) from calibration") == [(2,)]


def test_dropping_makes_no_database(warehouse: Command, tmp_path: Path) -> None:
    assert warehouse("profiles", "--drop", "tuned", "--db", tmp_path / "none.duckdb")[0] != 0
    assert not (tmp_path / "none.duckdb").exists()


def test_rows_of_a_dropped_profile_evaluate_to_themselves_by_their_own_constants(
    warehouse: Command, calibrated: Path, tmp_path: Path
) -> None:
    assert warehouse("profiles", "--drop", "tuned", "--db", calibrated)[0] == 0
    query = "from current_training_step order by all limit 20"
    out = warehouse(
        "sql", f"select * exclude (profile) {query}", "--format", "csv", "--db", calibrated
    )[1]
    stored, again = tmp_path / "stored.csv", tmp_path / "again.csv"
    stored.write_text(out)
    arguments = (
        "evaluate",
        "--estimator",
        "training_step",
        stored,
        "--out",
        again,
        "--db",
        calibrated,
    )
    code, _, err = warehouse(*arguments)
    assert code == 0, err

    def seconds(path: Path) -> list[float]:
        with path.open(newline="") as file:
            return [float(row["step_seconds"]) for row in csv.DictReader(file)]

    assert len(seconds(stored)) == 20
    assert seconds(again) == pytest.approx(seconds(stored), rel=1e-12)
