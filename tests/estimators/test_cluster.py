"""The budget of a run: the source's figures, figures worked out by hand, and what must hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import GOLDENS, evaluated, resolved, worst_error

from estimators.cluster.distance import EARTH_RADIUS_KM, great_circle_km
from estimators.cluster.estimator import CLUSTER
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
    PROBLEM,
    RELATIONS,
)
from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Catalog, Cell, Mends, RefusedError, Relation
from estimators.transformer import activations, parameters
from warehouse.batch_inputs import input_names

ALL_MENDS: Mends = frozenset(CLUSTER.mends)
SOURCES_OWN: Mends = frozenset(f"C{number}" for number in range(1, 9))
MENDS: Mapping[str, Mends] = {
    "": PUBLISHED,
    "C1-C8": SOURCES_OWN,
    "C7,C8": frozenset({"C7", "C8"}),
}
SIZE, TOKENS = 70e9, 1.4e12
REACHED = 989e12 * 0.40
"""FLOP/s of one of the source's H100s."""

each_variant = pytest.mark.parametrize("mends", [PUBLISHED, ALL_MENDS], ids=["published", "all"])


def run(
    catalog: Catalog, relation: Relation, mends: Mends = PUBLISHED, **inputs: Any
) -> dict[str, Any]:
    """Return the figures of one row."""
    return evaluated(CLUSTER, relation, pl.DataFrame([inputs]), catalog, mends).row(0, named=True)


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


def refusals(
    catalog: Catalog, relation: Relation, mends: Mends = PUBLISHED, **inputs: Any
) -> list[str]:
    found = resolved(CLUSTER, relation, pl.DataFrame([inputs]), catalog, mends)[1]
    return [str(refusal) for refusal in found]


def falls(column: pl.Series) -> bool:
    """Return whether no figure is above the one before, but for rounding."""
    figures = column.to_numpy()
    return bool(np.all(figures[1:] <= figures[:-1] * (1 + 1e-12)))


# the source's figures


def golden_rows(relation: Relation) -> pl.DataFrame:
    """Return the rows of the source's program; GPUs that idle are left for the default to find."""
    golden = pl.read_csv(GOLDENS / f"{relation.name}.csv", infer_schema_length=None)
    if "mends" not in golden.columns:
        own = "C7,C8" if relation is ELECTRICITY else ""
        golden = golden.with_columns(mends=pl.lit(own))
    return golden.with_columns(pl.col("mends").fill_null("")).drop("idle_num_gpus", strict=False)


@pytest.mark.parametrize(
    ("relation", "num_rows", "num_columns"),
    [
        (COMPUTE, 56, 8),
        (COMMUNICATION, 42, 6),
        (LATENCY, 28, 6),
        (ELECTRICITY, 7, 8),
        (MEMORY, 28, 16),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_golden_figure_is_reproduced(
    relation: Relation, num_rows: int, num_columns: int, catalog: Catalog
) -> None:
    golden = golden_rows(relation)
    names = [name for name in relation.outputs if name in golden.columns]
    assert (golden.height, len(names)) == (num_rows, num_columns)
    for (text,), rows in golden.group_by("mends"):
        found = evaluated(CLUSTER, relation, rows, catalog, MENDS[str(text)])
        assert max(worst_error(found, rows, names).values()) < 1e-9


# all mends together, by hand


def assert_figures(found: Mapping[str, Any], expected: Mapping[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_the_mended_budget_is_what_plain_arithmetic_gives(catalog: Catalog) -> None:
    # 8.697 GPUs finish a step in a second; 16 x 70e9 bytes of state fill 14 of 80e9
    step = 6 * SIZE * 8192
    seconds = 170_898_438 * step / (14 * REACHED)
    found = run(catalog, COMPUTE, ALL_MENDS, global_batch_tokens=8192.0)
    expected = {
        "critical_batch_tokens": 0.2920 * (6 * SIZE * TOKENS) ** 0.3271,
        "num_steps": 170_898_438,
        "total_flops": 5.88e23,
        "step_flops": 3.44064e15,
        "num_gpus_unrounded": step / REACHED,
        "num_gpus_for_flops": 9,
        "num_gpus_for_memory": 14,
        "num_gpus": 14,
        "step_seconds": step / (14 * REACHED),
        "training_seconds": seconds,
        "gpu_hours": 14 * seconds / 3600,
        "cost_usd": 2 * 14 * seconds / 3600,
    }
    assert set(expected) == set(COMPUTE.outputs)
    assert_figures(found, expected)


def test_mended_accumulation_takes_fewer_gpus_for_longer(catalog: Catalog) -> None:
    batch = {"global_batch_tokens": 32e6, "gradient_accumulation": 4}
    found = run(catalog, COMPUTE, ALL_MENDS, **batch, goodput=0.5)
    # 33973.71 / 4 = 8493.43; half of the time makes progress
    step = 6 * SIZE * 32e6 / (8494 * REACHED)
    seconds = 2 * 43_750 * step
    assert_figures(found, {"num_gpus": 8494, "step_seconds": step, "training_seconds": seconds})


def test_memory_counts_the_activations_of_a_known_shape(catalog: Catalog) -> None:
    # 4 sequences a pass of Llama 3 70B: in its 80 layers, half of 2 x 4 taken one after the other
    shape = {"model": "llama3_70B", "global_batch_tokens": 8 * 8192.0, "gradient_accumulation": 2}
    found = run(catalog, COMPUTE, ALL_MENDS, **shape)
    # per token of a layer in units of 8192 bytes: 2 2 2.25 0.25 1 3 + 8 x 3.5 + 4
    kept = 42.5 * 8192 * 8192 * 80 * 4
    needed = math.ceil((16 * 70_553_706_496 + kept) / 80e9)
    assert needed == 26
    assert found["num_gpus_for_memory"] == needed


def test_the_mended_exchange_is_what_plain_arithmetic_gives(catalog: Catalog) -> None:
    inputs = {"dataset_tokens": 20e12, "global_batch_tokens": 2e6, "sync_interval_steps": 500}
    found = run(catalog, COMMUNICATION, ALL_MENDS, **inputs)
    # 2123.36 GPUs; ten sites in a ring send 1.8 x 140 GB each at 10 GB/s, 20,000 times
    step = 6 * SIZE * 2e6 / (2124 * REACHED)
    expected = {
        "num_steps": 10_000_000,
        "num_gpus": 2124,
        "step_seconds": step,
        "training_seconds": 1e7 * step,
        "gradient_bytes": 140e9,
        "exchange_bytes": 252e9,
        "num_exchanges": 20_000,
        "exchange_seconds": 25.2,
        "sync_seconds": 504_000,
        "sync_fraction": 504_000 / (1e7 * step + 504_000),
        "hiding_interval_steps": 26,
        "idle_gpu_seconds": 504_000 * 2124,
        "idle_cost_usd": 594_720,
    }
    assert set(expected) == set(COMMUNICATION.outputs)
    assert_figures(found, expected)


@pytest.mark.parametrize(("interval", "seconds"), [(1, 24.2), (10, 15.2), (25, 0.2), (26, 0)])
def test_a_run_waits_for_what_its_steps_do_not_hide(
    interval: int, seconds: float, catalog: Catalog
) -> None:
    # an exchange of 25.2 s beside steps of 1 s: 4.2e17 FLOPs on 1000 GPUs of 4.2e14 FLOP/s
    gpus = {"available_gpus": 1000, "peak_flops_per_second": 8.4e14, "mfu": 0.5}
    inputs = {"global_batch_tokens": 1e6, "dataset_tokens": 1e12, **gpus}
    hidden = {"overlaps_exchange": True, "sync_interval_steps": interval}
    found = run(catalog, COMMUNICATION, ALL_MENDS, **inputs, **hidden)
    waited = seconds * math.ceil(1_000_000 / interval)
    assert found["sync_seconds"] == pytest.approx(waited, rel=1e-9)
    assert found["sync_fraction"] == pytest.approx(waited / (1e6 + waited), rel=1e-9)
    assert found["hiding_interval_steps"] == 26


@pytest.mark.parametrize(
    ("links", "way", "copies"),
    [
        *(("shared", "gather", 4), ("shared", "ring", 6), ("shared", "parameter_server", 6)),
        *(
            ("per_site", "gather", 3),
            ("per_site", "ring", 1.5),
            ("per_site", "parameter_server", 6),
        ),
    ],
)
def test_each_way_to_exchange_loads_the_busiest_link(
    links: str, way: str, copies: float, catalog: Catalog
) -> None:
    chosen = {"site_links": links, "exchange": way, "num_sites": 4, "parameters": 1e9}
    found = run(catalog, COMMUNICATION, ALL_MENDS, **chosen, gradient_bytes_per_parameter=0.5)
    assert found["exchange_bytes"] == copies * 0.5e9


def test_the_mended_latency_is_what_plain_arithmetic_gives(catalog: Catalog) -> None:
    # a quarter of the equator, in fibre, every 500 of 1.4 million steps of 1062 GPUs
    here = {"latitude_a": 0.0, "longitude_a": 0.0, "latitude_b": 0.0, "longitude_b": 90.0}
    inputs = {**here, "medium": "fibre", "sync_interval_steps": 500, "global_batch_tokens": 1e6}
    found = run(catalog, LATENCY, ALL_MENDS, **inputs)
    distance = math.pi / 2 * 6371.009
    one_way = 1.5 * distance / 299_792.458
    expected = {
        "num_steps": 1_400_000,
        "num_gpus": 1062,
        "training_seconds": 5.88e23 / (1062 * REACHED),
        "num_exchanges": 2800,
        "distance_km": distance,
        "latency_seconds": one_way,
        "total_latency_seconds": 2800 * one_way,
        "idle_gpu_seconds": 1062 * 2800 * one_way,
        "idle_cost_usd": 2 * 1062 * 2800 * one_way / 3600,
    }
    assert set(expected) == set(LATENCY.outputs)
    assert_figures(found, expected)


def test_the_mended_electricity_is_what_plain_arithmetic_gives(catalog: Catalog) -> None:
    site = {"pue": 1.2, "usd_per_kwh": 0.1, "kg_co2e_per_kwh": 0.4}
    inputs = {"global_batch_tokens": 1e6, "available_gpus": 1000, **site}
    found = run(catalog, ELECTRICITY, ALL_MENDS, **inputs)
    # 1.275 MW for 17.2 days
    seconds = 5.88e23 / (1000 * REACHED)
    kwh = 1275 * seconds / 3600
    expected = {
        "num_steps": 1_400_000,
        "num_gpus": 1000,
        "step_seconds": 4.2e17 / (1000 * REACHED),
        "training_seconds": seconds,
        "power_watts": 1_275_000,
        "energy_joules": 1_275_000 * seconds,
        "energy_kwh": kwh,
        "step_energy_kwh": kwh / 1_400_000,
        "facility_energy_kwh": 1.2 * kwh,
        "electricity_usd": 0.12 * kwh,
        "kg_co2e": 0.48 * kwh,
    }
    assert set(expected) == set(ELECTRICITY.outputs)
    assert_figures(found, expected)


def test_the_mended_memory_is_what_plain_arithmetic_gives(catalog: Catalog) -> None:
    split = {"tensor_parallel": 8, "pipeline_parallel": 4, "data_parallel": 2, "zero_stage": 1}
    inputs = {**split, "model": "llama3_70B", "uses_sequence_parallel": True}
    found = run(catalog, MEMORY, ALL_MENDS, **inputs)
    # 32 GPUs share the parameters, two of them the optimizer; 8 have 1024 of 8192 tokens
    own = 70_553_706_496 / 32
    row = 1024 * 8192
    scores = 64 * 8192 * 1024
    layer = {
        "layer_linear_proj_input_bytes": 2 * row,
        "layer_attn_qkv_matmul_bytes": 2 * row,
        "layer_attn_qk_scores_bytes": 2.25 * row,
        "layer_attn_softmax_bytes": 2 * scores,
        "layer_attn_dropout_bytes": scores,
        "layer_attn_v_bytes": 0.25 * row + 2 * scores,
        "layer_attn_drop_mask_bytes": row,
        "layer_mlp_bytes": (3 + 8 * 3.5) * row,
        "layer_ln_bytes": 4 * row,
    }
    kept, cache = 80 * 42.5 * row, 2 * 2 * 80 * 1024 * 8192 / 32
    expected = {
        "weights_bytes": 2 * own,
        "gradients_bytes": 2 * own,
        "optimizer_bytes": 6 * own,
        "activations_bytes": kept,
        "kv_cache_bytes": cache,
        **layer,
        "memory_bytes": 10 * own + kept,
        "inference_bytes": 2 * own + cache,
    }
    assert set(expected) == set(MEMORY.outputs)
    assert_figures(found, expected)


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
few = settings(max_examples=60, deadline=None)


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


# distances

places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(places, places, places)
@few
def test_a_great_circle_is_a_distance(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]
) -> None:
    direct = great_circle_km(*a, *b)
    assert direct == pytest.approx(great_circle_km(*b, *a), abs=1e-6)
    assert direct <= great_circle_km(*a, *c) + great_circle_km(*c, *b) + 1e-6
    assert 0 <= direct <= math.pi * EARTH_RADIUS_KM + 1e-6


@given(places)
@few
def test_the_nearest_place_is_this_one_and_the_farthest_the_antipode(
    a: tuple[float, float],
) -> None:
    assert great_circle_km(*a, *a) == pytest.approx(0, abs=1e-6)
    antipode = (-a[0], a[1] + 180)
    assert great_circle_km(*a, *antipode) == pytest.approx(math.pi * EARTH_RADIUS_KM, abs=1e-6)


# parameters and activations by the shape


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("llama2_7B", 6_738_415_616),
        ("llama2_13B", 13_015_864_320),
        ("llama2_70B", 68_976_648_192),
        ("llama3_8B", 8_030_261_248),
        ("llama3_70B", 70_553_706_496),
        ("llama3_405B", 405_853_388_800),
    ],
)
def test_llamas_have_as_many_parameters_as_their_checkpoints(
    model: str, size: int, catalog: Catalog
) -> None:
    assert parameters(catalog.find("model", model)) == size
    # the run of a named model is that of its own size
    assert run(catalog, MEMORY, frozenset({"C18"}), model=model)["weights_bytes"] == 2 * size


def test_a_gpt_has_the_parameters_of_the_megatron_papers_equation(catalog: Catalog) -> None:
    shape = catalog.find("model", "gpt3_175B")
    found = parameters(shape)
    assert round(found / 1e9) == 175
    # arXiv 2104.04473, equation 2, leaves out the last norm
    layers, h, vocabulary, length = 96, 12288, 50257, 2048
    equation = 12 * layers * h * h * (1 + 13 / (12 * h) + (vocabulary + length) / (12 * layers * h))
    assert found == pytest.approx(equation, rel=1e-6)
    assert found - equation == pytest.approx(2 * h)


@given(
    st.integers(1, 128), st.integers(1, 8).map(lambda n: 8 * n), st.integers(1, 256),
    st.integers(1, 8192), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
@few
def test_activations_of_a_gpt_are_those_of_the_recomputation_papers_equations(
    layers: int, heads: int, head: int, s: int, b: int, t: int
) -> None:
    h = heads * head
    shape = {
        "num_layers": layers,
        "hidden_size": h,
        "ffn_hidden_size": 4 * h,
        "uses_glu": False,
        "num_heads": heads,
        "num_kv_heads": heads,
        "seq_len": s,
    }
    unit, core = s * b * h * layers, 5 * heads * s / h
    expected = {
        # arXiv 2205.05198: equations 1, 2 and 4, then selective and full recomputation (table 2)
        ("none", 1, False): unit * (34 + core),
        ("none", t, False): unit * (10 + 24 / t + core / t),
        ("none", t, True): unit / t * (34 + core),
        ("selective", t, False): unit * (10 + 24 / t),
        ("selective", t, True): unit * 34 / t,
        ("full", t, False): 2 * unit,
    }
    found = {case: float(activations(shape, b, case[0], case[1], case[2])) for case in expected}
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("tensor_parallel", "heads"), [(2, 4), (8, 1), (32, 1), (64, 1)])
def test_a_rank_has_at_least_one_head_of_keys_and_values(
    tensor_parallel: int, heads: int, catalog: Catalog
) -> None:
    # Llama 3 70B: 64 heads of 128, 8 of keys and values, 80 layers, sequences of 8192
    split = {"model": "llama3_70B", "tensor_parallel": tensor_parallel}
    found = run(catalog, MEMORY, ALL_MENDS, **split)
    assert found["kv_cache_bytes"] == 2 * 2 * 80 * 8192 * 128 * heads
    queries = 128 * 64 // tensor_parallel
    assert found["layer_attn_qk_scores_bytes"] == 2 * 8192 * (queries + 128 * heads)


# what is refused, and what is not known

SHAPELESS = {"num_layers": 2, "hidden_size": 64, "seq_len": 128}


@pytest.mark.parametrize(
    ("relation", "inputs", "told"),
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
            "`tokens_per_parameter` 20.0 is given beside `dataset_tokens`",
        ),
        (
            COMMUNICATION,
            {"site_bytes_per_second": 0.0},
            "`site_bytes_per_second` 0.0 must be at least 1",
        ),
        (COMMUNICATION, {"exchange": "pigeon"}, '`exchange` "pigeon" is not known'),
        (LATENCY, {"site_b": "ATLANTIS"}, '`site_b` "ATLANTIS" is not in the `site` table'),
        (LATENCY, {"latitude_a": 48.0}, "`longitude_a` (none) is missing beside `latitude_a`"),
        (
            LATENCY,
            {"site_b": "EL_CAPITAN", "longitude_b": 2.0},
            "`latitude_b` (none) is missing beside `longitude_b`",
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
        (MEMORY, {"num_layers": 12}, "`hidden_size` (none) is missing"),
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
    relation: Relation, inputs: dict[str, Any], told: str, mends: Mends, catalog: Catalog
) -> None:
    assert refusals(catalog, relation, mends, **inputs)[0].startswith(told)


def test_a_run_of_less_than_a_batch_takes_no_step_or_is_refused(catalog: Catalog) -> None:
    short = {"dataset_tokens": 1e6, "global_batch_tokens": 2e6}
    [told] = refusals(catalog, COMPUTE, ALL_MENDS, **short)
    assert told.startswith("`global_batch_tokens` 2000000.0 is more than `dataset_tokens` 1e+06")
    assert run(catalog, COMPUTE, PUBLISHED, **short)["num_steps"] == 0


def test_published_activations_are_not_split(catalog: Catalog) -> None:
    split = {"tensor_parallel": 8}
    [told] = refusals(catalog, MEMORY, ALL_MENDS - {"C17"}, **split)
    assert "is more than the published formula of activations knows" in told
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
def test_what_nobody_publishes_of_an_accelerator_is_unknown_and_not_invented(
    mends: Mends, catalog: Catalog
) -> None:
    named = {"accelerator": "B200 SXM 180GB", "usd_per_kwh": 0.1}
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


# the search

Space = dict[str, list[Any]]


def cells_of(catalog: Catalog, space: Space, mends: Mends = ALL_MENDS) -> list[Cell]:
    return list(CLUSTER.search.cells(space, catalog, mends))


def rows_of(cell: Cell, max_rows: int) -> list[dict[str, Any]]:
    """Return the layouts of a cell row by row, from chunks that are no longer than asked."""
    rows = []
    for chunk in CLUSTER.search.layouts(cell, max_rows):
        columns = {name: column.tolist() for name, column in chunk.items()}
        [height] = {len(column) for column in columns.values()}
        assert 0 < height <= max_rows
        rows += [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    return rows


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        ({}, []),
        ({"mfu": [0.5], "parameters": [1e9], "goodput": [0.9]}, []),
        ({"num_sites": [2]}, [COMMUNICATION]),
        ({"exchange": ["ring"]}, [COMMUNICATION]),
        ({"overlaps_exchange": [True]}, [COMMUNICATION]),
        ({"site_b": ["EL_CAPITAN"]}, [LATENCY]),
        ({"medium": ["fibre"]}, [LATENCY]),
        ({"watts_per_gpu": [700.0]}, [ELECTRICITY]),
        ({"pue": [1.1]}, [ELECTRICITY]),
        ({"zero_stage": [1]}, [MEMORY]),
        ({"batch_sequences": [4.0]}, [MEMORY]),
        ({"pue": [1.1], "num_sites": [2], "zero_stage": [1]}, [COMMUNICATION, ELECTRICITY, MEMORY]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_relation_is_asked_for_by_what_it_alone_reads(
    names: Space, asked: list[Relation], catalog: Catalog
) -> None:
    found = [cell.relation for cell in cells_of(catalog, names)]
    assert found == [relation.name for relation in (COMPUTE, *asked)]


SPACE: Space = {
    "model": ["llama3_8B", "llama3_70B"],
    "dataset_tokens": [1e12, 2e12, 15e12],
    "global_batch_tokens": [1e6, 4e6],
    "mfu": [0.3, 0.4, 0.5],
    "gradient_accumulation": [1, 4],
    "num_sites": [2, 10],
    "sync_interval_steps": [1, 50, 500],
    "exchange": ["ring", "gather"],
    "site_b": ["JOLIOT_CURIE", "EL_CAPITAN"],
    "pue": [1.0, 1.2],
    "zero_stage": [0, 1, 2, 3],
    "tensor_parallel": [1, 8],
    "uses_sequence_parallel": [False, True],
}
READ = {
    COMPUTE: ("model", "dataset_tokens", "global_batch_tokens", "mfu", "gradient_accumulation"),
    COMMUNICATION: (
        *("model", "dataset_tokens", "global_batch_tokens", "mfu"),
        *("num_sites", "sync_interval_steps", "exchange"),
    ),
    LATENCY: (
        *("model", "dataset_tokens", "global_batch_tokens", "mfu"),
        *("sync_interval_steps", "site_b"),
    ),
    ELECTRICITY: ("model", "dataset_tokens", "global_batch_tokens", "mfu", "pue"),
    MEMORY: (
        *("model", "batch_sequences", "zero_stage", "tensor_parallel"),
        "uses_sequence_parallel",
    ),
}


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_a_space_has_every_combination_once_whatever_the_chunks(
    relation: Relation, catalog: Catalog
) -> None:
    cells = [cell for cell in cells_of(catalog, SPACE) if cell.relation == relation.name]
    names = READ[relation]
    # the sequences held in memory are those of the batch
    axes = {**SPACE, "batch_sequences": [1e6 / 8192, 4e6 / 8192]}
    found = []
    for cell in cells:
        rows = rows_of(cell, 10_000)
        assert CLUSTER.search.count(cell) == len(rows)
        assert rows_of(cell, 1) == rows_of(cell, 7) == rows
        assert all(tuple(row) == relation.keys for row in rows)
        found += [tuple({**cell.values, **row}[name] for name in names) for row in rows]
    expected = list(itertools.product(*(axes[name] for name in names)))
    assert len(found) == len(expected)
    assert set(found) == set(expected)
    assert len({cell.id for cell in cells}) == len(cells)


ASKS: Mapping[Relation, Space] = {
    COMPUTE: {},
    COMMUNICATION: {"num_sites": [10]},
    LATENCY: {"medium": ["vacuum"]},
    ELECTRICITY: {"pue": [1.0]},
    MEMORY: {"zero_stage": [0]},
}


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
@each_variant
def test_a_space_has_the_same_defaults_as_a_batch(
    relation: Relation, mends: Mends, catalog: Catalog
) -> None:
    space = {"parameters": [8e9], **ASKS[relation]}
    [cell] = [c for c in cells_of(catalog, space, mends) if c.relation == relation.name]
    [row] = rows_of(cell, 10)
    frame = pl.DataFrame(space)
    batch, told = resolved(CLUSTER, relation, frame, catalog, mends)
    assert told == []
    names = (*PROBLEM, *CLUSTER.choice_columns, *relation.keys)
    of_batch = {name: batch[name][0] for name in names}
    of_batch = {n: v for n, v in of_batch.items() if v is not None and v == v}
    assert {**cell.values, **row} == of_batch


@pytest.mark.parametrize(
    "faulty",
    [
        {"mfu": [0.4, 1.5]},
        {"num_sites": [2, 0]},
        {"sync_interval_steps": [500, 0], "num_sites": [2]},
        {"tensor_parallel": [1, 3]},
        {"pipeline_parallel": [1, 81], "model": ["llama3_405B", "llama3_70B"]},
        {"zero_stage": [0, 4]},
        {"dataset_tokens": [1e12, -1.0]},
        {"exchange": ["ring", "pigeon"]},
    ],
    ids=lambda faulty: next(iter(faulty)),
)
def test_one_faulty_value_refuses_the_whole_space(faulty: Space, catalog: Catalog) -> None:
    name, values = next(iter(faulty.items()))
    with pytest.raises(RefusedError) as caught:
        next(CLUSTER.search.cells(faulty, catalog, ALL_MENDS))
    first = caught.value.refusals[0]
    assert (first.column, first.value) == (name, values[1])
