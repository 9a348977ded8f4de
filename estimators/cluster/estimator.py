"""The cluster estimator under the project's contract: five relations, nineteen mends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
    PROBLEM,
    RELATIONS,
    SHAPE,
)
from estimators.cluster.runs import Run, Steps, budget, electricity, exchange, latency
from estimators.cluster.search import ClusterSearch
from estimators.contract import Catalog, Columns, Mends, Relation, Values
from estimators.estimator import Estimator, Source
from estimators.inputs import Inputs
from estimators.rules import Rule
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
