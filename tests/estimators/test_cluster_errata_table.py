"""Every figure of the budget in the table of errata is the estimator's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
)
from estimators.contract import PUBLISHED, Catalog, Mends, Relation
from tests.estimators.cluster_errata_cases import LARGE, LLAMA, LONG, SMALL, TWO_MILLION, figure
from warehouse.database import resources
from warehouse.database.reference import read_table

DAY, GIGA = 86400, 1e9
FP8 = {**LONG, "gradient_bytes_per_parameter": 1.0}
COARSE = {**LONG, **SMALL, "sync_interval_steps": 500}
AFAR = {**LARGE, "site_b": "EL_CAPITAN"}
C3_C5, C2_C3 = frozenset({"C3", "C5"}), frozenset({"C2", "C3"})


def alone(mend: str) -> Mends:
    return frozenset({mend})


def batch(millions: float) -> dict[str, float]:
    return {"global_batch_tokens": millions * 1e6}


STATED: tuple[tuple[str, str, Relation, str, float, Mapping[str, Any], Mends], ...] = (
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


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: f"{stated[0]}-{stated[1]}")
def test_a_figure_of_the_errata_table_is_the_estimators(
    stated: tuple[str, str, Relation, str, float, Mapping[str, Any], Mends], catalog: Catalog
) -> None:
    erratum, text, relation, column, unit, inputs, mends = stated
    assert text in consequences()[erratum]
    shown = text.split()[0].replace(",", "")
    mantissa, _, exponent = shown.partition("e")
    decimals = len(mantissa.partition(".")[2])
    found = figure(relation, column, inputs, mends, catalog) / unit / float(f"1e{exponent or 0}")
    assert f"{found:.{decimals}f}" == mantissa
