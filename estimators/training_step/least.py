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
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

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
    from estimators.contract import Catalog, Columns, Scalar, Values
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
    values: Values, fixed: Mapping[str, Scalar], rules: Collection[Rule], catalog: Catalog
) -> float:
    """Return seconds that no layout of a cell is below; infinite where it has no layout.

    Parameters
    ----------
    values
        Problem and choices of the cell; absent optional ones are None.
    fixed, rules
        See `ways_to_split_a_layer`.
    """
    table = ways_to_split_a_layer(values, fixed, rules)
    if not len(table["microbatch_size"]):
        return math.inf
    with np.errstate(all="ignore"):
        problem = Problem.of(values, catalog)
        layout = Layout.of(table)
        size = size_of(problem, layout)
        vocabulary = vocabulary_of(vocabulary_work(size, problem, layout), problem)
        seconds = vocabulary.embedding + vocabulary.output
        for kind in kinds_of(problem):
            layer = layer_of(work_of(kind.problem, layout), kind.problem, layout)
            spent = spent_on(layer, size, kind.problem, layout)
            of_kind = kind.share * problem.shape.num_layers
            seconds = seconds + of_kind * (spent.seconds - spent.waits)
        ranks = layout.tensor_parallel * layout.context_parallel / layout.microbatch_size
        least = float(np.min(seconds * ranks))
    return float(problem.run.global_batch_size / problem.run.num_gpus) * least
