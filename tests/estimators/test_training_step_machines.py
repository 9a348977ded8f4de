"""What must hold on every machine of the catalog, for any program, model, shape and layout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from estimators.contract import Array
from estimators.training_step.placement import IN_A_V
from estimators.training_step.schedule import BUBBLES
from tests.estimators.random_steps import (
    MACHINES,
    Columns,
    kept,
    missing,
    results,
    steps_on,
    text_of,
    unnamed,
)

FEW, MANY = 30, 2000
"""Rows a machine in each run, and where long tests run."""

ROUNDING = 1e-9

OF_EACH_PASS = 0.005
"""ZeRO 2 and 3 exchange in each pass. What a GPU waits for them is no part of the passes of a
pipeline, and the host does not run ahead meanwhile: bubbles and its waits may be too long."""

OF_LAST_RANK = 0.01
"""A schedule that splits its backward pass has a bubble for each rank, and the rank that ends last
sets the pace. Where two ranks end together, another rank may end last: gradients then hide behind
its passes. One or two rows in 2,000 show it, by 0.9 %."""

FASTER = {
    "memory": (1.2, ("hbm_bytes_per_second",)),
    "NVLink": (1.2, ("nvlink_bytes_per_second",)),
    "network": (1.2, ("network_bytes_per_second",)),
    "GEMMs": (
        1.05,
        ("product_rate_factor", "fp8_product_rate_factor", "fp4_product_rate_factor"),
    ),
    "attention": (1.05, ("attention_rate_factor", "backward_attention_rate_factor")),
    "peak": (
        1.05,
        ("matrix_flops_per_second", "fp8_flops_per_second", "fp4_flops_per_second"),
    ),
}
"""Part of a machine -> a factor, and the rates that are multiplied by it."""

WORK = (
    *("gemm_seconds", "attention_seconds", "elementwise_seconds", "vocabulary_seconds"),
    *("host_seconds", "accumulation_seconds"),
)
"""Parts of a step that replicas do not share."""

sizes = pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
machines = pytest.mark.parametrize("machine", MACHINES)


@cache
def before(machine: str, number: int) -> Columns:
    return results(steps_on(machine, number)[0])


def changed(rows: Mapping[str, Array], **changes: Array) -> Columns:
    return results({**rows, **changes})


def assert_all(holds: Array, rows: Mapping[str, Array], old: Array, new: Array) -> None:
    """Fail with the row whose result changes most; rows without a result count as good."""
    broken = np.flatnonzero(~(holds | np.isnan(old) | np.isnan(new)))
    if len(broken):
        with np.errstate(divide="ignore"):
            worst = broken[np.argmax(np.abs(new[broken] / old[broken] - 1))]
        pytest.fail(
            f"{len(broken)} of {len(old)} rows; the worst: {old[worst]!r} becomes {new[worst]!r}: "
            + text_of(rows, worst)
        )


def assert_never_less(rows: Mapping[str, Array], old: Array, new: Array) -> None:
    assert_all(new >= old * (1 - ROUNDING), rows, old, new)


def assert_same(
    rows: Mapping[str, Array], old: Columns, new: Columns, names: tuple[str, ...]
) -> None:
    """Fail where results differ; a difference of two sums may leave a rounding error."""
    for name in names:
        scale = np.maximum(np.abs(old[name]), old["step_seconds"])
        assert_all(np.abs(new[name] - old[name]) <= 1e-12 * scale, rows, old[name], new[name])


@sizes
@machines
@pytest.mark.parametrize("part", FASTER)
def test_a_faster_part_never_slows_a_step(machine: str, part: str, number: int) -> None:
    """By `OF_EACH_PASS` or `OF_LAST_RANK` at most in the two cases that these describe."""
    rows, complete = steps_on(machine, number)
    factor, rates = FASTER[part]
    given = {rate: complete[rate] * factor for rate in rates}
    given = {rate: values for rate, values in given.items() if not missing(values).all()}
    old = before(machine, number)
    new = changed(rows, **given)["step_seconds"]
    waits = (complete["pipeline_parallel"] > 1) | (old["host_seconds"] > 0)
    allowed = np.where((complete["zero_stage"] > 1) & waits, OF_EACH_PASS, ROUNDING)
    splits = (complete["pipeline_parallel"] > 1) & np.isin(complete["schedule"], tuple(BUBBLES))
    allowed = np.where(splits, OF_LAST_RANK, allowed)
    assert_all(new <= old["step_seconds"] * (1 + allowed), rows, old["step_seconds"], new)


def longer(machine: str, number: int) -> Columns:
    """Return the results of sequences of twice the length."""
    rows, complete = steps_on(machine, number)
    # it is a default where a sequence can be divided
    splits = complete["uses_sequence_parallel"]
    return changed(rows, uses_sequence_parallel=splits, seq_len=2.0 * complete["seq_len"])


@sizes
@machines
@pytest.mark.parametrize("result", ["step_seconds", "memory_bytes"])
def test_a_longer_sequence_takes_no_less_time_or_memory(
    machine: str, number: int, result: str
) -> None:
    old, new = before(machine, number)[result], longer(machine, number)[result]
    assert_never_less(steps_on(machine, number)[0], old, new)


@sizes
@machines
def test_a_larger_microbatch_takes_no_less_memory(machine: str, number: int) -> None:
    rows, _ = steps_on(machine, number)
    twice = {name: 2 * rows[name] for name in ("microbatch_size", "global_batch_size")}
    new = changed(rows, **twice)["memory_bytes"]
    assert_never_less(rows, before(machine, number)["memory_bytes"], new)


@sizes
@machines
def test_more_layers_take_no_less_memory(machine: str, number: int) -> None:
    """Stages are even: further layers may take the loss of uneven ones to another stage."""
    rows, complete = steps_on(machine, number)
    rows = {**rows, **complete}
    stages = rows["pipeline_parallel"] * rows["virtual_pipeline"]
    is_even = (rows["num_layers"] % (stages * (1 + np.isin(rows["schedule"], IN_A_V)))) == 0
    for name in ("layers_in_first_stage", "layers_in_last_stage", "pipeline_layout"):
        is_even &= missing(rows[name])
    for name in ("counts_embedding", "counts_loss", "balances_stages"):
        is_even &= ~rows[name].astype(bool)
    rows = kept(rows, is_even)
    old, new = results(rows), changed(rows, num_layers=2 * rows["num_layers"])
    assert_never_less(rows, old["memory_bytes"], new["memory_bytes"])


@sizes
@machines
def test_the_name_of_a_model_changes_nothing(machine: str, number: int) -> None:
    rows, complete = steps_on(machine, number)
    old, new = before(machine, number), results(unnamed(rows, complete))
    assert_same(rows, old, new, tuple(old))
    assert not np.isnan(new["step_seconds"]).any()


@sizes
@machines
def test_a_default_that_is_given_changes_nothing(machine: str, number: int) -> None:
    rows, complete = steps_on(machine, number)
    old, new = before(machine, number), results(complete)
    assert_same(rows, old, new, tuple(old))
    assert not np.isnan(new["step_seconds"]).any()


def twice_as_many(rows: Mapping[str, Array]) -> Columns:
    names = ("data_parallel", "num_gpus", "global_batch_size")
    return {name: 2 * rows[name] for name in names}


@sizes
@machines
def test_replicas_change_communication_alone(machine: str, number: int) -> None:
    """Twice the replicas have the same work each. No limit of power: the clocks stay."""
    rows, complete = steps_on(machine, number)
    # the default of a degree depends on the number of GPUs
    degree = {"expert_tensor_parallel": complete["expert_tensor_parallel"]}
    rows = {**rows, **degree, "power_limit_watts": np.full(number, 1e6)}
    rows["clock_spread"] = np.zeros(number)
    old, new = results(rows), changed(rows, **twice_as_many(rows))
    assert_same(rows, old, new, WORK)
    assert_never_less(rows, new["optimizer_seconds"], old["optimizer_seconds"])
