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
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.enumeration import enumerate_layouts
from estimators.factored import distinct_rows
from estimators.training_step.domains import gpus_in_domain
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

_MOST_KEPT = 16
"""Problems whose ways to split a layer are kept."""

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


class LeastSteps:
    """Least steps of cells; the time of a way to split a layer is computed once for any GPU count.

    More GPUs wait for a slower one among them, so that the time on the GPUs of one domain is less.
    """

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._known: OrderedDict[tuple[Scalar, ...], _Ways] = OrderedDict()

    def of(
        self, cell: Cell, columns: Collection[str], rules: Collection[Rule], catalog: Catalog
    ) -> float:
        """Return seconds that no layout of a cell is below; infinite where it has no layout.

        Parameters
        ----------
        columns
            Optional columns of a cell, None where it lacks them.
        rules
            See `ways_to_split_a_layer`.
        """
        values = {**dict.fromkeys(columns), **cell.values}
        table = ways_to_split_a_layer(values, cell.fixed, rules)
        if not len(table["microbatch_size"]):
            return math.inf
        num_gpus = int(values["num_gpus"] or 1)
        values["num_gpus"] = int(gpus_in_domain(num_gpus, int(values["nvlink_size"] or 1)))
        if self._catalog is not catalog:
            self._catalog = catalog
            self._known.clear()
        key = (*(value for name, value in values.items() if name != "global_batch_size"),)
        ways = self._known.setdefault(key, _Ways())
        self._known.move_to_end(key)
        if len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        least = np.min(ways.seconds_of(table, lambda some: _least_seconds(values, some, catalog)))
        return float(least) * int(values["global_batch_size"] or 1) / num_gpus


class _Ways:
    """Ways to split a layer, with the seconds of each."""

    def __init__(self) -> None:
        self._columns: Columns = {}
        self._seconds: Array = np.empty(0)

    def seconds_of(self, table: Columns, compute: Callable[[Columns], Array]) -> Array:
        """Return the seconds of each row of a table; `compute` makes those that are not known."""
        joined, number = table, len(self._seconds)
        if self._columns:
            joined = {n: np.concatenate([self._columns[n], table[n]]) for n in LAYER_KEYS}
        rows, place = distinct_rows(joined, LAYER_KEYS)
        seconds: Array = np.empty(len(rows[LAYER_KEYS[0]]))
        is_new = np.ones(len(seconds), dtype=bool)
        seconds[place[:number]] = self._seconds
        is_new[place[:number]] = False
        if is_new.any():
            seconds[is_new] = compute({name: column[is_new] for name, column in rows.items()})
        self._columns, self._seconds = rows, seconds
        return seconds[place[number:]]


def _least_seconds(values: Mapping[str, Any], ways: Columns, catalog: Catalog) -> Array:
    """Return seconds of a step of one sequence on one GPU for each way to split a layer."""
    with np.errstate(all="ignore"):
        problem = Problem.of(values, catalog)
        layout = Layout.of(ways)
        size = size_of(problem, layout)
        vocabulary = vocabulary_of(vocabulary_work(size, problem, layout), problem)
        seconds = vocabulary.embedding + vocabulary.output
        for kind in kinds_of(problem):
            layer = layer_of(work_of(kind.problem, layout), kind.problem, layout)
            spent = spent_on(layer, size, kind.problem, layout)
            of_kind = kind.share * problem.shape.num_layers
            seconds = seconds + of_kind * (spent.seconds - spent.waits)
        ranks = layout.tensor_parallel * layout.context_parallel / layout.microbatch_size
        return np.asarray(seconds * ranks)
