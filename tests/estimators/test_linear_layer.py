"""A linear layer: the notebook's figure to the last bit, and what must hold of any layer."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.contract import PUBLISHED, Catalog, RefusedError
from estimators.linear_layer import LINEAR_LAYER, RELATION
from tests.estimators.parity import evaluated, read_golden, resolved, worst_error
from tests.examples import examples

NOTEBOOK = {
    "accelerator": "H100 SXM5",
    "input_size": 16384.0,
    "output_size": 81920.0,
    "tensor_parallel_input": 8.0,
    "tensor_parallel_output": 40.0,
    "data_parallel": 32.0,
    "tokens": 32768.0,
}


def run(catalog: Catalog, **changes: Any) -> dict[str, Any]:
    frame = pl.DataFrame([{**NOTEBOOK, **changes}])
    return evaluated(LINEAR_LAYER, RELATION, frame, catalog).row(0, named=True)


def test_the_notebooks_figure_is_reproduced_to_the_last_bit(catalog: Catalog) -> None:
    assert run(catalog)["forward_backward_seconds"] == 3.2554072481051035e-05


def test_every_golden_row_is_reproduced(catalog: Catalog) -> None:
    golden = read_golden("linear_layer")
    found = evaluated(LINEAR_LAYER, RELATION, golden, catalog)
    assert golden.height == 250
    assert max(worst_error(found, golden, RELATION.outputs).values()) < 1e-13


def test_the_resource_that_takes_longest_decides(catalog: Catalog) -> None:
    # 2048 x 2048 weights and 1,024 tokens on a device, a reduction over 8 and one over 40
    size, tokens = 2048 * 2048, 1024
    moved = 3 * 7 / 8 * 2048 * tokens + 3 * 39 / 40 * 2048 * tokens
    device = {"flops_8bit_per_second": 1e18, "memory_bytes_per_second": 1e18}
    network = run(catalog, **device, network_bytes_per_second=1e9)
    assert network["forward_backward_seconds"] == pytest.approx(2 * moved / 1e9, rel=1e-14)
    assert network["gradient_reduction_seconds"] == pytest.approx(
        2 * 3 * 31 / 32 * size / 1e9, rel=1e-14
    )
    device = {"flops_8bit_per_second": 1e18, "network_bytes_per_second": 1e18}
    memory = run(catalog, **device, memory_bytes_per_second=1e9)
    words = 4 * size + 2048 * tokens + moved
    assert memory["forward_backward_seconds"] == pytest.approx(2 * words / 0.8e9, rel=1e-14)


positive = st.floats(1, 1e4)


@given(
    positive, positive, positive, st.sampled_from(["flops_8bit", "memory_bytes", "network_bytes"])
)
@examples(60)
def test_a_faster_device_is_never_slower(
    catalog: Catalog, data: float, inner: float, outer: float, rate: str
) -> None:
    degrees = {
        "data_parallel": data,
        "tensor_parallel_input": inner,
        "tensor_parallel_output": outer,
    }
    rates = {"flops_8bit": 1979e12, "memory_bytes": 3352e9, "network_bytes": 900e9}
    slow = run(catalog, **degrees)
    fast = run(catalog, **degrees, **{f"{rate}_per_second": 2 * rates[rate]})
    for name in RELATION.outputs:
        assert fast[name] <= slow[name] * (1 + 1e-15)


def test_an_unknown_device_may_be_named_if_it_is_described(catalog: Catalog) -> None:
    described = {
        "accelerator": "mine",
        "flops_8bit_per_second": 1979e12,
        "memory_bytes_per_second": 3352e9,
        "network_bytes_per_second": 900e9,
    }
    assert run(catalog, **described) == run(catalog)
    frame = pl.DataFrame([{**NOTEBOOK, "accelerator": "mine"}])
    [first, *_] = resolved(LINEAR_LAYER, RELATION, frame, catalog)[1]
    assert str(first).startswith('`accelerator` "mine" is not in the `device` table')


@pytest.mark.parametrize(
    ("name", "value"),
    [("tokens", 0.0), ("tokens", -1.0), ("data_parallel", 0.5), ("input_size", float("inf"))],
)
def test_impossible_values_are_refused(catalog: Catalog, name: str, value: float) -> None:
    frame = pl.DataFrame([{**NOTEBOOK, name: value}])
    refusals = resolved(LINEAR_LAYER, RELATION, frame, catalog)[1]
    assert refusals[0].column == name


def test_a_sweep_has_every_split_of_the_gpus(catalog: Catalog) -> None:
    space: dict[str, list[Any]] = {
        "accelerator": ["A100"],
        "input_size": [1024.0],
        "output_size": [4096.0],
        "tokens": [65536.0],
        "num_gpus": [12],
    }
    [cell] = LINEAR_LAYER.search.cells(space, catalog, PUBLISHED)
    [table] = LINEAR_LAYER.search.layouts(cell, 100)
    found = list(zip(*(column.tolist() for column in table.values()), strict=True))
    every = range(1, 13)
    expected = [(d, i, o) for d in every for i in every for o in every if d * i * o == 12]
    assert found == expected
    with pytest.raises(RefusedError, match="say how many GPUs"):
        list(
            LINEAR_LAYER.search.cells(
                {n: v for n, v in space.items() if n != "num_gpus"}, catalog, PUBLISHED
            )
        )
