"""Every mend of the cluster estimator beside what it mends, and the figures of the errata table.

Rates, volumes and distances are worked out here from the source's own numbers; each mend is
alone, unless `beside` names others that both figures have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl
import pytest
from parity import evaluated

from estimators.cluster.estimator import CLUSTER as ESTIMATOR
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
    RELATIONS,
)
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from warehouse import resources
from warehouse.reference import read_table

SIZE, TOKENS, SITES = 70e9, 1.4e12, 10
REACHED = 989e12 * 0.40
GIBI = 2**30
LIGHT = 299_792_458
SMALL, LARGE = {"global_batch_tokens": 8192.0}, {"global_batch_tokens": 1e6}
# 20e12 tokens, as in the source's table of exchanges
LONG = {"dataset_tokens": 20e12}
TWO_MILLION = {**LONG, "global_batch_tokens": 2e6, "sync_interval_steps": 500}
LLAMA = {"model": "llama3_70B"}
WHOLE = {**LLAMA, "activation_recompute": "none"}
SPLIT = {**LLAMA, "data_parallel": 4, "pipeline_parallel": 2}

# 80 layers of 8192: 12 h^2 + 4 h parameters each; 34 s b h bytes of a sequence of 8192 each
BY_LAYERS = 80 * (12 * 8192**2 + 4 * 8192)
BY_SHAPE = 70_553_706_496
CHECKPOINTED = 80 * 34 * 8192 * 8192

# an exchange of bf16 gradients, and how long all of 20 million steps of a million tokens wait
EXCHANGE = 2 * SIZE * SITES / (10 * GIBI)
WAITING = 20_000_000 * EXCHANGE


def haversine_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return a great circle by another formula than the estimator's."""
    (north_a, east_a), (north_b, east_b) = (tuple(map(math.radians, place)) for place in (a, b))
    half = math.sin((north_b - north_a) / 2) ** 2
    half += math.cos(north_a) * math.cos(north_b) * math.sin((east_b - east_a) / 2) ** 2
    return 2 * 6371.009 * math.asin(math.sqrt(half))


JEAN_ZAY = (48.7071906, 2.1753469)
NEAR_LYON = haversine_km(JEAN_ZAY, (45.7826699, 4.8626))
BRUYERES = haversine_km(JEAN_ZAY, (48.597, 2.197))


class Case(NamedTuple):
    """A column of one row, as published and with the mend."""

    relation: Relation
    column: str
    published: float
    mended: float
    inputs: Mapping[str, Any]
    beside: Mends = PUBLISHED


SAME = "what is stored is the same"
CLUSTER: dict[str, str | tuple[Case, ...]] = {
    # bf16 gradients every 500 steps: 15.1 and 30.2 days
    "C1": (
        Case(
            *(COMMUNICATION, "sync_seconds"),
            published=SIZE * SITES / (10 * GIBI) * 20_000,
            mended=2 * SIZE * SITES / (10 * GIBI) * 20_000,
            inputs=TWO_MILLION,
        ),
    ),
    "C2": (
        Case(
            *(COMMUNICATION, "idle_cost_usd"),
            published=WAITING * 33_973 / 3600 / 2,  # 12.30e9
            mended=WAITING * 33_973 / 3600 * 2,
            inputs={**LONG, **LARGE},
        ),
    ),
    "C3": (
        Case(
            *(COMMUNICATION, "idle_gpu_seconds"),
            published=WAITING * 33_973,
            mended=WAITING * 1061,
            inputs={**LONG, **LARGE},
        ),
        Case(
            *(LATENCY, "idle_gpu_seconds"),
            published=1_400_000 * NEAR_LYON / LIGHT * 33_973,
            mended=1_400_000 * NEAR_LYON / LIGHT * 1061,
            inputs=LARGE,
        ),
    ),
    "C4": f"{SAME}: the days printed beside the years of fp8",
    "C5": (
        Case(
            *(LATENCY, "latency_seconds"),
            published=NEAR_LYON / LIGHT,
            mended=1000 * NEAR_LYON / LIGHT,
            inputs=LARGE,
        ),
    ),
    "C6": f"{SAME}: the latency table runs",
    "C7": f"{SAME}: the electricity table runs",
    "C8": f"{SAME}: the units printed",
    "C9": (
        Case(
            *(COMPUTE, "critical_batch_tokens"),
            published=4096 * 0.2920 * SIZE**0.3271,
            mended=0.2920 * (6 * SIZE * TOKENS) ** 0.3271,
            inputs=SMALL,
        ),
        # it is the batch of a run that gives none: 4.22 and 17.4 million tokens
        Case(
            *(COMPUTE, "num_steps"),
            published=TOKENS // (4096 * 0.2920 * SIZE**0.3271),
            mended=TOKENS // (0.2920 * (6 * SIZE * TOKENS) ** 0.3271),
            inputs={"goodput": 1.0},
        ),
    ),
    "C10": (
        Case(*(LATENCY, "distance_km"), published=NEAR_LYON, mended=BRUYERES, inputs=LARGE),
        Case(
            *(LATENCY, "latency_seconds"),
            published=NEAR_LYON / LIGHT,
            mended=BRUYERES / LIGHT,
            inputs=LARGE,
        ),
    ),
    # 8.697 GPUs; with a million parameters less than one
    "C11": (
        Case(*(COMPUTE, "num_gpus"), published=8, mended=9, inputs=SMALL),
        Case(
            *(COMPUTE, "step_seconds"),
            published=6 * SIZE * 8192 / (8 * REACHED),
            mended=6 * SIZE * 8192 / (9 * REACHED),
            inputs=SMALL,
        ),
        Case(
            *(COMPUTE, "num_gpus"),
            published=0,
            mended=1,
            inputs={**SMALL, "parameters": 1e6},
        ),
        Case(
            *(COMPUTE, "cost_usd"),
            published=0,
            mended=20_000_000 // 8192 * 6e6 * 8192 / REACHED / 3600 * 2,
            inputs={**SMALL, "parameters": 1e6},
        ),
        # a fifth of the GPUs, rounded up: a step takes as long as that
        Case(*(COMPUTE, "num_gpus"), 1.6, 2, inputs={**SMALL, "gradient_accumulation": 5}),
        Case(
            *(COMPUTE, "step_seconds"),
            published=6 * SIZE * 8192 / (8 * REACHED),
            mended=6 * SIZE * 8192 / (2 * REACHED),
            inputs={**SMALL, "gradient_accumulation": 5},
        ),
    ),
    # 16 bytes a parameter on GPUs of 80 GiB, then with one checkpointed sequence
    "C12": (
        Case(*(COMPUTE, "num_gpus"), 8, math.ceil(16 * SIZE / (80 * GIBI)), inputs=SMALL),
        Case(
            *(COMPUTE, "num_gpus"),
            published=8,
            mended=math.ceil((16 * BY_LAYERS + CHECKPOINTED) / (80 * GIBI)),  # 15
            inputs={**SMALL, **LLAMA},
            beside=frozenset({"C13"}),
        ),
    ),
    "C13": (
        Case(
            *(MEMORY, "activations_bytes"),
            published=1e6 * CHECKPOINTED,
            mended=1e6 / 8192 * CHECKPOINTED,
            inputs={**LLAMA, **LARGE},
        ),
        Case(
            *(COMPUTE, "num_gpus_for_memory"),
            published=math.ceil((16 * BY_LAYERS + 1e6 * CHECKPOINTED) / (80 * GIBI)),
            mended=math.ceil((16 * BY_LAYERS + 1e6 / 8192 * CHECKPOINTED) / (80 * GIBI)),  # 272
            inputs={**LLAMA, **LARGE},
        ),
    ),
    "C14": (
        Case(
            *(COMMUNICATION, "exchange_bytes"),
            published=10 * 2 * SIZE,
            mended=1.8 * 2 * SIZE,
            inputs=LARGE,
        ),
    ),
    "C15": (
        Case(*(COMPUTE, "num_steps"), 170_898_437, 170_898_438, inputs=SMALL),
        Case(
            *(COMMUNICATION, "num_exchanges"),
            published=10_000_000 / 300,
            mended=33_334,
            inputs={**TWO_MILLION, "sync_interval_steps": 300},
        ),
        Case(
            *(LATENCY, "num_exchanges"),
            published=1_400_000 / 300,
            mended=4_667,
            inputs={**LARGE, "sync_interval_steps": 300},
        ),
    ),
    # keys and values of 64 heads, and of the 8 that there are
    "C16": (
        Case(
            *(MEMORY, "kv_cache_bytes"),
            published=2 * 2 * 80 * 64 * 128 * 8192,
            mended=2 * 2 * 80 * 8 * 128 * 8192,
            inputs=LLAMA,
        ),
    ),
    # 4 replicas of 2 stages
    "C17": (
        *(
            Case(MEMORY, f"{part}_bytes", n * BY_LAYERS / over, n * BY_LAYERS / mended, inputs)
            for part, n, over, mended, inputs in (
                ("weights", 2, 2 * 8, 2, {**SPLIT, "zero_stage": 1}),
                ("gradients", 2, 2 * 8, 2, {**SPLIT, "zero_stage": 1}),
                ("gradients", 2, 2 * 8, 8, {**SPLIT, "zero_stage": 2}),
                ("weights", 2, 2 * 8, 8, {**SPLIT, "zero_stage": 3}),
                ("optimizer", 12, 1, 2, {**SPLIT, "zero_stage": 0}),
            )
        ),
        Case(
            *(MEMORY, "kv_cache_bytes"),
            published=2 * 2 * 80 * 8192 * 8192,
            mended=2 * 80 * 8192 * 8192,
            inputs=SPLIT,
        ),
        Case(
            *(MEMORY, "inference_bytes"),
            published=2 * BY_LAYERS / (2 * 8) + 4 * 80 * 8192 * 8192,
            mended=2 * BY_LAYERS / 2 + 2 * 80 * 8192 * 8192,
            inputs={**SPLIT, "zero_stage": 1},
        ),
    ),
    "C18": (
        Case(MEMORY, "weights_bytes", 2 * BY_LAYERS, 2 * BY_SHAPE, inputs=LLAMA),
        Case(COMPUTE, "total_flops", 120 * BY_LAYERS**2, 120 * BY_SHAPE**2, inputs=LLAMA),
        # feed-forward: 3 + 4 x 4 bytes as a plain GPT, 3 + 8 x 3.5 with a gate
        Case(MEMORY, "layer_mlp_bytes", 19 * 8192**2, 31 * 8192**2, inputs=WHOLE),
        Case(MEMORY, "layer_attn_qk_scores_bytes", 4 * 8192**2, 2.25 * 8192**2, inputs=WHOLE),
    ),
    "C19": (
        Case(
            *(COMMUNICATION, "exchange_seconds"),
            published=2 * SIZE * SITES / (10 * GIBI),
            mended=2 * SIZE * SITES / 10e9,
            inputs=LARGE,
        ),
        # 1.104e12 bytes on GPUs of 80 GiB and of 80 GB
        Case(*(COMPUTE, "num_gpus_for_memory"), 13, 14, inputs={**LARGE, "parameters": 69e9}),
    ),
}
"""Mend -> its cases, or why it has none."""

CASES = [
    (mend, case) for mend, cases in CLUSTER.items() if not isinstance(cases, str) for case in cases
]


def figure(
    relation: Relation, column: str, inputs: Mapping[str, Any], mends: Mends, catalog: Catalog
) -> float:
    frame = pl.DataFrame([dict(inputs)])
    return float(evaluated(ESTIMATOR, relation, frame, catalog, mends)[column][0])


@pytest.mark.parametrize(
    ("mend", "case"),
    CASES,
    ids=[f"{mend}-{case.relation.name}-{case.column}" for mend, case in CASES],
)
def test_a_mend_turns_the_published_figure_into_the_mended_one(
    mend: str, case: Case, catalog: Catalog
) -> None:
    row = (case.relation, case.column, case.inputs)
    assert figure(*row, case.beside, catalog) == pytest.approx(case.published, rel=1e-12)
    mended = case.beside | {mend}
    assert figure(*row, mended, catalog) == pytest.approx(case.mended, rel=1e-12)
    assert case.published != pytest.approx(case.mended, rel=1e-9)


@pytest.mark.parametrize(
    "mend", [mend for mend, cases in CLUSTER.items() if isinstance(cases, str)]
)
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_a_mend_of_what_is_printed_leaves_every_stored_figure(
    relation: Relation, mend: str, catalog: Catalog
) -> None:
    frame = pl.DataFrame({"global_batch_tokens": [8192.0, 1e6, 32e6]})
    if relation is COMMUNICATION:
        frame = frame.join(pl.DataFrame({"gradient_bytes_per_parameter": [1.0, 2.0]}), how="cross")
    published = evaluated(ESTIMATOR, relation, frame, catalog)
    assert evaluated(ESTIMATOR, relation, frame, catalog, frozenset({mend})).equals(published)


def test_every_mend_has_its_figures() -> None:
    assert tuple(CLUSTER) == ESTIMATOR.mends


DAY, GIGA = 86400, 1e9
FP8 = {**LONG, "gradient_bytes_per_parameter": 1.0}
COARSE = {**LONG, **SMALL, "sync_interval_steps": 500}
AFAR = {**LARGE, "site_b": "EL_CAPITAN"}
C3_C5, C2_C3 = frozenset({"C3", "C5"}), frozenset({"C2", "C3"})


def alone(mend: str) -> Mends:
    return frozenset({mend})


def batch(millions: float) -> dict[str, float]:
    return {"global_batch_tokens": millions * 1e6}


TOLD: tuple[tuple[str, str, Relation, str, float, Mapping[str, Any], Mends], ...] = (
    # erratum, the figure as its text has it, relation, column, unit, inputs, mends
    ("C1", "15.1 days", COMMUNICATION, "sync_seconds", DAY, TWO_MILLION, PUBLISHED),
    ("C1", "30.2 days", COMMUNICATION, "sync_seconds", DAY, TWO_MILLION, alone("C1")),
    ("C1", "11.53 %", COMMUNICATION, "sync_fraction", 0.01, TWO_MILLION, PUBLISHED),
    ("C1", "20.68 %", COMMUNICATION, "sync_fraction", 0.01, TWO_MILLION, alone("C1")),
    ("C1", "3684.3 days", COMMUNICATION, "sync_seconds", DAY, COARSE, PUBLISHED),
    ("C1", "7368.6 days", COMMUNICATION, "sync_seconds", DAY, COARSE, alone("C1")),
    ("C1", "10.71 %", COMMUNICATION, "sync_fraction", 0.01, COARSE, PUBLISHED),
    ("C1", "19.35 %", COMMUNICATION, "sync_fraction", 0.01, COARSE, alone("C1")),
    *(
        ("C3", text, COMMUNICATION, "idle_cost_usd", GIGA, {**LONG, **batch(millions)}, mends)
        for text, millions, mends in (
            *(("1.415", 0.008192, C2_C3), ("1,502.00", 0.008192, PUBLISHED)),
            *(("1.537", 1, C2_C3), ("12.30", 1, PUBLISHED), ("1.538", 2, C2_C3)),
            *(("6.15", 2, PUBLISHED), ("3.08", 4, PUBLISHED), ("1.54", 8, PUBLISHED)),
            *(("0.77", 16, PUBLISHED), ("0.38", 32, PUBLISHED), ("1.538", 32, C2_C3)),
        )
    ),
    *(
        ("C4", text, COMMUNICATION, "sync_seconds", DAY, {**FP8, **batch(millions)}, PUBLISHED)
        for text, millions in (
            *(("1842147.8 days", 0.008192), ("15090.9", 1), ("7545.4", 2), ("3772.7", 4)),
            *(("1886.4", 8), ("943.2", 16), ("471.6", 32)),
        )
    ),
    ("C5", "1.278 microseconds", LATENCY, "latency_seconds", 1e-6, LARGE, PUBLISHED),
    ("C5", "1.278 ms", LATENCY, "latency_seconds", 1e-3, LARGE, alone("C5")),
    ("C5", "29.79 microseconds", LATENCY, "latency_seconds", 1e-6, AFAR, PUBLISHED),
    ("C5", "29.79 ms", LATENCY, "latency_seconds", 1e-3, AFAR, alone("C5")),
    *(
        ("C6", text, LATENCY, column, unit, inputs, mends)
        for text, column, unit, inputs, mends in (
            ("1.79 s", "total_latency_seconds", 1, LARGE, alone("C6")),
            ("0.7 days", "idle_gpu_seconds", DAY, LARGE, alone("C6")),
            ("33.78 USD", "idle_cost_usd", 1, LARGE, alone("C6")),
            ("41.71 s", "total_latency_seconds", 1, AFAR, alone("C6")),
            ("0.04 years", "idle_gpu_seconds", 365.25 * DAY, AFAR, alone("C6")),
            ("787.16 USD", "idle_cost_usd", 1, AFAR, alone("C6")),
            ("1789.58 s", "total_latency_seconds", 1, LARGE, C3_C5),
            ("22.0 days", "idle_gpu_seconds", DAY, LARGE, C3_C5),
            ("1054.86 USD", "idle_cost_usd", 1, LARGE, C3_C5),
            ("41706.5 s", "total_latency_seconds", 1, AFAR, C3_C5),
            ("1.40 years", "idle_gpu_seconds", 365.25 * DAY, AFAR, C3_C5),
            ("24583.65 USD", "idle_cost_usd", 1, AFAR, C3_C5),
        )
    ),
    *(
        ("C7", text, ELECTRICITY, "power_watts", 1e6, batch(millions), alone("C7"))
        for text, millions in (
            *(("0.010 MW", 0.008192), ("1.353", 1), ("2.707", 2), ("5.414", 4)),
            *(("10.829", 8), ("21.657", 16), ("43.316 MW", 32)),
        )
    ),
    ("C7", "1.895 TW", ELECTRICITY, "energy_joules", 1e12, LARGE, alone("C7")),
    ("C8", "1.895 TJ", ELECTRICITY, "energy_joules", 1e12, SMALL, alone("C8")),
    ("C8", "0.526 GWh", ELECTRICITY, "energy_kwh", 1e6, LARGE, alone("C8")),
    ("C8", "0.376 kWh", ELECTRICITY, "step_energy_kwh", 1, LARGE, alone("C8")),
    ("C9", "4.22 million", COMPUTE, "critical_batch_tokens", 1e6, SMALL, PUBLISHED),
    ("C9", "17.4 million", COMPUTE, "critical_batch_tokens", 1e6, SMALL, alone("C9")),
    ("C10", "383 km", LATENCY, "distance_km", 1, LARGE, PUBLISHED),
    ("C10", "12 km", LATENCY, "distance_km", 1, LARGE, alone("C10")),
    ("C10", "0.04 ms", LATENCY, "latency_seconds", 1e-3, LARGE, frozenset({"C5", "C10"})),
    ("C11", "8.697", COMPUTE, "num_gpus_unrounded", 1, SMALL, PUBLISHED),
    ("C11", "1.087 s", COMPUTE, "step_seconds", 1, SMALL, PUBLISHED),
    ("C11", "0.966 s", COMPUTE, "step_seconds", 1, SMALL, alone("C11")),
    ("C12", "1.21 TB", MEMORY, "memory_bytes", 1e12, LLAMA, PUBLISHED),
    ("C12", "272", COMPUTE, "num_gpus_for_memory", 1, {**LLAMA, **LARGE}, alone("C13")),
    ("C13", "1.83e17", MEMORY, "activations_bytes", 1, {**LLAMA, **LARGE}, PUBLISHED),
    ("C16", "21.47 GB", MEMORY, "kv_cache_bytes", GIGA, LLAMA, PUBLISHED),
    ("C16", "2.68 GB", MEMORY, "kv_cache_bytes", GIGA, LLAMA, alone("C16")),
    ("C18", "64.43e9", MEMORY, "weights_bytes", 2, LLAMA, PUBLISHED),
    ("C18", "70.55e9", MEMORY, "weights_bytes", 2, LLAMA, alone("C18")),
)


def consequences() -> dict[str, str]:
    """Return erratum -> what the table says it changes."""
    table = read_table(resources.reference_directory() / "erratum.csv")
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    return {str(row["erratum"]): str(row["consequence"]) for row in rows}


@pytest.mark.parametrize("told", TOLD, ids=lambda told: f"{told[0]}-{told[1]}")
def test_a_figure_of_the_errata_table_is_the_estimators(
    told: tuple[str, str, Relation, str, float, Mapping[str, Any], Mends], catalog: Catalog
) -> None:
    erratum, text, relation, column, unit, inputs, mends = told
    assert text in consequences()[erratum]
    shown = text.split()[0].replace(",", "")
    mantissa, _, exponent = shown.partition("e")
    decimals = len(mantissa.partition(".")[2])
    found = figure(relation, column, inputs, mends, catalog) / unit / float(f"1e{exponent or 0}")
    assert f"{found:.{decimals}f}" == mantissa
