"""The search space of the roofline estimator: every layout of a cell, factored.

Source: arXiv 2410.00273 and its program; each rule is a named predicate of `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

from estimators.contract import Cell, Mends, Refusal, Scalar, Space
from estimators.roofline.layouts import Layouts, Product
from estimators.roofline.space import product
from estimators.search import BaseSearch, Pair

CACHED_ROWS = 16_384
"""Cells of at most this size keep their layouts, and figures that follow from them, for cells of
other systems and variants. In larger cells evaluation takes longer than enumeration."""

SEARCHED = (
    "strategy",
    "num_layers",
    "num_heads",
    "hidden_size",
    "ffn_hidden_size",
    "seq_len",
    "nvlink_size",
    "num_gpus",
    "global_batch_size",
    "virtual_pipeline",
)
"""Values that decide the layouts, with mends R4, R9, R11 and fixed columns."""


class RooflineSearch(BaseSearch):
    """Exhaustive search over splits, microbatches and NVLink placements, factored."""

    @property
    def neutral(self) -> Mapping[str, Scalar]:
        """None: ids of its cells have every choice."""
        return {}

    def count(self, cell: Cell) -> int:
        """Return the number of layouts from the sizes of their tables; see `contract.Search`."""
        return _product(*_key(cell)).num_rows

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Layouts]:
        """Yield chunks of whole rows, in order of split, microbatch, placement."""
        key = _key(cell)
        product = _product(*key)
        if product.num_rows <= CACHED_ROWS:
            yield from _chunks(*key, max_rows)
        else:
            yield from product.chunks(max_rows)

    def held_pairs(self, space: Space) -> set[Pair]:
        """Return fixed columns and chunks of a stage with the values that a study names."""
        chunks = {("virtual_pipeline", value) for value in space.get("virtual_pipeline", ())}
        return super().held_pairs(space) | chunks - {("virtual_pipeline", 1)}

    def held(self, cell: Cell) -> Mapping[str, Scalar]:
        """Return fixed columns, and the chunks of a stage: a choice that also excludes layouts."""
        chunks = cell.choices["virtual_pipeline"]
        return {**cell.fixed, **({} if chunks == 1 else {"virtual_pipeline": chunks})}

    def empty(self, cell: Cell) -> Refusal:
        """Return why a space has no layout at all, by its first cell."""
        domain = cell.problem.values["nvlink_size"]
        hint = (
            "degrees must multiply to it and divide heads, layers and batch; placements must fill "
            f"NVLink domains of {domain}"
        )
        if "R9" not in cell.mends:
            hint += " exactly: variant corrected (mend R9) admits others"
        num_gpus = cell.problem.values["num_gpus"]
        return Refusal("num_gpus", num_gpus, "leaves no layout in the whole space", hint)


_searched = itemgetter(*SEARCHED)


def _key(cell: Cell) -> tuple[Any, ...]:
    fixed = tuple(sorted(cell.fixed.items()))
    return _searched(cell.values), fixed, cell.mends & {"R4", "R9", "R11"}


@lru_cache(maxsize=256)
def _chunks(
    searched: tuple[Any, ...], fixed: tuple[tuple[str, Scalar], ...], mends: Mends, max_rows: int
) -> tuple[Layouts, ...]:
    return tuple(_product(searched, fixed, mends).chunks(max_rows))


@lru_cache(maxsize=256)
def _product(
    searched: tuple[Any, ...], fixed: tuple[tuple[str, Scalar], ...], mends: Mends
) -> Product:
    return product(dict(zip(SEARCHED, searched, strict=True)), dict(fixed), mends)
