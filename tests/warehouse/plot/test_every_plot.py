"""Plots draw from a small database that their own commands filled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest

from estimators.contract import Scalar
from tests.shared import Quickstart, Shared, call
from warehouse.database.connection import open_for_read
from warehouse.plot.draw import draw
from warehouse.plot.files import content_of
from warehouse.plot.registry import PLOTS

SPACE = """
estimator = "roofline"
variant = "corrected"

[space]
model = "gpt3_1T"
strategy = {}
accelerator = "B200"
nvlink_size = 8
num_gpus = 1024
global_batch_size = 4096
"""

NETWORK = "\n[system]\nnetwork_bytes_per_second = [25e9, 50e9]\n"

STUDIES = {
    "strategies": SPACE.format('["tensor_1d", "context_2d"]'),
    "network": SPACE.format('"tensor_1d"') + NETWORK,
    "clusters": """
estimator = "dataflow"

[space]
num_experts = 8
global_batch_size = 8192
seq_len = 8192
dataset_tokens = 13e12
num_layers = 120
hidden_size = 15360
activation_recompute = "none"
num_clusters = [1024, 4096]

[system]
cluster_flops_per_second = 156e12
""",
}

FILTERS: dict[str, dict[str, Scalar]] = {
    "strategies": {},
    "network_bandwidth": {},
    "bandwidth_between_clusters": {},
    "sites": {},
    "roofline_of_step": {},
    "kernels": {},
    "tornado": {"model": "megatron_1.7B", "num_gpus": 32},
}
"""Plots of the database -> filters; of plots that are alike one."""


@pytest.fixture(scope="module")
def filled(quickstart: Quickstart, shared: Shared) -> Iterator[duckdb.DuckDBPyConnection]:
    """The quickstart's warehouse with a small study for each of the other plots."""

    def make(place: Path) -> None:
        database = shutil.copyfile(quickstart.database, place / "warehouse.duckdb")
        for name, text in STUDIES.items():
            (place / f"{name}.toml").write_text(f'name = "{name}"\n{text}', encoding="utf-8")
        for study in (*(place / f"{name}.toml" for name in STUDIES), "cluster_notebook"):
            code, _, said = call("sweep", study, "--db", database)
            assert code == 0, said
        best = ("--best", "--model", "gpt3_1T", "--num-gpus", 1024, "--accelerator", "B200")
        code, _, said = call("operations", *best, "--into-db", "--db", database)
        assert code == 0, said

    with open_for_read(shared("plots", make) / "warehouse.duckdb") as connection:
        yield connection


@pytest.mark.long
@pytest.mark.parametrize("name", FILTERS)
def test_a_plot_draws_from_a_small_database(name: str, filled: duckdb.DuckDBPyConnection) -> None:
    drawing = draw(filled, name, FILTERS[name])
    assert drawing.frame.height > 0
    for column in PLOTS[name].single:
        assert drawing.frame[column].n_unique() == 1, column
    assert 20 < len(drawing.title) < 160
    svg = ElementTree.fromstring(content_of(drawing.chart, ".svg"))
    texts = [text.strip() for text in svg.itertext()]
    assert not {"undefined", "NaN", "null"} & {word for text in texts for word in text.split()}
    assert sum(1 for element in svg.iter() if element.tag.endswith("path")) > 5
