"""Figures that depend on the ZeRO stage: the exchange of gradients, the optimizer, the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Values
from estimators.factored import Gathered, stacked, take
from estimators.training_step import network
from estimators.training_step.memory.device import unused_bytes
from estimators.training_step.memory.stages import needs_most
from estimators.training_step.memory.state import gathered_bytes, sharded
from estimators.training_step.replicas import (
    Exchange,
    Units,
    end_seconds,
    exchange_seconds,
    exchanges,
    optimizer_seconds,
    sharding_differs,
    unit_seconds,
    units,
)
from estimators.training_step.splits import Splits


class Stage(NamedTuple):
    """Figures under one ZeRO stage.

    Attributes
    ----------
    by_split
        One element a split.
    by_share
        Of each rank that may need most memory, one element a share.
    rank
        For each split the place of the rank that does.
    """

    by_split: dict[str, Any]
    by_share: dict[str, list[Any]]
    rank: Array


class Sharding:
    """The state of the pipelines' ranks, and what sharding it over replicas costs.

    Parameters
    ----------
    counts
        Kind of layer -> its parameters.
    shares, most
        Parameters of each rank that may need most memory, and of the fullest.
    others
        Memory of these ranks that is no state.
    whole
        Seconds of a step without the exchange and the optimizer, of each split.
    window
        Seconds of arithmetic that an exchange may hide in.
    """

    def __init__(
        self,
        values: Values,
        splits: Splits,
        counts: Mapping[str, Any],
        shares: Sequence[Any],
        most: Any,
        others: Sequence[dict[str, Any]],
        whole: Any,
        window: Any,
    ) -> None:
        self.values, self.splits, self.counts = values, splits, counts
        self.shares, self.most, self.others = shares, most, others
        self.whole, self.window = whole, window
        self.group = network.groups(values, splits.spread)
        self.last_of_all = take(end_seconds(values, splits.spread), splits.to_share)
        self.by_rank = {name: np.stack([each[name] for each in others]) for name in others[0]}
        self.in_buckets: dict[bool, Exchange] = {}
        self.may_differ = sharding_differs(values)

    def figures(self, zero: Array) -> dict[str, Gathered]:
        """Return the figures of each row: `zero` has its ZeRO stage."""
        splits = self.splits
        return _by_stage(zero, self._at, splits.to_split, splits.to_share, np.size(self.most.dense))

    def _exchanged(self, zero: int) -> Any:
        """Return the seconds of the exchange that are not hidden, of each split."""
        values, to_share = self.values, self.splits.to_share
        if zero == 3:
            found = units(self.most, self.group, values)
            each = Units(*(take(part, to_share) for part in found))
            return unit_seconds(each, values, self.window)
        is_sharded = zero > 0 and self.may_differ
        if is_sharded not in self.in_buckets:
            buckets = exchanges(self.most, self.group, values, is_sharded=is_sharded)
            self.in_buckets[is_sharded] = Exchange(*(take(part, to_share) for part in buckets))
        return exchange_seconds(zero, self.in_buckets[is_sharded], values, self.window)

    def _at(self, zero: int) -> Stage:
        """Return the figures under one ZeRO stage, of the rank that needs most memory then."""
        values, spread, to_share = self.values, self.splits.spread, self.splits.to_share
        exchange = self._exchanged(zero) + self.last_of_all
        optimizer = optimizer_seconds(zero, self.most, values, spread)
        state = [
            {
                **sharded(zero, each, values, spread),
                "gathered_bytes": gathered_bytes(zero, self.counts, each, values, spread),
            }
            for each in self.shares
        ]
        rank, needed = needs_most(state, self.others, to_share)
        place = rank * np.size(rank) + np.arange(np.size(rank))
        of_fullest = {name: figure.take(place) for name, figure in self.by_rank.items()}
        besides = of_fullest.pop("besides")
        return Stage(
            {
                "step_seconds": self.whole + exchange + take(optimizer, to_share),
                "data_comm_seconds": exchange,
                "unused_bytes": unused_bytes(needed, besides, values),
                **of_fullest,
            },
            {
                "optimizer_seconds": [optimizer] * len(state),
                **{name: [each[name] for each in state] for name in state[0]},
            },
            rank,
        )


def _by_stage(
    zero: Array,
    figures: Callable[[int], Stage],
    to_split: Array | None,
    to_share: Array | None,
    num_shares: int,
) -> dict[str, Gathered]:
    """Return the figures of each row's ZeRO stage, and of the stage that needs most memory."""
    stages = np.flatnonzero(np.bincount(zero, minlength=4)).tolist() or [0]
    found = [figures(stage) for stage in stages]
    size = len(found[0].rank)
    height = len(next(iter(found[0].by_share.values())))
    split = np.arange(size) if to_split is None else to_split
    share = np.arange(size) if to_share is None else to_share
    ordinal = np.zeros(stages[-1] + 1, dtype=np.int64)
    ordinal[stages] = np.arange(len(stages))
    place = ordinal.take(zero) * size + split
    of_share = [share + (height * n + each.rank) * num_shares for n, each in enumerate(found)]
    share_place = np.concatenate(of_share).take(place)
    by_split = {
        name: Gathered(stacked([each.by_split[name] for each in found], size), place)
        for name in found[0].by_split
    }
    return by_split | {
        name: Gathered(
            stacked([part for each in found for part in each.by_share[name]], num_shares),
            share_place,
        )
        for name in found[0].by_share
    }
