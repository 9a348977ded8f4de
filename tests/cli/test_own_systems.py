"""A system of a user's own is known to every command: from a file, a setting, a stored study."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest

from estimators.contract import Catalog, Scalar
from estimators.training_step import system_inputs
from tests.shared import Command
from warehouse.database.catalog import packaged_catalog
from warehouse.options import PlanOptions
from warehouse.plan.run import first_sweep

PRODUCTS = tuple(packaged_catalog().tables["accelerator"])
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
        [1e9], model="gpt3_1.3B", accelerator=["my_H200"], num_gpus=[2], catalog=catalog
    )
    _, sweep = first_sweep(options, database)
    systems = sweep.study.definition["systems"]
    assert systems == {"my_H200": {"based_on": "H200 SXM 141GB", "hbm_bytes_per_second": 9e12}}


def test_the_printed_explanation_of_a_name_with_signs_can_be_pasted(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    name = "it's $HOME; true & mine"
    catalog = tmp_path / "signs.toml"
    catalog.write_text(f'[systems."{name}"]\nbased_on = "H200 SXM 141GB"\n')
    asked = ("plan", "--model", "gpt3_1.3B", "--accelerator", name, "--tokens", "1G")
    limits = ("--gpus", 2, "--batch", 4, "--catalog", catalog, "--db", database)
    code, out, err = warehouse(*asked, *limits, "--details")
    assert code == 0, err
    [command] = re.findall("^explained by: (.*)$", out, re.MULTILINE)
    shell = f'warehouse() {{ printf "%s\\n" "$@"; }}; {command}'
    words = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert words[0] == "explain"
    assert f"accelerator={name}" in words


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


@pytest.mark.long
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
        "evaluate", "--estimator", "training_step", rows, "--out", tmp_path / "out.csv", *options
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


@pytest.fixture
def stored(warehouse: Command, empty_warehouse: Path, tmp_path: Path) -> Path:
    """A database with two runs on each product, and on a system based on it."""
    path = Path(shutil.copyfile(empty_warehouse, tmp_path / "own.duckdb"))
    systems, rows = tmp_path / "own.toml", tmp_path / "rows.csv"
    systems.write_text(
        "".join(f'[systems."{p} of mine"]\nbased_on = "{p}"\n' for p in PRODUCTS), encoding="utf-8"
    )
    runs = ("gpt3_1.3B,16,1,megatron_core", "deepseek_v3,256,64,deepspeed")
    names = [name for product in PRODUCTS for name in (product, f"{product} of mine")]
    lines = [f"{name},{run}" for name in names for run in runs]
    head = "accelerator,model,num_gpus,expert_parallel,framework"
    rows.write_text("\n".join([head, *lines]))
    out = tmp_path / "out.csv"
    options = ("--catalog", systems, "--into-db", "--no-interval", "--db", path)
    code, _, err = warehouse(
        "evaluate", "--estimator", "training_step", rows, "--out", out, *options
    )
    assert code == 0, err
    return path


def test_views_find_the_product_of_each_system_and_nothing_changed(stored: Path) -> None:
    with duckdb.connect(str(stored), read_only=True) as connection:
        found = connection.execute("""
            select problem.accelerator, problem.model, problem_product.product,
                problem_group.assumptions, problem_group.num_changed_constants,
                problem_group.num_changed_step_constants, recipe_default.expert_default
            from problem
            inner join problem_group using (problem_id)
            inner join problem_product using (problem_id)
            left join recipe_default using (problem_id)
        """).fetchall()
        energy = connection.execute("""
            select accelerator, model, lowest_energy_kwh, watts_per_gpu
            from training_energy_for(1e12, given_kg_co2e_per_kwh := 0.4)
            where is_default and power_basis = 'step'
        """).fetchall()
        prices = connection.execute("""
            select distinct accelerator from training_cost_for(1e12)
            where usd_per_gpu_hour is not null and accelerator like '% of mine'
        """).fetchall()
    for rows, models in ((found, ("gpt3_1.3B", "deepseek_v3")), (energy, ("gpt3_1.3B",))):
        by_name = {(name, model): facts for name, model, *facts in rows}
        for product in PRODUCTS:
            for model in models:
                assert by_name[f"{product} of mine", model] == by_name[product, model]
    assert prices == []  # a system of a user has no published price


@pytest.mark.long
def test_rows_of_a_system_as_it_was_read_before_are_of_another_problem(
    warehouse: Command, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "own.toml"
    study.write_text(
        'name = "own"\nestimator = "training_step"\n[systems.mine]\nbased_on = "GB200"\n'
        '[space]\nmodel = "gpt3_1.3B"\naccelerator = "mine"\nnum_gpus = 2\nglobal_batch_size = 4\n'
    )
    read = system_inputs._system

    def as_before(catalog: Catalog, name: str) -> tuple[str, dict[str, Scalar]] | None:
        """Return the nominal memory, no domain and no rates of 8 and 4 bits, as version 0.1."""
        found = read(catalog, name)
        changes = {"hbm_bytes": 186e9, "nvlink_size": None, "fp8_flops_per_second": None}
        return None if found is None else (found[0], {**found[1], **changes})

    with monkeypatch.context() as patch:
        patch.setattr(system_inputs, "_system", as_before)
        assert warehouse("sweep", study, "--db", database)[0] == 0
    for words in ("3 cells evaluated and stored", "nothing to do, all 3 cells"):
        code, out, err = warehouse("sweep", study, "--db", database)
        assert code == 0, err
        assert words in out + err
    with duckdb.connect(str(database), read_only=True) as connection:
        cells = connection.execute(
            "select nvlink_size, hbm_bytes, count(*), count(study_cell.study) from cell"
            " inner join problem using (problem_id) left join study_cell using (cell_id)"
            " group by all order by 1"
        ).fetchall()
    # the study has the new cells; the next drop removes the others
    assert cells == [(8, 186e9, 3, 0), (72, 198_674_743_296, 3, 3)]
    assert warehouse("validate", "--db", database)[0] == 0


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ('hbm_bytes = "80GB"', ('`hbm_bytes` "80GB" in [systems.mine] must be', "80000000000")),
        ("hbm_bytes = nan", ("`hbm_bytes` nan in [systems.mine] is not a finite number",)),
        ("hbm_bytes = 0", ("`hbm_bytes` 0 in [systems.mine] must be at least 1",)),
        (
            "fp8_flops_per_second = -1",
            ("`fp8_flops_per_second` -1 in [systems.mine] must be more",),
        ),
        ("launch_seconds = 1e30", ("1e+30 in [systems.mine] must be at most 1000000",)),
        ("hbm_bytes_per_second = 1e300", ("1e+300 in [systems.mine] must be at most 1e+30",)),
        ("device_bytes = 85e9", ("is not a key of [systems.mine]", "did you mean hbm_bytes?")),
        ("nic_bytes_per_second = 5e10", ("did you mean network_bytes_per_second?",)),
    ],
)
def test_a_wrong_attribute_is_refused_with_file_key_value_and_reason(
    warehouse: Command, tmp_path: Path, stated: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'[systems.mine]\nbased_on = "GB300"\n{stated}\n')
    code, out, err = warehouse("explain", "accelerator=mine", *LAYOUT, "--catalog", path)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {path}: `{stated.split(maxsplit=1)[0]}` ")
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ("hbm_bytes_per_second = 8e15", "is 500 times the largest known"),
        ("hbm_bytes_per_second = 8e9", "is less than a tenth of the smallest known"),
        ("nvlink_bytes_per_second = 1800e9", "is twice that of GB300 (per GPU)"),
        ("hbm_bytes_per_second = 9e12", ""),
    ],
)
def test_an_attribute_far_from_every_product_is_questioned(
    warehouse: Command, tmp_path: Path, stated: str, words: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        f'[systems.base]\nbased_on = "GB300"\n{stated}\n[systems.mine]\nbased_on = "base"\n'
    )
    code, out, err = warehouse("why", "accelerator=mine", *LAYOUT, "--catalog", path)
    assert code == 0, err
    said = [line for line in (out + err).splitlines() if line.startswith("`")]
    assert len(said) == bool(words)
    assert words in "".join(said)


@pytest.mark.long
def test_a_plan_has_the_errors_of_the_product_and_of_the_runs_on_the_system(
    warehouse: Command, empty_warehouse: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copyfile(empty_warehouse, tmp_path / "own.duckdb"))
    runs, catalog = tmp_path / "runs.csv", tmp_path / "own.toml"
    catalog.write_text('[systems.mine]\nbased_on = "H100"\n')
    head = "model,accelerator,num_gpus,global_batch_size,step_seconds,memory_bytes\n"
    runs.write_text(f"{head}gpt3_1.3B,mine,8,64,1.0,40e9\ngpt3_1.3B,H100,8,64,1.0,80e9\n")
    code, _, err = warehouse("measure", runs, "--catalog", catalog, "--db", path)
    assert code == 0, err
    plans = {}
    for name in ("mine", "H100"):
        asked = ("--model", "gpt3_1.3B", "--tokens", "1G", "--gpus", 2, "--accelerator", name)
        code, out, err = warehouse("plan", *asked, "--catalog", catalog, "--json", "--db", path)
        assert code == 0, err
        plans[name] = json.loads(out)
    mine, product = plans["mine"], plans["H100"]
    same = ("track_record", "errors", "memory_errors", "unlike_published")
    assert [mine.get(name) for name in same] == [product.get(name) for name in same]
    assert mine["track_record"]["num_steps"] > 30
    # half of the memory measured: twice the relative size of the estimate
    assert 1 + mine["own_memory_bias"] == pytest.approx(2 * (1 + product["own_memory_bias"]))
