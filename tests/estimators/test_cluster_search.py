"""The search of budgets: which relations a space asks for, and every row of it once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from estimators.cluster.estimator import CLUSTER
from estimators.cluster.relations import (
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    LATENCY,
    MEMORY,
    PROBLEM,
    RELATIONS,
)
from estimators.contract import Catalog, Cell, Mends, RefusedError, Relation
from tests.estimators.cluster_cases import ALL_MENDS, each_variant
from tests.estimators.parity import resolved

# the search


Space = dict[str, list[Any]]
assert CLUSTER.search is not None
SEARCH = CLUSTER.search


def cells_of(catalog: Catalog, space: Space, mends: Mends = ALL_MENDS) -> list[Cell]:
    SEARCH.check(space, catalog, mends)
    return list(SEARCH.cells(space, catalog, mends))


def rows_of(cell: Cell, max_rows: int) -> list[dict[str, Any]]:
    """Return the layouts of a cell row by row, from chunks that are no longer than asked."""
    rows = []
    for chunk in SEARCH.layouts(cell, max_rows):
        columns = {name: column.tolist() for name, column in chunk.items()}
        [height] = {len(column) for column in columns.values()}
        assert 0 < height <= max_rows
        rows += [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    return rows


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        ({}, []),
        ({"mfu": [0.5], "parameters": [1e9], "goodput": [0.9]}, []),
        ({"num_sites": [2]}, [COMMUNICATION]),
        ({"exchange": ["ring"]}, [COMMUNICATION]),
        ({"overlaps_exchange": [True]}, [COMMUNICATION]),
        ({"site_b": ["EL_CAPITAN"]}, [LATENCY]),
        ({"medium": ["fibre"]}, [LATENCY]),
        ({"watts_per_gpu": [700.0]}, [ELECTRICITY]),
        ({"pue": [1.1]}, [ELECTRICITY]),
        ({"zero_stage": [1]}, [MEMORY]),
        ({"batch_sequences": [4.0]}, [MEMORY]),
        ({"pue": [1.1], "num_sites": [2], "zero_stage": [1]}, [COMMUNICATION, ELECTRICITY, MEMORY]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_relation_is_asked_for_by_what_it_alone_reads(
    names: Space, asked: list[Relation], catalog: Catalog
) -> None:
    found = [cell.relation for cell in cells_of(catalog, names)]
    assert found == [relation.name for relation in (COMPUTE, *asked)]


SPACE: Space = {
    "model": ["llama3_8B", "llama3_70B"],
    "dataset_tokens": [1e12, 2e12, 15e12],
    "global_batch_tokens": [1e6, 4e6],
    "mfu": [0.3, 0.4, 0.5],
    "gradient_accumulation": [1, 4],
    "num_sites": [2, 10],
    "sync_interval_steps": [1, 50, 500],
    "exchange": ["ring", "gather"],
    "site_b": ["JOLIOT_CURIE", "EL_CAPITAN"],
    "pue": [1.0, 1.2],
    "zero_stage": [0, 1, 2, 3],
    "tensor_parallel": [1, 8],
    "uses_sequence_parallel": [False, True],
}
READ = {
    COMPUTE: ("model", "dataset_tokens", "global_batch_tokens", "mfu", "gradient_accumulation"),
    COMMUNICATION: (
        *("model", "dataset_tokens", "global_batch_tokens", "mfu"),
        *("num_sites", "sync_interval_steps", "exchange"),
    ),
    LATENCY: (
        *("model", "dataset_tokens", "global_batch_tokens", "mfu"),
        *("sync_interval_steps", "site_b"),
    ),
    ELECTRICITY: ("model", "dataset_tokens", "global_batch_tokens", "mfu", "pue"),
    MEMORY: (
        *("model", "batch_sequences", "zero_stage", "tensor_parallel"),
        "uses_sequence_parallel",
    ),
}


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_a_space_has_every_combination_once_whatever_the_chunks(
    relation: Relation, catalog: Catalog
) -> None:
    cells = [cell for cell in cells_of(catalog, SPACE) if cell.relation == relation.name]
    names = READ[relation]
    # the sequences held in memory are those of the batch
    axes = {**SPACE, "batch_sequences": [1e6 / 8192, 4e6 / 8192]}
    found = []
    for cell in cells:
        rows = rows_of(cell, 10_000)
        assert SEARCH.count(cell) == len(rows)
        assert rows_of(cell, 1) == rows_of(cell, 7) == rows
        assert all(tuple(row) == relation.keys for row in rows)
        found += [tuple({**cell.values, **row}[name] for name in names) for row in rows]
    expected = list(itertools.product(*(axes[name] for name in names)))
    assert len(found) == len(expected)
    assert set(found) == set(expected)
    assert len({cell.id for cell in cells}) == len(cells)


ASKS: Mapping[Relation, Space] = {
    COMPUTE: {},
    COMMUNICATION: {"num_sites": [10]},
    LATENCY: {"medium": ["vacuum"]},
    ELECTRICITY: {"pue": [1.0]},
    MEMORY: {"zero_stage": [0]},
}


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
@each_variant
def test_a_space_has_the_same_defaults_as_a_batch(
    relation: Relation, mends: Mends, catalog: Catalog
) -> None:
    space = {"parameters": [8e9], **ASKS[relation]}
    [cell] = [c for c in cells_of(catalog, space, mends) if c.relation == relation.name]
    [row] = rows_of(cell, 10)
    frame = pl.DataFrame(space)
    batch, refused = resolved(CLUSTER, relation, frame, catalog, mends)
    assert refused == []
    names = (*PROBLEM, *CLUSTER.choice_columns, *relation.keys)
    of_batch = {name: batch[name][0] for name in names}
    of_batch = {n: v for n, v in of_batch.items() if v is not None and v == v}
    assert {**cell.values, **row} == of_batch


@pytest.mark.parametrize(
    "faulty",
    [
        {"mfu": [0.4, 1.5]},
        {"num_sites": [2, 0]},
        {"sync_interval_steps": [500, 0], "num_sites": [2]},
        {"tensor_parallel": [1, 3]},
        {"pipeline_parallel": [1, 81], "model": ["llama3_405B", "llama3_70B"]},
        {"zero_stage": [0, 4]},
        {"dataset_tokens": [1e12, -1.0]},
        {"exchange": ["ring", "pigeon"]},
    ],
    ids=lambda faulty: next(iter(faulty)),
)
def test_one_faulty_value_refuses_the_whole_space(faulty: Space, catalog: Catalog) -> None:
    name, values = next(iter(faulty.items()))
    with pytest.raises(RefusedError) as caught:
        SEARCH.check(faulty, catalog, ALL_MENDS)
    first = caught.value.refusals[0]
    assert (first.column, first.value) == (name, values[1])
