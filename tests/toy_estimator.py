"""A small estimator, complete under the contract: what a new one costs, for the tests.

A step is arithmetic followed by one ring all-reduce of the gradients over a flat network, a
share of it hidden. Two grains: `toy`, a row a configuration, and `toy_part`, a row for each of
a configuration's parts. Registering it takes this module, its entry, its columns and the
staging view in toy_sql/staging.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.columns import Column
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Estimator,
    Mends,
    Problem,
    Refusal,
    RefusedError,
    Relation,
    Scalar,
    Search,
    Space,
    Values,
)
from estimators.inputs import Inputs, records
from estimators.rules import Rule, divides, keeps
from estimators.spaces import divisors

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
BYTES_PER_PARAMETER = 16
"""Weights and gradients in two bytes, Adam's state in twelve."""

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
    derived=("memory_bytes", "fits_memory"),
)
PART_ROWS = Relation(
    "toy_part",
    grain="one row per configuration and part",
    keys=(*DEGREES, "toy_part"),
    measures=("toy_part_seconds",),
)


class ToySearch:
    """Every split of the GPUs into data and tensor parallel."""

    space_columns: tuple[str, ...] = (
        *("model", "accelerator", "num_gpus", "global_batch_size", "toy_overlap_fraction"),
        *("activation_recompute", *DEGREES),
    )
    system_columns: tuple[str, ...] = SYSTEM
    row_columns: frozenset[str] = frozenset()

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield a cell of either grain for each point of the space."""
        points = [
            dict(zip(space, point, strict=True)) for point in itertools.product(*space.values())
        ]
        names = dict.fromkeys(name for name in (*PROBLEM, *CHOICES) if name in space)
        inputs = Inputs({name: np.array([p[name] for p in points], dtype=object) for name in names})
        _resolve_problem(inputs, catalog)
        if inputs.refusals:
            raise RefusedError(
                Refusal(r.column, r.value, r.reason, r.hint) for r in inputs.refusals
            )
        resolved = records(inputs.finish((*PROBLEM, *CHOICES)))
        for point, record in zip(points, resolved, strict=True):
            for relation in TOY.relations:
                yield Cell(
                    TOY.name,
                    TOY.version,
                    relation.name,
                    Problem({name: record[name] for name in PROBLEM}),
                    mends,
                    {name: record[name] for name in CHOICES},
                    {name: point[name] for name in DEGREES if name in point},
                )

    def count(self, cell: Cell) -> int:
        """Return the number of splits, times that of parts."""
        parts = len(PARTS) if cell.relation == PART_ROWS.name else 1
        return parts * len(self._splits(cell)["data_parallel"])

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the splits, by tensor parallel ascending, in chunks."""
        columns = self._splits(cell)
        if cell.relation == PART_ROWS.name:
            size = len(columns["data_parallel"])
            columns = {name: np.repeat(column, len(PARTS)) for name, column in columns.items()}
            columns["toy_part"] = np.tile(np.array(PARTS, dtype=object), size)
        for start in range(0, len(columns["data_parallel"]), max_rows):
            chunk = slice(start, start + max_rows)
            yield {name: column[chunk] for name, column in columns.items()}

    @staticmethod
    def _splits(cell: Cell) -> dict[str, Array]:
        num_gpus = cell.problem.values["num_gpus"]
        tensor = divisors(int(num_gpus or 1))
        columns = {"data_parallel": num_gpus // tensor, "tensor_parallel": tensor}
        wanted = keeps(RULES, {**cell.values, **columns}, len(tensor))
        for name, value in cell.kept.items():
            wanted &= columns[name] == value
        return {name: column[wanted] for name, column in columns.items()}


class Toy(BaseEstimator):
    """Arithmetic, then a ring all-reduce of the gradients."""

    name = "toy"
    version = 1
    title = "Arithmetic and one all-reduce, for tests"
    mends: tuple[str, ...] = ("T1",)
    """T1: a ring all-reduce moves the volume twice, not once."""
    problem_columns: tuple[str, ...] = PROBLEM
    choice_columns: tuple[str, ...] = CHOICES
    input_columns: tuple[str, ...] = ()
    aliases: Mapping[str, str] = MappingProxyType({})
    neutral_choices: Mapping[str, Scalar] = MappingProxyType({"activation_recompute": "none"})
    relations: tuple[Relation, ...] = (CONFIGURATIONS, PART_ROWS)
    search: Search | None = ToySearch()

    def resolve(
        self, relation: Relation, columns: Columns, catalog: Catalog, mends: Mends
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        del mends  # the rules do not depend on them
        inputs = Inputs(columns)
        _resolve_problem(inputs, catalog)
        inputs.default("tensor_parallel", DEFAULTS["tensor_parallel"])
        inputs.default("data_parallel", inputs["num_gpus"] // inputs["tensor_parallel"])
        inputs.require(relation.keys, "")
        inputs.check(relation.keys)
        inputs.apply(RULES)
        return inputs.finish((*PROBLEM, *CHOICES, *relation.keys)), inputs.refusals

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`."""
        found = _estimate(values, layouts, mends)
        if relation.name == PART_ROWS.name:
            arithmetic = np.equal(layouts["toy_part"], PARTS[0])
            found["toy_part_seconds"] = np.where(
                arithmetic, found["compute_seconds"], found["data_comm_seconds"]
            )
        for name, column in out.items():
            column[:] = layouts[name] if name in relation.keys else found[name]


def _resolve_problem(inputs: Inputs, catalog: Catalog) -> None:
    inputs.look_up(catalog, "model", "model", SHAPE)
    inputs.look_up(catalog, "system", "accelerator", SYSTEM)
    for name in (*PROBLEM, *CHOICES):
        if name in DEFAULTS:
            inputs.default(name, DEFAULTS[name])
    inputs.require((*SHAPE, *SYSTEM, "num_gpus"), "name a `model` and an `accelerator`")
    inputs.check((*PROBLEM, *CHOICES))


def _estimate(values: Values, layouts: Columns, mends: Mends) -> dict[str, Any]:
    """Return every measure of the configurations; 6 FLOPs a parameter and token, 8 recomputed."""
    width = np.asarray(values["hidden_size"], dtype=np.float64)
    parameters = 12 * values["num_layers"] * width**2
    tokens = np.asarray(values["global_batch_size"], dtype=np.float64) * values["seq_len"]
    flops = np.where(np.equal(values["activation_recompute"], "full"), 8, 6) * parameters * tokens
    compute = flops / (values["num_gpus"] * np.asarray(values["matrix_flops_per_second"]))

    data, tensor = layouts["data_parallel"], layouts["tensor_parallel"]
    weights = 2 * parameters / tensor
    moved = (2 if "T1" in mends else 1) * weights * (data - 1) / data
    exposed = 1 - np.asarray(values["toy_overlap_fraction"])
    communication = exposed * moved / values["network_bytes_per_second"]
    memory = weights * BYTES_PER_PARAMETER / 2
    return {
        "step_seconds": compute + communication,
        "compute_seconds": compute,
        "data_comm_seconds": communication,
        "weights_bytes": weights,
        "memory_bytes": memory,
        "fits_memory": memory <= values["hbm_bytes"],
    }


TOY: Estimator = Toy()
