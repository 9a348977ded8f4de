"""Batches as cells: what is stored is what a search would store."""

from __future__ import annotations

from typing import Any

from tests.small_estimator import SMALL_RELATION
from tests.warehouse.batches import Batches

CELL_ROWS = (
    "model,num_gpus,tensor_parallel,activation_recompute\n"
    "tiny,4,1,\ntiny,2,1,\ntiny,4,2,none\ntiny,4,1,full\ntiny,4,1,none\n"
)


def cells(run: Batches, rows: str) -> Any:
    run(rows, with_cells=True)
    return run.report.cells


def test_rows_of_one_problem_and_choice_are_one_cell(run: Batches) -> None:
    [first, second, third] = cells(run, CELL_ROWS)
    assert first[0].problem.values["num_gpus"] == 4
    assert dict(first[0].choices) == {"activation_recompute": "none"}
    assert (first[0].estimator, first[0].version, first[0].relation) == ("small", 3, "small")
    assert list(first[1]) == list(SMALL_RELATION.stored)
    # In the order of the keys; the repeated row is stored once.
    assert first[1]["data_parallel"].tolist() == [2, 4]
    assert first[1]["tensor_parallel"].tolist() == [2, 1]
    assert first[1]["step_seconds"].tolist() == [4e-6, 4e-6]
    assert second[0].problem.values["num_gpus"] == 2
    assert third[0].choices["activation_recompute"] == "full"
    assert third[0].problem.id == first[0].problem.id


def test_the_same_rows_in_another_order_are_the_same_cells(run: Batches) -> None:
    header, *rows = CELL_ROWS.splitlines(keepends=True)
    ids = {cell.id for cell, _ in cells(run, CELL_ROWS)}
    assert {cell.id for cell, _ in cells(run, header + "".join(reversed(rows)))} == ids
    assert {cell.id for cell, _ in cells(run, header + "".join(rows[:2]))} != ids


def test_a_missing_number_is_no_part_of_the_problem(run: Batches) -> None:
    [(cell, _)] = cells(run, "hidden_size,num_layers\n8,2\n")
    assert "vocab_size" not in cell.problem.values
    assert type(cell.problem.values["hidden_size"]) is int


def test_refused_rows_are_in_no_cell(run: Batches) -> None:
    run("model,num_gpus\ntiny,4\nhuge,4\ntiny,2\n", with_cells=True, keep_valid=True)
    assert [cell.problem.values["num_gpus"] for cell, _ in run.report.cells] == [4, 2]
