"""The tables that make the layouts of a cell, and the figures that kinds of recomputation share.

The layouts of a cell are a product of ways to split a layer (`LAYER_KEYS`), ways to split layers
over stages and replicas, and ZeRO stages. A figure of a layer is computed once for each way to
split it, and a figure of a split once for each split. A GPU's share of the parameters
(`SHARE_KEYS`) does not depend on microbatch and chunks, so its figures are computed once for each
share. The rows of a batch differ in their values: each is a layer, a split and a share.

A search evaluates the same layouts under each kind of recomputation, one kind after the other.
Figures that do not depend on it are computed once, and kept until other cells are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from estimators.decoder import mtp_parameters, parameters
from estimators.factored import distinct_rows, runs, take
from estimators.training_step import inputs as given
from estimators.training_step.dispatch_rules import hides_dispatch
from estimators.training_step.kinds import kinds_of
from estimators.training_step.layer import LAYER_KEYS, Work, work_of
from estimators.training_step.memory import gathered_bytes, state_bytes
from estimators.training_step.pipelines import Held, Pipelines, held_at, pipelines_of, ranks_at
from estimators.training_step.problem import Layout, Problem
from estimators.training_step.replicas import (
    BucketExchange,
    LayerShare,
    Share,
    UnitExchange,
    end_seconds,
    exchanges_of,
    fullest,
    layer_shares,
    optimizer_seconds,
    stage_shares,
)
from estimators.training_step.sizes import Size, size_of
from estimators.training_step.spent import Added, added_of
from estimators.training_step.vocabulary import VocabularyWork, vocabulary_work

if TYPE_CHECKING:
    from estimators.contract import Array, Catalog, Columns, Values
    from estimators.decoder import Parameters
    from estimators.values import Real

SPLIT_KEYS = tuple(name for name in given.KEYS if name != "zero_stage")
SHARE_KEYS = (
    *("tensor_parallel", "context_parallel", "expert_tensor_parallel", "expert_parallel"),
    *("pipeline_parallel", "virtual_pipeline", "data_parallel"),
)
"""Layout columns that decide which parameters a GPU has, and with which GPUs it exchanges them."""

CHANGES = "activation_recompute"
"""The choice on which the shared figures do not depend."""

_MOST_ROWS = 245_760
"""Rows of the chunks that are kept: four of those that a sweep evaluates at once, 60 MB."""


class Splits(NamedTuple):
    """Tables of layouts, and the links between them.

    Attributes
    ----------
    split
        One row a split: a layout without its ZeRO stage.
    layer
        One row a way to split a layer.
    share
        One row a share of the parameters.
    to_split
        Layout -> its split; None: each layout is a split.
    to_layer, to_share
        Split -> its layer, split -> its share; None: each split is one.
    """

    split: Layout
    layer: Layout
    share: Layout
    to_split: Array | None
    to_layer: Array | None
    to_share: Array | None


def splits_of(layouts: Columns, *, is_cell: bool) -> Splits:
    """Return the tables of a cell's layouts, or of a batch, which is not factored."""
    if not is_cell:
        split = Layout.of(layouts)
        return Splits(split, split, split, None, None, None)
    of_splits, to_split = runs(layouts, SPLIT_KEYS)
    of_layers, to_layer = runs(of_splits, LAYER_KEYS)
    of_shares, to_share = distinct_rows(of_splits, SHARE_KEYS)
    split, layer, share = (Layout.of(table) for table in (of_splits, of_layers, of_shares))
    return Splits(split, layer, share, to_split, to_layer, to_share)


class ZeroStage(NamedTuple):
    """Exchange, optimizer and state of pipelines under one ZeRO stage.

    Attributes
    ----------
    exchange
        Seconds of the exchanges over replicas, one element a split.
    optimizer_of_split
        Seconds of the optimizer, one element a split.
    state_of_split
        Bytes of the state of each rank that may need most memory, one element a split.
    by_share
        Name -> figures of each of these ranks, one element a share: seconds of the optimizer, and
        the parts of the state.
    """

    exchange: BucketExchange | UnitExchange
    optimizer_of_split: Real
    state_of_split: list[Real]
    by_share: dict[str, list[Real]]


class Shared(NamedTuple):
    """Figures of layouts under every kind of recomputation.

    Attributes
    ----------
    problem
        It has the recomputation of one of the cells.
    splits
        Tables of the layouts.
    size
        One GPU's part of a layer.
    work
        Kind of layer -> its work at full clock.
    vocabulary
        Work of embedding and output layer, at full clock.
    added
        Seconds to add gradients up, one element a split.
    pipelines
        The pipelines of the splits.
    flight
        Result of `pipelines.held_at`.
    end_seconds
        Seconds of the last transfers of a step, one element a split.
    by_zero_stage
        ZeRO stages of the layouts, with their figures.
    """

    problem: Problem
    splits: Splits
    size: Size
    work: dict[str, Work]
    vocabulary: VocabularyWork
    added: Added
    pipelines: Pipelines
    flight: Held
    end_seconds: Real
    by_zero_stage: dict[int, ZeroStage]


def shared_of(problem: Problem, layouts: Columns, *, is_cell: bool) -> Shared:
    """Return the figures that cells with these layouts share.

    They are computed once for each layer, split and share of the parameters in `Splits`.
    """
    splits = splits_of(layouts, is_cell=is_cell)
    kinds, size = kinds_of(problem), size_of(problem, splits.layer)
    counts = {kind.name: parameters(kind.problem.shape) for kind in kinds}
    if np.any(problem.shape.num_mtp_layers):
        counts["mtp"] = mtp_parameters(problem.shape)
    pipelines = pipelines_of(problem, splits.split)
    of_shares = pipelines
    if splits.to_share is not None:
        place = np.empty(np.size(splits.share.pipeline_parallel), dtype=np.int64)
        place[splits.to_share] = pipelines.place
        of_shares = pipelines._replace(place=place)
    layers = layer_shares(counts, problem.shape, splits.share)
    ends = counts[kinds[0].name]
    shares = stage_shares(ranks_at(of_shares), layers, ends, problem.shape, splits.share)
    most = fullest(shares)
    stages = np.flatnonzero(np.bincount(layouts["zero_stage"], minlength=4)).tolist() or [0]
    exchanges = exchanges_of(stages, most, problem, splits.share, splits.to_share)
    return Shared(
        problem,
        splits,
        size,
        {kind.name: work_of(kind.problem, splits.layer) for kind in kinds},
        vocabulary_work(size, problem, splits.layer),
        take(added_of(layers, ends, most, problem, splits.share), splits.to_share),
        pipelines,
        held_at(pipelines),
        take(end_seconds(problem, splits.share), splits.to_share),
        {
            stage: zero_stage(stage, exchange, layers, ends, shares, problem, splits)
            for stage, exchange in exchanges.items()
        },
    )


def zero_stage(
    stage: int,
    exchange: BucketExchange | UnitExchange,
    layers: Mapping[str, LayerShare],
    ends: Parameters,
    shares: Sequence[Share],
    problem: Problem,
    splits: Splits,
) -> ZeroStage:
    """Return the figures under one ZeRO stage.

    Parameters
    ----------
    exchange
        Its exchange, one element a split.
    layers, ends
        See `replicas.stage_shares`.
    shares
        Parameters of each rank that may need most memory.
    """
    layout, to_share = splits.share, splits.to_share
    optimizer = optimizer_seconds(stage, fullest(shares), problem, layout)
    state = [
        {
            **state_bytes(stage, share, problem, layout),
            "gathered_bytes": gathered_bytes(stage, layers, ends, share, problem, layout),
        }
        for share in shares
    ]
    by_share = {name: [of_rank[name] for of_rank in state] for name in state[0]}
    return ZeroStage(
        exchange,
        take(optimizer, to_share),
        [take(reduce(np.add, of_rank.values()), to_share) for of_rank in state],
        {"optimizer_seconds": [optimizer] * len(state), **by_share},
    )


class _Chunks(NamedTuple):
    """Chunks of the layouts of some cells, with their shared figures.

    Attributes
    ----------
    catalog, values
        Everything but the layouts on which the figures depend.
    """

    catalog: Catalog
    values: dict[str, Any]
    known: tuple[tuple[dict[str, Array], Shared], ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(_height(layouts) for layouts, _ in self.known)


class Latest:
    """Keeps the shared figures of the cells that were evaluated last."""

    def __init__(self) -> None:
        self._chunks: _Chunks | None = None

    def forget(self) -> None:
        """Keep nothing."""
        self._chunks = None

    def of(
        self, values: Values, layouts: Columns, catalog: Catalog, compute: Callable[[], Shared]
    ) -> Shared:
        """Return the shared figures of a chunk of a cell; `compute` makes those not kept."""
        others = {name: value for name, value in values.items() if name != CHANGES}
        # the one derived value that recomputation changes
        others["hides_dispatch"] = bool(hides_dispatch(values))
        chunks = self._chunks
        if chunks is None or chunks.catalog is not catalog or chunks.values != others:
            chunks = _Chunks(catalog, others)
        for columns, shared in chunks.known:
            if all(_is_equal(column, layouts[name]) for name, column in columns.items()):
                return shared
        shared = compute()
        if chunks.num_rows + _height(layouts) <= _MOST_ROWS:
            columns = {name: _owned(column) for name, column in layouts.items()}
            chunks = chunks._replace(known=(*chunks.known, (columns, shared)))
        self._chunks = chunks
        return shared


def _owned(column: Array) -> Array:
    """Return a column that can be kept: a copy if it may change or is part of a large table."""
    is_part = column.base is not None and np.size(column.base) > _MOST_ROWS
    return np.array(column) if is_part or column.flags.writeable else column


def _is_equal(known: Array, column: Array) -> bool:
    """Return whether columns are equal; cells mostly share the memory of one table."""
    return known.__array_interface__ == column.__array_interface__ or np.array_equal(known, column)


def _height(columns: Mapping[str, Array]) -> int:
    return len(next(iter(columns.values())))
