"""The budget of a run: the source's figures, and mended ones worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl
import pytest

from estimators.cluster.estimator import CLUSTER
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
)
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.cluster_cases import ALL_MENDS, SIZE, SOURCES_OWN, TOKENS, assert_figures, run
from tests.estimators.parity import GOLDENS, evaluated, worst_error

MENDS: Mapping[str, Mends] = {
    "": PUBLISHED,
    "C1-C8": SOURCES_OWN,
    "C7,C8": frozenset({"C7", "C8"}),
}

REACHED = 989e12 * 0.40
"""FLOP/s of one of the source's H100s."""


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
