"""The cluster estimator under the project's contract: five relations, nineteen mends.

Its search is a cartesian product, whose inner axes are the rows of a cell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.cluster.inputs import (
    ALIASES,
    HAS_A_BATCH,
    MEMORY_RULES,
    OPTIONAL,
    SHAPE_RULES,
    WHOLE_LAYERS,
    resolve_keys,
    resolve_problem,
)
from estimators.cluster.memory import Layout, Shape, memory
from estimators.cluster.notebook import TABLES
from estimators.cluster.relations import (
    CHOICES,
    COMMUNICATION,
    COMPUTE,
    ELECTRICITY,
    INPUTS,
    LATENCY,
    MEMORY,
    OWN,
    PROBLEM,
    RELATIONS,
    SHAPE,
)
from estimators.cluster.runs import Run, Steps, budget, electricity, exchange, latency
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
    Values,
    say_nothing,
)
from estimators.estimator import Estimator, Source
from estimators.inputs import Inputs, records
from estimators.rules import Rule
from estimators.search import CHUNK_CELLS, chunks_of, distinct
from estimators.values import Real

NAME, VERSION = "cluster", 2

RUNS: Mapping[str, Callable[[Run, Steps, Mends], dict[str, Real]]] = MappingProxyType(
    {
        COMPUTE.name: budget,
        COMMUNICATION.name: exchange,
        LATENCY.name: latency,
        ELECTRICITY.name: electricity,
    }
)


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
        for rows in chunks_of(_axes(cell), max_rows):
            yield {name: column.astype(COLUMNS[name].dtype) for name, column in rows.items()}

    def _cells(
        self, relation: Relation, space: Space, catalog: Catalog, mends: Mends
    ) -> Iterator[Cell]:
        """Yield the cells of one relation: one for each combination of problem and choices."""
        given = {name: values for name, values in space.items() if name not in relation.unread}
        named = {*PROBLEM, *CHOICES, *INPUTS} - {"global_batch_tokens"}
        outer = {name: values for name, values in given.items() if name in named}
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
        inputs = Inputs(columns)
        resolve_keys(inputs, relation, mends)
        if inputs.refusals:
            raise RefusedError(distinct(inputs.refusals))
        axes[name] = list(dict.fromkeys(inputs.finish((name,))[name].tolist()))
    return axes


def _axes(cell: Cell) -> dict[str, Sequence[Any]]:
    return {name: json.loads(str(text)) for name, text in cell.fixed.items()}


class Cluster(Estimator):
    """GPUs, time and cost of a run by its FLOPs; its sites, electricity and memory."""

    name = NAME
    version = VERSION
    title = "GPUs, cost, sites, electricity and memory of a run (xrsrke/hf-notebooks diloco)"
    mends = tuple(f"C{number}" for number in range(1, 20))
    problem_columns = PROBLEM
    choice_columns = CHOICES
    optional_columns = OPTIONAL
    input_columns = INPUTS
    aliases: Mapping[str, str] = MappingProxyType(ALIASES)
    relations = RELATIONS
    search = ClusterSearch(NAME, VERSION)
    shape_columns = SHAPE
    source = Source(tables=TABLES)

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shapes, batches and memory under `mends`."""
        batch = (HAS_A_BATCH,) if "C15" in mends else ()
        split = MEMORY_RULES if "C17" in mends else (*MEMORY_RULES, WHOLE_LAYERS)
        return (*SHAPE_RULES, *batch, *split)

    def complete(self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
        """Fill and check the problem and the keys of one relation."""
        resolve_problem(inputs, relation, catalog, mends)
        resolve_keys(inputs, relation, mends)

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return every result of one relation; an unknown one is NaN."""
        del wanted, catalog
        run = Run.of(values, shape=Shape.of(values))
        with np.errstate(all="ignore"):
            if relation is MEMORY:
                recompute, layout = run.activation_recompute, Layout.of(layouts)
                return memory(run.parameters, run.shape, recompute, layout, mends)
            return RUNS[relation.name](run, Steps.of(layouts), mends)


CLUSTER: Estimator = Cluster()
