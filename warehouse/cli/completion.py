"""Values that a shell completes: names of reference tables, models, studies and the like.

Files are read as text, because a shell waits for each completion. A blank would end the word, so
names have underscores instead; every command accepts them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Complete = Callable[[str], list[str]]
"""Returns the values that begin as a word does."""


def from_tables(*tables: str) -> Complete:
    """Return a function that completes the names of the first columns of reference tables."""
    return completing(lambda: (name for table in tables for name in _first_column(table)))


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a function that completes one of some names, which are read when a shell asks."""

    def complete(incomplete: str) -> list[str]:
        words = dict.fromkeys(name.replace(" ", "_") for name in names())
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _first_column(table: str) -> list[str]:
    from warehouse.database.resources import reference_directory

    path = reference_directory() / f"{table}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows, None)
        return list(dict.fromkeys(row[0] for row in rows if row))


def _estimators() -> Iterable[str]:
    from estimators.registry import ESTIMATORS

    return ESTIMATORS


def _studies() -> Iterable[str]:
    from warehouse.database.resources import studies_directory

    return sorted(path.stem for path in studies_directory().glob("*.toml"))


def _precisions() -> Iterable[str]:
    from estimators.columns import COLUMNS

    return COLUMNS["precision"].choices


def _relations() -> Iterable[str]:
    from warehouse.database.resources import reference_directory, sql_directory

    files = [*sql_directory().glob("*/*.sql"), *reference_directory().glob("*.*")]
    return sorted(path.stem for path in files if path.parent.name not in ("checks", "plots"))


studies = completing(_studies)
"""Completes a study that comes with the package; the shell completes files itself."""

relations = completing(_relations)
"""Completes a view, a macro with arguments or a reference table."""

BY_OPTION: Mapping[str, Complete] = {
    "--model": from_tables("model"),
    "--accelerator": from_tables("system", "accelerator", "named_cluster", "device"),
    "--framework": from_tables("framework"),
    "--goodput": from_tables("goodput"),
    "--pue": from_tables("facility_pue"),
    "--estimator": completing(_estimators),
    "--variant": completing(lambda: ("corrected", "published", *_first_column("erratum"))),
    "--precision": completing(_precisions),
}
"""Option -> its values."""
