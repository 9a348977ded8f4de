"""Deals the cells of a study to shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import EmptySpaceError, RefusedError
from estimators.registry import get
from warehouse.errors import InputError
from warehouse.evaluate.profiles import cells_of_space, check_space
from warehouse.sweep.cells import (
    cell_axes,
    cells_of_study,
    num_combinations,
    num_layouts,
    sound_spaces,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from estimators.contract import Array, Catalog, Cell, Mends, Scalar, Space
    from estimators.estimator import Estimator
    from warehouse.lake.jobs import Shard
    from warehouse.studies.study import Study
    from warehouse.sweep.cells import Axes

    Groups = dict[str, list[tuple[Scalar, ...]]]
    """Values of each axis, cut in groups: one group of each axis is a part of a space."""

_LEAST_DEALT = 32
"""Parts of a space that each shard gets, where there are as many: fewer would differ in size."""


def cells_of_shard(study: Study, catalog: Catalog, shard: Shard) -> Iterator[Cell]:
    """Yield the cells of a study that belong to a shard, once each, without making the others.

    The combinations of problem values are dealt, sorted by their size. Choices and held values of
    layouts stay together, because a cell of one may complete another. The first shard checks the
    whole study; the others find only faults of their own combinations.
    """
    is_whole = shard.of == 1
    seen: set[int] = set()
    for cell in cells_of_study(study, catalog) if is_whole else _dealt(study, catalog, shard):
        if cell.id not in seen:
            seen.add(cell.id)
            yield cell


def _dealt(study: Study, catalog: Catalog, shard: Shard) -> Iterator[Cell]:
    estimator = get(study.estimator)
    sound = sound_spaces(study, catalog) if shard.number == 1 else None
    try:
        for space, parts in zip(study.spaces, _deal(estimator, study.spaces, shard), strict=True):
            for mends in study.mends:
                if sound is not None and (space, mends) not in sound:
                    continue
                cells = (
                    cell
                    for part in parts
                    for cell in cells_of_space(estimator, part, catalog, mends)
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
            check_space(estimator, space, catalog, mends)
        except EmptySpaceError:
            return
        yield from waiting


def _deal(estimator: Estimator, spaces: Sequence[Space], shard: Shard) -> list[list[Space]]:
    """Return the parts of each space that belong to a shard, in the order of the study.

    Parts of all spaces are dealt by size. Neighbours in that order have similar numbers of rows,
    and each deal is in the opposite direction of the last, so that all get as many large ones.
    """
    groups = [_groups(estimator, space, shard.of) for space in spaces]
    sizes = [_sizes(of_space) for of_space in groups]
    order = np.argsort(-np.concatenate(sizes), kind="stable")
    deals = np.arange(-(-len(order) // shard.of))
    turns = deals * shard.of + np.where(deals % 2 == 0, shard.number - 1, shard.of - shard.number)
    dealt = np.sort(order[turns[turns < len(order)]])
    parts: list[list[Space]] = []
    first = 0
    for space, of_space, of_parts in zip(spaces, groups, sizes, strict=True):
        numbers = dealt[(dealt >= first) & (dealt < first + len(of_parts))] - first
        first += len(of_parts)
        parts.append([{**space, **axes} for axes in _joined(of_space, numbers)])
    return parts


def _groups(estimator: Estimator, space: Space, of: int) -> Groups:
    """Return the problem values of a space in groups, whose product has enough parts for a deal.

    Values of which one cell has all, such as some sizes of clusters, stay together.
    """
    columns = {*estimator.problem_columns, *estimator.input_columns}
    problem = {n: values for n, values in cell_axes(estimator, space).items() if n in columns}
    independent: frozenset[str] = getattr(estimator, "independent", frozenset())
    parts = num_combinations(problem)
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


def _joined(groups: Groups, numbers: Array) -> list[Axes]:
    """Return parts as few spaces: parts that differ in the values of one axis are joined.

    A search checks all combinations of a space at once.
    """
    lengths = [len(of_axis) for of_axis in groups.values()]
    # The first axis is of no use, but there may be no other.
    indices = np.stack(np.unravel_index(numbers, (1, *lengths)), axis=1)[:, 1:].tolist()
    joined: list[tuple[tuple[int, ...], ...]]
    joined = [tuple((index,) for index in of_part) for of_part in indices]
    for axis in reversed(range(len(lengths))):
        differing: dict[Any, list[int]] = {}
        for part in joined:
            differing.setdefault((part[:axis], part[axis + 1 :]), []).extend(part[axis])
        joined = [(*before, tuple(chosen), *after) for (before, after), chosen in differing.items()]
    return [
        {
            name: tuple(value for index in chosen for value in of_axis[index])
            for (name, of_axis), chosen in zip(groups.items(), part, strict=True)
        }
        for part in joined
    ]
