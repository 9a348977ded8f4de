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


def of_tables(*tables: str) -> Complete:
    """Return a function that completes the names of the first columns of reference tables."""

    def complete(incomplete: str) -> list[str]:
        return _begun(incomplete, (name for table in tables for name in _first_column(table)))

    return complete


def estimators(incomplete: str) -> list[str]:
    """Complete an estimator."""
    from estimators.registry import ESTIMATORS

    return _begun(incomplete, ESTIMATORS)


def studies(incomplete: str) -> list[str]:
    """Complete a study that comes with the package; the shell completes files itself."""
    from warehouse.database.resources import studies_directory

    return _begun(incomplete, sorted(path.stem for path in studies_directory().glob("*.toml")))


def variants(incomplete: str) -> list[str]:
    """Complete a variant: its name, or an erratum."""
    return _begun(incomplete, ("corrected", "published", *_first_column("erratum")))


def precisions(incomplete: str) -> list[str]:
    """Complete a number format."""
    from estimators.columns import COLUMNS

    return _begun(incomplete, COLUMNS["precision"].choices)


def relations(incomplete: str) -> list[str]:
    """Complete a view, a macro with arguments or a reference table."""
    from warehouse.database.resources import reference_directory, sql_directory

    files = [*sql_directory().glob("*/*.sql"), *reference_directory().glob("*.*")]
    names = sorted(path.stem for path in files if path.parent.name not in ("checks", "plots"))
    return _begun(incomplete, names)


def _begun(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin as the word does."""
    words = dict.fromkeys(name.replace(" ", "_") for name in names)
    return [word for word in words if word.startswith(incomplete)]


def _first_column(table: str) -> list[str]:
    from warehouse.database.resources import reference_directory

    path = reference_directory() / f"{table}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows, None)
        return list(dict.fromkeys(row[0] for row in rows if row))


BY_OPTION: Mapping[str, Complete] = {
    "--model": of_tables("model"),
    "--accelerator": of_tables("system", "accelerator", "device"),
    "--framework": of_tables("framework"),
    "--goodput": of_tables("goodput"),
    "--pue": of_tables("facility_pue"),
    "--estimator": estimators,
    "--variant": variants,
    "--precision": precisions,
}
"""Option -> its values."""
