"""The roofline estimator under the project's contract."""

from __future__ import annotations

from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from estimators.contract import Array, Catalog, Columns, Mends, Refusal, Relation, Values
from estimators.inputs import Inputs
from estimators.roofline import inputs as rules
from estimators.roofline.layer import SIZES, Counts, Layer, counts_of, layer_of
from estimators.roofline.layouts import ROW_COLUMNS, Layouts, flat, layer_table
from estimators.roofline.search import RooflineSearch
from estimators.roofline.step import TIMES, fill_times, memory_parts, memory_sum

VERSION = 1

RELATION = Relation(
    "roofline",
    grain="one row per configuration: a layout of one problem",
    keys=rules.KEYS,
    measures=(
        *TIMES,
        "flops_per_gpu",
        "weights_bytes",
        "optimizer_bytes",
        "activations_bytes",
    ),
    derived=("gradients_bytes", "memory_bytes", "fits_memory"),
    runs=(
        *ROW_COLUMNS,
        "nvlink_tensor_parallel_2",
        "nvlink_context_parallel",
        "compute_seconds",
        "memory_seconds",
        "tensor_comm_seconds",
        "flops_per_gpu",
        "weights_bytes",
        "optimizer_bytes",
        "activations_bytes",
    ),
    plain=("step_seconds", "pipeline_comm_seconds", "bubble_seconds", "data_comm_seconds"),
)

LAYER_VALUES = (*(n for n in rules.SYSTEM if n != "hbm_bytes"), "activation_recompute")
"""What a layer's time depends on besides what it does."""


class Roofline:
    """Roofline per operation, summed over layers and pipeline: arXiv 2410.00273."""

    name = "roofline"
    version = VERSION
    title = "Roofline per operation, exhaustive search over layouts (arXiv 2410.00273)"
    mends = ("R2", "R4", "R5", "R6", "R9")
    problem_columns = rules.PROBLEM
    choice_columns = rules.CHOICES
    relations = (RELATION,)
    search = RooflineSearch("roofline", VERSION, RELATION.name)

    def resolve(
        self,
        relation: Relation,  # noqa: ARG002 - the contract's argument; there is one relation
        columns: Columns,
        catalog: Catalog,
        mends: Mends,
    ) -> tuple[Columns, list[Refusal]]:
        """Complete and check rows of input; see `contract.Estimator`."""
        inputs = Inputs(columns)
        rules.resolve_problem(inputs, catalog)
        rules.resolve_layout(inputs, mends)
        names = (*rules.PROBLEM, *rules.CHOICES, *rules.KEYS)
        return inputs.finish(names, rules.OPTIONAL), inputs.refusals

    def estimate(
        self,
        relation: Relation,  # noqa: ARG002 - the contract's argument; there is one relation
        values: Values,
        layouts: Columns,
        mends: Mends,
        out: dict[str, Array],
    ) -> None:
        """Fill `out`; see `contract.Estimator`. Layouts of the search are used factored."""
        if not isinstance(layouts, Layouts):
            layouts = flat(layouts)
        if not layouts.num_rows:
            return
        layer = _layer(values, layouts, mends)
        fill_times(layouts, layer, values, mends, out)

        per_row = memory_parts(layouts, layer, values)
        if not out.keys().isdisjoint(("memory_bytes", "fits_memory")):
            per_row |= memory_sum(per_row, values)
        for name in per_row.keys() & out.keys():
            _gather(per_row[name], layouts.index["row"], out[name])

        kinds = tuple((name, out[name].dtype) for name in rules.KEYS if name in out)
        keys = layouts.once(kinds, lambda: {n: layouts[n].astype(kind) for n, kind in kinds})
        for name, column in keys.items():
            out[name][:] = column


def _gather(values: Any, index: Array | None, out: Array) -> None:
    """Write ``values[index]`` to `out`."""
    if index is None:
        out[:] = values
    else:
        values.take(index, out=out, mode="clip")


def _layer(values: Values, layouts: Layouts, mends: Mends) -> Layer:
    """Return the layer table's figures; those of a search are shared by its cells."""
    table = layouts.layers
    if table.key is None:
        [strategy] = set(np.atleast_1d(np.asarray(values["strategy"], dtype=object)).tolist())
        counts = counts_of(strategy, values, table.columns, mends)
        return layer_of(counts, values, table.columns, mends)
    sizes, relevant = _sizes(values), _relevant(values)
    return _layer_of_table(values["strategy"], table.key, sizes, relevant, mends & {"R5", "R6"})


_sizes = itemgetter(*SIZES)
_relevant = itemgetter(*LAYER_VALUES)


@lru_cache(maxsize=128)
def _layer_of_table(
    strategy: str,
    key: tuple[Any, ...],
    sizes: tuple[Any, ...],
    relevant: tuple[Any, ...],
    mends: Mends,
) -> Layer:
    values = dict(zip(LAYER_VALUES, relevant, strict=True))
    counts = _counts_of_table(strategy, key, sizes, mends & {"R5"})
    return layer_of(counts, values, layer_table(*key).columns, mends)


@lru_cache(maxsize=32)
def _counts_of_table(
    strategy: str, key: tuple[Any, ...], sizes: tuple[Any, ...], mends: Mends
) -> Counts:
    values = dict(zip(SIZES, sizes, strict=True))
    return counts_of(strategy, values, layer_table(*key).columns, mends)


ROOFLINE = Roofline()

__all__ = ["RELATION", "ROOFLINE", "Roofline"]
