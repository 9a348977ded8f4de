"""The run optimizer under the project's contract: given degrees, greedy path, exact search."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import (
    Catalog,
    Columns,
    Mends,
    Relation,
    Scalar,
    Search,
    Space,
    Values,
)
from estimators.estimator import Source
from estimators.inputs import Inputs
from estimators.linear_layer import whole_product
from estimators.run_optimizer.degrees import DEGREES, factorisations, walk, with_values
from estimators.run_optimizer.gpu_counts import table
from estimators.run_optimizer.step import Degrees, Problem, figures, num_layers
from estimators.search import RelationSearches, SearchedEstimator
from estimators.structure import real

DEVICE = ("flops_8bit_per_second", "memory_bytes_per_second", "network_bytes_per_second")
PROBLEM = (
    "accelerator",
    *DEVICE,
    "base_utilization",
    "training_flops",
    "internal_ratio",
    "bytes_per_element",
    "reduces_in_network",
    "num_gpus",
    "max_num_gpus",
)
CHOICES = ("tie_rule",)
OPTIONAL = ("accelerator", "num_gpus", "max_num_gpus")
KEYS = (*DEGREES, "num_microbatches")
DEFAULTS: dict[str, Any] = {
    "base_utilization": 0.8,
    "training_flops": 4e26,
    "internal_ratio": 5,
    "bytes_per_element": 2,
    "reduces_in_network": True,
}
"""Those of the source."""

DEFAULT_ACCELERATOR = "H100 SXM5"
"""Device where neither a name nor an attribute is given: the source's last example."""

MAX_GPUS = 15e6
"""GPUs up to which the source walks a path; a device may be several GPUs."""

ALIASES = {
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "tp_hidden": "tensor_parallel",
    "tp_resid": "tensor_parallel_external",
    "training_flop": "training_flops",
}
REAL = frozenset({*DEGREES, "num_microbatches", "num_gpus", "num_layers", "hidden_size"})
DERIVED = (
    *(
        f"{phase}_{resource}_seconds"
        for phase in ("boundary", "sustained_dp", "sustained_no_dp", "bubble")
        for resource in ("compute", "memory", "network")
    ),
    *("training_seconds", "utilization", "parameters", "tokens", "batch_tokens"),
    *("num_layers", "hidden_size", "num_gpus"),
)
RELATION = Relation(
    "run_optimizer",
    grain="one row per configuration: degrees and microbatches of one problem",
    keys=KEYS,
    measures=("step_seconds",),
    derived=DERIVED,
    real=REAL,
)
RELATION_PATH = Relation(
    "run_optimizer_path",
    grain="one row per step of a greedy path",
    keys=("path_step", *KEYS),
    measures=("step_seconds",),
    derived=DERIVED,
    real=REAL,
)


def _default_limit(inputs: Inputs, catalog: Catalog) -> None:
    """Fill the devices up to which a path goes; one device may be several GPUs."""
    gpus = np.ones(inputs.num_rows)
    for name in dict.fromkeys(inputs["accelerator"].tolist()):
        record = catalog.tables.get("device", {}).get(name, {}) if name is not None else {}
        gpus[np.equal(inputs["accelerator"], name)] = record.get("gpus_per_device") or 1
    inputs.default("max_num_gpus", MAX_GPUS / gpus)
    inputs.default("tie_rule", "first")
    inputs.check(CHOICES)


class RunOptimizerSearch(RelationSearches):
    """The exact search over whole-number degrees, and the greedy path.

    A space with `num_gpus` gets the first, a space with `tie_rule` the second; a space with neither
    gets the path.
    """

    space_columns: tuple[str, ...] = tuple(
        name for name in (*PROBLEM, *CHOICES, "path_step", *KEYS) if name not in DEVICE
    )
    system_columns: tuple[str, ...] = (*DEVICE, "base_utilization")

    def spaces(self, space: Space) -> Mapping[str, Space]:
        """Return the part of a space that each of the two searches takes."""
        spaces = {}
        if "num_gpus" in space:
            path_only = ("tie_rule", "max_num_gpus")
            spaces[RELATION.name] = {n: v for n, v in space.items() if n not in path_only}
        if "tie_rule" in space or "num_gpus" not in space:
            spaces[RELATION_PATH.name] = {n: v for n, v in space.items() if n != "num_gpus"}
        return spaces


class RunOptimizer(SearchedEstimator):
    """Training time of a compute-optimal model at given degrees, found greedily or exactly."""

    name = "run_optimizer"
    version = 1
    title = "Degrees for a compute-optimal model (davidsj/ml_par_sim run_optimizer2)"
    problem_columns = PROBLEM
    choice_columns = CHOICES
    optional_columns = (*OPTIONAL, *CHOICES)
    system_columns = RunOptimizerSearch.system_columns
    aliases: Mapping[str, str] = MappingProxyType(ALIASES)
    relations = (RELATION, RELATION_PATH)
    source = Source(tables={"gpu_counts": table(RELATION)})

    def make_search(self) -> Search:
        """Return both searches as one."""
        return RunOptimizerSearch(self)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check the model's FLOPs and the device."""
        del mends  # there are none
        is_unknown = np.logical_and.reduce([inputs.missing(name) for name in DEVICE])
        default = np.full(inputs.num_rows, None, dtype=object)
        default[is_unknown] = DEFAULT_ACCELERATOR
        inputs.default("accelerator", default)
        inputs.look_up(catalog, "device", "accelerator", DEVICE)
        for name, value in DEFAULTS.items():
            inputs.default(name, value)
        inputs.require(DEVICE, "name an `accelerator` of table device, or give its attributes")
        inputs.check(PROBLEM)

    def complete_space(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the problems of a search: with devices, or with a limit and a rule."""
        if relation is RELATION_PATH:
            _default_limit(inputs, catalog)
        super().complete_space(inputs, relation, catalog, mends)
        if relation is RELATION:
            inputs.require(("num_gpus",), "say how many devices the run has")
        _refuse_less_than_a_layer(inputs)

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check degrees and microbatches; they may be real."""
        del catalog, mends
        for name in KEYS:
            inputs.default(name, 1)
        inputs.require(relation.keys, "")
        inputs.check(relation.keys)
        _refuse_stages(inputs)
        inputs.replace("num_gpus", whole_product(inputs, DEGREES))

    def layouts_of(
        self, relation: Relation, values: Values, kept: Mapping[str, Scalar], mends: Mends
    ) -> Columns:
        """Return every factorisation of the devices, or the steps of the path."""
        del mends
        if relation is RELATION:
            return factorisations(values, kept)
        path = walk(Problem.of(values), values["max_num_gpus"], values["tie_rule"])
        return with_values(path, kept)

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return every result."""
        del relation, mends, wanted, catalog
        degrees = Degrees.of(layouts)
        return figures(Problem.of(values), degrees, real(layouts["num_microbatches"]))


def _refuse_less_than_a_layer(inputs: Inputs) -> None:
    """Refuse a model of less than a layer in searches; batches are refused for their stages."""
    with np.errstate(invalid="ignore"):
        below = np.less(num_layers(inputs["training_flops"]), 1)
    reason = "makes a model of less than one layer"
    inputs.refuse("training_flops", below, reason, "use at least 3.35e12")


def _refuse_stages(inputs: Inputs) -> None:
    """Refuse more stages than layers, or than microbatches."""
    stages, microbatches = inputs["pipeline_parallel"], inputs["num_microbatches"]
    with np.errstate(all="ignore"):
        layers = num_layers(inputs["training_flops"])
        inputs.refuse("pipeline_parallel", stages > layers, "is more than the model's layers")
        inputs.refuse(
            "pipeline_parallel",
            stages > microbatches,
            "is more than `num_microbatches`",
            "use at least as many microbatches as stages",
        )


RUN_OPTIMIZER: SearchedEstimator = RunOptimizer()
