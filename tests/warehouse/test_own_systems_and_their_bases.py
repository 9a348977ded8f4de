"""A user's system is its base in all that it does not state, on every product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators import registry
from estimators.catalog import product_of
from estimators.contract import PUBLISHED, Array, Catalog, RefusedError, Relation, Scalar
from estimators.training_step.system_inputs import HARDWARE, LINKS
from warehouse.ask.defaults import sold_domain
from warehouse.database.catalog import extended, packaged_catalog
from warehouse.evaluate.inputs import (
    Resolved,
    evaluate_intervals,
    evaluate_rows,
    resolve_rows,
)

PACKAGED = packaged_catalog()
PRODUCTS = tuple(PACKAGED.tables["accelerator"])
SYSTEMS = tuple(PACKAGED.tables["system"])
BASES = tuple(dict.fromkeys((*PRODUCTS, *SYSTEMS, "H100", "GB200", "GB300 NVL72")))
STEP = registry.get("training_step")
RUNS: tuple[dict[str, Scalar], ...] = (
    {"model": "gpt3_1.3B", "num_gpus": 144, "tensor_parallel": 2, "global_batch_size": 144},
    {"model": "llama3_70B", "num_gpus": 64, "tensor_parallel": 4, "pipeline_parallel": 2},
    {"model": "llama3_8B", "num_gpus": 16, "precision": "fp8", "framework": "torchtitan"},
    # the recipe of this model depends on the product
    {"model": "deepseek_v3", "num_gpus": 256, "expert_parallel": 64, "pipeline_parallel": 4},
)

Definition = dict[str, Scalar]


def own(index: int) -> str:
    return f"own {index}"


def known(definitions: Iterable[Definition]) -> Catalog:
    systems = {own(index): definition for index, definition in enumerate(definitions)}
    return extended(PACKAGED, {}, systems)


def resolved(
    rows: Sequence[dict[str, Scalar]], catalog: Catalog, estimator: str = "training_step"
) -> Resolved:
    names = dict.fromkeys(name for row in rows for name in row)
    frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in names})
    found = registry.get(estimator)
    return resolve_rows(found, found.relations[0], frame, catalog, PUBLISHED)


def results(rows: Resolved) -> dict[str, Array]:
    """Return inputs, results and intervals of good rows."""
    ends = evaluate_intervals(rows)
    return {**rows.good, **evaluate_rows(rows), **ends}


def differing(found: dict[str, Array], other: dict[str, Array]) -> set[str]:
    """Return the columns that are not equal to the last bit."""
    return {
        name
        for name, values in found.items()
        if not np.array_equal(values, other[name], equal_nan=values.dtype.kind == "f")
    }


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run["model"]))
def test_a_system_that_changes_nothing_is_its_base_to_the_last_bit(run: dict[str, Scalar]) -> None:
    catalog = known({"based_on": base, "note": "mine"} for base in BASES)
    bases = resolved([{**run, "accelerator": base} for base in BASES], catalog)
    systems = resolved([{**run, "accelerator": own(index)} for index in range(len(BASES))], catalog)
    assert systems.is_good.tolist() == bases.is_good.tolist()
    refused = [base for base, good in zip(BASES, bases.is_good, strict=True) if not good]
    rows = PACKAGED.tables["accelerator"]
    without = {name for name, row in rows.items() if row["fp8_flops_per_second"] is None}
    in_eight_bits = {base for base in BASES if product_of(PACKAGED, base) in without}
    # it has no product, and so no number of multiprocessors
    assert {*refused} == {"B200-next", *(in_eight_bits if run.get("precision") == "fp8" else ())}
    assert {"V100 SXM2", "A100", "p4d", "LUMI-G"} < in_eight_bits
    found = results(systems)
    assert differing(found, results(bases)) == {"accelerator"}
    assert {"step_seconds", "memory_bytes", "slot_watts", "low_step_seconds"} < found.keys()


def test_only_what_a_system_states_differs_from_its_base() -> None:
    stated = [
        name for name in (*HARDWARE, *LINKS) if name not in ("nvlink_size", "fp4_flops_per_second")
    ]
    values = {name: 0.5 if name.endswith("efficiency") else 3.0 for name in stated}
    values |= {name: 7e11 for name in stated if name.endswith("_per_second")}
    values |= {"hbm_bytes": 5e10, "fp8_flops_per_second": 1e15}
    values |= {name: 7e-6 for name in stated if name.endswith("_seconds")}
    run = {**RUNS[0], "precision": "fp8"}
    for base in ("H800 SXM 80GB", "GB300 (per GPU)", "A100"):
        catalog = known({"based_on": base, name: values[name]} for name in stated)
        rows = [{**run, "accelerator": own(index)} for index in range(len(stated))]
        given: list[dict[str, Any]] = [{**run, "accelerator": base, n: values[n]} for n in stated]
        systems, bases = resolved(rows, catalog), resolved(given, catalog)
        assert differing(results(systems), results(bases)) == {"accelerator"}
        unchanged = resolved([{**run, "accelerator": base}] * len(stated), catalog).columns
        for index, name in enumerate(stated):
            changed = {
                column
                for column, found in systems.columns.items()
                if str(found[index]) != str(unchanged[column][index])
            }
            assert changed == {name, "accelerator"}


def test_a_stated_memory_is_that_of_the_device_even_if_it_is_the_nominal_one() -> None:
    row: dict[str, Scalar] = {**RUNS[0], "accelerator": own(0)}
    for stated, size in (({}, 81_559 * 2**20), ({"hbm_bytes": 80e9}, 80e9)):
        catalog = known([{"based_on": "H100 SXM 80GB", **stated}])
        assert resolved([row], catalog).columns["hbm_bytes"].tolist() == [size]


def test_a_system_takes_over_what_systems_state_that_it_is_based_on() -> None:
    catalog = known(
        [
            {"based_on": "GB200", "hbm_bytes": 150e9, "nvlink_efficiency": 0.5},
            {"based_on": own(0), "hbm_bytes": 160e9},
        ]
    )
    found = resolved([{**RUNS[0], "accelerator": own(1)}], catalog).columns
    wanted = {"hbm_bytes": 160e9, "nvlink_efficiency": 0.5, "nvlink_size": 72, "nics_per_gpu": 1}
    assert {name: found[name][0] for name in wanted} == wanted
    assert found["kernels"].tolist() == ["GB200 (per GPU)"]


CASES: dict[str, dict[str, Scalar]] = {
    "roofline": {"model": "gpt3", "nvlink_size": 8, "num_gpus": 64, "tensor_parallel": 8},
    "cluster": {"parameters": 70e9, "usd_per_gpu_hour": 2.0},
    "megatron_flops": {"model": "gpt3", "num_gpus": 64, "global_batch_size": 64},
    "dataflow": {"num_layers": 12, "head_size": 64, "hidden_size": 1024, "dataset_tokens": 1e9},
}


@pytest.mark.parametrize("estimator", CASES)
def test_to_other_estimators_it_is_its_base_as_well(estimator: str) -> None:
    catalog = known({"based_on": base} for base in SYSTEMS)
    found = registry.get(estimator)

    def values(relation: Relation, name: str) -> dict[str, Any]:
        row = {n: np.array([v]) for n, v in CASES[estimator].items()}
        row["accelerator"] = np.array([name], dtype=object)
        columns, refusals = found.resolve(relation, row, catalog, PUBLISHED)
        return {} if refusals else {n: c[0] for n, c in columns.items() if n != "accelerator"}

    for relation in found.relations[: None if estimator == "cluster" else 1]:
        for index, base in enumerate(SYSTEMS):
            mine, theirs = (values(relation, name) for name in (own(index), base))
            assert mine, (relation.name, base)
            assert str(mine) == str(theirs), (relation.name, base)


def test_its_domain_in_a_plan_is_that_of_its_base_as_sold() -> None:
    catalog = known({"based_on": base} for base in PRODUCTS)
    roofline = registry.get("roofline")
    for index, base in enumerate(PRODUCTS):
        sold = PACKAGED.tables["accelerator"][base]["gpus_per_node"]
        assert sold_domain(roofline, own(index), catalog) == {"nvlink_size": sold}


def test_a_name_of_a_product_is_taken_and_a_base_may_be_one_without_a_system() -> None:
    with pytest.raises(RefusedError, match="is in the `accelerator` table already"):
        extended(PACKAGED, {}, {"V100 SXM2": {"based_on": "H100"}})
    with pytest.raises(RefusedError, match="is another name of GB300"):
        extended(PACKAGED, {}, {"GB300": {"based_on": "H100"}})
    with pytest.raises(RefusedError, match="did you mean GB300") as caught:
        known([{"based_on": "GB300 (per GPUs)"}])
    assert "in [systems.own 0] is neither in the `system` nor" in str(caught.value)
    # table `accelerator` has no vector rate
    row = {**CASES["roofline"], "accelerator": own(0), "global_batch_size": 64}
    [refusal] = resolved([row], known([{"based_on": "GB300"}]), "roofline").refusals
    assert refusal.column == "vector_flops_per_second"
