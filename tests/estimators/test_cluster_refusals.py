"""What the budget of a run refuses, and what it does not know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.cluster.estimator import CLUSTER
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
    RELATIONS,
)
from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.cluster_cases import ALL_MENDS, SIZE, each_variant, run
from tests.estimators.parity import resolved
from warehouse.evaluate.inputs import input_names


def refusals(
    catalog: Catalog, relation: Relation, mends: Mends = PUBLISHED, **inputs: Any
) -> list[str]:
    found = resolved(CLUSTER, relation, pl.DataFrame([inputs]), catalog, mends)[1]
    return [str(refusal) for refusal in found]


# what is refused, and what is not known


SHAPELESS = {"num_layers": 2, "hidden_size": 64, "seq_len": 128}


@pytest.mark.parametrize(
    ("relation", "inputs", "expected"),
    [
        (COMPUTE, {"available_gpus": 0}, "`available_gpus` 0 must be at least 1"),
        (COMPUTE, {"dataset_tokens": -1.0}, "`dataset_tokens` -1.0 must be more than 0"),
        (COMPUTE, {"dataset_tokens": math.nan}, "`dataset_tokens` nan is not a finite number"),
        (COMPUTE, {"global_batch_tokens": -8192.0}, "`global_batch_tokens` -8192.0 must be at"),
        (COMPUTE, {"mfu": 0.0}, "`mfu` 0.0 must be above 0 and at most 1"),
        (COMPUTE, {"mfu": 1.5}, "`mfu` 1.5 must be above 0 and at most 1"),
        (COMPUTE, {"accelerator": "X9"}, '`accelerator` "X9" is not in the `system` table'),
        (COMPUTE, {"model": "llama9"}, '`model` "llama9" is not in the `model` table'),
        (
            COMPUTE,
            {"tokens_per_parameter": 20.0, "dataset_tokens": 1e12},
            "`tokens_per_parameter` 20.0 and `dataset_tokens` are both given",
        ),
        (
            COMMUNICATION,
            {"site_bytes_per_second": 0.0},
            "`site_bytes_per_second` 0.0 must be at least 1",
        ),
        (COMMUNICATION, {"exchange": "pigeon"}, '`exchange` "pigeon" is not known'),
        (LATENCY, {"site_b": "ATLANTIS"}, '`site_b` "ATLANTIS" is not in the `site` table'),
        (
            LATENCY,
            {"latitude_a": 48.0},
            "`longitude_a` is missing, but `latitude_a` is given",
        ),
        (
            LATENCY,
            {"site_b": "EL_CAPITAN", "longitude_b": 2.0},
            "`latitude_b` is missing, but `longitude_b` is given",
        ),
        (
            LATENCY,
            {"site_b": "EL_CAPITAN", "latitude_b": 48.0, "longitude_b": 2.0},
            "`latitude_b` 48.0 is not that of `site_b` EL_CAPITAN",
        ),
        (
            COMPUTE,
            {"parameters": 37e9, "active_parameters": 671e9},
            "`active_parameters` 671000000000.0 is more than `parameters` 3.7e+10",
        ),
        (
            COMPUTE,
            {**SHAPELESS, "num_heads": 8, "num_kv_heads": 3},
            "`num_kv_heads` 3 does not divide `num_heads` 8",
        ),
        (
            MEMORY,
            {**SHAPELESS, "num_heads": 7},
            "`num_heads` 7 does not divide `hidden_size` 64",
        ),
        (MEMORY, {"num_layers": 12}, "`hidden_size` is missing"),
        (MEMORY, {"tensor_parallel": 3}, "`tensor_parallel` 3 does not divide `num_heads` 64"),
        (
            MEMORY,
            {"pipeline_parallel": 81},
            "`pipeline_parallel` 81 is more than `num_layers` 80",
        ),
    ],
)
@each_variant
def test_impossible_inputs_are_refused_in_words(
    relation: Relation, inputs: dict[str, Any], expected: str, mends: Mends, catalog: Catalog
) -> None:
    assert refusals(catalog, relation, mends, **inputs)[0].startswith(expected)


def test_a_run_of_less_than_a_batch_takes_no_step_or_is_refused(catalog: Catalog) -> None:
    short = {"dataset_tokens": 1e6, "global_batch_tokens": 2e6}
    [error] = refusals(catalog, COMPUTE, ALL_MENDS, **short)
    assert error.startswith("`global_batch_tokens` 2000000.0 is more than `dataset_tokens` 1e+06")
    assert run(catalog, COMPUTE, PUBLISHED, **short)["num_steps"] == 0


def test_published_activations_are_not_split(catalog: Catalog) -> None:
    split = {"tensor_parallel": 8}
    [error] = refusals(catalog, MEMORY, ALL_MENDS - {"C17"}, **split)
    assert "must be 1: the published formula of activations does not split them" in error
    assert refusals(catalog, MEMORY, frozenset({"C17"}), **split) == []


NUMBERS = dict.fromkeys(
    name
    for relation in RELATIONS
    for name in input_names(CLUSTER, relation)
    if COLUMNS[name].kind in ("int", "float")
)


@pytest.mark.parametrize("name", NUMBERS)
@each_variant
def test_a_huge_number_is_refused(name: str, mends: Mends, catalog: Catalog) -> None:
    for relation in RELATIONS:
        if name in input_names(CLUSTER, relation):
            inputs = {"global_batch_tokens": 1e6, name: 1e300}
            with np.errstate(invalid="ignore"):  # refused rows hold what no whole number can
                assert refusals(catalog, relation, mends, **inputs), relation.name


@each_variant
def test_a_place_that_no_table_has_may_be_named_if_it_is_said_where_it_is(
    mends: Mends, catalog: Catalog
) -> None:
    found = run(
        catalog, LATENCY, mends, site_b="ATLANTIS", latitude_b=48.7071906, longitude_b=2.1753469
    )
    assert found["distance_km"] == pytest.approx(0, abs=1e-6)  # Jean Zay's own place


@each_variant
def test_unpublished_figures_of_an_accelerator_are_unknown_and_not_invented(
    mends: Mends, catalog: Catalog
) -> None:
    named = {"accelerator": "MI300X", "usd_per_kwh": 0.1}
    found = run(catalog, ELECTRICITY, mends, **named)
    power = [name for name in ELECTRICITY.derived if name != "kg_co2e"]
    assert all(math.isnan(found[name]) for name in power)
    assert found["training_seconds"] > 0
    given_ = run(catalog, ELECTRICITY, mends, **named, watts_per_gpu=1000.0)
    assert given_["power_watts"] == 1000 * given_["num_gpus"]
    known = run(catalog, ELECTRICITY, mends, accelerator="H100 SXM 80GB")
    assert known["power_watts"] == 1275 * known["num_gpus"]


@each_variant
def test_a_named_accelerator_has_the_price_that_is_given(mends: Mends, catalog: Catalog) -> None:
    h100 = {"accelerator": "H100 SXM 80GB"}
    assert math.isnan(run(catalog, COMPUTE, mends, **h100)["cost_usd"])
    priced = run(catalog, COMPUTE, mends, **h100, usd_per_gpu_hour=3.0)
    assert priced["cost_usd"] == pytest.approx(3 * priced["gpu_hours"], rel=1e-12)
    nameless = run(catalog, COMPUTE, mends, parameters=SIZE)
    assert nameless["cost_usd"] == pytest.approx(2 * nameless["gpu_hours"], rel=1e-12)
