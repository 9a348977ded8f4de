"""The size of a sweep before it runs: rows, seconds, bytes.

A study of a few thousand combinations is counted exactly. For a larger one a sample of the
combinations is counted, so that the answer takes seconds and little memory at any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from warehouse.database.catalog import packaged_catalog
from warehouse.database.connection import open_as_it_is
from warehouse.database.sink import stored_among
from warehouse.evaluate.profiles import load_profiles
from warehouse.show.formats import count
from warehouse.show.units import size_in_words, sweep_time_in_words
from warehouse.sweep.cells import StudyCells, StudySize, study_cells
from warehouse.sweep.runner import rate_of_trial
from warehouse.sweep.sizes import LEAST_ROWS, refuse_too_large, remembered_rate

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.studies.study import Study


class Cost(NamedTuple):
    """Seconds that some rows take, and bytes in the database."""

    seconds: float
    num_bytes: float


@dataclass(frozen=True)
class Estimate:
    """The size of a sweep."""

    study: str
    cells: StudyCells
    size: StudySize

    @property
    def is_sampled(self) -> bool:
        """Whether the figures follow from a sample of the combinations."""
        return self.cells.is_sampled

    @cached_property
    def cost(self) -> Cost:
        """Seconds and bytes, as `cost_of`: the first use may take a second."""
        return cost_of(self.cells, self.size.missing_rows)

    def refuse_too_large(self, database: Path) -> None:
        """Raise if the sweep is so large that the user must confirm it."""
        if self.size.missing_rows >= LEAST_ROWS:
            refuse_too_large(self.study, self.size.missing_rows, self.cost.num_bytes, database)

    def in_words(self) -> str:
        """Return rows, time and space of the sweep in a line for people."""
        about = "about " if self.is_sampled else ""
        if not self.size.missing_rows:
            of_about = f"of {about}" if about else ""
            return f"{self.study}: all {of_about}{count(self.size.rows, 'row')} are stored already"
        rows, cells = self.size.missing_rows, self.size.missing_cells
        return (
            f"{self.study}: {about}{count(rows, 'row')} of {count(cells, 'cell')} to evaluate and"
            f" store, {cost_in_words(self.cost)}"
        )


def cost_in_words(cost: Cost) -> str:
    """Return time and space as people read them: ``about 12 s and 340 MB``."""
    return f"about {sweep_time_in_words(cost.seconds)} and {size_in_words(cost.num_bytes)}"


def estimate(study: Study, database: Path, *, force: bool = False) -> Estimate:
    """Return the size of a sweep; stores nothing."""
    cells = study_cells(study, packaged_catalog(), lambda: load_profiles(database))
    ids = [cell.id for cell, _ in cells.counted]
    return Estimate(study.name, cells, cells.size({} if force else _stored_among(database, ids)))


def cost_of(cells: StudyCells, rows: int) -> Cost:
    """Return seconds and bytes of evaluating and storing some rows of a study.

    The rate is that of the estimator's last long sweep on this machine; without one, that of a
    trial of some cells.
    """
    if not rows:
        return Cost(0.0, 0.0)
    rate = remembered_rate(cells.estimator.name) or rate_of_trial(cells)
    return Cost(rows / rate.rows_per_second, rows * rate.bytes_per_row)


def _stored_among(database: Path, cells: list[int]) -> dict[int, int]:
    if not database.exists():
        return {}
    with open_as_it_is(database) as connection:
        try:
            return stored_among(connection, cells)
        except duckdb.CatalogException:  # a file that no sweep has prepared yet
            return {}
