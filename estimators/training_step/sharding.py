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
    Window,
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
        Name -> figures with one element a split.
    by_share
        Name -> figures with one element a share, for each rank that may need most memory.
    rank
        For each split the place of the rank that needs most.
    """

    by_split: dict[str, Any]
    by_share: dict[str, list[Any]]
    rank: Array


class Replicas:
    """Exchange, optimizer and state of pipelines under each ZeRO stage, for all recomputations.

    Parameters
    ----------
    counts
        Kind of layer -> its parameters.
    shares, most
        Parameters of each rank that may need most memory, and of the rank with most parameters.
    """

    def __init__(
        self,
        values: Values,
        splits: Splits,
        counts: Mapping[str, Any],
        shares: Sequence[Any],
        most: Any,
    ) -> None:
        self.splits = splits
        self._values, self._counts = values, counts
        self._shares, self._most = shares, most
        self._group = network.groups(values, splits.spread)
        self._last_of_all = take(end_seconds(values, splits.spread), splits.to_share)
        self._may_differ = sharding_differs(values)
        self._in_buckets: dict[bool, Exchange] = {}
        self._units: Units | None = None
        self._states: dict[int, State] = {}

    @property
    def num_shares(self) -> int:
        """Number of shares of the parameters."""
        return int(np.size(self._most.dense))

    def exchange_seconds(self, zero: int, values: Values, window: Window) -> Any:
        """Return the seconds of the exchange that are not hidden, of each split.

        Parameters
        ----------
        window
            Seconds of arithmetic that an exchange may hide in.
        """
        if zero == 3:
            return unit_seconds(self._of_units(), values, window) + self._last_of_all
        found = self._of_buckets(is_sharded=zero > 0 and self._may_differ)
        return exchange_seconds(zero, found, values, window) + self._last_of_all

    def _of_units(self) -> Units:
        if self._units is None:
            found = units(self._most, self._group, self._values)
            self._units = Units(*(take(part, self.splits.to_share) for part in found))
        return self._units

    def _of_buckets(self, *, is_sharded: bool) -> Exchange:
        """Return the exchange in buckets, one element a split, computed at the first use."""
        if is_sharded not in self._in_buckets:
            found = exchanges(self._most, self._group, self._values, is_sharded=is_sharded)
            own = Exchange(*(take(part, self.splits.to_share) for part in found))
            self._in_buckets[is_sharded] = own
        return self._in_buckets[is_sharded]

    def state(self, zero: int) -> State:
        """Return the state under a ZeRO stage."""
        if zero not in self._states:
            values, spread, to_share = self._values, self.splits.spread, self.splits.to_share
            optimizer = optimizer_seconds(zero, self._most, values, spread)
            parts = [
                {
                    **sharded(zero, each, values, spread),
                    "gathered_bytes": gathered_bytes(zero, self._counts, each, values, spread),
                }
                for each in self._shares
            ]
            whole = [take(sum(each.values()), to_share) for each in parts]
            self._states[zero] = State(optimizer, take(optimizer, to_share), parts, whole)
        return self._states[zero]


class State(NamedTuple):
    """Optimizer and state of pipelines under one ZeRO stage.

    Attributes
    ----------
    optimizer, optimizer_of_split
        Seconds of the optimizer, one element a share and one a split.
    parts
        Bytes of each rank that may need most memory, one element a share.
    whole
        Their sums, one element a split.
    """

    optimizer: Any
    optimizer_of_split: Any
    parts: list[dict[str, Any]]
    whole: list[Any]


class Sharding:
    """The figures that depend on the ZeRO stage.

    Parameters
    ----------
    others
        Memory of the ranks that may need most, without their state.
    whole
        Seconds of a step without the exchange and the optimizer, of each split.
    window
        Seconds of arithmetic that an exchange may hide in.
    """

    def __init__(
        self,
        replicas: Replicas,
        values: Values,
        others: Sequence[dict[str, Any]],
        whole: Any,
        window: Window,
    ) -> None:
        self.replicas, self.values, self.others = replicas, values, others
        self.whole, self.window = whole, window
        self.by_rank = {name: np.stack([each[name] for each in others]) for name in others[0]}

    def figures(self, zero: Array) -> dict[str, Gathered]:
        """Return the figures of each row: `zero` has its ZeRO stage."""
        splits = self.replicas.splits
        return _by_stage(zero, self._at, splits.to_split, splits.to_share, self.replicas.num_shares)

    def _at(self, zero: int) -> Stage:
        """Return the figures under one ZeRO stage, of the rank that needs most memory then."""
        exchange = self.replicas.exchange_seconds(zero, self.values, self.window)
        state = self.replicas.state(zero)
        rank, needed = needs_most(state.whole, self.others)
        place = rank * np.size(rank) + np.arange(np.size(rank))
        of_fullest = {name: figure.take(place) for name, figure in self.by_rank.items()}
        besides = of_fullest.pop("besides")
        return Stage(
            {
                "step_seconds": self.whole + exchange + state.optimizer_of_split,
                "data_comm_seconds": exchange,
                "unused_bytes": unused_bytes(needed, besides, self.values),
                **of_fullest,
            },
            {
                "optimizer_seconds": [state.optimizer] * len(state.parts),
                **{name: [each[name] for each in state.parts] for name in state.parts[0]},
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
    """Return the figures of each row's ZeRO stage, for the rank that needs most memory under it."""
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
