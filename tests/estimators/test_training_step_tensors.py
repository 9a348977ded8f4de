"""Table `tensors.csv`: its rows name elements, conditions, constants and sources that there are."""

from __future__ import annotations

import re

import pytest

from estimators.own_tables import rows_of
from estimators.training_step.memory import BY_PART, DROPPED_BY, TENSORS, Measures
from estimators.training_step.modules import MODULES
from estimators.training_step.problem import Layout
from estimators.training_step.sizes import size_of
from tests.estimators.training_step_cases import MOE, problem_with, resolve
from warehouse.database.catalog import packaged_catalog

ROWS = rows_of("training_step/tensors")


def measures_of(**given: object) -> Measures:
    """Return the measures of a mixture of experts on eight H100."""
    row = {**MOE, "accelerator": "H100 SXM 80GB", "framework": "megatron_core", **given}
    columns, refusals = resolve([{**row, "num_gpus": 8, "expert_parallel": 8}], packaged_catalog())
    assert not refusals
    cell = {name: column[0] for name, column in columns.items()}
    problem, layout = problem_with(**cell), Layout.of(cell)
    return Measures(size_of(problem, layout), problem, layout)


def test_each_tensor_has_a_source() -> None:
    for row in ROWS:
        assert re.search(r"@[0-9a-f]{7}|^arXiv|table step_constant|^counted: ", row["source"]), row


def test_rows_name_what_there_is() -> None:
    measures = measures_of()
    for row, tensor in zip(ROWS, TENSORS, strict=True):
        assert tensor.elements in measures.elements, row
        assert set(tensor.conditions) <= {*measures.shares}, row
        assert set(tensor.modules) <= {*MODULES, ""}, row
        assert not any(tensor.modules) or tensor.part == "layer", row
    # a part or a constant that is misspelt raises
    measures.shares = dict.fromkeys(measures.shares, 1.0)
    for part in BY_PART:
        assert measures.bytes_of(part) >= 0
    assert all(DROPPED_BY.values())
    assert {tensor.elements for tensor in TENSORS} == {*measures.elements}


def test_a_tensor_is_there_where_all_of_its_conditions_hold() -> None:
    measures = measures_of()
    measures.shares = dict.fromkeys(measures.shares, 0.0)
    in_all = measures.bytes_of("layer")
    assert measures.dropped_by("moe") == 0
    measures.shares["mixture"] = 0.5
    # a mixture keeps the router's input besides, and all that `moe` makes again
    router_input = 0.5 * 2 * measures.elements["residual"]
    in_mixture = router_input + measures.dropped_by("moe")
    assert measures.bytes_of("layer") - in_all == pytest.approx(in_mixture, rel=1e-12)
    # experts that every token passes and a gate: half of the layers of a half
    rows = measures.elements["gathered"]
    before = measures.bytes_of("operations")
    measures.shares["shared"] = measures.shares["gated"] = 0.5
    last = 2 * (0.125 * rows + 0.25 * measures.elements["routed_inputs"])
    assert measures.bytes_of("operations") - before == pytest.approx(last, rel=1e-12)
