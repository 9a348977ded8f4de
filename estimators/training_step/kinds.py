"""The kinds of layers that a model has: dense ones, and mixtures of experts.

A layer's time and memory are computed once for each kind. Within a kind `sparse_share` is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

if TYPE_CHECKING:
    from estimators.training_step.problem import Problem
    from estimators.values import Real


T = TypeVar("T")
"""Figures of a kind: a number, an array, or a dictionary or named tuple of them."""


class Kind(NamedTuple):
    """One kind of layer.

    Attributes
    ----------
    name
        `dense` or `mixture`.
    share
        Share of a model's layers that are of this kind.
    problem
        The problem of a model all of whose layers are of this kind.
    """

    name: str
    share: Real
    problem: Problem


def kinds_of(problem: Problem) -> list[Kind]:
    """Return the kinds of layers that occur; in a batch, those that any row has."""
    mixed = problem.shape.sparse_share
    shares = {"dense": 1.0 - mixed, "mixture": mixed}
    return [
        Kind(name, share, problem.with_sparse_share(float(name == "mixture")))
        for name, share in shares.items()
        if np.any(share)
    ]


def over_kinds(counts: Mapping[str, Real], figures: Mapping[str, T]) -> T:
    """Return the sum over kinds of layers: number of layers times the figure of one.

    The figure of a kind without layers is ignored: a batch may hold another model's figure there.

    Parameters
    ----------
    counts
        Kind of layer -> number of layers, or share of them.
    figures
        Kind of layer -> its figure: a number, an array, or a dictionary or named tuple of them.
    """
    of_kind: Mapping[str, Any] = figures
    first: Any = of_kind[next(iter(counts))]
    summed: Any
    if isinstance(first, dict):
        summed = {
            part: over_kinds(counts, {name: of_kind[name][part] for name in counts})
            for part in first
        }
    elif isinstance(first, tuple):
        summed = type(first)(
            *(
                over_kinds(counts, {name: of_kind[name][place] for name in counts})
                for place in range(len(first))
            )
        )
    elif len(counts) == 1:
        [count] = counts.values()
        summed = count * first
    else:
        parts = (np.where(count > 0, count * of_kind[name], 0.0) for name, count in counts.items())
        summed = reduce(np.add, parts)
    result: T = summed
    return result


def of_last(kinds: Sequence[Kind], figures: Sequence[Real]) -> Real:
    """Return the figure of the model's last kind of layer: the mixture, if it has one."""
    if len(kinds) == 1:
        return figures[0]
    return np.where(np.greater(kinds[-1].share, 0), figures[-1], figures[0])
