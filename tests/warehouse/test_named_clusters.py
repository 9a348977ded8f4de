"""A named cluster is its accelerator but for what its row states, in every estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from estimators import registry
from estimators.contract import PUBLISHED, Array, Scalar
from warehouse.ask.defaults import sold_domain
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError
from warehouse.evaluate.inputs import evaluate_intervals, evaluate_rows, resolve_rows
from warehouse.options import PlanOptions
from warehouse.plan.question import read_request, resolve
from warehouse.plan.question_words import assumptions, run_in_words
from warehouse.plan.run import first_sweep

CATALOG = packaged_catalog()
CLUSTERS = CATALOG.tables["named_cluster"]
STATED = (
    *("nvlink_size", "network_bytes_per_second", "nvlink_bytes_per_second", "hbm_bytes"),
    *("hbm_bytes_per_second", "power_limit_watts", "pair_ring_share"),
)
RUN: dict[str, Scalar] = {
    "model": "llama3_8B",
    "num_gpus": 64,
    "tensor_parallel": 2,
    "global_batch_size": 128,
}


def evaluated(*systems: dict[str, Scalar]) -> dict[str, Array]:
    rows = [{**RUN, **system} for system in systems]
    frame = pl.DataFrame([{n: row.get(n) for n in {n for r in rows for n in r}} for row in rows])
    step = registry.get("training_step")
    found = resolve_rows(step, step.relations[0], frame, CATALOG, PUBLISHED)
    assert found.is_good.all(), found.refusals
    return {**found.good, **evaluate_rows(found), **evaluate_intervals(found)}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_is_its_accelerator_with_the_values_of_its_row(name: str) -> None:
    row = CLUSTERS[name]
    base = CATALOG.tables["accelerator"][str(row["based_on"])]
    stated = {column: row[column] for column in STATED if row[column] is not None}
    assert {"nvlink_size", "network_bytes_per_second"} <= stated.keys()
    found = evaluated({"accelerator": name}, {"accelerator": row["based_on"], **stated})
    differing = {
        column
        for column, (first, second) in found.items()
        if first != second and not (first != first and second != second)
    }
    assert differing == {"accelerator"}
    assert {column: found[column][0] for column in stated} == stated
    assert found["matrix_flops_per_second"][0] == base["bf16_flops_per_second"]


def test_the_network_of_p4d_is_a_quarter_of_the_bare_chips_and_its_step_longer() -> None:
    found = evaluated({"accelerator": "A100 SXM 40GB"}, {"accelerator": "p4d"})
    bare, cluster = found["network_bytes_per_second"]
    assert (bare, cluster) == (25e9, 400e9 / 8 / 8)
    assert found["step_seconds"][1] > found["step_seconds"][0]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("p5.48xlarge", "p5"),
        ("P5", "p5"),
        ("Standard_ND96isr_H100_v5", "ND H100 v5"),
        ("nd_h100_v5", "ND H100 v5"),
        ("a3-megagpu-8g", "a3-mega"),
        ("marenostrum_5", "MareNostrum 5"),
        ("LUMI", "LUMI-G"),
    ],
)
def test_a_cluster_has_its_other_names(spelling: str, name: str) -> None:
    assert evaluated({"accelerator": spelling})["accelerator"].tolist() == [name]


@pytest.mark.parametrize(
    ("printed", "product"),
    [
        ("NVIDIA H200", "H200 SXM 141GB"),
        ("NVIDIA B200", "B200 SXM 180GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80GB"),
    ],
)
def test_the_name_that_the_driver_prints_is_known(printed: str, product: str) -> None:
    assert packaged_catalog().find("accelerator", printed)["accelerator"] == product


def test_its_domain_is_that_of_its_nodes_for_an_estimator_without_programs() -> None:
    roofline = registry.get("roofline")
    domains = {
        name: sold_domain(roofline, name)["nvlink_size"] for name in ("p5", "leonardo", "GH200")
    }
    assert domains == {"p5": 8, "leonardo": 4, "GH200": 4}


def test_every_cluster_has_facts_that_fit_together() -> None:
    prices = {int(row["quote_number"] or 0) for row in CLUSTERS.values()} - {0}
    assert len(prices) == sum(row["quote_number"] is not None for row in CLUSTERS.values())
    for name, row in CLUSTERS.items():
        assert row["based_on"] in CATALOG.tables["accelerator"], name
        assert 1e9 < float(row["network_bytes_per_second"] or 0) <= 100e9, name
        # one that is sold has a price, a public machine a size
        assert (row["quote_number"] is None) == (row["num_gpus"] is not None), name
        for assumed in str(row["assumed"] or "").split(";"):
            assert not assumed or row[assumed] is not None, name


def options(accelerator: str, num_gpus: int | None = 64, **more: Any) -> PlanOptions:
    counts = None if num_gpus is None else [num_gpus]
    return PlanOptions([1e11], "llama3_8B", [accelerator], counts, **more)


def test_an_answer_says_whose_network_it_assumes(tmp_path: Path) -> None:
    def words(accelerator: str, **more: Any) -> str:
        request = read_request(options(accelerator, **more), tmp_path / "none.duckdb")
        [network] = [text for text in assumptions(resolve(request)) if "network" in text][:1]
        return network

    assert words("a2-ultra") == "network 1.562 GB/s a GPU of a2-ultra"
    assert words("H200") == "network 50 GB/s a GPU of the bare chip"
    assert words("A100 SXM 40GB") == ("network 25 GB/s a GPU of the bare chip (p4d has less)")
    # a3-mega and MareNostrum 5 have half of it
    assert words("H100") == "network 50 GB/s a GPU of the bare chip"
    assert words("Jean Zay") == "network 50 GB/s a GPU of Jean Zay without a source"
    given = words("H100", pairs=("network_bytes_per_second=30e9",))
    assert given == "network 30 GB/s a GPU"


def test_gpus_of_a_cluster_are_not_taken_for_nodes(tmp_path: Path) -> None:
    run = resolve(read_request(options("p5"), tmp_path / "none.duckdb"))
    assert " on 64 GPUs of p5 (H100 SXM 80GB) with " in run_in_words(run, 64)
    assert " on p5 (H100 SXM 80GB) with " in run_in_words(run)


def test_a_public_machine_has_no_more_gpus_than_it_has(tmp_path: Path) -> None:
    database = tmp_path / "none.duckdb"
    with pytest.raises(InputError, match="`--gpus` 2,048: Jean Zay has 1,456 GPUs") as caught:
        first_sweep(options("Jean Zay", 2048), database)
    assert "H100 SXM 80GB" in str(caught.value.hint)
    assert first_sweep(options("Jean Zay", 1456), database)[1].candidates
    # within limits no larger count is tried
    run, sweep = first_sweep(options("jean zay", None, days=30), database)
    assert run.request.max_gpus == 1456
    assert max(one.num_gpus for one in sweep.candidates) <= 1456


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("TPUv5p", "TPUs are not modelled: only GPUs are, and no program of XLA"),
        ("trn2", "Trainium is not modelled: only GPUs are, and no program of Neuron"),
        ("inf2.48xlarge", "Inferentia is not modelled: only GPUs are, and no program of Neuron"),
        ("Gaudi 3", "Gaudi is not modelled: only GPUs are"),
    ],
)
@pytest.mark.parametrize("estimator", ["training_step", "roofline", "pipeline"])
def test_a_chip_without_a_program_here_is_refused_by_name(
    estimator: str, name: str, sentence: str
) -> None:
    found = registry.get(estimator)
    row = pl.DataFrame([{"accelerator": name, "model": "gpt3", "num_gpus": 1024}])
    resolved = resolve_rows(found, found.relations[0], row, CATALOG, PUBLISHED)
    assert sentence in {refusal.hint for refusal in resolved.refusals}
