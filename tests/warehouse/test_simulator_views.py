"""What the views derive in SQL is what `evaluate` computes, on rows that a sweep stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.contract import Array, Relation
from estimators.estimator import Estimator
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_for_read
from warehouse.studies.study import load_study
from warehouse.sweep.runner import run_study

STUDY = """
name = "small"
estimator = "{estimator}"
[space]
{space}
"""
SPACES = {
    "dataflow": """
num_experts = [1, 4]
global_batch_size = 512
seq_len = 2048
num_layers = 12
hidden_size = 4096
dataset_tokens = 3.3e9
use_glu = [false, true]
multi_query_attention = [false, true]
sequential_attention_ffn = [false, true]
activation_recompute = ["none", "full"]
num_clusters = [16, 24]
accelerator = "A100"
gpus_per_cluster = 8
""",
    "pipeline": """
accelerator = ["A100_40GB", "RTX4090"]
num_layers = 12
hidden_size = 1024
num_experts = [1, 4]
experts_per_token = 1
global_batch_size = 24
seq_len = 512
precision_bits = [8, 16]
dataset_tokens = 3e9
num_gpus = [16, 24]
""",
    "run_optimizer": """
accelerator = ["A100", "32 x H100 SXM5 5.0 GB/s limit"]
training_flops = [1e24, 4e26]
num_gpus = [96, 1024]
tie_rule = ["first", "last"]
""",
    "linear_layer": """
accelerator = "A100"
input_size = 1000
output_size = 4000
tokens = 65536
num_gpus = [12, 64]
""",
    "megatron_flops": """
model = ["megatron_1T", "gpt3"]
accelerator = ["A100 SXM 80GB", "H100 PCIe 80GB"]
num_gpus = 24
global_batch_size = [8, 3072]
dataset_tokens = [3.3e9, 1e15]
""",
}
VIEWS = {
    "dataflow": ("stg_dataflow_traffic", "stg_dataflow"),
    "pipeline": ("stg_pipeline",),
    "run_optimizer": ("stg_run_optimizer",),
    "run_optimizer_path": ("stg_run_optimizer_path",),
    "linear_layer": ("stg_linear_layer",),
    "megatron_flops": ("stg_megatron_flops",),
}


def evaluated(
    estimator: Estimator, relation: Relation, stored: pl.DataFrame, mends: frozenset[str]
) -> dict[str, Array]:
    """Return every output of stored rows, their problems row by row."""
    shared = (*estimator.problem_columns, *estimator.choice_columns)
    values: dict[str, Any] = {}
    for name in shared:
        column = stored[name]
        values[name] = (
            column.to_numpy() if column.dtype.is_numeric() else column.to_numpy().astype(object)
        )
    layouts = {name: stored[name].to_numpy() for name in relation.keys}
    out: dict[str, Any] = {
        n: np.empty(stored.height, relation.column(n).dtype) for n in relation.outputs
    }
    estimator.estimate(relation, values, layouts, mends, out, packaged_catalog())
    return out


@pytest.mark.parametrize("name", list(SPACES))
@pytest.mark.long
def test_views_derive_what_the_estimator_computes(
    name: str, tmp_path: Path, database: Path
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(STUDY.format(estimator=name, space=SPACES[name]))
    run_study(database, load_study(path))
    estimator = get(name)
    with open_for_read(database) as connection:
        for relation in estimator.relations:
            for view in VIEWS[relation.name]:
                compared = _compare(connection, estimator, relation, view)
                assert compared >= 2, view


def _compare(
    connection: duckdb.DuckDBPyConnection, estimator: Estimator, relation: Relation, view: str
) -> int:
    """Compare view and estimator, row by row; return how many columns both have."""
    keys = [name for name in relation.keys if name != "microbatch_size"]
    order = ", ".join(
        ("cell_id", *keys, "step_seconds" if "step_seconds" in relation.outputs else "1")
    )
    stored = connection.sql(f"from current_{relation.name} order by {order}").pl()
    names = connection.sql(f"from {view} limit 0").columns
    same = [name for name in relation.outputs if name in names]
    # a microbatch is that of all replicas in the table and of one in the view: rows are matched
    # by their time instead
    shown = connection.sql(f"select {', '.join(same)} from {view} order by {order}").pl()
    assert shown.height == stored.height > 20
    expected = evaluated(estimator, relation, stored, frozenset(estimator.mends))
    for column in same:
        values = np.asarray(expected[column], dtype=np.float64)
        np.testing.assert_allclose(
            shown[column].cast(pl.Float64).to_numpy(),
            np.rint(values) if column == "num_gpus" else values,  # a view has whole GPUs
            rtol=1e-12,
            err_msg=f"{view}.{column}",
        )
    return len(same)
