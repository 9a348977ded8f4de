"""Figures of layouts that do not depend on recomputation.

A search evaluates the same layouts under each kind of recomputation, one kind after the other.
These figures are computed once, and kept until other cells are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Catalog, Columns, Values
from estimators.decoder import mtp_parameters, parameters
from estimators.training_step.exchange_rules import hides_exchange
from estimators.training_step.kinds import kinds_of
from estimators.training_step.layer import Size, Work, size_of, work_of
from estimators.training_step.pipelines import Held, held_at, ranks_at
from estimators.training_step.problem import Problem
from estimators.training_step.sharding import Replicas
from estimators.training_step.shares import Added, added_of, fullest, stage_shares
from estimators.training_step.splits import Splits, splits_of
from estimators.training_step.vocabulary import Words, words_of

CHANGES = "activation_recompute"
"""The choice on which the shared figures do not depend."""

_MOST_ROWS = 245_760
"""Rows of the chunks that are kept: four of those that a sweep evaluates at once, 60 MB."""


class Shared(NamedTuple):
    """Figures of layouts under every kind of recomputation.

    Attributes
    ----------
    problem
        Its recomputation is that of one of the cells.
    splits
        Tables of the layouts.
    size
        One GPU's part of a layer.
    work
        Kind of layer -> its work at full clock.
    words
        Work of embedding and output layer, at full clock.
    added
        Seconds to add gradients up, one element a split.
    flight
        Result of `pipelines.held_at`.
    replicas
        Exchange, optimizer and state under each ZeRO stage.
    """

    problem: Problem
    splits: Splits
    size: Size
    work: dict[str, Work]
    words: Words
    added: Added
    flight: Held
    replicas: Replicas


def shared_of(values: Problem, layouts: Columns, *, is_cell: bool) -> Shared:
    """Return the figures that cells with these layouts share.

    They are computed once for each layer, split and share of the parameters in `splits.Splits`.
    """
    splits = splits_of(layouts, is_cell=is_cell)
    kinds, size = kinds_of(values), size_of(values, splits.table)
    counts = {kind.name: parameters(kind.values) for kind in kinds}
    if np.any(values["num_mtp_layers"]):
        counts["mtp"] = mtp_parameters(values)
    shares = stage_shares(ranks_at(values, splits.spread), counts, values, splits.spread)
    most = fullest(shares)
    return Shared(
        values,
        splits,
        size,
        {kind.name: work_of(kind.values, splits.table) for kind in kinds},
        words_of(size, values, splits.table),
        added_of(counts, most, values, splits.spread).take(splits.to_share),
        held_at(values, splits.split),
        Replicas(values, splits, counts, shares, most),
    )


class _Kept(NamedTuple):
    """Chunks of the layouts of some cells, with their shared figures.

    Attributes
    ----------
    catalog, values
        Everything but the layouts on which the figures depend.
    """

    catalog: Catalog
    values: dict[str, Any]
    chunks: tuple[tuple[dict[str, Array], Shared], ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(_height(layouts) for layouts, _ in self.chunks)


class Latest:
    """Keeps the shared figures of the cells that were evaluated last."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def forget(self) -> None:
        """Keep nothing."""
        self._kept = None

    def of(
        self, values: Values, layouts: Columns, catalog: Catalog, compute: Callable[[], Shared]
    ) -> Shared:
        """Return the shared figures of a chunk of a cell; `compute` makes those not kept."""
        own = {name: value for name, value in values.items() if name != CHANGES}
        # the one derived value that recomputation changes
        own["hides_exchange"] = bool(hides_exchange(values))
        kept = self._kept
        if kept is None or kept.catalog is not catalog or kept.values != own:
            kept = _Kept(catalog, own)
        for known, shared in kept.chunks:
            if all(_is_equal(column, layouts[name]) for name, column in known.items()):
                return shared
        shared = compute()
        if kept.num_rows + _height(layouts) <= _MOST_ROWS:
            columns = {name: _own(column) for name, column in layouts.items()}
            kept = kept._replace(chunks=(*kept.chunks, (columns, shared)))
        self._kept = kept
        return shared


def _own(column: Array) -> Array:
    """Return a column that can be kept: a copy if it may change or is part of a large table."""
    is_part = column.base is not None and np.size(column.base) > _MOST_ROWS
    return np.array(column) if is_part or column.flags.writeable else column


def _is_equal(known: Array, column: Array) -> bool:
    """Return whether columns are equal; cells mostly share the memory of one table."""
    return known.__array_interface__ == column.__array_interface__ or np.array_equal(known, column)


def _height(columns: Mapping[str, Array]) -> int:
    return len(next(iter(columns.values())))
