"""A small estimator with every capability that a command asks for: what a new one costs.

A step is arithmetic followed by one ring all-reduce of the gradients over a flat network, a
share of it hidden. Two grains: `toy`, a row a configuration, and `toy_part`, a row for each of
a configuration's parts. Registering it takes this module, its entry, its columns and the
staging view in toy_sql/staging.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.columns import Column
from estimators.contract import (
    Catalog,
    Columns,
    Formula,
    Mends,
    Relation,
    Scalar,
    Search,
    Values,
)
from estimators.enumeration import Axis, split_over
from estimators.estimator import Step
from estimators.inputs import Inputs
from estimators.rules import Rule, divides
from estimators.search import RelationSearches, SearchedEstimator

TOY_ENTRY = {"toy": "tests.toy_estimator:TOY"}

TOY_COLUMNS = {
    column.name: column
    for column in (
        Column(
            "toy_overlap_fraction",
            "float",
            "",
            "Share of the all-reduce hidden behind arithmetic",
            minimum=0,
            maximum=1,
        ),
        Column("toy_part", "str", "", "Part of the step", choices=("arithmetic", "communication")),
        Column("toy_part_seconds", "float", "seconds", "Time of one part of the step", minimum=0),
    )
}

SHAPE = ("num_layers", "hidden_size", "seq_len")
SYSTEM = ("matrix_flops_per_second", "hbm_bytes", "network_bytes_per_second")
PROBLEM = (
    *("model", *SHAPE, "accelerator", *SYSTEM),
    *("toy_overlap_fraction", "num_gpus", "global_batch_size"),
)
CHOICES = ("activation_recompute",)
DEGREES = ("data_parallel", "tensor_parallel")
PARTS = ("arithmetic", "communication")
DEFAULTS: dict[str, Any] = {
    "toy_overlap_fraction": 0.0,
    "global_batch_size": 64,
    "activation_recompute": "none",
    "tensor_parallel": 1,
}
WEIGHT_BYTES, OPTIMIZER_BYTES = 2, 12
"""Of a parameter: its weight, or its gradient, and Adam's state."""

RULES = (
    divides("tensor_parallel", "hidden_size"),
    divides("data_parallel", "global_batch_size"),
    Rule(
        "degrees multiply to the GPUs",
        "num_gpus",
        ("num_gpus", *DEGREES),
        lambda v: np.equal(v["num_gpus"], v["data_parallel"] * v["tensor_parallel"]),
        lambda row: f"is not {row['data_parallel']} x {row['tensor_parallel']}",
        lambda row: f"use {row['data_parallel'] * row['tensor_parallel']}",
    ),
)

CONFIGURATIONS = Relation(
    "toy",
    grain="one row per configuration",
    keys=DEGREES,
    measures=("step_seconds", "compute_seconds", "data_comm_seconds", "weights_bytes"),
    derived=("gradients_bytes", "optimizer_bytes", "memory_bytes", "fits_memory"),
)
PART_ROWS = Relation(
    "toy_part",
    grain="one row per configuration and part",
    keys=(*DEGREES, "toy_part"),
    measures=("toy_part_seconds",),
)


class ToySearch(RelationSearches):
    """Every split of the GPUs into data and tensor parallel, for each point in both grains."""

    space_columns: tuple[str, ...] = (
        *("model", "accelerator", "num_gpus", "global_batch_size", "toy_overlap_fraction"),
        *("activation_recompute", *DEGREES),
    )
    system_columns: tuple[str, ...] = SYSTEM


class Toy(SearchedEstimator):
    """Arithmetic, then a ring all-reduce of the gradients."""

    name = "toy"
    version = 1
    title = "Arithmetic and one all-reduce, for tests"
    mends = ("T1",)
    """T1: a ring all-reduce moves the volume twice, not once."""
    problem_columns = PROBLEM
    choice_columns = CHOICES
    system_columns = SYSTEM
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({"activation_recompute": "none"})
    relations = (CONFIGURATIONS, PART_ROWS)
    step = Step(
        parts=("compute_seconds", "data_comm_seconds"),
        memory=("weights_bytes", "gradients_bytes", "optimizer_bytes"),
        formulas={
            "compute_seconds": Formula("6 x parameters x tokens / (GPUs x peak)", "definition"),
            "data_comm_seconds": Formula(
                "(1 - toy_overlap_fraction) x weights x (d - 1) / d / network", "definition"
            ),
        },
        rates=("matrix_flops_per_second", "network_bytes_per_second"),
        least_flops=lambda columns: np.asarray(6 * _parameters(columns) * _tokens(columns)),
    )
    shape_columns = SHAPE
    needed_shape = SHAPE
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
        {"activation_recompute": ("none", "full")}
    )

    def make_search(self) -> Search:
        """Return the search over both grains."""
        return ToySearch(self)

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of layouts, the same under every mend."""
        del mends
        return RULES

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return 12 parameters a layer and square of the width, all of them active."""
        count = float(_parameters(values))
        return count, count

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check model, system, batch and choices."""
        del mends
        inputs.look_up(catalog, "model", "model", SHAPE)
        inputs.look_up(catalog, "system", "accelerator", SYSTEM)
        for name in (*PROBLEM, *CHOICES):
            if name in DEFAULTS:
                inputs.default(name, DEFAULTS[name])
        inputs.require((*SHAPE, *SYSTEM, "num_gpus"), "name a `model` and an `accelerator`")
        inputs.check((*PROBLEM, *CHOICES))

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the degrees."""
        del catalog
        inputs.default("tensor_parallel", DEFAULTS["tensor_parallel"])
        inputs.default("data_parallel", inputs["num_gpus"] // inputs["tensor_parallel"])
        inputs.require(relation.keys, "")
        inputs.check(relation.keys)
        inputs.apply(self.rules(mends))

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the degrees, tensor parallel ascending."""
        return split_over(values["num_gpus"], ("tensor_parallel", "data_parallel"))

    def layouts_of(
        self, relation: Relation, values: Values, kept: Mapping[str, Scalar], mends: Mends
    ) -> Columns:
        """Return every split, in the grain of parts once for each part."""
        table = super().layouts_of(relation, values, kept, mends)
        if "toy_part" not in relation.keys:
            return table
        size = len(table["data_parallel"])
        parts = np.tile(np.array(PARTS, dtype=object), size)
        repeated = {name: np.repeat(column, len(PARTS)) for name, column in table.items()}
        return {**repeated, "toy_part": parts}

    def figures(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        wanted: Collection[str],
        catalog: Catalog,
    ) -> Mapping[str, Any]:
        """Return every measure of either grain."""
        del wanted, catalog
        found = _estimate(values, layouts, mends)
        if "toy_part" in relation.keys:
            is_arithmetic = np.equal(layouts["toy_part"], PARTS[0])
            found["toy_part_seconds"] = np.where(
                is_arithmetic, found["compute_seconds"], found["data_comm_seconds"]
            )
        return found


def _parameters(values: Values) -> Any:
    width = np.asarray(values["hidden_size"], dtype=np.float64)
    return 12 * values["num_layers"] * width**2


def _tokens(values: Values) -> Any:
    return np.asarray(values["global_batch_size"], dtype=np.float64) * values["seq_len"]


def _estimate(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return every measure of the configurations; 6 FLOPs a parameter and token, 8 recomputed."""
    parameters, tokens = _parameters(values), _tokens(values)
    flops = np.where(np.equal(values["activation_recompute"], "full"), 8, 6) * parameters * tokens
    compute = flops / (values["num_gpus"] * np.asarray(values["matrix_flops_per_second"]))

    data, tensor = layouts["data_parallel"], layouts["tensor_parallel"]
    weights = WEIGHT_BYTES * parameters / tensor
    moved = (2 if "T1" in mends else 1) * weights * (data - 1) / data
    exposed = 1 - np.asarray(values["toy_overlap_fraction"])
    communication = exposed * moved / values["network_bytes_per_second"]
    optimizer = OPTIMIZER_BYTES / WEIGHT_BYTES * weights
    memory = 2 * weights + optimizer
    return {
        "step_seconds": compute + communication,
        "compute_seconds": compute,
        "data_comm_seconds": communication,
        "weights_bytes": weights,
        "gradients_bytes": weights,
        "optimizer_bytes": optimizer,
        "memory_bytes": memory,
        "fits_memory": memory <= values["hbm_bytes"],
    }


TOY: SearchedEstimator = Toy()
