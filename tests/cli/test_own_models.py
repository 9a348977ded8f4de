"""Custom models and systems, from a TOML file to the ranking; no code is touched."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.shared import Command
from warehouse.database.resources import studies_directory

EXAMPLE = studies_directory() / "my_cluster.toml"
CONFIGS = (
    "model,accelerator,num_gpus,nvlink_size,tensor_parallel,pipeline_parallel,global_batch_size\n"
    "my_39B,my_H200,256,8,8,4,512\n"
)


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(CONFIGS)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_example_is_swept_and_ranked_under_its_own_names(
    warehouse: Command, database: Path
) -> None:
    assert warehouse("sweep", EXAMPLE, "--db", database)[0] == 0
    code, out, _ = warehouse(
        *("rank", "--model", "my_39B", "--num-gpus", 1024, "--format", "csv", "--db", database)
    )
    assert code == 0
    found = {row["accelerator"]: row for row in csv.DictReader(out.splitlines())}
    assert set(found) == {"H200 SXM 141GB", "my_H200"}
    times = {name: float(row["step_seconds"]) for name, row in found.items()}
    assert times["my_H200"] < times["H200 SXM 141GB"]


@pytest.mark.long
def test_the_example_says_how_many_rows_it_would_store(warehouse: Command, database: Path) -> None:
    code, out, _ = warehouse("sweep", "my_cluster", "--dry-run", "--db", database)
    assert code == 0
    name, cells, rows, *_ = out.splitlines()[-1].split()
    assert (name, cells) == ("my_cluster", "12")
    assert int(rows.replace(",", "")) > 0


def test_evaluate_takes_the_definitions_of_a_file(
    warehouse: Command, configs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    arguments = ("evaluate", "--estimator", "roofline", configs, "--out", out)
    code, _, err = warehouse(*arguments)
    assert code == 3
    assert '"my_39B" is not in the `model` table' in err
    assert not out.exists()

    assert warehouse(*arguments, "--catalog", EXAMPLE)[0] == 0
    [row] = read(out)
    # 48 layers of 4 h^2 and 2 h f weights, of which this GPU has an eighth of a quarter, in bf16;
    # biases and norms are less than a thousandth.
    weights = 48 * (4 * 8192**2 + 2 * 8192 * 33024) / 32 * 2
    assert weights < float(row["weights_bytes"]) < 1.001 * weights


def test_rows_of_own_models_are_stored_with_their_problem(
    warehouse: Command, configs: Path, tmp_path: Path, database: Path
) -> None:
    arguments = (
        "evaluate",
        "--estimator",
        "roofline",
        configs,
        "--out",
        tmp_path / "out.csv",
        "--into-db",
    )
    assert warehouse(*arguments, "--catalog", EXAMPLE, "--db", database)[0] == 0
    query = "select model, accelerator, ffn_hidden_size, network_bytes_per_second from problem"
    out = warehouse("sql", query, "--format", "csv", "--db", database)[1]
    assert out.splitlines()[1:] == ["my_39B,my_H200,33024,100000000000.0"]


def test_a_catalog_that_takes_a_known_name_is_refused_by_its_file(
    warehouse: Command, configs: Path, tmp_path: Path
) -> None:
    catalog = tmp_path / "mine.toml"
    catalog.write_text('[models.gpt3]\nbased_on = "gpt3_1T"\n')
    code, _, err = warehouse(
        *(
            "evaluate",
            "--estimator",
            "roofline",
            configs,
            "--out",
            tmp_path / "out.csv",
            "--catalog",
            catalog,
        )
    )
    assert code == 3
    assert f'{catalog}: `models` "gpt3" is in the `model` table already' in err
