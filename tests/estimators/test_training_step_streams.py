"""Table `streams.csv`: its rows name elements, conditions, constants and sources that there are."""

from __future__ import annotations

import re

import pytest

from estimators.own_tables import rows_of
from estimators.training_step import streams
from estimators.training_step.modules import MODULES
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.sizes import Size, size_of
from tests.estimators.training_step_cases import MOE, problem_with, resolve
from warehouse.database.catalog import packaged_catalog

ROWS = rows_of("training_step/streams")


def problem_of(**given: object) -> tuple[Size, Problem, Layout]:
    """Return a mixture of experts on eight H100."""
    row = {**MOE, "accelerator": "H100 SXM 80GB", "framework": "megatron_core", **given}
    columns, refusals = resolve([{**row, "num_gpus": 8, "expert_parallel": 8}], packaged_catalog())
    assert not refusals
    cell = {name: column[0] for name, column in columns.items()}
    problem, layout = problem_with(**cell), Layout.of(cell)
    return size_of(problem, layout), problem, layout


def traffic_of() -> streams.Traffic:
    return streams.Traffic(*problem_of())


def test_each_kernel_has_a_source() -> None:
    for row in ROWS:
        assert re.search(r"@[0-9a-f]{7}|^pytorch/pytorch |table step_constant", row["source"]), row


def test_rows_name_what_there_is() -> None:
    traffic = traffic_of()
    for row, kernel in zip(ROWS, streams.KERNELS, strict=True):
        assert kernel.elements in traffic.elements, row
        assert set(kernel.conditions) <= {*traffic.conditions}, row
        assert set(kernel.modules) <= {*MODULES}, row
        # a constant that is misspelt raises
        traffic.conditions = dict.fromkeys(traffic.conditions, 1.0)
        traffic.work([kernel])
    assert set(streams.BY_MODULE) == {*MODULES} - {"core_attn"}


def test_loads_have_a_width_and_launches_a_number() -> None:
    for row, kernel in zip(ROWS, streams.KERNELS, strict=True):
        for of_pass in (kernel.forward, kernel.backward):
            assert bool(of_pass.loads) == bool(of_pass.load_bytes), row
            assert bool(of_pass.launches) == bool(kernel.launches_of), row
        moved = (kernel.forward.moved, kernel.forward.loads)
        assert any(moved) or kernel.backward.moved or kernel.backward.loads, row


def test_a_kernel_runs_where_all_of_its_conditions_hold() -> None:
    traffic = traffic_of()
    [norm] = (kernel for kernel in streams.KERNELS if kernel.conditions == ("eager", "plain"))
    traffic.conditions |= {"eager": 1.0, "plain": 0.0}
    assert traffic.work([norm])[0] == (0.0, 0.0)
    traffic.conditions["plain"] = 0.5
    assert traffic.work([norm])[0].moved == 0.5 * 4 * traffic.elements["residual"]


def test_fused_experts_repeat_their_activation_without_clamps() -> None:
    whole = {"precision": "fp8", "captures_whole_steps": True, "uses_cuda_graphs": True}

    def repeated(**given: object) -> tuple[float, float]:
        size, problem, layout = problem_of(**given)
        seconds = streams.module_seconds(size, problem, layout)
        return float(seconds["moe_act"]), float(seconds["moe"])

    plain, clamped = repeated(**whole), repeated(**whole, uses_gate_clamp=True)
    assert plain == clamped
    assert min(plain) > 0
    assert repeated(uses_gate_clamp=True)[0] > repeated()[0]


@pytest.mark.parametrize(("text", "number"), [("", 0.0), ("22/3", 22 / 3), ("a_bytes", "a_bytes")])
def test_a_figure_is_a_number_a_fraction_or_a_name(text: str, number: float | str) -> None:
    assert streams.figure(text) == number
