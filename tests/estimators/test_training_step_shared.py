"""Cells that differ in recomputation share figures, and have the results that each has alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from estimators.catalog import MeasuredTables
from estimators.contract import Catalog, Cell
from estimators.training_step import estimator, tables
from estimators.training_step.estimator import RELATION, TrainingStep
from tests.estimators.training_step_cases import (
    CATALOG,
    IDEAL,
    MOE,
    Found,
    allocated,
    cells_of,
    layouts_of,
)
from tests.estimators.training_step_spaces import DENSE

MIXTURE = {**MOE, "num_experts": 4, "vocab_size": 512, "num_gpus": 8, "global_batch_size": 8}
KINDS = ["none", "selective", "full"]


def given(problem: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [value] for name, value in {**IDEAL, **problem}.items()}


SPACE = {**given({**DENSE, "num_gpus": 8}), "num_layers": [6, 8], "pipeline_hop_seconds": [0, 1e-5]}
HIDING = {**given(MIXTURE), "overlaps_expert_comm": [True, False]}


def evaluated(
    of: TrainingStep, cell: Cell, layouts: Found, catalog: Catalog = CATALOG
) -> dict[str, bytes]:
    """Return the bytes of each result."""
    out = allocated(len(layouts["zero_stage"]))
    of.estimate(RELATION, cell.values, layouts, cell.mends, out, catalog)
    return {name: column.tobytes() for name, column in out.items()}


@pytest.mark.parametrize("space", [SPACE, HIDING])
def test_results_are_those_of_a_cell_alone(space: dict[str, list[Any]]) -> None:
    cells = cells_of({**space, "activation_recompute": KINDS})
    together = TrainingStep()
    assert len(cells) >= 6
    for cell in [*cells, *cells[::2], *cells[::-1]]:
        layouts = layouts_of(cell)
        alone = evaluated(TrainingStep(), cell, layouts)
        assert evaluated(together, cell, layouts) == alone


def test_chunks_of_a_cell_are_distinguished() -> None:
    together = TrainingStep()
    for cell in cells_of({**given({**DENSE, "num_gpus": 8}), "activation_recompute": KINDS}):
        whole = layouts_of(cell)
        size = len(whole["zero_stage"]) // 8 * 4
        for start in (0, size):  # as many rows each
            chunk = {name: column[start : start + size] for name, column in whole.items()}
            assert evaluated(together, cell, chunk) == evaluated(TrainingStep(), cell, chunk)


def test_columns_that_a_caller_changes_are_read_again() -> None:
    cell = cells_of({**given({**DENSE, "num_gpus": 8}), "activation_recompute": "none"})[0]
    layouts, together = {n: c.copy() for n, c in layouts_of(cell).items()}, TrainingStep()
    first = evaluated(together, cell, layouts)
    for column in layouts.values():
        column[:] = column[::-1].copy()
    found = evaluated(together, cell, layouts)
    assert found == evaluated(TrainingStep(), cell, layouts)
    assert found["step_seconds"] != first["step_seconds"]


def test_another_catalog_is_read(catalog: Catalog) -> None:
    space = {**DENSE, "num_gpus": 8, "accelerator": "H100 SXM 80GB", "attention": "flash"}
    cell = cells_of({**space, "activation_recompute": "none"}, catalog)[0]
    layouts, together = layouts_of(cell), TrainingStep()
    first = evaluated(together, cell, layouts, catalog)
    rates = catalog.measured["matrix_product_rate"]
    other_rates = {name: c / 2 if c.dtype.kind == "f" else c for name, c in rates.items()}
    other = dataclasses.replace(
        catalog, measured=MeasuredTables({"matrix_product_rate": lambda: other_rates})
    )
    found = evaluated(together, cell, layouts, other)
    assert found == evaluated(TrainingStep(), cell, layouts, other)
    assert found["step_seconds"] != first["step_seconds"]


def test_figures_are_shared_by_the_kinds_of_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(*args: Any, **keywords: Any) -> tables.Shared:
        computed.append(1)
        return tables.shared_of(*args, **keywords)

    monkeypatch.setattr(estimator, "shared_of", counted)
    of = TrainingStep()
    cells = cells_of({**SPACE, "activation_recompute": KINDS})
    for cell in cells:
        evaluated(of, cell, layouts_of(cell))
    assert (len(cells), len(computed)) == (12, 4)


def test_a_search_varies_recomputation_fastest() -> None:
    cells = cells_of({**SPACE, "activation_recompute": KINDS})
    kinds = [cell.choices["activation_recompute"] for cell in cells]
    assert kinds == KINDS * 4
    for start in (0, 3, 6, 9):
        assert len({cell.problem.id for cell in cells[start : start + 3]}) == 1


def test_few_chunks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept does not grow with the rows of a cell."""
    of = TrainingStep()
    [cell] = cells_of({**given({**DENSE, "num_gpus": 8}), "activation_recompute": ["none"]})
    whole = layouts_of(cell)
    monkeypatch.setattr(tables, "_MOST_ROWS", 64)
    for start in range(0, 256, 32):
        evaluated(of, cell, {name: column[start : start + 32] for name, column in whole.items()})
    kept = of._latest._chunks
    assert kept is not None
    assert kept.num_rows == 64
