"""The roofline estimator under the project's contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Columns,
    Mends,
    Operations,
    Relation,
    Scalar,
    Search,
    Values,
)
from estimators.decoder import layer_parameters, shape_of
from estimators.estimator import Step
from estimators.factored import Gathered
from estimators.inputs import Inputs
from estimators.roofline import inputs as given
from estimators.roofline.breakdown import (
    OPERATION_RULE,
    RELATION_OPERATION,
    operation_figures,
    with_operations,
)
from estimators.roofline.layer import Counts, Layer, System, counts_of, layer_of
from estimators.roofline.layouts import ROW_COLUMNS, Layouts, SearchedTable, flat, layer_table
from estimators.roofline.rules import BATCH_RULES, PROBLEM_RULES, row_rules, split_rules
from estimators.roofline.search import RooflineSearch
from estimators.roofline.step import PARTS, Problem, fill_times, memory_parts, memory_sum
from estimators.roofline.strategies import ATTENTIONS, Sizes
from estimators.rules import Rule
from estimators.search import SearchedEstimator
from estimators.values import Flag, Real

_STORED_MEMORY = ("weights_bytes", "optimizer_bytes", "activations_bytes")

RELATION = Relation(
    "roofline",
    grain="one row per configuration: a layout of one problem",
    keeps_leading=True,
    keys=given.KEYS,
    measures=(
        "step_seconds",
        *(name for name in PARTS if name != "bubble_seconds"),
        "flops_per_gpu",
        *_STORED_MEMORY,
    ),
    derived=("bubble_seconds", "gradients_bytes", "memory_bytes", "fits_memory"),
    compression={
        "step_seconds": "uncompressed",
        **dict.fromkeys((*ROW_COLUMNS, "nvlink_context_parallel"), "rle"),
        **dict.fromkeys(("compute_seconds", "memory_seconds", "pipeline_comm_seconds"), "rle"),
        **dict.fromkeys(("flops_per_gpu", *_STORED_MEMORY), "rle"),
        **dict.fromkeys(("tensor_comm_seconds", "data_comm_seconds"), "alprd"),
    },
)

COUNT_MENDS = frozenset({"R1", "R5", "R8"})
TIME_MENDS = frozenset({"R3", "R6", "R7", "R10"})
"""Mends of a layer's work, and of its time."""


class Roofline(SearchedEstimator):
    """Roofline per operation, summed over layers and pipeline: arXiv 2410.00273."""

    name = "roofline"
    version = 1
    precedence = 1
    title = "Roofline per operation, exhaustive search over layouts (arXiv 2410.00273)"
    mends = ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11")
    problem_columns = given.PROBLEM
    choice_columns = given.CHOICES
    optional_columns = given.OPTIONAL
    system_columns = given.SYSTEM
    required_in_space: Mapping[str, str] = MappingProxyType(
        {"num_gpus": "say how many GPUs the run has"}
    )
    neutral_choices = given.NEUTRAL_CHOICES
    relations = (RELATION, RELATION_OPERATION)
    step = Step(
        parts=PARTS,
        memory=("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"),
        rates=given.RATES,
        operations=Operations(RELATION_OPERATION, with_operations),
    )
    shape_columns = given.SHAPE
    needed_shape = given.NEEDED
    searched_choices: Mapping[str, tuple[Scalar, ...]] = MappingProxyType(
        {"strategy": tuple(ATTENTIONS), "activation_recompute": given.RECOMPUTATIONS}
    )

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules of shape, split and placement under `mends`."""
        return (*PROBLEM_RULES, *split_rules(mends), *row_rules(mends), *BATCH_RULES)

    def consistent_choices(self, choices: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the choices with an attention that the strategy has."""
        known = ATTENTIONS[str(choices["strategy"])]
        attention = choices["attention"]
        return {**choices, "attention": attention if attention in known else known[0]}

    def layer_parameters(self, values: Values) -> tuple[float, float]:
        """Return the parameters of all layers, all of them active."""
        whole, active = layer_parameters(shape_of(values))
        return float(whole), float(active)

    def make_search(self) -> Search:
        """Return the factored search over configurations."""
        return RooflineSearch(self, RELATION)

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check shape, system, batch and choices."""
        del mends  # they change rules of layouts only
        given.resolve_problem(inputs, catalog)

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check layouts, and the operation of a row of operations."""
        del catalog
        given.resolve_layout(inputs, mends)
        if relation is RELATION_OPERATION:
            inputs.require(("operation",), "name one, as fc1")
            inputs.check(("operation",))
            inputs.apply((OPERATION_RULE,))

    def estimate(
        self,
        relation: Relation,
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
        catalog: Catalog,
    ) -> None:
        """Fill `out`; see `estimators.estimator`. Layouts of the search are used factored."""
        del catalog  # the problem has every value
        if isinstance(layouts, Layouts):
            _estimate(Problem.of(values, mends), layouts, out)
            return
        is_operation = relation.name == RELATION_OPERATION.name
        names = ("strategy", "attention", *(("operation",) if is_operation else ()))
        for rows, kind in _alike(names, {**values, **layouts}, len(layouts["data_parallel"])):
            part = {name: np.empty(len(rows), dtype=column.dtype) for name, column in out.items()}
            alike = {name: v[rows] if np.ndim(v) else v for name, v in values.items()}
            problem = Problem.of({**alike, **kind}, mends)
            some = flat({name: column[rows] for name, column in layouts.items()})
            if is_operation:
                _estimate_operation(kind["operation"], problem, some, part)
            else:
                _estimate(problem, some, part)
            for name, column in out.items():
                column[rows] = part[name]


def _alike(
    names: tuple[str, ...], columns: Values, size: int
) -> Iterator[tuple[Array, dict[str, str]]]:
    """Yield the rows of a batch that have the same texts in `names`, with those texts."""
    texts = [np.broadcast_to(np.asarray(columns[n], dtype=object), size) for n in names]
    alike: dict[tuple[str, ...], list[int]] = {}
    for row, kind in enumerate(zip(*texts, strict=True)):
        alike.setdefault(kind, []).append(row)
    for kind, rows in alike.items():
        yield np.array(rows), dict(zip(names, kind, strict=True))


def _estimate(problem: Problem, layouts: Layouts, out: dict[str, Array]) -> None:
    """Fill `out` with times, and with memory gathered from the rows of splits."""
    layer = _layer(problem, layouts)
    fill_times(layouts, layer, problem, out)

    memory = memory_parts(layouts, layer, problem.run)
    per_row: dict[str, Real | Flag] = {**memory}
    if not out.keys().isdisjoint(("memory_bytes", "fits_memory")):
        per_row |= memory_sum(memory, problem.run)
    for name in per_row.keys() & out.keys():
        Gathered(per_row[name], layouts.index["row"]).write(out[name])

    kinds = tuple((name, out[name].dtype) for name in given.KEYS if name in out)
    keys = layouts.once(kinds, lambda: {n: layouts[n].astype(kind) for n, kind in kinds})
    for name, column in keys.items():
        out[name][:] = column


def _estimate_operation(
    operation: str, problem: Problem, layouts: Layouts, out: dict[str, Array]
) -> None:
    """Fill `out` for a batch of configurations and one operation."""
    layer = _layer(problem, layouts)
    figures = operation_figures(operation, problem, layouts, layer)
    fill_times(layouts, layer, problem, {n: out[n] for n in ("step_seconds",) if n in out})
    for name, column in out.items():
        if name == "operation":
            column[:] = operation
        elif name != "step_seconds":
            column[:] = figures[name] if name in figures else layouts[name]


def _layer(problem: Problem, layouts: Layouts) -> Layer:
    """Return the figures of the layer table; the cells of a search share them."""
    table, mends = layouts.table, problem.mends
    kind, sizes, system = problem.kind, problem.sizes, problem.system
    repeats = problem.run.repeats_forward
    if isinstance(table, SearchedTable):
        acting = mends & (COUNT_MENDS | TIME_MENDS)
        return _layer_of_table(kind, table.key, sizes, system, np.bool_(repeats), acting)
    counts = counts_of(kind, sizes, table.shards, mends)
    return layer_of(counts, system, repeats, table.layers, mends)


@lru_cache(maxsize=16)
def _layer_of_table(
    kind: tuple[str, str],
    key: tuple[Any, ...],
    sizes: Sizes,
    system: System,
    repeats: np.bool_,
    mends: Mends,
) -> Layer:
    """Return the figures of a layer table on a system, cached for cells that share both."""
    counts = _counts_of_table(kind, key, sizes, mends & COUNT_MENDS)
    return layer_of(counts, system, repeats, layer_table(*key).layers, mends)


@lru_cache(maxsize=8)
def _counts_of_table(
    kind: tuple[str, str], key: tuple[Any, ...], sizes: Sizes, mends: Mends
) -> Counts:
    return counts_of(kind, sizes, layer_table(*key).shards, mends)


ROOFLINE: SearchedEstimator = Roofline()

__all__ = ["RELATION", "RELATION_OPERATION", "ROOFLINE", "Roofline"]
