"""What the views of the cluster estimator derive in SQL is what `evaluate` computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
)
from estimators.contract import Relation
from estimators.registry import get
from tests.warehouse.test_simulator_views import STUDY, evaluated
from warehouse.database.connection import open_for_read
from warehouse.studies.study import load_study
from warehouse.studies.variants import parse_variant
from warehouse.sweep.runner import run_study

pytestmark = pytest.mark.long

CLUSTER = get("cluster")
SPACES = {
    # the source's own device, at its price
    "own": """
parameters = [30e9, 70e9]
global_batch_tokens = [8192, 1e6, 3e6]
gradient_accumulation = [1, 5]
sync_interval_steps = [1, 500]
num_sites = [2, 10]
overlaps_exchange = [false, true]
site_b = ["JOLIOT_CURIE", "EL_CAPITAN"]
usd_per_kwh = 0.1
kg_co2e_per_kwh = [0.05, 0.4]
""",
    # named devices: one without a published power, none with a price
    "named": """
accelerator = ["H100 SXM 80GB", "MI300X"]
model = ["llama3_8B", "llama3_70B"]
activation_recompute = ["none", "full"]
num_sites = 4
medium = ["vacuum", "fibre"]
pue = 1.2
zero_stage = [0, 1, 3]
data_parallel = [1, 8]
pipeline_parallel = [1, 4]
""",
    "idle": """
available_gpus = [100, 5000]
idle_num_gpus = [1000, 2000]
medium = "fibre"
""",
}
MENDED = """
model = ["llama3_8B", "llama3_70B"]
zero_stage = [0, 1, 2, 3]
tensor_parallel = [1, 8]
uses_sequence_parallel = [false, true]
"""
NO_GPUS = """
parameters = 1e6
global_batch_tokens = 8192
num_sites = 2
"""


def run(database: Path, directory: Path, name: str, space: str, variant: str) -> None:
    path = directory / f"{name}.toml"
    study = STUDY.format(estimator="cluster", space=space).replace("small", name)
    path.write_text(f'variant = "{variant}"\n{study}')
    run_study(database, load_study(path))


@pytest.fixture(scope="module")
def connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with all studies: published and corrected, or as only one of them admits."""
    directory = tmp_path_factory.mktemp("cluster")
    database = directory / "warehouse.duckdb"
    for name, space in SPACES.items():
        run(database, directory, name, space, "both")
    run(database, directory, "mended", MENDED, "corrected")
    run(database, directory, "no_gpus", NO_GPUS, "published")
    with open_for_read(database) as opened:
        yield opened


def num_compared(
    connection: duckdb.DuckDBPyConnection, relation: Relation, variant: str, condition: str
) -> int:
    """Compare every output of a view with the estimator; return how many rows there are."""
    order = ", ".join(("cell_id", *relation.keys))
    chosen = f"where variant = '{variant}' and {condition} order by {order}"
    stored = connection.sql(f"from current_{relation.name} {chosen}").pl()
    shown = connection.sql(f"from {relation.name} {chosen}").pl()
    mends = parse_variant(CLUSTER, variant)
    expected = evaluated(CLUSTER, relation, stored, mends)
    for column in relation.outputs:
        values = np.asarray(expected[column], dtype=np.float64)
        np.testing.assert_allclose(
            shown[column].cast(pl.Float64).to_numpy(),
            np.rint(values) if column == "num_gpus" else values,  # a view has whole GPUs
            rtol=1e-12,
            err_msg=f"{variant} {column}",
        )
    return len(stored)


@pytest.mark.parametrize(
    ("relation", "num_rows", "num_mended"),
    [
        (COMPUTE, 12 + 8 + 2, 2),
        (COMMUNICATION, 48 + 8 + 4, 0),
        (LATENCY, 24 + 16 + 4, 0),
        (ELECTRICITY, 12 + 8, 0),
        (MEMORY, 96, 32),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_view_derives_what_the_estimator_computes(
    relation: Relation,
    num_rows: int,
    num_mended: int,
    connection: duckdb.DuckDBPyConnection,
) -> None:
    with_gpus = "parameters > 1e6"
    assert num_compared(connection, relation, "published", with_gpus) == num_rows
    assert num_compared(connection, relation, "corrected", with_gpus) == num_rows + num_mended


@pytest.mark.parametrize("relation", [COMPUTE, COMMUNICATION], ids=lambda relation: relation.name)
def test_a_published_run_without_a_gpu_is_the_same_in_both(
    relation: Relation, connection: duckdb.DuckDBPyConnection
) -> None:
    assert num_compared(connection, relation, "published", "num_gpus = 0") == 1


@pytest.mark.parametrize(
    ("view", "column", "unknown"),
    [
        ("cluster_compute", "cost_usd", "accelerator is not null"),
        ("cluster_communication", "idle_cost_usd", "accelerator is not null"),
        ("cluster_latency", "idle_cost_usd", "accelerator is not null"),
        ("cluster_electricity", "energy_kwh", "accelerator is not distinct from 'MI300X'"),
    ],
)
def test_unpublished_figures_are_null_in_the_views(
    view: str, column: str, unknown: str, connection: duckdb.DuckDBPyConnection
) -> None:
    [row] = connection.sql(
        f"select bool_and(({column} is null) = ({unknown})), count({column}), count(*) from {view}"
    ).fetchall()
    agrees, num_known, num_rows = row
    assert agrees
    assert 0 < num_known < num_rows
