"""Cells that share layers have the results that each has alone, and compute the layers once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from estimators.contract import PUBLISHED, Array, Cell, Values
from estimators.training_step import shared_layers
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from estimators.training_step.layer import FullClock, at_full_clock
from tests.estimators.training_step_spaces import DENSE
from warehouse.database.catalog import packaged_catalog
from warehouse.database.pieces import CHUNK_ROWS

SPACE = {name: (value,) for name, value in DENSE.items()} | {
    "activation_recompute": ("none", "full"),
    "accelerator": ("A100 SXM 80GB", "H100 SXM 80GB"),
    "num_gpus": (8, 16, 32),
}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    shared_layers.forget()
    yield
    shared_layers.forget()


def _cells() -> list[Cell]:
    assert TRAINING_STEP.search is not None
    return list(TRAINING_STEP.search.cells(SPACE, packaged_catalog(), PUBLISHED))


def _results(cell: Cell) -> dict[str, Array]:
    """Return every stored result and the derived memory of all layouts of a cell."""
    assert TRAINING_STEP.search is not None
    [layouts] = TRAINING_STEP.search.layouts(cell, CHUNK_ROWS)
    size = len(layouts["zero_stage"])
    out = {name: np.empty(size) for name in (*RELATION.measures, "memory_bytes")}
    values = cell.values
    TRAINING_STEP.estimate(RELATION, values, layouts, cell.mends, out, packaged_catalog())
    return out


@pytest.mark.parametrize("is_reversed", [False, True])
def test_results_do_not_depend_on_the_cells_before(*, is_reversed: bool) -> None:
    cells = _cells()
    assert len(cells) == 12
    alone = {}
    for cell in cells:
        shared_layers.forget()
        alone[cell.id] = _results(cell)
    shared_layers.forget()
    for cell in reversed(cells) if is_reversed else cells:
        for name, column in _results(cell).items():
            assert column.tobytes() == alone[cell.id][name].tobytes(), name


def test_layers_of_cells_that_differ_in_gpus_are_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first three cells meet new layers; of the other nine each three share theirs."""
    seen: list[int] = []

    def counted(values: Values, layout: Values) -> FullClock:
        seen.append(len(layout["tensor_parallel"]))
        return at_full_clock(values, layout)

    monkeypatch.setattr("estimators.training_step.estimator.at_full_clock", counted)
    for cell in _cells():
        _results(cell)
    assert len(seen) == 3 + 3
    assert len(set(seen[3:])) == 1
    assert seen[3] >= max(seen[:3])
