"""The toy estimator keeps the contract, so that tests built on it prove something."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.contract import PUBLISHED, Catalog, RefusedError, Relation
from tests.toy_estimator import CONFIGURATIONS, PART_ROWS, TOY

CATALOG = Catalog(
    {
        "model": {"tiny": {"model": "tiny", "num_layers": 2, "hidden_size": 8, "seq_len": 16}},
        "system": {
            "card": {
                "accelerator": "card",
                "matrix_flops_per_second": 1e6,
                "hbm_bytes": 1e4,
                "network_bytes_per_second": 1e3,
            }
        },
    }
)
SPACE = {
    "model": ("tiny",),
    "accelerator": ("card",),
    "num_gpus": (4, 16),
    "global_batch_size": (8,),
    "activation_recompute": ("none", "full"),
}

pytestmark = pytest.mark.usefixtures("toy")


def test_the_search_yields_what_it_counts_in_any_chunks() -> None:
    cells = list(TOY.search.cells(SPACE, CATALOG, PUBLISHED))
    assert [TOY.search.count(cell) for cell in cells] == [3] * 4 + [6] * 4
    assert len({cell.id for cell in cells}) == 8
    for cell in cells:
        chunks = [chunk["data_parallel"].tolist() for chunk in TOY.search.layouts(cell, 2)]
        assert max(map(len, chunks)) <= 2
        assert sum(map(len, chunks)) == TOY.search.count(cell)


def test_a_degree_that_is_named_is_kept_to() -> None:
    space = {**SPACE, "tensor_parallel": (2, 8), "num_gpus": (16,)}
    cells = [c for c in TOY.search.cells(space, CATALOG, PUBLISHED) if c.relation == "toy"]

    assert [cell.fixed for cell in cells] == [{"tensor_parallel": 2}, {"tensor_parallel": 8}] * 2
    [layouts] = TOY.search.layouts(cells[0], 100)
    assert {name: column.tolist() for name, column in layouts.items()} == {
        "data_parallel": [8],
        "tensor_parallel": [2],
    }


def test_one_configuration_by_hand() -> None:
    """2 GPUs: 6 x 12 x 2 x 8^2 x 4 x 16 FLOPs at 2e6/s; 2 x 1536 bytes, half of it moved."""
    columns = {
        "model": np.array(["tiny"], dtype=object),
        "accelerator": np.array(["card"], dtype=object),
        "num_gpus": np.array([2.0]),
        "global_batch_size": np.array([4.0]),
    }
    resolved, refusals = TOY.resolve(CONFIGURATIONS, columns, CATALOG, PUBLISHED)
    assert refusals == []
    for mends, communication in ((PUBLISHED, 1.536), (frozenset({"T1"}), 3.072)):
        out = {name: np.empty(1) for name in CONFIGURATIONS.outputs}
        TOY.estimate(CONFIGURATIONS, resolved, resolved, mends, out, CATALOG)
        assert out["compute_seconds"][0] == pytest.approx(0.294912)
        assert out["data_comm_seconds"][0] == pytest.approx(communication)
        assert out["step_seconds"][0] == pytest.approx(0.294912 + communication)
        assert (out["memory_bytes"][0], out["fits_memory"][0]) == (24_576.0, 0.0)


@pytest.mark.parametrize("relation", [CONFIGURATIONS, PART_ROWS])
def test_a_cell_and_a_batch_of_its_rows_give_the_same(relation: Relation) -> None:
    [cell, *_] = [
        cell
        for cell in TOY.search.cells(SPACE, CATALOG, frozenset({"T1"}))
        if cell.relation == relation.name
    ]
    [layouts] = TOY.search.layouts(cell, 1000)
    size = TOY.search.count(cell)
    batch = {name: np.full(size, value) for name, value in cell.values.items()} | dict(layouts)
    resolved, refusals = TOY.resolve(relation, batch, CATALOG, cell.mends)
    assert refusals == []
    found = []
    for values, rows in ((cell.values, layouts), (resolved, resolved)):
        out = {name: np.empty(size) for name in relation.outputs}
        TOY.estimate(relation, values, rows, cell.mends, out, CATALOG)
        found.append(out)

    for name in relation.outputs:
        assert found[0][name].tolist() == found[1][name].tolist()
        assert found[0][name].min() >= 0


def test_parts_add_up_to_the_step() -> None:
    step, parts = (
        cell
        for cell in TOY.search.cells({**SPACE, "num_gpus": (8,)}, CATALOG, PUBLISHED)
        if cell.choices["activation_recompute"] == "full"
    )
    sums = []
    for cell, relation, name in (
        (step, CONFIGURATIONS, "step_seconds"),
        (parts, PART_ROWS, "toy_part_seconds"),
    ):
        [layouts] = TOY.search.layouts(cell, 1000)
        out = {name: np.empty(TOY.search.count(cell))}
        TOY.estimate(relation, cell.values, layouts, PUBLISHED, out, CATALOG)
        sums.append(out[name])

    assert sums[1].reshape(-1, 2).sum(axis=1) == pytest.approx(sums[0])


def test_faults_are_refused_with_their_row() -> None:
    columns = {
        "model": np.array(["tiny", "tiny", "huge"], dtype=object),
        "accelerator": np.array(["card"] * 3, dtype=object),
        "num_gpus": np.array([4.0, 6.0, 1.0]),
        "tensor_parallel": np.array([4.0, 3.0, 1.0]),
    }
    _, refusals = TOY.resolve(CONFIGURATIONS, columns, CATALOG, PUBLISHED)

    assert {(refusal.row, refusal.column) for refusal in refusals} >= {
        (1, "tensor_parallel"),
        (2, "model"),
    }
    assert 0 not in {refusal.row for refusal in refusals}
    with pytest.raises(RefusedError, match="huge"):
        list(TOY.search.cells({**SPACE, "model": ("huge",)}, CATALOG, PUBLISHED))
