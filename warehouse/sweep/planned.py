"""The cells of a study: a list of few, or a stream of many with its size from a sample.

The cells of a stream are made again at each iteration, so that few of them are in memory at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    EmptySpaceError,
    Estimator,
    Mends,
    RefusedError,
    Scalar,
    Space,
)
from estimators.registry import get
from warehouse.errors import InputError
from warehouse.evaluate.profiles import (
    NO_PROFILES,
    Profiles,
    cells_of_space,
    check_space,
    with_profiles,
)

if TYPE_CHECKING:
    from warehouse.studies.study import Study

MOST_LISTED = 5_000
"""Most cells that are listed and counted one by one, which takes a few seconds."""

_DRAWS, _DRAWN_COMBINATIONS = 64, 16
"""Draws from a larger study, and the combinations of each draw: neighbours share layouts."""

_LEAST_DEALT = 32
"""Parts of a space that each shard gets, where there are as many: fewer would differ in size."""

Sized = Sequence[tuple[Cell, int]]
"""Cells, each with its number of rows."""

Axes = dict[str, tuple["Scalar", ...]]

Groups = dict[str, list[tuple["Scalar", ...]]]
"""Values of each axis, cut in groups: one group of each axis is a part of a space."""

OnChecked = Callable[[int, int], None]
"""Called with the number of checked combinations, and of all."""


@dataclass(frozen=True)
class Size:
    """Cells and rows of a study, in total and not stored yet."""

    cells: int
    rows: int
    missing_cells: int
    missing_rows: int


@dataclass(frozen=True)
class Plan:
    """The cells of a study, each once and with its exact number of rows."""

    estimator: Estimator
    cells: Sized
    catalog: Catalog
    """The reference tables with the study's own models and systems, and its profiles."""

    @property
    def num_rows(self) -> int:
        """Rows of all cells."""
        return sum(rows for _, rows in self.cells)

    @property
    def counted(self) -> Plan:
        """The cells from which `size` is computed: all of them."""
        return self

    def of(self, relation: str) -> Iterator[Cell]:
        """Yield the cells of a relation in order."""
        return (cell for cell, _ in self.cells if cell.relation == relation)

    def count(self, cell: Cell) -> int:
        """Return the number of rows of one of the cells."""
        return self._rows[cell.id]

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {cell.id: rows for cell, rows in self.cells}

    def size(self, stored: Collection[int]) -> Size:
        """Return the exact size, given ids of stored cells."""
        missing = [rows for cell, rows in self.cells if cell.id not in stored]
        return Size(len(self.cells), self.num_rows, len(missing), sum(missing))


@dataclass
class Stream:
    """The cells of a study of many combinations.

    Attributes
    ----------
    catalog
        As of `Plan`.
    counted, share
        Cells of a sample of the combinations, and the sample's share of all combinations.
    """

    study: Study
    estimator: Estimator
    catalog: Catalog
    counted: Plan
    share: float
    _parts: list[tuple[Space, Mends]] | None = None
    _relations: set[str] = field(default_factory=set)

    def check(self, on_checked: OnChecked = lambda _done, _all: None) -> None:
        """Raise the error of `cells_of_study`, before the first cell.

        Raises
        ------
        InputError
            If the estimator refuses the space.
        """
        done, total = 0, num_cells(self.study)

        def add(number: int) -> None:
            nonlocal done
            done += number
            on_checked(min(done, total), total)

        self._parts = _checked_parts(self.study, self.catalog, add)

    def of(self, relation: str) -> Iterator[Cell]:
        """Yield the cells of a relation in order; overlapping spaces yield a cell twice."""
        if self._relations and relation not in self._relations:
            return
        if self._parts is None:
            self.check()
        for space, mends in self._parts or ():
            for cell in cells_of_space(self.estimator, space, self.catalog, mends, is_checked=True):
                self._relations.add(cell.relation)
                if cell.relation == relation:
                    yield cell

    def count(self, cell: Cell) -> int:
        """Return the exact number of rows of a cell."""
        return num_layouts(self.estimator, cell)

    def size(self, stored: Collection[int]) -> Size:
        """Return the estimated size, given the ids of those cells of the sample that are stored."""
        found = self.counted.size(stored)
        return Size(*(round(number / self.share) for number in vars(found).values()))


Asked = Plan | Stream


def planned(
    study: Study, catalog: Catalog, profiles: Callable[[], Profiles] = lambda: NO_PROFILES
) -> Asked:
    """Return the cells of a study: as a list if they are few, else as a stream.

    The parameters are those of `plan`.

    Raises
    ------
    InputError
        If the study is refused. The `check` of a stream may refuse combinations outside the sample
        later.
    """
    if num_cells(study) <= MOST_LISTED:
        return plan(study, catalog, profiles)
    return _stream(study, catalog, profiles)


def plan(
    study: Study, catalog: Catalog, profiles: Callable[[], Profiles] = lambda: NO_PROFILES
) -> Plan:
    """Return the study's cells and their row counts, without evaluating anything.

    Parameters
    ----------
    profiles
        Returns the stored profiles; called only if the study names one.

    Raises
    ------
    InputError
        If the estimator refuses the space, or the catalog a definition of the study.
    """
    estimator = get(study.estimator)
    catalog = with_profiles(study.defined.added_to(catalog), profiles, estimator)
    cells: dict[int, tuple[Cell, int]] = {}
    for cell in cells_of_study(study, catalog):
        if cell.id not in cells:
            cells[cell.id] = (cell, num_layouts(estimator, cell))
    return Plan(estimator, tuple(cells.values()), catalog)


def num_cells(study: Study) -> int:
    """Return the approximate number of cells of a study, from its values alone."""
    estimator = get(study.estimator)
    total = 0
    for space in study.spaces:
        total += _combinations(_of_cells(estimator, {**estimator.searched_by_default, **space}))
    return total * len(study.mends)


def num_layouts(estimator: Estimator, cell: Cell) -> int:
    """Return the exact number of rows of a cell."""
    assert estimator.search is not None
    return estimator.search.count(cell)


def cells_of_study(study: Study, catalog: Catalog) -> Iterator[Cell]:
    """Yield the cells of a study, one by one; overlapping spaces yield a cell twice.

    Parameters
    ----------
    catalog
        The reference tables with the study's own models and systems, and its profiles.

    Raises
    ------
    InputError
        If the estimator refuses the space.
    """
    estimator = get(study.estimator)
    if estimator.search is None:
        raise InputError(
            f"{study.file}: `estimator` {study.estimator} has no search",
            f"use `warehouse evaluate {study.estimator}` on a file of configurations",
        )
    try:
        for space in study.spaces:
            yield from _cells_of_variants(estimator, space, catalog, study.mends)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None


def cells_of_part(study: Study, catalog: Catalog, number: int, of: int) -> Iterator[Cell]:
    """Yield the cells of one of `of` parts of a study, counted from 1, without making the others.

    The combinations of problem values are dealt, sorted by their size. Choices and held values of
    layouts stay together, because a cell of one may complete another. The first part checks the
    whole study; in the others, only faults of their own combinations are found.

    Raises
    ------
    InputError
        If the estimator refuses the part.
    """
    if of == 1:
        yield from cells_of_study(study, catalog)
        return
    estimator = get(study.estimator)
    sound = _checked_parts(study, catalog, lambda _number: None) if number == 1 else None
    try:
        dealt = _dealt(estimator, study.spaces, number, of)
        for space, parts in zip(study.spaces, dealt, strict=True):
            for mends in study.mends:
                if sound is not None and (space, mends) not in sound:
                    continue
                cells = (
                    cell
                    for part in parts
                    for cell in cells_of_space(estimator, part, catalog, mends, is_checked=True)
                )
                yield from _unless_empty(estimator, space, catalog, mends, cells)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None


def _unless_empty(
    estimator: Estimator, space: Space, catalog: Catalog, mends: Mends, cells: Iterator[Cell]
) -> Iterator[Cell]:
    """Yield the cells of a part of a space, unless the whole space has no layout."""
    waiting: list[Cell] = []
    for cell in cells:
        waiting.append(cell)
        if num_layouts(estimator, cell):
            yield from waiting
            yield from cells
            return
    if waiting:
        try:
            check_space(estimator, space, catalog, mends, lambda _number: None)
        except EmptySpaceError:
            return
        yield from waiting


def _dealt(
    estimator: Estimator, spaces: Sequence[Space], number: int, of: int
) -> list[list[Space]]:
    """Return the parts of each space that belong to one of `of` parts, in the order of the study.

    Parts of all spaces are dealt by size. Neighbours in that order have similar numbers of rows,
    and each deal is in the opposite direction of the last, so that all get as many large ones.
    """
    cut = [_cut(estimator, space, of) for space in spaces]
    sizes = [_sizes(groups) for groups in cut]
    order = np.argsort(-np.concatenate(sizes), kind="stable")
    deals = np.arange(-(-len(order) // of))
    turns = deals * of + np.where(deals % 2 == 0, number - 1, of - number)
    own = np.sort(order[turns[turns < len(order)]])
    dealt: list[list[Space]] = []
    first = 0
    for space, groups, of_parts in zip(spaces, cut, sizes, strict=True):
        places = own[(own >= first) & (own < first + len(of_parts))] - first
        first += len(of_parts)
        dealt.append([{**space, **axes} for axes in _joined(groups, places.tolist())])
    return dealt


def _cut(estimator: Estimator, space: Space, of: int) -> Groups:
    """Return the problem values of a space in groups, whose product has enough parts for a deal.

    Values of which one cell has all, such as some sizes of clusters, stay together.
    """
    columns = {*estimator.problem_columns, *estimator.input_columns}
    problem = {n: values for n, values in _of_cells(estimator, space).items() if n in columns}
    independent: frozenset[str] = getattr(estimator, "independent", frozenset())
    parts = _combinations(problem)
    groups: Groups = {name: [(value,) for value in values] for name, values in problem.items()}
    for name in sorted(problem, key=lambda n: (n not in independent, len(problem[n]))):
        values = problem[name]
        together = min(parts // (_LEAST_DEALT * of), len(values))
        if together > 1:  # fewer parts take less time
            number_of_groups = -(-len(values) // together)
            groups[name] = [values[start::number_of_groups] for start in range(number_of_groups)]
            parts = parts // len(values) * number_of_groups
    return groups


def _sizes(groups: Groups) -> Array:
    """Return a size of each part: the product of its numbers, such as those of GPUs."""
    sizes = np.ones(1)
    for of_axis in groups.values():
        sums = [
            sum(float(value) for value in values if isinstance(value, int | float) and value > 0)
            for values in of_axis
        ]
        sizes = np.multiply.outer(sizes, [number or 1.0 for number in sums]).ravel()
    return sizes


def _joined(groups: Groups, places: Sequence[int]) -> list[Axes]:
    """Return parts as few spaces: parts that differ in the values of one axis are joined.

    A search checks all combinations of a space at once.
    """
    lengths = [len(of_axis) for of_axis in groups.values()]
    joined: list[tuple[tuple[int, ...], ...]]
    joined = [tuple((at,) for at in _digits(place, lengths)) for place in places]
    for axis in reversed(range(len(lengths))):
        found: dict[Any, list[int]] = {}
        for part in joined:
            found.setdefault((part[:axis], part[axis + 1 :]), []).extend(part[axis])
        joined = [(*before, tuple(own), *after) for (before, after), own in found.items()]
    return [
        {
            name: tuple(value for at in own for value in of_axis[at])
            for (name, of_axis), own in zip(groups.items(), part, strict=True)
        }
        for part in joined
    ]


def _digits(place: int, lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the place on each axis of a part of a product, the last axis fastest."""
    digits = []
    for length in reversed(lengths):
        place, digit = divmod(place, length)
        digits.append(digit)
    return tuple(reversed(digits))


def _cells_of_variants(
    estimator: Estimator, space: Space, catalog: Catalog, variants: Sequence[Mends]
) -> Iterator[Cell]:
    """Yield the cells of a space under each variant; a variant without layouts is left out.

    Raises
    ------
    RefusedError
        If the space is faulty, or has no layout under any variant.
    """
    empty: list[EmptySpaceError] = []
    for mends in variants:
        try:
            yield from cells_of_space(estimator, space, catalog, mends)
        except EmptySpaceError as error:
            empty.append(error)
    if len(empty) == len(variants):
        raise empty[0]


def _checked_parts(
    study: Study, catalog: Catalog, on_checked: Callable[[int], None]
) -> list[tuple[Space, Mends]]:
    """Return each space with each variant that has a layout.

    Raises
    ------
    InputError
        If a space is faulty, or has no layout under any variant.
    """
    estimator = get(study.estimator)
    sound: list[tuple[Space, Mends]] = []
    try:
        for space in study.spaces:
            empty: list[EmptySpaceError] = []
            for mends in study.mends:
                try:
                    check_space(estimator, space, catalog, mends, on_checked)
                except EmptySpaceError as error:
                    empty.append(error)
                else:
                    sound.append((space, mends))
            if len(empty) == len(study.mends):
                raise empty[0]
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None
    return sound


# ---- a sample of the combinations ----


def _stream(study: Study, catalog: Catalog, profiles: Callable[[], Profiles]) -> Stream:
    """Return the cells of a study as a stream, with the cells of a sample.

    Every combination is drawn with the same chance, so that the rows of the sample over its share
    estimate all rows. The same study draws the same sample.

    Raises
    ------
    InputError
        If the estimator refuses a combination that is drawn, or the catalog a definition of the
        study.
    """
    estimator = get(study.estimator)
    # While the database is open for writing, its profiles cannot be read again.
    catalog = with_profiles(study.defined.added_to(catalog), cache(profiles), estimator)
    sizes = [_combinations(_of_cells(estimator, space)) for space in study.spaces]
    # A draw takes a part of a space: spaces of which it takes more are drawn less often.
    weights = [
        size / max(math.prod(_part_sizes(_of_cells(estimator, space)).values()), 1)
        for size, space in zip(sizes, study.spaces, strict=True)
    ]
    random_numbers = random.Random(study.name)
    cells: list[tuple[Cell, int]] = []  # a part may be drawn twice, and then counts twice
    drawn = 0
    try:
        for space in random_numbers.choices(study.spaces, weights, k=_DRAWS):
            of_cells = _of_cells(estimator, space)
            whole = {name: values for name, values in space.items() if name not in of_cells}
            part = _part(of_cells, random_numbers)
            drawn += _combinations(part)
            for mends in study.mends:
                found = _sound_cells(estimator, {**part, **whole}, catalog, mends)
                cells += ((cell, num_layouts(estimator, cell)) for cell in found)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None
    sample = Plan(estimator, tuple(cells), catalog)
    return Stream(study, estimator, catalog, sample, drawn / sum(sizes))


def _of_cells(estimator: Estimator, space: Space) -> Axes:
    """Return the values of a space that make cells; those of row columns make rows."""
    assert estimator.search is not None  # reading a study refuses estimators without a search
    rows = estimator.search.row_columns
    return {name: tuple(values) for name, values in space.items() if name not in rows}


def _combinations(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


def _part_sizes(space: Space) -> dict[str, int]:
    """Return how many values of each axis a draw takes, to limit its combinations."""
    sizes = {name: len(values) for name, values in space.items()}
    while math.prod(sizes.values()) > _DRAWN_COMBINATIONS:
        longest = max(sizes, key=lambda name: sizes[name])
        sizes[longest] = -(-sizes[longest] // 2)
    return sizes


def _part(space: Space, random_numbers: random.Random) -> Axes:
    """Return some values of each axis, drawn at random."""
    sizes = _part_sizes(space)
    return {
        name: tuple(random_numbers.sample(list(values), sizes[name]))
        for name, values in space.items()
    }


def _sound_cells(
    estimator: Estimator, space: Space, catalog: Catalog, mends: Mends
) -> Iterator[Cell]:
    """Yield the cells of a space that may have parts without a layout."""
    try:
        yield from cells_of_space(estimator, space, catalog, mends)
    except EmptySpaceError:
        longest = max(space, key=lambda name: len(space[name]))
        values = space[longest]
        if len(values) == 1:
            return
        for half in (values[: len(values) // 2], values[len(values) // 2 :]):
            yield from _sound_cells(estimator, {**space, longest: half}, catalog, mends)
