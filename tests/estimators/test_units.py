"""Rates and sizes of a machine in the units that people read are refused."""

from __future__ import annotations

import pytest

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Scalar
from estimators.search import combinations
from warehouse.database.catalog import packaged_catalog
from warehouse.limits import plain_number

ESTIMATOR = registry.get("training_step")
CATALOG = packaged_catalog()
GIVEN: dict[str, Scalar] = {"model": "llama3_8B", "accelerator": "H100", "num_gpus": 16}


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("hbm_bytes", 80.0, "it is in bytes: write 1e9 for 1 GB"),
        ("hbm_bytes", 81559.0, "it is in bytes: write 1e9 for 1 GB"),
        ("matrix_flops_per_second", 990.0, "it is in FLOP/s: write 1e12 for 1 TFLOP/s"),
        ("fp8_flops_per_second", 1979.0, "it is in FLOP/s: write 1e12 for 1 TFLOP/s"),
        ("hbm_bytes_per_second", 3350.0, "it is in bytes/s: write 1e9 for 1 GB/s"),
        ("nvlink_bytes_per_second", 450.0, "it is in bytes/s: write 1e9 for 1 GB/s"),
        ("network_bytes_per_second", 50.0, "it is in bytes/s: write 1e9 for 1 GB/s"),
    ],
)
def test_a_value_in_another_unit_is_refused(name: str, value: float, hint: str) -> None:
    columns = combinations({key: (some,) for key, some in {**GIVEN, name: value}.items()})
    _, [refusal] = ESTIMATOR.resolve(ESTIMATOR.relations[0], columns, CATALOG, PUBLISHED)
    assert (refusal.column, refusal.hint) == (name, hint)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("hbm_bytes", "80GiB", "write 85899345920, in bytes"),
        ("hbm_bytes", "80 GB", "write 80000000000, in bytes"),
        ("matrix_flops_per_second", "990TFLOP/s", "write 990000000000000, in FLOP/s"),
        ("matrix_flops_per_second", "990 TFLOPS", "write 990000000000000, in FLOP/s"),
        ("network_bytes_per_second", "400Gb/s", "write 50000000000, in bytes/s"),
        ("network_bytes_per_second", "50GB/s", "write 50000000000, in bytes/s"),
        ("num_layers", "400Gb/s", ""),
    ],
)
def test_a_number_with_a_unit_is_hinted_without_it(name: str, text: str, hint: str) -> None:
    assert plain_number(COLUMNS[name], text) == hint
