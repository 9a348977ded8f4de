"""The layouts of one cell, factored: rows (split x microbatch), placements, distinct layers.

A candidate is a row and a placement of the row's split. Its layer, which depends on tensor
degree, microbatch and placement of the tensor group, is found without a search: the row gives
the first of its layers, the placement how many further on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from estimators.contract import Array, Columns
from estimators.factored import Factored
from estimators.spaces import each_divisor, expand

LAYER_COLUMNS = ("microbatch_size", "tensor_parallel", "nvlink_tensor_parallel")
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


@dataclass(frozen=True)
class LayerTable:
    """Distinct layers of a family of cells.

    Attributes
    ----------
    key
        Arguments of `layer_table`; None for the layers of a batch, which are its rows.
    columns
        `LAYER_COLUMNS`, ordered by tensor degree, microbatch and placement.
    """

    key: Any
    columns: Columns
    first: dict[tuple[int, int], int]


@lru_cache(maxsize=64)
def layer_table(
    degrees: tuple[int, ...], microbatches: tuple[int, ...], domain_size: int
) -> LayerTable:
    """Return every layer of the given tensor degrees and microbatches in a domain size."""
    tensor = np.repeat(np.array(degrees, dtype=np.int64), len(microbatches))
    batch = np.tile(np.array(microbatches, dtype=np.int64), len(degrees))
    child = each_divisor(tensor)
    keep = child.value <= domain_size
    parent, members = child.parent[keep], child.value[keep]
    columns = {
        "microbatch_size": batch[parent],
        "tensor_parallel": tensor[parent],
        "nvlink_tensor_parallel": members,
    }
    starts = np.searchsorted(parent, np.arange(len(tensor)))
    first = {
        (int(t), int(b)): int(start) for t, b, start in zip(tensor, batch, starts, strict=True)
    }
    return LayerTable((degrees, microbatches, domain_size), columns, first)


@dataclass(frozen=True)
class Layouts(Factored):
    """Layouts with the links between their tables.

    Attributes
    ----------
    layers
        The layer table.
    row_layer
        For each row one of its layers (any placement: for what does not depend on it).
    placement_layer
        For each placement one layer of its tensor degree.
    candidate_layer
        For each candidate its layer; None where layers are candidates.
    placement_row
        For each placement one row of its split; None where they are the same.
    """

    layers: LayerTable
    row_layer: Array | None
    placement_layer: Array | None
    candidate_layer: Array | None
    placement_row: Array | None
    _known: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` makes, made at the first call of that `name`.

        For what follows from the layouts and from those problem values that a search's
        layouts depend on anyway: cells of other systems share it.
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
    layers = LayerTable(None, {name: columns[name] for name in LAYER_COLUMNS}, {})
    return Layouts(
        tables,
        {"row": None, "placement": None},
        layers=layers,
        row_layer=None,
        placement_layer=None,
        candidate_layer=None,
        placement_row=None,
    )


@dataclass(frozen=True)
class Product:
    """All layouts of a cell before they are cut into chunks.

    Rows and placements are ordered by split; `row_split` and `placement_split` say which.
    """

    rows: Columns
    placements: Columns
    row_split: Array
    placement_split: Array
    layers: LayerTable

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

        A single row with more placements than that makes a chunk of its own.
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
        split = self.row_split[start:stop]
        low, high = np.searchsorted(self.placement_split, [split[0], split[-1] + 1])
        placement_split = self.placement_split[low:high]
        rows = {name: column[start:stop] for name, column in self.rows.items()}
        placements = {name: column[low:high] for name, column in self.placements.items()}

        row_index, place = expand(per_row)
        placement_index = np.searchsorted(placement_split, split)[row_index] + place
        first = self.layers.first
        row_layer = np.array(
            [
                first[key]
                for key in zip(
                    rows["tensor_parallel"].tolist(), rows["microbatch_size"].tolist(), strict=True
                )
            ],
            dtype=np.int64,
        )
        # Which of its degree's divisors a placement has is the step from a row's first layer.
        place_row = np.clip(np.searchsorted(split, placement_split), 0, len(split) - 1)
        place_layer = row_layer[place_row]
        members = self.layers.columns["nvlink_tensor_parallel"]
        step = _divisor_place(
            rows["tensor_parallel"][place_row], placements["nvlink_tensor_parallel"]
        )
        if not np.array_equal(members[place_layer + step], placements["nvlink_tensor_parallel"]):
            raise AssertionError("a placement's layer is not where the layer table has it")
        return Layouts(
            {"row": rows, "placement": placements},
            {"row": row_index, "placement": placement_index},
            layers=self.layers,
            row_layer=row_layer,
            placement_layer=place_layer,
            candidate_layer=row_layer[row_index] + step[placement_index],
            placement_row=place_row,
        )


def _divisor_place(numbers: Array, found: Array) -> Array:
    """Return for each divisor `found` of `numbers` how many smaller divisors there are."""
    child = each_divisor(numbers)
    smaller = child.value < found[child.parent]
    return np.bincount(child.parent, weights=smaller, minlength=len(numbers)).astype(np.int64)
