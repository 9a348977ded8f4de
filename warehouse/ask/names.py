"""Names as people write them, found among those that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from estimators.names import folded
from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

Filters = Mapping[str, str | int]
"""Column of a problem -> the value that it must have."""

KEPT = frozenset({"estimator", "variant"})
"""Filters whose names are found elsewhere: in the registry, among the mends."""


def name_meant(asked: str, known: Collection[str], spellings: Mapping[str, str]) -> str | None:
    """Return the known name that `asked` means; None if there is none, or several.

    A name comes before an alias, and both before one that differs in capitals, spaces, hyphens and
    underscores only.

    Parameters
    ----------
    spellings
        Alias -> name.
    """
    if asked in known:
        return asked
    stored = {alias: name for alias, name in spellings.items() if name in known}
    if asked in stored:
        return stored[asked]
    alike = {stored.get(name, name) for name in (*known, *stored) if folded(name) == folded(asked)}
    return alike.pop() if len(alike) == 1 else None


def spellings(connection: DuckDBPyConnection, column: str) -> dict[str, str]:
    """Return alias -> name of a column such as `accelerator`, from the reference tables."""
    from warehouse.database.catalog import load_catalog  # here: few questions have an alias

    catalog = load_catalog(connection, with_measured=False)
    return {
        alias: name
        for table, aliases in catalog.aliases.items()
        for alias, name in aliases.items()
        if column in next(iter(catalog.tables[table].values()))
    }


def with_known_names(connection: DuckDBPyConnection, filters: Filters) -> Filters:
    """Return filters on problems with each name as it is stored.

    A name that no stored problem has stays, an alias as the name behind it; the caller refuses it.
    """
    found = dict(filters)
    for column, asked in filters.items():
        if not isinstance(asked, str) or column in KEPT:
            continue
        name = quoted(column)
        query = f"select distinct {name} from current_cell inner join problem using (problem_id)"
        known = [row[0] for row in connection.execute(query).fetchall() if row[0] is not None]
        if asked not in known:
            others = spellings(connection, column)
            found[column] = name_meant(asked, known, others) or others.get(asked, asked)
    return found
