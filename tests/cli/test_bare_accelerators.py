"""To training_step a bare A100 is the product, in every command: as a bare H100 is."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.shared import Command

pytestmark = pytest.mark.long

PRODUCTS = {
    "A100": "A100 SXM 80GB",
    "H100": "H100 SXM 80GB",
    "H200": "H200 SXM 141GB",
    "B200": "B200 SXM 180GB",
}
"""Bare name -> the product: tables `accelerator_alias` and `priced_as`."""

RATES = {"A100": 2039e9, "H100": 3350e9, "H200": 4800e9, "B200": 8000e9}
"""Bytes a second of the product's memory (vendors' data sheets): the system A100 has 1555e9."""

LAYOUT = ("model=gpt3_1.3B", "num_gpus=8", "tensor_parallel=2", "global_batch_size=64")


# every command finds a name by the same table, so that one command has every name
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("explain", "A100"),
        ("why", "A100"),
        *(("show --estimator training_step", name) for name in PRODUCTS),
    ],
)
def test_explain_why_and_show_evaluate_the_product(
    warehouse: Command, command: str, name: str
) -> None:
    found = []
    for spelling in (name, name.lower(), PRODUCTS[name]):
        pairs = (*LAYOUT, f"accelerator={spelling}")
        code, out, err = warehouse(*command.split(), *pairs, "--json")
        assert code == 0, err
        found.append(json.loads(out))
    assert found[0]["inputs"]["accelerator"] == PRODUCTS[name]
    assert found[0]["inputs"]["hbm_bytes_per_second"] == RATES[name]
    assert [one["results"]["step_seconds"] for one in found[1:]] == [
        found[0]["results"]["step_seconds"]
    ] * 2


def test_a_plan_is_of_the_product(warehouse: Command, database: Path) -> None:
    asked = ("--model", "gpt3_1.3B", "--tokens", 1e9, "--gpus", 2, "--accelerator", "A100")
    code, _, err = warehouse("plan", *asked, "--dry-run", "--db", database)
    assert code == 0
    assert f" tokens on {PRODUCTS['A100']} with " in err
    assert "fast domains of 8 GPUs" in " ".join(err.split())


def test_rows_of_a_file_are_of_products(warehouse: Command, tmp_path: Path) -> None:
    file, out = tmp_path / "in.csv", tmp_path / "out.csv"
    row = "gpt3_1.3B,{},8,64\n"
    spelt = [*PRODUCTS, *PRODUCTS.values()]
    file.write_text(
        "model,accelerator,num_gpus,global_batch_size\n" + "".join(map(row.format, spelt))
    )
    code, _, err = warehouse("evaluate", "--estimator", "training_step", file, "--out", out)
    assert code == 0, err
    seconds = pl.read_csv(out)["step_seconds"].to_list()
    assert seconds[:4] == seconds[4:]
    assert len(set(seconds)) == 4


def test_a_study_of_bare_names_is_one_of_products(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    study = tmp_path / "bare.toml"
    study.write_text(
        'name = "bare"\nestimator = "training_step"\n[space]\nmodel = "gpt3_1.3B"\n'
        f"accelerator = {json.dumps([*PRODUCTS])}\nnum_gpus = 2\nglobal_batch_size = 8\n"
    )
    assert warehouse("sweep", study, "--db", database)[0] == 0
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select accelerator, hbm_bytes_per_second from problem order by 2"
        stored = connection.execute(query).fetchall()
    assert stored == [(PRODUCTS[name], rate) for name, rate in RATES.items()]


def test_to_roofline_a_bare_name_is_the_system_of_its_source(warehouse: Command) -> None:
    # arXiv 2410.00273, table A3: the A100 has 1555 GB/s
    pairs = ("model=gpt3", "accelerator=A100", "nvlink_size=8", "num_gpus=8")
    code, out, err = warehouse(
        "show", "--estimator", "roofline", *pairs, "global_batch_size=64", "--json"
    )
    assert code == 0, err
    shown = json.loads(out)["inputs"]
    assert (shown["accelerator"], shown["hbm_bytes_per_second"]) == ("A100", 1555e9)


def test_an_own_system_stays_own_even_if_its_name_resembles_another(
    warehouse: Command, database: Path, tmp_path: Path
) -> None:
    study = tmp_path / "own.toml"
    study.write_text(
        'name = "own"\nestimator = "training_step"\n[systems.a100]\nbased_on = "A100"\n'
        'hbm_bytes_per_second = 1e12\n[space]\nmodel = "gpt3_1.3B"\naccelerator = "a100"\n'
        "num_gpus = 2\nglobal_batch_size = 8\n[system]\nnum_sms = 100\n"
    )
    code, _, err = warehouse("sweep", study, "--db", database)
    assert code == 0, err
    with duckdb.connect(str(database), read_only=True) as connection:
        query = "select accelerator, hbm_bytes_per_second from problem"
        assert connection.execute(query).fetchall() == [("a100", 1e12)]
