"""No layout of a cell is faster than the least step of the cell, against every layout of many."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.contract import PUBLISHED, Cell, Problem, Space
from estimators.inputs import records
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from tests.estimators.random_steps import CATALOG, MACHINES, steps_on

MOST_LAYOUTS = 4_000
"""Layouts of a cell that are evaluated; larger cells are left out."""


def cells_on(machine: str, number: int) -> list[Cell]:
    """Return the cells of all layouts of the problems and choices of random steps."""
    _, complete = steps_on(machine, number)
    of = TRAINING_STEP
    names = (*of.problem_columns, *of.choice_columns)
    return [
        Cell(
            of.name,
            of.version,
            RELATION.name,
            Problem({name: row[name] for name in of.problem_columns}),
            PUBLISHED,
            {name: row[name] for name in of.choice_columns},
            neutral=of.neutral_choices,
        )
        for row in records({name: complete[name] for name in names})
    ]


def least_of_all(cell: Cell) -> float | None:
    """Return the step of the fastest layout of a cell; None if it has none, or too many."""
    if not 0 < TRAINING_STEP.search.count(cell) <= MOST_LAYOUTS:
        return None
    least = math.inf
    for layouts in TRAINING_STEP.search.layouts(cell, MOST_LAYOUTS):
        out = {"step_seconds": np.empty(len(layouts["zero_stage"]))}
        TRAINING_STEP.estimate(RELATION, cell.values, layouts, cell.mends, out, CATALOG)
        TRAINING_STEP.forget()
        least = min(least, out["step_seconds"].min())
    return least


def shares_of_least(machine: str, number: int) -> list[float]:
    """Return the bound of each cell over the step of its fastest layout."""
    shares = []
    for cell in cells_on(machine, number):
        fastest = least_of_all(cell)
        if fastest is not None:
            shares.append(TRAINING_STEP.least_step_seconds([cell], CATALOG)[0] / fastest)
    return shares


@pytest.mark.parametrize("machine", ["A100 SXM 80GB", "H100 SXM 80GB", "GB200", "MI300X"])
def test_no_layout_of_a_cell_is_faster_than_its_least_step(machine: str) -> None:
    shares = shares_of_least(machine, 12)
    assert len(shares) >= 2
    # a bound of nothing would keep every cell
    assert 0.5 < max(shares) <= 1 + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
def test_no_layout_on_any_machine_is_faster_than_the_least_step(machine: str) -> None:
    assert max(shares_of_least(machine, 60)) <= 1 + 1e-9


def test_a_cell_without_layouts_has_no_least_step() -> None:
    [cell, *_] = cells_on("H100 SXM 80GB", 1)
    held = Cell(**{**vars(cell), "fixed": {"tensor_parallel": 7919}})
    assert TRAINING_STEP.least_step_seconds([held], CATALOG) == math.inf


def test_the_bound_of_a_large_run_is_close() -> None:
    # 70 G parameters on 1,024 GPUs: transfers, bubble and optimizer are a tenth of the step
    space: Space = {
        "model": ("llama3_70B",),
        "accelerator": ("H100 SXM 80GB",),
        "num_gpus": (256,),
        "global_batch_size": (512,),
        "activation_recompute": ("none",),
    }
    [cell] = TRAINING_STEP.search.cells(space, CATALOG, PUBLISHED)
    assert TRAINING_STEP.search.count(cell) > 1_000
    fastest = math.inf
    for layouts in TRAINING_STEP.search.layouts(cell, MOST_LAYOUTS):
        names = ("step_seconds", "memory_bytes", "fits_memory")
        dtypes = {name: bool if name == "fits_memory" else float for name in names}
        out = {name: np.empty(len(layouts["zero_stage"]), dtypes[name]) for name in names}
        TRAINING_STEP.estimate(RELATION, cell.values, layouts, cell.mends, out, CATALOG)
        fastest = min(fastest, out["step_seconds"][out["fits_memory"]].min(initial=math.inf))
    assert 0.85 < TRAINING_STEP.least_step_seconds([cell], CATALOG)[0] / fastest < 1
