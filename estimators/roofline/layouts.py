"""The layouts of one cell, factored: rows (split x microbatch x panels) and placements.

A candidate is a row and a placement of the row's split. Its layer is found without a search:
the row gives the first of its layers, the placement the distance from there.

The work of a layer depends on its shard: degrees of both axes, microbatch, panels. Its time
depends on the placement of both axes as well. Cells that differ in GPU count, or in the system,
share a table of the distinct shards and layers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from estimators.contract import Array, Columns
from estimators.divisors import each_divisor, expand, starts
from estimators.factored import Factored

ROW_COLUMNS = (
    "data_parallel",
    "tensor_parallel",
    "tensor_parallel_2",
    "context_parallel",
    "pipeline_parallel",
    "microbatch_size",
    "summa_panels",
)
PLACEMENT_COLUMNS = (
    "nvlink_tensor_parallel",
    "nvlink_tensor_parallel_2",
    "nvlink_context_parallel",
    "nvlink_data_parallel",
    "nvlink_pipeline_parallel",
)


_BASE = 1 << 21
"""Degrees are smaller: pairs of them make one number."""


@dataclass(frozen=True)
class LayerTable:
    """The distinct shards and layers of a family of cells, or those of a batch, one a row.

    Attributes
    ----------
    shards
        ``tensor_parallel``, ``second_parallel``, ``microbatch_size``, ``panels``; ordered by
        split, microbatch, panels.
    layers
        ``shard``, degrees and placements of both axes; ordered by shard and placement.
    """

    shards: Columns
    layers: Columns


@dataclass(frozen=True)
class SearchedTable(LayerTable):
    """A layer table whose rows are found from the order in which they were made.

    Attributes
    ----------
    key
        Arguments of `layer_table`.
    splits, placements
        Codes of splits and of their placements, ascending.
    first_shard, first_placement
        Of each split.
    first_layer
        Of each shard.
    """

    key: tuple[Any, ...]
    splits: Array
    microbatches: Array
    panel_counts: Array
    placements: Array
    first_shard: Array
    first_placement: Array
    first_layer: Array

    def _split(self, first: Array, second: Array) -> Array:
        return np.searchsorted(self.splits, first * _BASE + second)

    def shard_of(self, first: Array, second: Array, microbatch: Array, panel_place: Array) -> Array:
        """Return the row of `shards` of each combination; `panel_place` counts panel choices."""
        split = self._split(first, second)
        batch = np.searchsorted(self.microbatches, microbatch)
        return self.first_shard[split] + batch * self.panel_counts[split] + panel_place

    def step(self, first: Array, second: Array, members: Array, second_members: Array) -> Array:
        """Return the distance of a placement's layer from the first layer of its shard."""
        split = self._split(first, second)
        wanted = _placement_key(split, members, second_members)
        return np.searchsorted(self.placements, wanted) - self.first_placement[split]


def _placement_key(split: Array, members: Array, more: Array) -> Array:
    return (split * _BASE + members) * _BASE + more


@lru_cache(maxsize=64)
def layer_table(
    splits: tuple[tuple[int, int], ...],
    microbatches: tuple[int, ...],
    panels: tuple[tuple[int, ...], ...],
    domain_size: int,
) -> SearchedTable:
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
    return SearchedTable(
        shards,
        layers,
        key=(splits, microbatches, panels, domain_size),
        splits=first * _BASE + second,
        microbatches=batches,
        panel_counts=panel_counts,
        placements=_placement_key(placed, members, more),
        first_shard=starts(panel_counts * len(batches)),
        first_placement=starts(per_split),
        first_layer=starts(per_split[split]),
    )


def _axis_placements(first: Array, second: Array, domain_size: int) -> tuple[Array, Array, Array]:
    """Return for each split the members of both axes in one domain: split, first, second."""
    one = each_divisor(first)
    two = each_divisor(second[one.parent])
    keep = one.value[two.parent] * two.value <= domain_size
    return one.parent[two.parent][keep], one.value[two.parent][keep], two.value[keep]


@dataclass(frozen=True)
class Layouts(Factored):
    """Layouts with the links between their tables; None: the table's rows are the layouts.

    Attributes
    ----------
    table
        Shards and layers.
    row_shard
        For each row its shard.
    placement_shard
        For each placement one shard of its split.
    candidate_layer
        For each candidate its layer.
    placement_row
        For each placement one row of its split.
    """

    table: LayerTable
    row_shard: Array | None
    placement_shard: Array | None
    candidate_layer: Array | None
    placement_row: Array | None
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, computed at the first call with that `name`.

        The result may depend only on the layouts and on problem values that decide them, because
        cells of other systems share it.
        """
        if name not in self._known:
            self._known[name] = make()
        return self._known[name]


def flat(columns: Columns) -> Layouts:
    """Return a batch of independent layouts: every table is the batch itself."""
    tables = {
        "row": {name: columns[name] for name in ROW_COLUMNS},
        "placement": {name: columns[name] for name in PLACEMENT_COLUMNS},
    }
    degrees = {
        "tensor_parallel": columns["tensor_parallel"],
        "second_parallel": columns["tensor_parallel_2"] * columns["context_parallel"],
    }
    shards = {
        **degrees,
        "microbatch_size": columns["microbatch_size"],
        "panels": columns["summa_panels"],
    }
    layers = {
        **degrees,
        "nvlink_tensor_parallel": columns["nvlink_tensor_parallel"],
        "nvlink_second_parallel": columns["nvlink_tensor_parallel_2"]
        * columns["nvlink_context_parallel"],
    }
    index = {"row": None, "placement": None}
    return Layouts(tables, index, LayerTable(shards, layers), None, None, None, None)


@dataclass(frozen=True)
class Product:
    """All layouts of a cell before they are cut into chunks.

    Rows and placements are ordered by split; `row_split` and `placement_split` say which.
    """

    rows: Columns
    placements: Columns
    row_split: Array
    placement_split: Array
    row_shard: Array
    placement_step: Array
    table: SearchedTable

    @cached_property
    def _per_row(self) -> Array:
        num_splits = max(self.row_split.max(initial=-1), self.placement_split.max(initial=-1)) + 1
        return np.bincount(self.placement_split, minlength=num_splits)[self.row_split]

    @cached_property
    def num_rows(self) -> int:
        """Number of layouts, from the sizes of the tables alone."""
        return int(self._per_row.sum())

    def chunks(self, max_rows: int) -> Iterator[Layouts]:
        """Yield the layouts in order, in chunks of whole rows of at most `max_rows`.

        A row with more placements than that is one chunk.
        """
        per_row = self._per_row
        ends = np.cumsum(per_row)
        start = 0
        while start < len(per_row):
            done = ends[start] - per_row[start]
            stop = max(int(np.searchsorted(ends, done + max_rows, side="right")), start + 1)
            if ends[stop - 1] > done:
                yield self._chunk(start, stop, per_row[start:stop])
            start = stop

    def _chunk(self, start: int, stop: int, per_row: Array) -> Layouts:
        """Return the layouts of the rows from `start` to `stop`, linked to their tables."""
        split = self.row_split[start:stop]
        low, high = np.searchsorted(self.placement_split, [split[0], split[-1] + 1])
        placement_split = self.placement_split[low:high]
        row_shard = self.row_shard[start:stop]
        row_index, place = expand(per_row)
        placement_index = np.searchsorted(placement_split, split)[row_index] + place
        # Every split between the first and the last has rows: any one represents it.
        placement_row = np.clip(np.searchsorted(split, placement_split), 0, len(split) - 1)
        first_layer = self.table.first_layer[row_shard]
        return Layouts(
            {
                "row": {name: column[start:stop] for name, column in self.rows.items()},
                "placement": {name: col[low:high] for name, col in self.placements.items()},
            },
            {"row": row_index, "placement": placement_index},
            table=self.table,
            row_shard=row_shard,
            placement_shard=row_shard[placement_row],
            candidate_layer=first_layer[row_index] + self.placement_step[low:high][placement_index],
            placement_row=placement_row,
        )
