"""The search space of the roofline estimator: every layout of a cell, factored.

Source: arXiv 2410.00273 and its program; each rule is a named predicate of `rules`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from estimators.contract import (
    Catalog,
    Cell,
    EmptySpaceError,
    Mends,
    Problem,
    Refusal,
    RefusedError,
    Scalar,
    Space,
)
from estimators.inputs import Inputs, records
from estimators.roofline.inputs import CHOICES, KEYS, OPTIONAL, PROBLEM, SYSTEM, resolve_problem
from estimators.roofline.layouts import Layouts, Product
from estimators.roofline.rules import BATCH_RULES, row_rules, split_rules
from estimators.roofline.space import product
from estimators.table_search import combinations, distinct

CACHED_ROWS = 16_384
"""Cells up to this size keep their layouts and all that follows from them: systems and variants
share them. In larger cells evaluation outweighs enumeration."""

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
"""What the set of layouts depends on, besides the mends R4, R9, R11 and what a study keeps to."""


class RooflineSearch:
    """Exhaustive search over splits, microbatches and NVLink placements."""

    space_columns = tuple(name for name in (*PROBLEM, *CHOICES, *KEYS) if name not in SYSTEM)
    system_columns = SYSTEM
    row_columns: frozenset[str] = frozenset()

    def __init__(self, estimator: str, version: int, relation: str) -> None:
        self._identity = (estimator, version, relation)

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield a cell for each problem, choice and kept value; see `contract.Search`.

        Raises
        ------
        RefusedError
            If a value is faulty, or if a kept value leaves no layout in any cell.
        """
        problems = _problems(space, catalog)
        names = [name for name in KEYS if name in space]
        kept = [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*(space[name] for name in names))
        ]
        cells = [
            Cell(*self._identity, Problem(problem), mends, {n: row[n] for n in CHOICES}, dict(keep))
            for row in problems
            for problem in [{name: row[name] for name in PROBLEM}]
            for keep in kept
        ]
        self._refuse_empty(cells)
        yield from cells

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

    def _refuse_empty(self, cells: list[Cell]) -> None:
        """Refuse a space without a layout, or with a kept value that none has."""
        counts = [self.count(cell) for cell in cells]
        used = {pair for cell, n in zip(cells, counts, strict=True) if n for pair in _pairs(cell)}
        asked = {pair: cell for cell in reversed(cells) for pair in _pairs(cell)}
        lost = [(pair, cell) for pair, cell in asked.items() if pair not in used]
        if lost:
            raise EmptySpaceError(_why(cell, *pair) for pair, cell in reversed(lost))
        if not any(counts):
            raise EmptySpaceError([_empty(cells[0])])


def _empty(cell: Cell) -> Refusal:
    """Say why a space has no layout at all, by its first cell."""
    domain = cell.problem.values["nvlink_size"]
    hint = (
        "degrees must multiply to it and divide heads, layers and batch; placements must fill "
        f"NVLink domains of {domain}"
    )
    if "R9" not in cell.mends:
        hint += " exactly: variant corrected (mend R9) admits others"
    num_gpus = cell.problem.values["num_gpus"]
    return Refusal("num_gpus", num_gpus, "leaves no layout in the whole space", hint)


def _problems(space: Space, catalog: Catalog) -> list[dict[str, Scalar]]:
    """Return every combination of problem and choice values, resolved."""
    # GPU counts vary fastest, so that the systems' layer tables serve cell after cell.
    inputs = Inputs(combinations({n: space[n] for n in (*CHOICES, *PROBLEM) if n in space}))
    resolve_problem(inputs, catalog)
    inputs.require(("num_gpus",), "say how many GPUs the run has")
    if inputs.refusals:
        raise RefusedError(distinct(inputs.refusals))
    return records(inputs.finish((*PROBLEM, *CHOICES), OPTIONAL))


def _pairs(cell: Cell) -> set[tuple[str, Scalar]]:
    pairs = set(cell.kept.items())
    if cell.choices["virtual_pipeline"] != 1:
        pairs.add(("virtual_pipeline", cell.choices["virtual_pipeline"]))
    return pairs


def _why(cell: Cell, name: str, value: Scalar) -> Refusal:
    """Say why `value` leaves nothing: the rule that it breaks, or that nothing has it."""
    known = {**cell.values, **cell.kept}
    every = (*split_rules(cell.mends), *row_rules(cell.mends), *BATCH_RULES)
    for rule in every:
        applies = rule.column == name and all(need in known for need in rule.needs)
        if applies and not np.all(rule.holds(known)):
            return Refusal(name, value, rule.reason(known), rule.hint(known))
    return Refusal(
        name,
        value,
        "leaves no layout in any cell of the space",
        "it must divide what it splits, beside the other values that the study names",
    )


_searched = itemgetter(*SEARCHED)


def _key(cell: Cell) -> tuple[Any, ...]:
    kept = tuple(sorted(cell.kept.items()))
    return _searched(cell.values), kept, cell.mends & {"R4", "R9", "R11"}


@lru_cache(maxsize=256)
def _chunks(
    searched: tuple[Any, ...], kept: tuple[tuple[str, Scalar], ...], mends: Mends, max_rows: int
) -> tuple[Layouts, ...]:
    return tuple(_product(searched, kept, mends).chunks(max_rows))


@lru_cache(maxsize=256)
def _product(
    searched: tuple[Any, ...], kept: tuple[tuple[str, Scalar], ...], mends: Mends
) -> Product:
    return product(dict(zip(SEARCHED, searched, strict=True)), dict(kept), mends)
