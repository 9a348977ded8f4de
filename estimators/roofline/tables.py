"""The distinct shards and layers of a family of cells, and where to find one.

The work of a layer depends on its shard: degrees of both axes, microbatch, panels. Its time
depends on the placement of both axes as well. Cells that differ in GPU count, or in the system,
share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from estimators.contract import Array, Columns
from estimators.divisors import each_divisor, expand, starts

_BASE = 1 << 21
"""Degrees are smaller: pairs of them make one number."""


@dataclass(frozen=True)
class LayerTable:
    """The distinct shards and layers of a family of cells.

    Attributes
    ----------
    key
        Arguments of `layer_table`; None for a batch, whose shards and layers are its rows.
    shards
        ``tensor_parallel``, ``second_parallel``, ``microbatch_size``, ``panels``; ordered by
        split, microbatch, panels.
    layers
        ``shard``, degrees and placements of both axes; ordered by shard and placement.
    """

    key: Any
    shards: Columns
    layers: Columns
    _find: _Finder | None = None

    def shard_of(self, first: Array, second: Array, microbatch: Array, panel_place: Array) -> Array:
        """Return the row of `shards` of each combination; `panel_place` counts panel choices."""
        assert self._find is not None
        return self._find.shard(first, second, microbatch, panel_place)

    def first_layer(self, shard: Array) -> Array:
        """Return the first row of `layers` of each shard."""
        assert self._find is not None
        return self._find.first_layer[shard]

    def step(self, first: Array, second: Array, members: Array, second_members: Array) -> Array:
        """Return the distance of a placement's layer from the first layer of its shard."""
        assert self._find is not None
        return self._find.step(first, second, members, second_members)


@dataclass(frozen=True)
class _Finder:
    """Finds rows of both tables from the order in which they were made."""

    splits: Array
    microbatches: Array
    panel_counts: Array
    first_shard: Array
    first_layer: Array
    placements: Array
    first_placement: Array

    def _split(self, first: Array, second: Array) -> Array:
        return np.searchsorted(self.splits, first * _BASE + second)

    def shard(self, first: Array, second: Array, microbatch: Array, place: Array) -> Array:
        split = self._split(first, second)
        batch = np.searchsorted(self.microbatches, microbatch)
        return self.first_shard[split] + batch * self.panel_counts[split] + place

    def step(self, first: Array, second: Array, members: Array, more: Array) -> Array:
        split = self._split(first, second)
        wanted = _placement_key(split, members, more)
        return np.searchsorted(self.placements, wanted) - self.first_placement[split]


def _placement_key(split: Array, members: Array, more: Array) -> Array:
    return (split * _BASE + members) * _BASE + more


@lru_cache(maxsize=64)
def layer_table(
    splits: tuple[tuple[int, int], ...],
    microbatches: tuple[int, ...],
    panels: tuple[tuple[int, ...], ...],
    domain_size: int,
) -> LayerTable:
    """Return every shard and layer.

    Parameters
    ----------
    splits
        Degrees of both axes, ascending.
    microbatches
        Sizes, ascending.
    panels
        For each split the numbers of panels to choose from (one 0 where there are none).
    domain_size
        GPUs in one fast domain: the limit of a placement.
    """
    pairs = np.array(splits, dtype=np.int64).reshape(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    batches = np.array(microbatches, dtype=np.int64)
    panel_counts = np.array([len(choice) for choice in panels], dtype=np.int64)
    split, place = expand(panel_counts * len(batches))
    flat_panels = np.array([p for choice in panels for p in choice], dtype=np.int64)
    shards = {
        "tensor_parallel": first[split],
        "second_parallel": second[split],
        "microbatch_size": batches[place // panel_counts[split]],
        "panels": flat_panels[starts(panel_counts)[split] + place % panel_counts[split]],
    }

    placed, members, more = _axis_placements(first, second, domain_size)
    per_split = np.bincount(placed, minlength=len(first))
    shard, step = expand(per_split[split])
    at = starts(per_split)[split[shard]] + step
    layers = {
        "shard": shard,
        "tensor_parallel": shards["tensor_parallel"][shard],
        "second_parallel": shards["second_parallel"][shard],
        "nvlink_tensor_parallel": members[at],
        "nvlink_second_parallel": more[at],
    }
    finder = _Finder(
        splits=first * _BASE + second,
        microbatches=batches,
        panel_counts=panel_counts,
        first_shard=starts(panel_counts * len(batches)),
        first_layer=starts(per_split[split]),
        placements=_placement_key(placed, members, more),
        first_placement=starts(per_split),
    )
    return LayerTable((splits, microbatches, panels, domain_size), shards, layers, finder)


def _axis_placements(first: Array, second: Array, domain_size: int) -> tuple[Array, Array, Array]:
    """Return for each split the members of both axes in one domain: split, first, second."""
    one = each_divisor(first)
    two = each_divisor(second[one.parent])
    keep = one.value[two.parent] * two.value <= domain_size
    return one.parent[two.parent][keep], one.value[two.parent][keep], two.value[keep]
