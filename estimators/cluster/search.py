"""The cluster estimator's search: a cartesian product; its inner axes are the rows of a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from estimators.cluster.inputs import OPTIONAL, resolve_keys, resolve_problem
from estimators.cluster.relations import CHOICES, COMPUTE, INPUTS, OWN, PROBLEM, RELATIONS
from estimators.columns import COLUMNS
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    OnChecked,
    Problem,
    RefusedError,
    Relation,
    Scalar,
    Search,
    Space,
    say_nothing,
)
from estimators.inputs import Inputs, records
from estimators.search import CHUNK_CELLS, chunks_of, distinct

KEYS = tuple(dict.fromkeys(name for relation in RELATIONS for name in relation.keys))


class ClusterSearch(Search):
    """Every combination of the values that a study gives.

    A study always gets the rows of `cluster_compute`, and the rows of another relation if it gives
    an input that only that relation reads. `fixed` of a cell has its axes with their values; the
    cell is their product. So studies with other values make other cells.
    """

    space_columns: tuple[str, ...] = tuple(
        name
        for name in dict.fromkeys((*PROBLEM, *CHOICES, *INPUTS, *KEYS))
        if name not in ("peak_flops_per_second", "hbm_bytes")
    )
    system_columns: tuple[str, ...] = ("peak_flops_per_second", "hbm_bytes")
    row_columns = frozenset(KEYS)

    def __init__(self, estimator: str, version: int) -> None:
        self._estimator = estimator
        self._version = version

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield the cells of every relation that the space has inputs of; see `contract.Search`."""
        for relation in _relations(space):
            yield from self._cells(relation, space, catalog, mends)

    def check(
        self, space: Space, catalog: Catalog, mends: Mends, on_checked: OnChecked = say_nothing
    ) -> None:
        """Raise if a value is faulty, and count each combination once; see `contract.Search`."""
        wanted = _relations(space)
        for relation in wanted:
            for _ in self._cells(relation, space, catalog, mends):
                if relation is wanted[0]:  # a combination is checked for each relation
                    on_checked(1)

    def count(self, cell: Cell) -> int:
        """Return the number of rows; see `contract.Search`."""
        return prod(len(values) for values in _axes(cell).values())

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the rows, the last axis fastest; see `contract.Search`."""
        axes = {name: _array(name, values) for name, values in _axes(cell).items()}
        sizes = [len(values) for values in axes.values()]
        total = prod(sizes)
        for start in range(0, total, max_rows):
            rows = np.arange(start, min(start + max_rows, total))
            places = np.unravel_index(rows, sizes)
            yield {
                name: values[place]
                for (name, values), place in zip(axes.items(), places, strict=True)
            }

    def _cells(
        self, relation: Relation, space: Space, catalog: Catalog, mends: Mends
    ) -> Iterator[Cell]:
        """Yield the cells of one relation: one for each combination of problem and choices."""
        given = {name: values for name, values in space.items() if name not in relation.unread}
        outer = {n: v for n, v in given.items() if n in (*PROBLEM, *CHOICES, *INPUTS)}
        outer = {n: v for n, v in outer.items() if n not in ("global_batch_tokens",)}
        for row in _resolved(outer or {"model": (None,)}, relation, catalog, mends):
            axes = _resolved_axes(relation, given, row, mends)
            yield Cell(
                estimator=self._estimator,
                version=self._version,
                relation=relation.name,
                problem=Problem({name: row[name] for name in PROBLEM}),
                mends=mends,
                choices={name: row[name] for name in CHOICES if row[name] is not None},
                fixed={name: json.dumps(values) for name, values in axes.items()},
            )


def _relations(space: Space) -> list[Relation]:
    return [r for r in RELATIONS if r is COMPUTE or OWN[r.name] & space.keys()]


def _resolved(
    given: Space, relation: Relation, catalog: Catalog, mends: Mends
) -> Iterator[dict[str, Scalar]]:
    """Yield every combination of problem and choice values, resolved."""
    for columns in chunks_of(given, CHUNK_CELLS):
        inputs = Inputs(columns)
        resolve_problem(inputs, relation, catalog, mends)
        if inputs.refusals:
            raise RefusedError(distinct(inputs.refusals))
        yield from records(inputs.finish((*PROBLEM, *CHOICES), OPTIONAL))


def _resolved_axes(
    relation: Relation, space: Space, problem: Mapping[str, Scalar], mends: Mends
) -> dict[str, list[Any]]:
    """Return the values of each key, checked within the problem."""
    axes = {}
    for name in relation.keys:
        source = name
        if name == "batch_sequences" and name not in space and "global_batch_tokens" in space:
            source = "global_batch_tokens"
        values = list(space.get(source, [None]))
        columns: dict[str, Array] = {source: np.array(values, dtype=object)}
        for known, value in problem.items():
            columns[known] = np.full(len(values), value, dtype=object)
        inputs = Inputs(_typed(columns))
        resolve_keys(inputs, relation, mends)
        if inputs.refusals:
            raise RefusedError(distinct(inputs.refusals))
        axes[name] = list(dict.fromkeys(inputs.finish((name,))[name].tolist()))
    return axes


def _typed(columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return columns with NaN for a missing number."""
    typed = {}
    for name, values in columns.items():
        if COLUMNS[name].kind in ("int", "float"):
            typed[name] = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        else:
            typed[name] = values
    return typed


def _axes(cell: Cell) -> dict[str, Sequence[Any]]:
    return {name: json.loads(str(text)) for name, text in cell.fixed.items()}


def _array(name: str, values: Sequence[Any]) -> Array:
    return np.array(values, dtype=COLUMNS[name].dtype)
