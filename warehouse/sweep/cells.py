"""The cells of a study, and how many rows they have.

Up to `MOST_COUNTED` cells are a list, and the rows of each are counted. A larger study has a sample
that is counted. Its cells are made again at each iteration, so that few are in memory at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from estimators.contract import Catalog, Cell, EmptySpaceError, Mends, RefusedError, Scalar, Space
from estimators.estimator import Estimator
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

MOST_COUNTED = 5_000
"""Most cells whose rows are counted one by one, which takes a few seconds."""

_DRAWS, _DRAWN_COMBINATIONS = 64, 16
"""Draws from a larger study, and the combinations of each draw: neighbours share layouts."""

Sized = Sequence[tuple[Cell, int]]
"""Cells, each with its number of rows."""

Axes = dict[str, tuple["Scalar", ...]]

OnChecked = Callable[[int, int], None]
"""Called with the number of checked combinations, and of all."""


@dataclass(frozen=True)
class StudySize:
    """Cells and rows of a study, in total and not stored yet."""

    cells: int
    rows: int
    missing_cells: int
    missing_rows: int


@dataclass
class StudyCells:
    """The cells of a study, and how many rows they have."""

    study: Study
    estimator: Estimator
    catalog: Catalog  # with the study's own models and systems, and its profiles
    counted: Sized  # all cells, each once, or those of a sample
    sample_share: float | None = None  # of the study's combinations; None: all cells are counted
    _sound: list[tuple[Space, Mends]] | None = field(default=None, init=False)
    _relations: set[str] = field(default_factory=set, init=False)

    @property
    def is_sampled(self) -> bool:
        """Whether only a sample of the cells is counted."""
        return self.sample_share is not None

    @property
    def known(self) -> list[int]:
        """Ids of all cells if they are a list; none if most are still to be made."""
        return [] if self.is_sampled else [cell.id for cell, _ in self.counted]

    def check(self, on_checked: OnChecked = lambda _done, _all: None) -> None:
        """Refuse what is wrong with any combination, before the first cell."""
        if not self.is_sampled:
            return  # listing the cells has checked them
        done, total = 0, num_cells(self.study)

        def add(number: int) -> None:
            nonlocal done
            done += number
            on_checked(min(done, total), total)

        self._sound = sound_spaces(self.study, self.catalog, add)

    def of(self, relation: str) -> Iterator[Cell]:
        """Yield the cells of a relation in order; overlapping spaces may yield a cell twice."""
        if not self.is_sampled:
            yield from (cell for cell, _ in self.counted if cell.relation == relation)
            return
        if self._relations and relation not in self._relations:
            return
        if self._sound is None:
            self.check()
        for space, mends in self._sound or ():
            for cell in cells_of_space(self.estimator, space, self.catalog, mends):
                self._relations.add(cell.relation)
                if cell.relation == relation:
                    yield cell

    def count(self, cell: Cell) -> int:
        """Return the exact number of rows of a cell."""
        rows = self._rows.get(cell.id)
        return num_layouts(self.estimator, cell) if rows is None else rows

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {cell.id: rows for cell, rows in self.counted}

    def size(self, stored: Collection[int] = ()) -> StudySize:
        """Return the size of the study, given the ids of those of `counted` that are stored."""
        missing = [rows for cell, rows in self.counted if cell.id not in stored]
        rows = sum(rows for _, rows in self.counted)
        counts = (len(self.counted), rows, len(missing), sum(missing))
        return StudySize(*(round(number / (self.sample_share or 1)) for number in counts))


def study_cells(
    study: Study, catalog: Catalog, profiles: Callable[[], Profiles] = lambda: NO_PROFILES
) -> StudyCells:
    """Return the cells of a study: all counted if they are few, else with a sample.

    `profiles` returns the stored profiles; it is called only if the study names one.
    """
    if num_cells(study) <= MOST_COUNTED:
        return counted_cells(study, catalog, profiles)
    return _sampled_cells(study, catalog, profiles)


def counted_cells(
    study: Study, catalog: Catalog, profiles: Callable[[], Profiles] = lambda: NO_PROFILES
) -> StudyCells:
    """Return all cells of a study with their numbers of rows; see `study_cells`."""
    estimator = get(study.estimator)
    catalog = with_profiles(study.defined.added_to(catalog), profiles, estimator)
    counted: dict[int, tuple[Cell, int]] = {}
    for cell in cells_of_study(study, catalog):
        if cell.id not in counted:
            counted[cell.id] = (cell, num_layouts(estimator, cell))
    return StudyCells(study, estimator, catalog, tuple(counted.values()))


def num_cells(study: Study) -> int:
    """Return the approximate number of cells of a study, from its values alone."""
    estimator = get(study.estimator)
    axes = [
        cell_axes(estimator, {**estimator.searched_by_default, **space}) for space in study.spaces
    ]
    return sum(map(num_combinations, axes)) * len(study.mends)


def num_layouts(estimator: Estimator, cell: Cell) -> int:
    """Return the exact number of rows of a cell."""
    assert estimator.search is not None
    return estimator.search.count(cell)


def cells_of_study(study: Study, catalog: Catalog) -> Iterator[Cell]:
    """Yield the cells of a study, one by one; overlapping spaces yield a cell twice."""
    estimator = get(study.estimator)
    if estimator.search is None:
        raise InputError(
            f"{study.file}: `estimator` {study.estimator} has no search",
            f"use `warehouse evaluate --estimator {study.estimator}` on a file of configurations",
        )
    for space, mends in sound_spaces(study, catalog):
        yield from cells_of_space(estimator, space, catalog, mends)


def sound_spaces(
    study: Study, catalog: Catalog, on_checked: Callable[[int], None] = lambda _number: None
) -> list[tuple[Space, Mends]]:
    """Return each space of a study with each variant under which it has a layout."""
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


def _sampled_cells(study: Study, catalog: Catalog, profiles: Callable[[], Profiles]) -> StudyCells:
    """Return the cells of a study with a sample.

    Every combination is drawn with the same chance, so that the rows of the sample over its share
    estimate all rows. The same study draws the same sample.
    """
    estimator = get(study.estimator)
    # While the database is open for writing, its profiles cannot be read again.
    catalog = with_profiles(study.defined.added_to(catalog), cache(profiles), estimator)
    sizes = [num_combinations(cell_axes(estimator, space)) for space in study.spaces]
    # A draw takes a part of a space: spaces of which it takes more are drawn less often.
    weights = [
        size / max(math.prod(_part_sizes(cell_axes(estimator, space)).values()), 1)
        for size, space in zip(sizes, study.spaces, strict=True)
    ]
    random_numbers = random.Random(study.name)
    cells: list[tuple[Cell, int]] = []  # a part may be drawn twice, and then counts twice
    drawn = 0
    try:
        for space in random_numbers.choices(study.spaces, weights, k=_DRAWS):
            of_cells = cell_axes(estimator, space)
            whole = {name: values for name, values in space.items() if name not in of_cells}
            part = _part(of_cells, random_numbers)
            drawn += num_combinations(part)
            for mends in study.mends:
                found = _sound_cells(estimator, {**part, **whole}, catalog, mends)
                cells += ((cell, num_layouts(estimator, cell)) for cell in found)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None
    return StudyCells(study, estimator, catalog, tuple(cells), drawn / sum(sizes))


def cell_axes(estimator: Estimator, space: Space) -> Axes:
    """Return the values of a space that make cells; those of row columns make rows."""
    assert estimator.search is not None  # reading a study refuses estimators without a search
    rows = estimator.search.row_columns
    return {name: tuple(values) for name, values in space.items() if name not in rows}


def num_combinations(space: Space) -> int:
    """Return the number of combinations of the values of a space."""
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
        check_space(estimator, space, catalog, mends)
        yield from cells_of_space(estimator, space, catalog, mends)
    except EmptySpaceError:
        longest = max(space, key=lambda name: len(space[name]))
        values = space[longest]
        if len(values) == 1:
            return
        for half in (values[: len(values) // 2], values[len(values) // 2 :]):
            yield from _sound_cells(estimator, {**space, longest: half}, catalog, mends)
