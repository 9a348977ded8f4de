"""The search of the roofline estimator: every layout of a cell that the rules admit, factored.

Source: arXiv 2410.00273 and its program; each rule is a named predicate of `rules`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from estimators.contract import Array, Cell, Columns, Mends, Refusal, Scalar, Space, Values
from estimators.divisors import divisors, each_divisor, expand, starts
from estimators.factored import distinct
from estimators.roofline.layouts import (
    PLACEMENT_COLUMNS,
    ROW_COLUMNS,
    Layouts,
    Product,
    SearchedTable,
    layer_table,
)
from estimators.roofline.rules import row_rules, split_rules
from estimators.roofline.strategies import SECOND_AXIS
from estimators.rules import keeps
from estimators.search import BaseSearch, Pair

MIN_LOCAL_SIZE = 128
"""Splits that leave less of a product on a GPU are not searched: fewer of 3 x hidden columns in one
dimension; in two, fewer of hidden columns or of tokens."""

MIN_PANEL_COLUMNS = 512
"""Panels narrower than that are not searched."""

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


Pairs = tuple[tuple[str, Scalar], ...]
"""Values by name, as a key of a cache."""


@lru_cache(maxsize=256)
def _product(searched: tuple[Any, ...], fixed: Pairs, mends: Mends) -> Product:
    """Return all layouts of a cell.

    Parameters
    ----------
    searched
        Values of `SEARCHED`.
    fixed
        Columns that a study holds to one value.
    mends
        R4 (exact splits), R9 (maximal placements) and R11 (whole panels) act here.
    """
    problem, keep = dict(zip(SEARCHED, searched, strict=True)), dict(fixed)
    of_rows = tuple((name, value) for name, value in problem.items() if name != "nvlink_size")
    splits, rows, row_split, panel_place = _splits_and_rows(of_rows, fixed, mends)
    places, place_split = _placements(problem, keep, splits, mends)

    # Splits without a row or without a placement have no layout.
    shared = np.intersect1d(distinct(row_split), distinct(place_split), assume_unique=True)
    with_place, with_row = np.isin(row_split, shared), np.isin(place_split, shared)
    rows, places = _filtered(rows, with_place), _filtered(places, with_row)
    row_split, place_split = row_split[with_place], place_split[with_row]

    table = _layers(problem, mends)
    first, second = splits["tensor_parallel"], _second(splits)
    return Product(
        rows,
        places,
        np.searchsorted(shared, row_split),
        np.searchsorted(shared, place_split),
        table.shard_of(
            rows["tensor_parallel"],
            _second(rows),
            rows["microbatch_size"],
            panel_place[with_place],
        ),
        table.step(
            first[place_split],
            second[place_split],
            places["nvlink_tensor_parallel"],
            places["nvlink_tensor_parallel_2"] * places["nvlink_context_parallel"],
        ),
        table,
    )


def _second(columns: Columns) -> Array:
    return columns["tensor_parallel_2"] * columns["context_parallel"]


@lru_cache(maxsize=64)
def _splits_and_rows(
    problem: Pairs, keep: Pairs, mends: Mends
) -> tuple[dict[str, Array], dict[str, Array], Array, Array]:
    """Return the splits of a problem and their rows, with the split and panel of each row.

    They do not depend on the size of a domain. The cache must hold those of all numbers of GPUs: a
    search visits them between two sizes.
    """
    known, kept = dict(problem), dict(keep)
    splits = _splits(known, kept, mends)
    return splits, *_rows(known, kept, splits, mends)


def _splits(problem: Values, keep: Mapping[str, Scalar], mends: Mends) -> dict[str, Array]:
    """Return degrees that multiply to the GPUs."""
    num_gpus = problem["num_gpus"]
    pairs = np.array(_axes(problem), dtype=np.int64).reshape(-1, 2)
    pairs = pairs[num_gpus % pairs.prod(axis=1) == 0]
    rest = num_gpus // pairs.prod(axis=1)
    child = each_divisor(rest)
    one = np.ones(len(child.parent), dtype=np.int64)
    splits = {
        "tensor_parallel": pairs[child.parent, 0],
        "tensor_parallel_2": one,
        "context_parallel": one,
        "pipeline_parallel": child.value,
        "data_parallel": rest[child.parent] // child.value,
    }
    if problem["strategy"] in SECOND_AXIS:
        splits[SECOND_AXIS[problem["strategy"]]] = pairs[child.parent, 1]
    values = {**problem, **splits}
    return _filtered(splits, keeps(split_rules(mends), values, len(one)) & _kept(splits, keep))


def _axes(problem: Values) -> tuple[tuple[int, int], ...]:
    """Return the degrees of both axes that are searched, ascending.

    They are all degrees that some GPU count with the same primes has, so that cells that differ
    only in GPUs share a layer table.
    """
    hidden, ffn, seq_len = (problem[name] for name in ("hidden_size", "ffn_hidden_size", "seq_len"))
    primes = _primes(problem["num_gpus"])
    two_axes = problem["strategy"] in SECOND_AXIS
    columns = hidden if two_axes else 3 * hidden
    firsts = [
        int(degree)
        for degree in divisors(math.gcd(problem["num_heads"], hidden, ffn))
        if columns // degree >= MIN_LOCAL_SIZE and _is_made_of(int(degree), primes)
    ]
    seconds = [1]
    if two_axes:
        seconds = [
            degree
            for degree in _smooth(primes, seq_len // MIN_LOCAL_SIZE)
            if problem["strategy"] != "summa_2d" or (hidden % degree == 0 and ffn % degree == 0)
        ]
    return tuple((first, second) for first in firsts for second in seconds)


def _primes(number: int) -> tuple[int, ...]:
    """Return the prime factors of a number, each once, ascending."""
    found = []
    for prime in range(2, int(number**0.5) + 1):
        if number % prime == 0:
            found.append(prime)
            while number % prime == 0:
                number //= prime
    return (*found, number) if number > 1 else tuple(found)


def _is_made_of(number: int, primes: tuple[int, ...]) -> bool:
    for prime in primes:
        while number % prime == 0:
            number //= prime
    return number == 1


def _smooth(primes: tuple[int, ...], largest: int) -> list[int]:
    """Return the numbers up to `largest` that only `primes` divide, ascending."""
    found = {1} if largest >= 1 else set()
    for prime in primes:
        powers = [prime**power for power in range(int(math.log(max(largest, 1), prime)) + 2)]
        found = {number * power for number in found for power in powers}
        found = {number for number in found if number <= largest}
    return sorted(found)


@lru_cache(maxsize=4096)
def panel_choices(first: int, second: int, hidden: int, *, whole: bool) -> tuple[int, ...]:
    """Return the numbers of panels that are searched, ascending.

    Parameters
    ----------
    whole
        Begin with a common multiple of both axes (mend R11), not with the larger.
    """
    start = math.lcm(first, second) if whole else max(first, second)
    if hidden / start < MIN_PANEL_COLUMNS:
        return (start,)
    steps = math.ceil(math.log2(hidden // start))
    ladder = (start * 2**step for step in range(steps))
    return tuple(n for n in ladder if hidden % n == 0 and hidden // n >= MIN_PANEL_COLUMNS)


def _panels(problem: Values, mends: Mends, pairs: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    if problem["strategy"] != "summa_2d":
        return [(0,)] * len(pairs)
    whole = "R11" in mends
    return [panel_choices(*pair, problem["hidden_size"], whole=whole) for pair in pairs]


def _rows(
    problem: Values, keep: Mapping[str, Scalar], splits: Columns, mends: Mends
) -> tuple[dict[str, Array], Array, Array]:
    """Expand splits by microbatch sizes and panels.

    Returns
    -------
    The rows; for each its split; and for each the place of its panels among the choices.
    """
    child = each_divisor(problem["global_batch_size"] // splits["data_parallel"])
    pairs = list(zip(splits["tensor_parallel"].tolist(), _second(splits).tolist(), strict=True))
    choices = _panels(problem, mends, pairs)
    counts = np.array([len(choice) for choice in choices], dtype=np.int64)
    every = np.array([number for choice in choices for number in choice], dtype=np.int64)
    parent, place = expand(counts[child.parent])
    split = child.parent[parent]
    columns = {
        **{name: column[split] for name, column in splits.items()},
        "microbatch_size": child.value[parent],
        "summa_panels": every[starts(counts)[split] + place],
    }
    rows = {name: columns[name] for name in ROW_COLUMNS}
    wanted = keeps(row_rules(mends), {**problem, **rows}, len(split)) & _kept(rows, keep)
    return _filtered(rows, wanted), split[wanted], place[wanted]


def _placements(
    problem: Values, keep: Mapping[str, Scalar], splits: Columns, mends: Mends
) -> tuple[dict[str, Array], Array]:
    """Expand splits by the ways to fill a domain: pipeline first, then tensor axes, data.

    Transfers between stages then repeat from row to row, and take less space.
    """
    second = SECOND_AXIS.get(problem["strategy"])
    axes = ["pipeline_parallel", "tensor_parallel", *([second] if second else []), "data_parallel"]
    found = placements(
        [splits[name] for name in axes], problem["nvlink_size"], exact="R9" not in mends
    )
    members = {f"nvlink_{name}": col for name, col in zip(axes, found.members, strict=True)}
    one = np.ones(len(found.parent), dtype=np.int64)
    places = {name: members.get(name, one) for name in PLACEMENT_COLUMNS}
    wanted = _kept(places, keep)
    return _filtered(places, wanted), found.parent[wanted]


def _layers(problem: Values, mends: Mends) -> SearchedTable:
    """Return the layer table of a problem."""
    pairs = _axes(problem)
    return layer_table(
        pairs,
        tuple(divisors(problem["global_batch_size"]).tolist()),
        tuple(_panels(problem, mends, list(pairs))),
        problem["nvlink_size"],
    )


def _kept(columns: Columns, keep: Mapping[str, Scalar]) -> Array:
    """Return the rows with the values that a study fixes."""
    wanted = np.ones(len(next(iter(columns.values()))), dtype=bool)
    for name, column in columns.items():
        if name in keep:
            wanted &= column == keep[name]
    return wanted


def _filtered(columns: Columns, wanted: Array) -> dict[str, Array]:
    return {name: column[wanted] for name, column in columns.items()}


class Placements(NamedTuple):
    """Placements of a table of splits: parent split, and one column a degree."""

    parent: Array
    members: list[Array]


def placements(degrees: list[Array], domain_size: int, *, exact: bool) -> Placements:
    """Enumerate how many members of each group share one fast domain.

    Parameters
    ----------
    degrees
        One column a parallel axis, one element a split.
    domain_size
        GPUs in one fast domain.
    exact
        True: the members' product is exactly the domain (or all GPUs where they fit in one),
        the source's rule, under which a domain of 72 has no placement of powers of two.
        False: maximal placements, those in which no axis can grow to another divisor of its
        degree without leaving the domain (mend R9).

    Returns
    -------
    Placements
        In order of split, then of members axis by axis.

    Notes
    -----
    Source: arXiv 2410.00273, search space; every placement divides its degree.
    """
    total = np.prod(np.stack(degrees), axis=0)
    target = np.minimum(total, domain_size)
    parent = np.arange(len(total))
    product = np.ones(len(total), dtype=np.int64)
    members: list[Array] = []
    room: list[Array] = []
    for degree in degrees:
        child = each_divisor(degree[parent])
        grown = product[child.parent] * child.value
        limit = target[parent[child.parent]]
        keep = (limit % grown == 0) if exact else (grown <= limit)
        origin = child.parent[keep]
        parent, product = parent[origin], grown[keep]
        members = [column[origin] for column in members] + [child.value[keep]]
        room = [column[origin] for column in room] + [child.following[keep]]
    if exact:
        wanted = product == target[parent]
    else:
        wanted = np.ones(len(parent), dtype=bool)
        for chosen, following in zip(members, room, strict=True):
            wanted &= product // chosen * following > target[parent]
    return Placements(parent[wanted], [column[wanted] for column in members])


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
        if _product(*key).num_rows <= CACHED_ROWS:
            yield from _chunks(*key, max_rows)
        else:
            yield from _product(*key).chunks(max_rows)

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
            f"fast domains of {domain} GPUs"
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
    searched: tuple[Any, ...], fixed: Pairs, mends: Mends, max_rows: int
) -> tuple[Layouts, ...]:
    return tuple(_product(searched, fixed, mends).chunks(max_rows))
