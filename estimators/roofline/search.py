"""The search space of the roofline estimator: every layout of a cell, factored.

Source: arXiv 2410.00273 and its program; each rule is a named predicate of `inputs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    Mends,
    Problem,
    Refusal,
    RefusedError,
    Scalar,
    Space,
)
from estimators.inputs import Inputs, records
from estimators.roofline import inputs as rules
from estimators.roofline.inputs import CHOICES, KEYS, OPTIONAL, PROBLEM, SYSTEM
from estimators.roofline.layouts import (
    PLACEMENT_COLUMNS,
    ROW_COLUMNS,
    Layouts,
    Product,
    layer_table,
)
from estimators.rules import keeps
from estimators.spaces import divisors, each_divisor, placements

MIN_LOCAL_WIDTH = 128
"""Splits that leave fewer of the 3 x hidden columns of the qkv product are not searched."""

CACHED_ROWS = 16_384
"""Cells up to this size keep their layouts and all that follows from them: systems and variants
share them. In larger cells evaluation outweighs enumeration."""

SEARCHED = (
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
"""What the set of layouts depends on, besides the mends R4 and R9 and what a study keeps to."""


class RooflineSearch:
    """Exhaustive search over splits, microbatches and NVLink placements."""

    space_columns = tuple(name for name in (*PROBLEM, *CHOICES, *KEYS) if name not in SYSTEM)
    system_columns = SYSTEM

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
            raise RefusedError(_why(cell, *pair) for pair, cell in reversed(lost))
        if not any(counts):
            raise RefusedError([_empty(cells[0])])


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
    order = [n for n in (*CHOICES, *PROBLEM) if n in space]
    sizes = [len(space[name]) for name in order]
    total = int(np.prod(sizes, dtype=np.int64))
    combinations = np.unravel_index(np.arange(total), sizes or [1])
    columns = {}
    for name, index in zip(order, combinations, strict=False):
        values = np.array([*space[name], None], dtype=object)[:-1]
        columns[name] = values[index]
    inputs = Inputs(columns)
    rules.resolve_problem(inputs, catalog)
    if inputs.refusals:
        raise RefusedError(_distinct(inputs.refusals))
    return records(inputs.finish((*PROBLEM, *CHOICES), OPTIONAL))


def _distinct(refusals: list[Refusal]) -> list[Refusal]:
    """Return one refusal a fault: combinations repeat them."""
    found = {(r.column, r.value, r.reason): r for r in reversed(refusals)}
    return [Refusal(r.column, r.value, r.reason, r.hint) for r in reversed(found.values())]


def _pairs(cell: Cell) -> set[tuple[str, Scalar]]:
    pairs = set(cell.kept.items())
    if cell.choices["virtual_pipeline"] != 1:
        pairs.add(("virtual_pipeline", cell.choices["virtual_pipeline"]))
    return pairs


def _why(cell: Cell, name: str, value: Scalar) -> Refusal:
    """Say why `value` leaves nothing: the rule that it breaks, or that nothing has it."""
    known = {**cell.values, **cell.kept}
    every = (*rules.split_rules(cell.mends), *rules.ROW_RULES, *rules.BATCH_RULES)
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
    return _searched(cell.values), kept, cell.mends & {"R4", "R9"}


@lru_cache(maxsize=256)
def _chunks(
    searched: tuple[int, ...], kept: tuple[tuple[str, Scalar], ...], mends: Mends, max_rows: int
) -> tuple[Layouts, ...]:
    return tuple(_product(searched, kept, mends).chunks(max_rows))


@lru_cache(maxsize=256)
def _product(
    searched: tuple[int, ...], kept: tuple[tuple[str, Scalar], ...], mends: Mends
) -> Product:
    """Enumerate splits, rows and placements of tensor_1d."""
    problem = dict(zip(SEARCHED, searched, strict=True))
    keep = dict(kept)
    splits = _splits(problem, keep, mends)
    rows, row_split = _rows(problem, keep, splits)
    places, place_split = _placements(problem, keep, splits, mends)

    # Splits without a row or without a placement have no layout.
    shared = np.intersect1d(row_split, place_split)
    with_place, with_row = np.isin(row_split, shared), np.isin(place_split, shared)
    return Product(
        {name: column[with_place] for name, column in rows.items()},
        {name: column[with_row] for name, column in places.items()},
        np.searchsorted(shared, row_split[with_place]),
        np.searchsorted(shared, place_split[with_row]),
        _layers(problem),
    )


def _splits(problem: Mapping[str, int], keep: Mapping[str, Scalar], mends: Mends) -> Columns:
    """Return tensor, pipeline and data degrees that multiply to the GPUs."""
    tensor = _tensor_degrees(problem)
    tensor = tensor[problem["num_gpus"] % tensor == 0]
    child = each_divisor(problem["num_gpus"] // tensor)
    splits = {
        "tensor_parallel": tensor[child.parent],
        "pipeline_parallel": child.value,
        "data_parallel": problem["num_gpus"] // tensor[child.parent] // child.value,
    }
    size = len(child.parent)
    return _filtered(
        splits, keeps(rules.split_rules(mends), {**problem, **splits}, size) & _kept(splits, keep)
    )


def _tensor_degrees(problem: Mapping[str, int]) -> Array:
    tensor: Array = divisors(problem["num_heads"])
    fits: Array = problem["hidden_size"] % tensor == 0
    fits &= problem["ffn_hidden_size"] % tensor == 0
    fits &= 3 * problem["hidden_size"] // tensor >= MIN_LOCAL_WIDTH
    return tensor[fits]


def _rows(
    problem: Mapping[str, int], keep: Mapping[str, Scalar], splits: Columns
) -> tuple[Columns, Array]:
    """Expand splits by the microbatch sizes of a replica's share of the batch."""
    child = each_divisor(problem["global_batch_size"] // splits["data_parallel"])
    size = len(child.parent)
    one = np.ones(size, dtype=np.int64)
    columns = {
        **{name: column[child.parent] for name, column in splits.items()},
        "tensor_parallel_2": one,
        "context_parallel": one,
        "microbatch_size": child.value,
        "summa_panels": np.zeros(size, dtype=np.int64),
    }
    rows = {name: columns[name] for name in ROW_COLUMNS}
    wanted = keeps(rules.ROW_RULES, {**problem, **rows}, size) & _kept(rows, keep)
    return _filtered(rows, wanted), child.parent[wanted]


def _placements(
    problem: Mapping[str, int], keep: Mapping[str, Scalar], splits: Columns, mends: Mends
) -> tuple[Columns, Array]:
    """Expand splits by the ways to fill a domain, tensor members first, then data, pipeline."""
    axes = ("tensor_parallel", "data_parallel", "pipeline_parallel")
    found = placements(
        [splits[name] for name in axes], problem["nvlink_size"], exact="R9" not in mends
    )
    members = {f"nvlink_{name}": col for name, col in zip(axes, found.members, strict=True)}
    one = np.ones(len(found.parent), dtype=np.int64)
    places = {name: members.get(name, one) for name in PLACEMENT_COLUMNS}
    wanted = _kept(places, keep)
    return _filtered(places, wanted), found.parent[wanted]


def _layers(problem: Mapping[str, int]) -> Any:
    return layer_table(
        tuple(_tensor_degrees(problem).tolist()),
        tuple(divisors(problem["global_batch_size"]).tolist()),
        problem["nvlink_size"],
    )


def _kept(columns: Columns, keep: Mapping[str, Scalar]) -> Array:
    wanted = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for name, column in columns.items():
        if name in keep:
            wanted &= column == keep[name]
    return wanted


def _filtered(columns: Columns, wanted: Array) -> dict[str, Array]:
    return {name: column[wanted] for name, column in columns.items()}
