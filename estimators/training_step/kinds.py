"""The kinds of layers that a model has: dense ones, and mixtures of experts.

A layer's time and memory are computed once for each kind. Within a kind `sparse_share` is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from estimators.training_step.problem import Problem
    from estimators.values import Real


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


def average(kinds: Sequence[Kind], figures: Sequence[Any]) -> Any:
    """Return a figure of the average layer: a number, an array, or a dictionary or tuple of them.

    Parameters
    ----------
    figures
        The figure of each kind; ignored where a model has no layer of the kind.
    """
    first = figures[0]
    if len(kinds) == 1:
        return first
    if isinstance(first, dict):
        return {name: average(kinds, [figure[name] for figure in figures]) for name in first}
    if isinstance(first, tuple):
        return type(first)(*(average(kinds, parts) for parts in zip(*figures, strict=True)))
    return sum(
        np.where(kind.share > 0, kind.share * figure, 0.0)
        for kind, figure in zip(kinds, figures, strict=True)
    )


def of_last(kinds: Sequence[Kind], figures: Sequence[Real]) -> Real:
    """Return the figure of the model's last kind of layer: the mixture, if it has one."""
    if len(kinds) == 1:
        return figures[0]
    return np.where(np.greater(kinds[-1].share, 0), figures[-1], figures[0])
