"""The cluster estimator under the project's contract: five relations, nineteen mends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.cluster.budget import budget
from estimators.cluster.distance import latency
from estimators.cluster.electricity import electricity
from estimators.cluster.exchange import exchange
from estimators.cluster.inputs import ALIASES, OPTIONAL, resolve_keys, resolve_problem
from estimators.cluster.memory import memory
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
)
from estimators.cluster.rules import HAS_A_BATCH, MEMORY_RULES, SHAPE_RULES, WHOLE_LAYERS
from estimators.cluster.search import ClusterSearch
from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Mends,
    Refusal,
    Relation,
    Values,
)
from estimators.inputs import Inputs
from estimators.rules import Rule
from estimators.transformer import SHAPE

NAME, VERSION = "cluster", 2

KERNELS: Mapping[str, Callable[[Values, Columns, Mends], dict[str, Any]]] = MappingProxyType(
    {
        COMPUTE.name: budget,
        COMMUNICATION.name: exchange,
        LATENCY.name: latency,
        ELECTRICITY.name: electricity,
        MEMORY.name: memory,
    }
)


class Cluster(BaseEstimator):
    """GPUs, time and cost of a run by its FLOPs; its sites, electricity and memory."""

    name = NAME
    version = VERSION
    title = "GPUs, cost, sites, electricity and memory of a run (xrsrke/hf-notebooks diloco)"
    mends = tuple(f"C{number}" for number in range(1, 20))
    problem_columns = PROBLEM
    choice_columns = CHOICES
    input_columns = INPUTS
    aliases: Mapping[str, str] = MappingProxyType(ALIASES)
    relations = RELATIONS
    search = ClusterSearch(NAME, VERSION)
    shape_columns = SHAPE
    source_tables = TABLES

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shapes, batches and memory under `mends`."""
        batch = (HAS_A_BATCH,) if "C15" in mends else ()
        split = MEMORY_RULES if "C17" in mends else (*MEMORY_RULES, WHOLE_LAYERS)
        return (*SHAPE_RULES, *batch, *split)

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns)
        resolve_problem(inputs, relation, catalog, mends)
        resolve_keys(inputs, relation, mends)
        names = (*PROBLEM, *CHOICES, *relation.keys)
        return inputs.finish(names, OPTIONAL), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        with np.errstate(all="ignore"):  # what is not known is NaN
            found = KERNELS[relation.name](values, layouts, mends)
        for name, column in out.items():
            column[:] = layouts[name] if name in relation.keys else found[name]


CLUSTER = Cluster()
