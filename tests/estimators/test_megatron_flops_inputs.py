"""What megatron_flops takes and refuses, and its search."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.contract import PUBLISHED, Catalog
from estimators.megatron_flops.estimator import MEGATRON_FLOPS, RELATION
from tests.estimators.parity import evaluated, resolved
from tests.estimators.test_megatron_flops import TINY


def refused(catalog: Catalog, **changes: Any) -> list[str]:
    frame = pl.DataFrame([{**TINY, **changes}], strict=False)
    refusals = resolved(MEGATRON_FLOPS, RELATION, frame, catalog)[1]
    return list(dict.fromkeys(str(refusal) for refusal in refusals))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_layers": 0}, "`num_layers` 0 must be at least 1"),
        ({"hidden_size": 8.5}, "`hidden_size` 8.5 must be a whole number"),
        ({"seq_len": -6}, "`seq_len` -6 must be at least 1"),
        ({"num_gpus": 2**31}, "`num_gpus` 2147483648 must be at most 2147483647"),
        ({"num_gpus": float("inf")}, "`num_gpus` inf is not a finite number"),
        ({"num_gpus": float("nan")}, "`num_gpus` nan is not a finite number"),
        ({"global_batch_size": None}, "`global_batch_size` is missing"),
        ({"hidden_size": "wide"}, '`hidden_size` "wide" must be a whole number'),
        ({"dataset_tokens": 0.0}, "`dataset_tokens` 0.0 must be more than 0"),
        ({"dataset_tokens": 1e31}, "`dataset_tokens` 1e+31 must be at most 1e+30"),
        ({"achieved_flops_per_second_per_gpu": 0.0}, "`achieved_flops_per_second_per_gpu` 0.0"),
        (
            {"achieved_flops_per_second_per_gpu": 2e6},
            "`achieved_flops_per_second_per_gpu` 2000000.0 is more than the peak rate "
            "`matrix_flops_per_second` 1e+06",
        ),
        (
            {"achieved_flops_per_second_per_gpu": 4e5, "flops_efficiency": 0.5},
            "`flops_efficiency` 0.5 of the peak rate is not `achieved_flops_per_second_per_gpu`",
        ),
        ({"flops_efficiency": 1.5}, "`flops_efficiency` 1.5 must be at most 1"),
        ({"flops_efficiency": 0.0}, "`flops_efficiency` 0.0 must be at least 1e-06"),
        (
            {"flops_efficiency": 0.5, "matrix_flops_per_second": None},
            "`flops_efficiency` 0.5 needs a peak rate",
        ),
        (
            {"matrix_flops_per_second": None},
            "`achieved_flops_per_second_per_gpu` is missing",
        ),
        ({"uses_glu": True}, "`uses_glu` True is a third matrix"),
        ({"ffn_hidden_size": 30}, "`ffn_hidden_size` 30 is not 4 x `hidden_size` 8"),
        ({"num_heads": 4, "num_kv_heads": 2}, "`num_kv_heads` 2 is not `num_heads` 4"),
        ({"num_experts": 2}, "`num_experts` 2 is a mixture"),
        ({"num_heads": 4, "head_size": 3}, "`head_size` 3 times `num_heads` 4 is not"),
        ({"activation_recompute": "selective"}, '`activation_recompute` "selective" is not in'),
        ({"activation_recompute": "some"}, '`activation_recompute` "some" is not known'),
        (
            {"accelerator": "abacus", "matrix_flops_per_second": None},
            '`accelerator` "abacus" is not in the `system` or `accelerator` table',
        ),
        ({"model": "llama3_8B", "num_layers": None}, "`uses_glu` True is a third matrix"),
        ({"model": "nothing", "hidden_size": None}, '`model` "nothing" is not in the `model`'),
    ],
)
def test_what_it_cannot_count_is_refused_with_its_reason(
    catalog: Catalog, changes: dict[str, Any], expected: str
) -> None:
    found = refused(catalog, **changes)
    assert found[0].startswith(expected)
    # reading tells a value that is none of its column's before the estimator does
    assert len({text.split()[0] for text in found}) == 1, found


def test_unknown_names_are_labels_if_their_values_are_given(catalog: Catalog) -> None:
    assert refused(catalog, model="mine", accelerator="abacus") == []
    rate = {"matrix_flops_per_second": None, "achieved_flops_per_second_per_gpu": 1e6}
    assert refused(catalog, accelerator="abacus", **rate) == []


def test_peak_rates_come_from_systems_and_accelerators_under_any_of_their_names(
    catalog: Catalog,
) -> None:
    shape = {name: value for name, value in TINY.items() if name != "matrix_flops_per_second"}
    # table 1: 312 TFLOP/s; the H100 PCIe is no row of table `system`
    for name, peak in (("A100-80GB", 312e12), ("A100", 312e12), ("H100 PCIe 80GB", 756e12)):
        frame = pl.DataFrame([{**shape, "accelerator": name}])
        rows, refusals = resolved(MEGATRON_FLOPS, RELATION, frame, catalog)
        assert refusals == []
        assert rows["matrix_flops_per_second"].tolist() == [peak]
        assert rows["achieved_flops_per_second_per_gpu"].tolist() == [peak]


def test_a_cell_is_one_row_and_the_same_as_in_a_batch(catalog: Catalog) -> None:
    space = {**{name: (value,) for name, value in TINY.items()}, "flops_efficiency": (0.25, 0.5)}
    cells = list(MEGATRON_FLOPS.search.cells(space, catalog, PUBLISHED))
    assert [cell.choices["activation_recompute"] for cell in cells] == [
        "none",
        "none",
        "full",
        "full",
    ]
    assert len({cell.id for cell in cells}) == 4
    for cell in cells:
        [layouts] = MEGATRON_FLOPS.search.layouts(cell, 10)
        out = {"step_seconds": np.empty(MEGATRON_FLOPS.search.count(cell))}
        MEGATRON_FLOPS.estimate(RELATION, cell.values, layouts, PUBLISHED, out, catalog)
        batch = evaluated(MEGATRON_FLOPS, RELATION, pl.DataFrame([cell.values]), catalog)
        assert out["step_seconds"].tolist() == batch["step_seconds"].to_list()


def test_a_rate_that_is_the_peak_asks_the_same_as_no_rate(catalog: Catalog) -> None:
    space = {name: (value,) for name, value in TINY.items()}
    plain = MEGATRON_FLOPS.search.cells(space, catalog, PUBLISHED)
    given = {**space, "achieved_flops_per_second_per_gpu": (1e6,)}
    same = MEGATRON_FLOPS.search.cells(given, catalog, PUBLISHED)
    assert [cell.id for cell in plain] == [cell.id for cell in same]
