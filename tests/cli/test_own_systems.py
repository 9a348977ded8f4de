"""A system of a user's own is known to every command: from a file, a setting, a stored study."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.shared import Command
from warehouse.plan.question import PlanOptions
from warehouse.plan.stages import SweepCounts, asked_stages

FASTER = '[systems.my_H200]\nbased_on = "H200 SXM 141GB"\nhbm_bytes_per_second = 9e12\n'
OWN = "accelerator=my_H200"
LAYOUT = ("model=gpt3_1.3B", "num_gpus=16", "data_parallel=16", "global_batch_size=32")
PLAN = ("plan", "--model", "gpt3_1.3B", "--accelerator", "my_H200", "--tokens", "1G", "--gpus", 2)


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(FASTER)
    return path


def step(warehouse: Command, *arguments: object) -> float:
    code, out, err = warehouse("explain", *LAYOUT, *arguments, "--json")
    assert code == 0, err
    return float(json.loads(out)["step_seconds"])


def study(path: Path, definition: str = "") -> Path:
    path.write_text(
        f'name = "{path.stem}"\nestimator = "training_step"\n[space]\nmodel = "gpt3_1.3B"\n'
        f'accelerator = "my_H200"\nnum_gpus = 2\nglobal_batch_size = 4\n{definition}'
    )
    return path


@pytest.mark.long
def test_a_system_of_a_stored_study_is_known_to_questions(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    assert warehouse("sweep", study(tmp_path / "own.toml", FASTER), "--db", database)[0] == 0
    in_study = step(warehouse, OWN, "--db", database)
    assert in_study < step(warehouse, "accelerator=H200", "--db", database)  # twice the bandwidth
    code, _, err = warehouse(*PLAN, "--dry-run", "--db", database)
    assert code == 0, err
    code, _, err = warehouse("why", OWN, *LAYOUT, "--json", "--db", database)
    assert code == 0, err
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "model,accelerator,num_gpus,global_batch_size,step_seconds\ngpt3_1.3B,my_H200,8,64,2.0\n"
    )
    code, out, err = warehouse("measure", runs, "--db", database, "--format", "csv")
    assert code == 0, err
    assert {row["accelerator"] for row in csv.DictReader(out.splitlines())} == {"my_H200"}


@pytest.mark.long
def test_a_setting_names_the_catalog_of_every_command(
    warehouse: Command, database: Path, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = warehouse("explain", OWN, *LAYOUT, "--db", database)
    assert code == 3
    assert '`accelerator` "my_H200" is neither' in err
    named = step(warehouse, OWN, "--catalog", catalog, "--db", database)
    monkeypatch.setenv("WAREHOUSE_CATALOG", str(catalog))
    assert step(warehouse, OWN, "--db", database) == named
    code, _, err = warehouse("operations", "--set", OWN, "--set", LAYOUT[0], "--db", database)
    assert code == 0
    own = study(catalog.with_name("study.toml"))
    code, _, err = warehouse("sweep", own, "--dry-run", "--db", database)
    assert code == 0, err


def test_a_plan_records_the_system_that_it_is_for(database: Path, catalog: Path) -> None:
    options = PlanOptions(
        1e9, "training_step", model="gpt3_1.3B", accelerator="my_H200", gpus=2, catalog=catalog
    )
    _, stages = asked_stages(options, database)
    assert isinstance(stages[0], SweepCounts)
    systems = stages[0].sweep.study.definition["systems"]
    assert systems == {"my_H200": {"based_on": "H200 SXM 141GB", "hbm_bytes_per_second": 9e12}}


@pytest.mark.long
def test_the_newest_study_says_what_a_name_means(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    times = []
    for name, rate in (("first", "3e12"), ("second", "12e12")):
        definition = FASTER.replace("9e12", rate)
        path = study(tmp_path / f"{name}.toml", definition)
        assert warehouse("sweep", path, "--db", database)[0] == 0
        times.append(step(warehouse, OWN, "--db", database))
    assert times[1] < times[0]
