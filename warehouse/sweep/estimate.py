"""The size of a sweep before it runs: rows, seconds, bytes.

A study of a few thousand combinations is counted exactly. Of a larger one some combinations are
drawn and counted, so that the answer takes seconds and little memory at any size.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from estimators.contract import EmptySpaceError, RefusedError
from estimators.registry import get
from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_as_it_is
from warehouse.errors import InputError
from warehouse.evaluate.profiles import cells_of_space, load_profiles, with_profiles
from warehouse.show.formats import count
from warehouse.show.units import size_in_words, sweep_time_in_words
from warehouse.sweep.rates import remembered_rate
from warehouse.sweep.runner import Plan, plan, rate_of_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from estimators.contract import Catalog, Cell, Estimator, Mends, Scalar, Space
    from warehouse.evaluate.profiles import Profiles
    from warehouse.studies.study import Study

EXACT_COMBINATIONS = 5_000
"""Combinations up to which every cell is counted, in a few seconds at most."""

_DRAWS, _DRAWN_COMBINATIONS = 64, 16
"""Draws of a larger study, and the combinations of each: next to one another they share layouts."""


class Cost(NamedTuple):
    """Seconds that some rows take, and bytes in the database."""

    seconds: float
    num_bytes: float


Axes = dict[str, tuple["Scalar", ...]]


@dataclass(frozen=True)
class Estimate:
    """The size of a sweep.

    Attributes
    ----------
    cells, rows
        Of the whole study.
    missing_cells, missing_rows
        Those that the sweep would evaluate and store.
    counted
        The cells that were counted: all, or those of a sample.
    is_sampled
        Whether the figures follow from a sample of the combinations.
    """

    study: str
    cells: int
    rows: int
    missing_cells: int
    missing_rows: int
    counted: Plan
    is_sampled: bool = False

    @property
    def plan(self) -> Plan | None:
        """The study's cells; None where only a sample of them is known."""
        return None if self.is_sampled else self.counted

    @cached_property
    def cost(self) -> Cost:
        """Seconds and bytes, as `cost_of`: the first use may take a second."""
        return cost_of(self.counted, self.missing_rows)

    @property
    def seconds(self) -> float:
        """Time that the sweep would take, at the rate measured on this machine."""
        return self.cost.seconds

    @property
    def num_bytes(self) -> float:
        """Space that its rows would take in the database."""
        return self.cost.num_bytes

    def in_words(self) -> str:
        """Return what the sweep would evaluate, and what that takes, in a line for people."""
        about = "about " if self.is_sampled else ""
        rows = f"{about}{count(self.missing_rows, 'row')} of {count(self.missing_cells, 'cell')}"
        if not self.missing_rows:
            return f"{self.study}: all {count(self.rows, 'row')} are stored already"
        return f"{self.study}: {rows} to evaluate and store, {cost_in_words(self.cost)}"


def cost_in_words(cost: Cost) -> str:
    """Return time and space as people read them: ``about 12 s and 340 MB``."""
    return f"about {sweep_time_in_words(cost.seconds)} and {size_in_words(cost.num_bytes)}"


def estimate(study: Study, database: Path, *, force: bool = False) -> Estimate:
    """Return the size of a sweep; stores nothing.

    Parameters
    ----------
    database
        The file that it would store in; it may be missing.
    force
        Whether stored cells count as missing.

    Raises
    ------
    InputError
        If the study is refused. Of a study that is sampled, combinations that were not drawn may
        be refused later, when it runs.
    DatabaseError
        If the database cannot be read.
    """
    stored = set() if force else _stored_cells(database)

    def profiles() -> Profiles:
        return load_profiles(database)

    search = get(study.estimator).search
    assert search is not None  # a study without a search is refused when it is read
    of_cells = [
        {name: values for name, values in space.items() if name not in search.row_columns}
        for space in study.spaces
    ]
    combinations = [_combinations(space) for space in of_cells]
    total = sum(combinations)
    if total * len(study.mends) <= EXACT_COMBINATIONS:
        return _estimate(study, plan(study, packaged_catalog(), profiles), stored)
    drawn, share = _drawn(study, combinations, packaged_catalog(), profiles)
    found = _estimate(study, drawn, stored)
    return replace(
        found,
        cells=round(found.cells / share),
        rows=round(found.rows / share),
        missing_cells=round(found.missing_cells / share),
        missing_rows=round(found.missing_rows / share),
        is_sampled=True,
    )


def _estimate(study: Study, counted: Plan, stored: set[int]) -> Estimate:
    missing = [rows for cell, rows in counted.cells if cell.id not in stored]
    return Estimate(
        study.name,
        cells=len(counted.cells),
        rows=counted.num_rows,
        missing_cells=len(missing),
        missing_rows=sum(missing),
        counted=counted,
    )


def cost_of(planned: Plan, rows: int) -> Cost:
    """Return seconds and bytes of evaluating and storing some rows of a plan.

    The rate is that of the last long sweep on this machine with the estimator; without one, that
    of a trial of some cells.
    """
    if not rows:
        return Cost(0.0, 0.0)
    rate = remembered_rate(planned.estimator.name) or rate_of_trial(planned)
    return Cost(rows / rate.rows_per_second, rows * rate.bytes_per_row)


def _stored_cells(database: Path) -> set[int]:
    if not database.exists():
        return set()
    with open_as_it_is(database) as connection:
        try:
            rows = connection.execute("select cell_id from cell").fetchall()
        except duckdb.CatalogException:  # a file that no sweep has prepared yet
            return set()
    return {cell for (cell,) in rows}


def _combinations(space: Space) -> int:
    return math.prod(len(values) for values in space.values())


# ---- a sample of the combinations ----


def _drawn(
    study: Study,
    combinations: list[int],
    catalog: Catalog,
    profiles: Callable[[], Profiles],
) -> tuple[Plan, float]:
    """Return the cells of a sample of the combinations, and its share of all of them.

    Every combination is drawn with the same chance, so that the rows of the sample over its share
    estimate all rows without bias. The same study draws the same sample.

    Raises
    ------
    InputError
        If the estimator refuses a combination, or the catalog a definition of the study.
    """
    estimator = get(study.estimator)
    catalog = with_profiles(study.defined.added_to(catalog), profiles, estimator)
    search = estimator.search
    assert search is not None  # a study without a search is refused when it is read
    random_numbers = random.Random(study.name)
    cells: list[tuple[Cell, int]] = []  # one may be drawn twice, and then counts twice
    drawn = 0
    try:
        for space in random_numbers.choices(study.spaces, combinations, k=_DRAWS):
            whole = {name: space[name] for name in space if name in search.row_columns}
            part = _part({n: v for n, v in space.items() if n not in whole}, random_numbers)
            drawn += _combinations(part)
            for mends in study.mends:
                found = _cells(estimator, {**part, **whole}, catalog, mends)
                cells += ((cell, search.count(cell)) for cell in found)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, study.file) from None
    return Plan(estimator, tuple(cells), catalog), drawn / sum(combinations)


def _part(space: Space, random_numbers: random.Random) -> Axes:
    """Return some values of each axis, so that few combinations remain."""
    sizes = {name: len(values) for name, values in space.items()}
    while math.prod(sizes.values()) > _DRAWN_COMBINATIONS:
        longest = max(sizes, key=lambda name: sizes[name])
        sizes[longest] = -(-sizes[longest] // 2)
    return {
        name: tuple(random_numbers.sample(list(values), sizes[name]))
        for name, values in space.items()
    }


def _cells(estimator: Estimator, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
    """Yield the cells of a space that may have parts without a layout."""
    try:
        yield from cells_of_space(estimator, space, catalog, mends)
    except EmptySpaceError:
        longest = max(space, key=lambda name: len(space[name]))
        values = space[longest]
        if len(values) == 1:
            return
        for half in (values[: len(values) // 2], values[len(values) // 2 :]):
            yield from _cells(estimator, {**space, longest: half}, catalog, mends)
