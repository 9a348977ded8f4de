"""What must hold of the budget of any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from estimators.cluster.estimator import CLUSTER
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    MEMORY,
)
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.cluster_cases import ALL_MENDS, SOURCES_OWN, assert_figures, few, run
from tests.estimators.parity import evaluated


def sweep(
    catalog: Catalog,
    relation: Relation,
    mends: Mends,
    values: Mapping[str, Sequence[Any]],
    inputs: Mapping[str, Any],
) -> pl.DataFrame:
    """Return the figures of rows that differ in the columns of `values` alone."""
    frame = pl.DataFrame(values).with_columns(**{n: pl.lit(v) for n, v in inputs.items()})
    return evaluated(CLUSTER, relation, frame, catalog, mends)


def falls(column: pl.Series) -> bool:
    """Return whether no figure is above the one before, but for rounding."""
    figures = column.to_numpy()
    return bool(np.all(figures[1:] <= figures[:-1] * (1 + 1e-12)))


# what must hold of any run


runs = st.fixed_dictionaries(
    {
        "parameters": st.floats(1e8, 1e12),
        "dataset_tokens": st.floats(1e10, 1e14),
        "global_batch_tokens": st.floats(1e4, 1e8),
        "mfu": st.floats(0.05, 1),
        "goodput": st.floats(0.1, 1),
    }
)
exchanges = st.fixed_dictionaries(
    {
        "site_links": st.sampled_from(["shared", "per_site"]),
        "exchange": st.sampled_from(["gather", "ring", "parameter_server"]),
        "overlaps_exchange": st.booleans(),
        "gradient_bytes_per_parameter": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    }
)
variants = st.sampled_from([PUBLISHED, SOURCES_OWN, ALL_MENDS])


@given(runs, st.integers(1, 100), st.one_of(st.none(), st.integers(1, 10**6)))
@few
def test_the_gpus_do_all_flops_in_the_time_that_they_are_given(
    catalog: Catalog, inputs: dict[str, Any], accumulation: int, at_hand: int | None
) -> None:
    more = {"available_gpus": at_hand} if at_hand else {}
    found = run(catalog, COMPUTE, ALL_MENDS, **inputs, **more, gradient_accumulation=accumulation)
    reached = 989e12 * inputs["mfu"]
    done = found["num_gpus"] * found["training_seconds"] * inputs["goodput"] * reached
    assert done >= found["total_flops"] * (1 - 1e-12)
    if not at_hand:
        assert found["step_seconds"] <= accumulation * (1 + 1e-12)


@given(runs, exchanges, variants, st.lists(st.floats(1e6, 1e13), min_size=2, max_size=5))
@few
def test_more_bandwidth_never_makes_an_exchange_longer(
    catalog: Catalog, inputs: dict[str, Any], way: dict[str, Any], mends: Mends, rates: list[float]
) -> None:
    values = {"site_bytes_per_second": sorted(rates)}
    found = sweep(catalog, COMMUNICATION, mends, values, {**inputs, **way})
    assert falls(found["exchange_seconds"])
    assert falls(found["sync_seconds"])


@given(runs, exchanges, variants, st.lists(st.integers(1, 1000), min_size=2, max_size=5))
@few
def test_more_sites_never_shorten_an_exchange(
    catalog: Catalog, inputs: dict[str, Any], way: dict[str, Any], mends: Mends, sites: list[int]
) -> None:
    values = {"num_sites": sorted(sites, reverse=True)}
    assert falls(sweep(catalog, COMMUNICATION, mends, values, {**inputs, **way})["sync_seconds"])


@given(runs, exchanges, variants, st.lists(st.integers(1, 10**6), min_size=2, max_size=5))
@few
def test_a_longer_interval_never_means_more_waiting(
    catalog: Catalog, inputs: dict[str, Any], way: dict[str, Any], mends: Mends, steps: list[int]
) -> None:
    values = {"sync_interval_steps": sorted(steps)}
    assert falls(sweep(catalog, COMMUNICATION, mends, values, {**inputs, **way})["sync_seconds"])


@given(runs, exchanges, st.floats(1e8, 1e12))
@few
def test_the_hiding_interval_is_the_first_that_hides_an_exchange(
    catalog: Catalog, inputs: dict[str, Any], way: dict[str, Any], rate: float
) -> None:
    given_ = {**inputs, **way, "overlaps_exchange": True, "site_bytes_per_second": rate}
    least = int(run(catalog, COMMUNICATION, ALL_MENDS, **given_)["hiding_interval_steps"])
    values = {"sync_interval_steps": [least, least + 1, 2 * least, max(least - 1, 1)]}
    found = sweep(catalog, COMMUNICATION, ALL_MENDS, values, given_)
    noise = 1e-12 * found["exchange_seconds"][0] * found["num_exchanges"][0]
    assert found["sync_seconds"][:3].max() <= noise
    assert least == 1 or found["sync_seconds"][3] > 0


@given(runs, variants, st.floats(1, 5000), st.floats(1, 2))
@few
def test_energy_is_power_times_time(
    catalog: Catalog, inputs: dict[str, Any], mends: Mends, watts: float, pue: float
) -> None:
    found = run(catalog, ELECTRICITY, mends, **inputs, watts_per_gpu=watts, pue=pue)
    power = watts * found["num_gpus"]
    expected = {
        "power_watts": power,
        "energy_joules": power * found["training_seconds"],
        "step_energy_kwh": power * found["step_seconds"] / 3.6e6,
        "facility_energy_kwh": pue * power * found["training_seconds"] / 3.6e6,
    }
    assert_figures(found, expected)


shapes = st.fixed_dictionaries(
    {
        "num_layers": st.sampled_from([8, 48, 96]),
        "hidden_size": st.sampled_from([64, 1024, 12288]),
        "ffn_hidden_size": st.sampled_from([64, 4096, 49152]),
        "uses_glu": st.booleans(),
        "num_heads": st.just(32),
        "num_kv_heads": st.sampled_from([1, 8, 32]),
        "seq_len": st.sampled_from([16, 2048, 65536]),
        "vocab_size": st.sampled_from([None, 50257]),
    }
)
states = st.fixed_dictionaries(
    {
        "batch_sequences": st.floats(0.5, 64),
        "activation_recompute": st.sampled_from(["none", "selective", "full"]),
        "zero_stage": st.integers(0, 3),
    }
)
either = st.sampled_from([PUBLISHED, ALL_MENDS])


@given(shapes, states, either, st.booleans())
@few
def test_memory_never_grows_with_a_degree(
    catalog: Catalog, shape: dict[str, Any], state: dict[str, Any], mends: Mends, splits: bool
) -> None:
    inputs = {**shape, **state, "uses_sequence_parallel": splits}
    for degree in ("data_parallel", "pipeline_parallel", "tensor_parallel"):
        if degree == "tensor_parallel" and not mends:
            continue  # the published activations know no other degree than 1
        found = sweep(catalog, MEMORY, mends, {degree: [1, 2, 4, 8]}, inputs)
        assert falls(found["memory_bytes"])
        assert falls(found["inference_bytes"])
        sharded = found["optimizer_bytes"].n_unique() > 1
        mended_split = bool(mends) and degree != "data_parallel"
        assert sharded == (mended_split or state["zero_stage"] > 0)


@given(shapes, states, either, st.sampled_from([1, 4]), st.sampled_from([1, 8]))
@few
def test_a_higher_zero_stage_never_needs_more(
    catalog: Catalog, shape: dict[str, Any], state: dict[str, Any], mends: Mends, dp: int, pp: int
) -> None:
    inputs = {**shape, **state, "data_parallel": dp, "pipeline_parallel": pp}
    del inputs["zero_stage"]
    found = sweep(catalog, MEMORY, mends, {"zero_stage": [0, 1, 2, 3]}, inputs)
    assert falls(found["memory_bytes"])
    if mends:  # as published, stage 1 shards everything
        distinct = found["memory_bytes"].n_unique()
        assert distinct == (4 if dp > 1 else 1)


@given(shapes, either, st.booleans())
@few
def test_recomputing_more_keeps_less(
    catalog: Catalog, shape: dict[str, Any], mends: Mends, splits: bool
) -> None:
    values = {"activation_recompute": ["none", "selective", "full"]}
    inputs = {**shape, "uses_sequence_parallel": splits, "tensor_parallel": 8 if mends else 1}
    kept = sweep(catalog, MEMORY, mends, values, inputs)["activations_bytes"].to_list()
    assert kept[0] > kept[1] > kept[2] > 0
