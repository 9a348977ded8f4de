"""A lower bound of the step of every layout of a cell, from the ways to split a layer alone.

The rank that works longest works at least as long as the average rank. In a step the ranks of a
pipeline together work on every layer and on the vocabulary, once for each microbatch::

    step >= microbatches / stages x (layers x layer + embedding + output layer)
    microbatches / stages = sequences / microbatch x tensor x context / GPUs

The right side depends on the columns that split a layer, and on no pipeline or replica. Transfers
between stages and replicas, bubbles, the optimizer and waits for the host only add to it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.enumeration import enumerate_layouts
from estimators.training_step.kinds import kinds_of
from estimators.training_step.layer import LAYER_KEYS, layer_of, work_of
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.search import AXES
from estimators.training_step.sizes import size_of
from estimators.training_step.spent import spent_on
from estimators.training_step.vocabulary import vocabulary_of, vocabulary_work

if TYPE_CHECKING:
    from estimators.contract import Array, Catalog, Cell, Columns, Scalar, Values
    from estimators.rules import Rule

_AXES = tuple(axis for axis in AXES if axis.name in LAYER_KEYS)


def ways_to_split_a_layer(
    values: Values, fixed: Mapping[str, Scalar], rules: Collection[Rule]
) -> Columns:
    """Return the ways to split a layer of a cell; some have no layout.

    Parameters
    ----------
    fixed
        Key -> the one value that a study holds it to.
    """
    known = {*values, *LAYER_KEYS}
    held = {name: value for name, value in fixed.items() if name in LAYER_KEYS}
    return enumerate_layouts(values, _AXES, [r for r in rules if known >= {*r.needs}], held)


def least_step_seconds(
    cells: Sequence[Cell], columns: Collection[str], rules: Collection[Rule], catalog: Catalog
) -> Array:
    """Return for each cell seconds that no layout of it is below; infinite where it has no layout.

    Parameters
    ----------
    columns
        Optional columns of a cell, None where it lacks them.
    rules
        See `ways_to_split_a_layer`.
    """
    known = [{**dict.fromkeys(columns), **cell.values} for cell in cells]
    tables = [
        ways_to_split_a_layer(values, cell.fixed, rules)
        for values, cell in zip(known, cells, strict=True)
    ]
    heights = np.array([len(table["microbatch_size"]) for table in tables])
    found: Array = np.full(len(cells), math.inf)
    has_ways = np.flatnonzero(heights)
    if len(has_ways):
        values = _joined([known[place] for place in has_ways], heights[has_ways])
        layouts = {n: np.concatenate([table[n] for table in tables]) for n in tables[0]}
        starts = (np.cumsum(heights) - heights)[has_ways]
        found[has_ways] = np.minimum.reduceat(_least_seconds(values, layouts, catalog), starts)
    return found


def _joined(known: Sequence[Values], heights: Array) -> dict[str, Any]:
    """Return the values of cells, one element a row of their layouts where the cells differ."""
    joined: dict[str, Any] = dict(known[0])
    for name, first in known[0].items():
        given = [values[name] for values in known]
        if any(value != first for value in given):
            kind = object if isinstance(first, str) or None in given else None
            joined[name] = np.repeat(np.array(given, dtype=kind), heights)
    return joined


def _least_seconds(values: Mapping[str, Any], layouts: Columns, catalog: Catalog) -> Array:
    """Return the bound that each way to split a layer gives [s]."""
    with np.errstate(all="ignore"):
        problem = Problem.of(values, catalog)
        layout = Layout.of(layouts)
        size = size_of(problem, layout)
        vocabulary = vocabulary_of(vocabulary_work(size, problem, layout), problem)
        seconds = vocabulary.embedding + vocabulary.output
        for kind in kinds_of(problem):
            layer = layer_of(work_of(kind.problem, layout), kind.problem, layout)
            spent = spent_on(layer, size, kind.problem, layout)
            of_kind = kind.share * problem.shape.num_layers
            seconds = seconds + of_kind * (spent.seconds - spent.waits)
        ranks = layout.tensor_parallel * layout.context_parallel / layout.microbatch_size
        share = problem.run.global_batch_size / problem.run.num_gpus
        return np.asarray(seconds * ranks * share)
