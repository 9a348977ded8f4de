"""The run optimizer under the project's contract: given degrees, greedy path, exact search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Refusal,
    Relation,
    Scalar,
    Space,
    Values,
)
from estimators.inputs import Inputs
from estimators.linear_layer import whole_product
from estimators.rules import Rule
from estimators.run_optimizer.exact import layouts_of
from estimators.run_optimizer.path import walk
from estimators.run_optimizer.step import DEGREES, PHASES, RESOURCES, figures, model_of
from estimators.table_search import TableSearch

VERSION = 1
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
"""The source's own values."""

MAX_GPUS = 15e6
"""GPUs up to which the source walks a path; fewer devices, where one stands for several."""

ALIASES = {
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "tp_hidden": "tensor_parallel",
    "tp_resid": "tensor_parallel_external",
    "training_flop": "training_flops",
}
REAL = frozenset({*DEGREES, "num_microbatches", "num_gpus", "num_layers", "hidden_size"})
DERIVED = (
    *(f"{phase}_{resource}_seconds" for phase in PHASES for resource in RESOURCES),
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


def _resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    inputs.look_up(catalog, "device", "accelerator", DEVICE)
    for name, value in DEFAULTS.items():
        inputs.default(name, value)
    inputs.require(DEVICE, "name an `accelerator` of table device, or give its attributes")
    inputs.check(PROBLEM)


def _resolve_exact(inputs: Inputs, catalog: Catalog, _mends: Mends) -> None:
    _resolve_problem(inputs, catalog)
    inputs.require(("num_gpus",), "say how many devices the run has")
    _refuse_less_than_a_layer(inputs)


def _resolve_path(inputs: Inputs, catalog: Catalog, _mends: Mends) -> None:
    gpus = np.ones(inputs.num_rows)
    for name in dict.fromkeys(inputs["accelerator"].tolist()):
        record = catalog.tables.get("device", {}).get(name, {}) if name is not None else {}
        gpus[np.equal(inputs["accelerator"], name)] = record.get("gpus_per_device") or 1
    inputs.default("max_num_gpus", MAX_GPUS / gpus)
    inputs.default("tie_rule", "first")
    inputs.check(CHOICES)
    _resolve_problem(inputs, catalog)
    _refuse_less_than_a_layer(inputs)


def _walk(values: Mapping[str, Any], kept: Mapping[str, Scalar], _mends: Mends) -> Columns:
    columns = walk({name: values[name] for name in (*PROBLEM, *CHOICES)})
    wanted = np.ones(len(columns["path_step"]), dtype=bool)
    for name, value in kept.items():
        wanted &= columns[name] == value
    return {name: column[wanted] for name, column in columns.items()}


def _no_rules(_mends: Mends) -> tuple[Rule, ...]:
    return ()


class RunOptimizerSearch:
    """The exact search over whole-number degrees, and the greedy path.

    A space that names `num_gpus` asks for the first, one that names `tie_rule` for the second;
    one that names neither for the path.
    """

    space_columns: tuple[str, ...] = tuple(
        name for name in (*PROBLEM, *CHOICES, "path_step", *KEYS) if name not in DEVICE
    )
    system_columns: tuple[str, ...] = (*DEVICE, "base_utilization")
    row_columns: frozenset[str] = frozenset()

    def __init__(self) -> None:
        shared: dict[str, Any] = {
            "choices": CHOICES,
            "rules": _no_rules,
            "system_columns": self.system_columns,
            "real": REAL,
        }
        self._searches = {
            RELATION.name: TableSearch(
                *("run_optimizer", VERSION, RELATION.name),
                problem=PROBLEM,
                keys=KEYS,
                resolve=_resolve_exact,
                enumerate=layouts_of,
                optional=(*OPTIONAL, *CHOICES),
                **shared,
            ),
            RELATION_PATH.name: TableSearch(
                *("run_optimizer", VERSION, RELATION_PATH.name),
                problem=PROBLEM,
                keys=RELATION_PATH.keys,
                resolve=_resolve_path,
                enumerate=_walk,
                optional=OPTIONAL,
                **shared,
            ),
        }

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield the cells of either search; see `contract.Search`."""
        if "num_gpus" in space:
            own = {n: v for n, v in space.items() if n not in ("tie_rule", "max_num_gpus")}
            yield from self._searches[RELATION.name].cells(own, catalog, mends)
        if "tie_rule" in space or "num_gpus" not in space:
            own = {name: values for name, values in space.items() if name != "num_gpus"}
            yield from self._searches[RELATION_PATH.name].cells(own, catalog, mends)

    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""
        return self._searches[cell.relation].count(cell)

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts; see `contract.Search`."""
        return self._searches[cell.relation].layouts(cell, max_rows)


class RunOptimizer(BaseEstimator):
    """Training time of a compute-optimal model at given degrees, found greedily or exactly."""

    name = "run_optimizer"
    version = VERSION
    title = "Degrees for a compute-optimal model (davidsj/ml_par_sim run_optimizer2)"
    problem_columns = PROBLEM
    choice_columns = CHOICES
    aliases: Mapping[str, str] = MappingProxyType(ALIASES)
    relations = (RELATION, RELATION_PATH)
    search = RunOptimizerSearch()

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        del mends  # there are none
        inputs = Inputs(columns, relation.real)
        _resolve_problem(inputs, catalog)
        for name in KEYS:
            inputs.default(name, 1)
        inputs.require(relation.keys, "")
        inputs.check(relation.keys)
        _refuse_stages(inputs)
        inputs.replace("num_gpus", whole_product(inputs, DEGREES))
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
        del mends
        found = figures(values, layouts)
        for name, column in out.items():
            column[:] = layouts[name] if name in relation.keys else found[name]


def _layers(inputs: Inputs) -> Array:
    with np.errstate(all="ignore"):
        model = model_of({n: inputs[n] for n in ("training_flops", "internal_ratio")})
    return np.asarray(model["num_layers"])


def _refuse_less_than_a_layer(inputs: Inputs) -> None:
    """Refuse a model that has no layer for a stage; evaluated rows are refused for their stages."""
    with np.errstate(invalid="ignore"):
        below = _layers(inputs) < 1
    reason = "makes a model of less than one layer"
    inputs.refuse("training_flops", below, reason, "use at least 3.35e12")


def _refuse_stages(inputs: Inputs) -> None:
    """Refuse more stages than layers, or than microbatches."""
    stages, microbatches = inputs["pipeline_parallel"], inputs["num_microbatches"]
    layers = _layers(inputs)
    with np.errstate(all="ignore"):
        inputs.refuse("pipeline_parallel", stages > layers, "is more than the model's layers")
        inputs.refuse(
            "pipeline_parallel",
            stages > microbatches,
            "is more than `num_microbatches`",
            "use at least as many microbatches as stages",
        )


RUN_OPTIMIZER = RunOptimizer()
