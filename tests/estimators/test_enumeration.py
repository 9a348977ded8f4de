"""Layouts grown axis by axis are those that a plain loop finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.enumeration import Axis, divisors_of, each_of, enumerate_layouts, exactly
from estimators.rules import divides

AXES = (
    Axis("data_parallel", divisors_of(lambda v: v["num_gpus"])),
    Axis("pipeline_parallel", divisors_of(lambda v: v["num_gpus"] // v["data_parallel"])),
    Axis(
        "tensor_parallel",
        exactly(lambda v: v["num_gpus"] // v["data_parallel"] // v["pipeline_parallel"]),
    ),
    Axis("virtual_pipeline", each_of([1, 2, 4])),
)
RULES = (
    divides("data_parallel", "global_batch_size"),
    divides("pipeline_parallel", "num_layers"),
    divides("tensor_parallel", "num_heads"),
    divides("virtual_pipeline", "num_layers"),
)

problems = st.fixed_dictionaries(
    {
        "num_gpus": st.integers(1, 96),
        "global_batch_size": st.integers(1, 64),
        "num_layers": st.integers(1, 48),
        "num_heads": st.integers(1, 64),
    }
)


def found(problem: dict[str, int], kept: dict[str, int] | None = None) -> list[tuple[int, ...]]:
    columns = enumerate_layouts(problem, AXES, RULES, kept)
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


@given(problems)
@pytest.mark.long
def test_every_layout_is_found_once_and_in_order(problem: dict[str, int]) -> None:
    every = range(1, problem["num_gpus"] + 1)
    expected = [
        (data, pipeline, tensor, chunks)
        for data, pipeline, tensor in itertools.product(every, repeat=3)
        for chunks in (1, 2, 4)
        if data * pipeline * tensor == problem["num_gpus"]
        and problem["global_batch_size"] % data == 0
        and problem["num_layers"] % pipeline == 0
        and problem["num_heads"] % tensor == 0
        and problem["num_layers"] % chunks == 0
    ]
    assert found(problem) == expected


@given(problems, st.integers(1, 8))
def test_keeping_to_a_value_leaves_the_layouts_that_have_it(
    problem: dict[str, int], pipeline: int
) -> None:
    kept = {"pipeline_parallel": pipeline}
    assert found(problem, kept) == [row for row in found(problem) if row[1] == pipeline]


def test_a_rule_of_the_problem_alone_is_applied_before_anything_is_expanded() -> None:
    problem = {"num_gpus": 64, "global_batch_size": 64, "num_layers": 4, "num_heads": 8}
    rules = (divides("num_heads", "num_layers"),)
    columns = enumerate_layouts(problem, AXES, rules)
    assert {name: len(column) for name, column in columns.items()} == {
        axis.name: 0 for axis in AXES
    }


def test_a_rule_that_reads_what_no_axis_gives_is_a_fault_of_the_caller() -> None:
    with pytest.raises(KeyError, match="context_parallel divides seq_len"):
        enumerate_layouts({"num_gpus": 4}, AXES, (divides("context_parallel", "seq_len"),))


def test_columns_are_64_bit_integers() -> None:
    problem = {"num_gpus": 8, "global_batch_size": 8, "num_layers": 8, "num_heads": 8}
    columns = enumerate_layouts(problem, AXES, RULES)
    assert {column.dtype for column in columns.values()} == {np.dtype(np.int64)}
