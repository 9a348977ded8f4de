"""The published and the mended figure of every mend of the cluster estimator, and the errata table.

Rates, volumes and distances are worked out here from the source's own numbers; each mend is
alone, unless `beside` names others that both figures have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl
import pytest

from estimators.cluster.estimator import CLUSTER as ESTIMATOR
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    LATENCY,
    MEMORY,
    RELATIONS,
)
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.cluster_errata_cases import LARGE, LLAMA, LONG, SMALL, TWO_MILLION, figure
from tests.estimators.parity import evaluated

SIZE, TOKENS, SITES = 70e9, 1.4e12, 10
REACHED = 989e12 * 0.40
GIBI = 2**30
LIGHT = 299_792_458

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
