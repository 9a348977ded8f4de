"""A system of a user's own is known to every command: from a file, a setting, a stored study."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import duckdb
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


def test_a_system_assumes_what_the_product_does_that_it_is_based_on(
    warehouse: Command, empty_warehouse: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copyfile(empty_warehouse, tmp_path / "own.duckdb"))
    catalog = tmp_path / "own.toml"
    # GB200 is another name of the product; the recipe of the model captures graphs there
    catalog.write_text('[systems.mine]\nbased_on = "GB200"\nhbm_bytes_per_second = 10e12\n')
    rows = tmp_path / "rows.csv"
    head = "model,accelerator,num_gpus,expert_parallel,pipeline_parallel,gemm_efficiency\n"
    run = "deepseek_v3,{},256,64,4,{}\n"
    rows.write_text(
        head + run.format("GB200", "") + run.format("mine", "") + run.format("mine", 0.5)
    )
    options = ("--catalog", catalog, "--into-db", "--no-interval", "--db", path)
    code, _, err = warehouse(
        "evaluate", "training_step", rows, "--out", tmp_path / "out.csv", *options
    )
    assert code == 0, err
    with duckdb.connect(str(path), read_only=True) as connection:
        found = connection.execute(
            "select accelerator, uses_cuda_graphs, assumptions, num_changed_step_constants"
            " from problem_group inner join (select problem_id, uses_cuda_graphs from problem)"
            " using (problem_id) order by all"
        ).fetchall()
    assert found == [
        ("GB200 (per GPU)", True, None, 0),
        ("mine", True, "gemm_efficiency 0.5", 1),
        ("mine", True, None, 0),
    ]
