"""Published configurations of programs: what is read of each equals what it resolves to.

launch_bridge.json has the keys of Megatron-Bridge's performance recipes that are read, after its
own code had resolved them: a base for each model and what differs in each recipe. It lists the
recipes that are not read, with the reason. launch_torchtitan.csv has the parameters of torchtitan's
models, as its own code builds them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import registry
from estimators.contract import Scalar
from estimators.decoder import model_parameters, shape_of
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.evaluate.one import resolve_problem
from warehouse.launch.read import LaunchFile, read_launch
from warehouse.launch.torchtitan import configurations

HERE = Path(__file__).parent
DATA = json.loads((HERE / "launch_bridge.json").read_text(encoding="utf-8"))
FAMILIES: dict[str, dict[str, Any]] = DATA["families"]
CATALOG = {
    "deepseek_v3": "deepseek_v3",
    "gpt_oss_120b": "gpt_oss_120B",
    "kimi_k2": "kimi_k2",
    "llama31_405b": "llama3_405B",
    "llama3_70b": "llama3_70B",
    "llama3_8b": "llama3_8B",
    "qwen3_235b_a22b": "qwen3_235B_A22B",
    "qwen3_30b_a3b": "qwen3_30B_A3B",
}
DEGREES = {
    "tensor_parallel": "tensor_model_parallel_size",
    "pipeline_parallel": "pipeline_model_parallel_size",
    "context_parallel": "context_parallel_size",
    "expert_parallel": "expert_model_parallel_size",
    "microbatch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "num_layers": "num_layers",
    "seq_len": "seq_length",
}
RECIPES = {
    "bf16": "none",
    "fp8cs": "tensorwise",
    "fp8mx": "mxfp8",
    "fp8sc": "blockwise",
    "fp8ds": "delayed",
    "nvfp4": "nvfp4",
}
TITAN = [*csv.DictReader((HERE / "launch_torchtitan.csv").read_text("utf-8").splitlines())]
ESTIMATOR = registry.get(registry.default("why"))


def recipes(model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    family = FAMILIES[model]
    for name, changes in family["recipes"].items():
        both = {**family["base"], **changes}
        yield name, {path: value for path, value in both.items() if value is not None}


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"train": {}, "model": {}}
    for path, value in paths.items():
        *above, key = path.split(".")
        place = content
        for part in above:
            place = place.setdefault(part, {})
        place[key] = value
    return content


def read(paths: dict[str, Any], folder: Path, **given: str) -> LaunchFile:
    path = folder / "run_config.yaml"
    path.write_text(json.dumps(nested(paths)), encoding="utf-8")
    return read_launch(path, given)


def parameters(columns: dict[str, str]) -> float:
    texts = {"accelerator": "H100", "num_gpus": "1", "global_batch_size": "1", **columns}
    problem: dict[str, Scalar] = resolve_problem(
        ESTIMATOR, ESTIMATOR.relations[0], texts, frozenset(), packaged_catalog()
    )
    return float(np.asarray(model_parameters(shape_of(problem))))


def shape_columns(columns: dict[str, str]) -> dict[str, str]:
    names = {*ESTIMATOR.shape_columns, "seq_len"}
    return {name: text for name, text in columns.items() if name in names}


@pytest.mark.parametrize("model", FAMILIES)
def test_recipes_of_bridge_are_what_they_resolve_to(model: str, tmp_path: Path) -> None:
    expected = parameters({"model": CATALOG[model]})
    counted = 0
    for name, paths in recipes(model):
        gpus = re.search(r"_(\d+)gpu_", name)
        assert gpus is not None
        # without settings of overlap a file has no number of replicas
        has_replicas = paths["comm_overlap.data_parallel_size"] != "none"
        found = read(paths, tmp_path, **({} if has_replicas else {"num_gpus": gpus[1]}))
        columns = dict(found.columns) | ({} if has_replicas else {"num_gpus": gpus[1]})
        keys = {path.rpartition(".")[2]: value for path, value in paths.items()}
        own = {column: keys[key] for column, key in DEGREES.items() if key in keys}
        assert {column: columns[column] for column in own} == own, name
        assert columns["num_gpus"] == gpus[1], name
        split = (
            columns[each]
            for each in DEGREES
            if each.endswith("_parallel") and each != "expert_parallel"
        )
        replicas = int(gpus[1]) // int(np.prod([int(each) for each in split]))
        if has_replicas:
            assert str(replicas) == paths["comm_overlap.data_parallel_size"], name
        assert (
            int(columns["global_batch_size"]) % (replicas * int(columns["microbatch_size"])) == 0
        ), name
        kind = next(word for word in RECIPES if word in name.split("_"))
        assert columns["number_recipe"] == RECIPES[kind], name
        assert not found.unknown, name
        counted += 1
        if counted == 1:
            assert parameters(shape_columns(columns)) == expected, name
    assert counted == len(FAMILIES[model]["recipes"])


def test_most_recipes_of_bridge_are_read_and_the_others_are_listed() -> None:
    num_read = sum(len(family["recipes"]) for family in FAMILIES.values())
    refused = sum(map(len, DATA["refused"].values()))
    unresolved = sum(map(len, DATA["not_resolved"].values()))
    assert (num_read, refused, unresolved) == (255, 53, 125)


@pytest.mark.parametrize(
    ("path", "value"),
    [("model.hybrid_layer_pattern", "M-M*"), ("peft.dim", 16)],
)
def test_what_recipes_have_that_no_estimate_has_is_refused(
    path: str, value: object, tmp_path: Path
) -> None:
    _, paths = next(recipes("llama3_8b"))
    with pytest.raises(InputError, match="which the estimates do not have"):
        read({**paths, path: value}, tmp_path)


@pytest.mark.parametrize("row", TITAN, ids=lambda row: row["config"])
def test_configurations_of_torchtitan_have_the_parameters_of_their_models(
    row: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        f"torchrun --nproc_per_node 8 --nnodes 8 -m torchtitan.train --module {row['module']} "
        f"--config {row['config']} --training.steps 10"
    )
    found = read_launch(path)
    assert parameters(shape_columns(dict(found.columns))) == float(row["parameters"])
    facts = configurations()[row["module"], row["config"]]
    length = int(facts["training.max_context_length"])
    microbatch = int(facts["training.num_tokens_per_microbatch_per_dp_rank"]) // length
    tensor = int(facts["parallelism.tensor_parallel_degree"])
    assert found.columns["num_gpus"] == "64"
    assert found.columns["microbatch_size"] == str(microbatch)
    assert found.columns["tensor_parallel"] == str(tensor)
    assert found.columns["global_batch_size"] == str(microbatch * 64 // tensor)


def test_most_configurations_of_torchtitan_are_read() -> None:
    rows = list(configurations().values())
    refused = [row["config"] for row in rows if row["refused"]]
    assert (len(rows), len(refused)) == (67, 24)
    assert all(row["num_layers"] for row in rows if not row["refused"])
