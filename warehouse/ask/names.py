"""Finds the stored names that people mean, in any spelling."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import TYPE_CHECKING

from estimators.names import folded
from warehouse.database.resources import reference_directory
from warehouse.database.sql_text import quoted

if TYPE_CHECKING:
    from collections.abc import Collection

    from duckdb import DuckDBPyConnection

Filters = Mapping[str, str | int]
"""Column of a problem -> the value that it must have."""

OF_ESTIMATOR = frozenset({"estimator", "variant"})
"""Filters whose names are found elsewhere: in the registry, among the mends."""


def condition(filters: Mapping[str, object]) -> str:
    """Return the SQL condition that each column has its value, with a parameter for each value."""
    return " and ".join(f"{quoted(name)} = ?" for name in filters)


def find_name(name: str, known: Collection[str], spellings: Mapping[str, str]) -> str | None:
    """Return the known name that `name` means; None if there is none, or several.

    A name comes before an alias, and both before one that differs in capitals, spaces, hyphens and
    underscores only. `spellings` has alias -> name.
    """
    if name in known:
        return name
    stored = {alias: meant for alias, meant in spellings.items() if meant in known}
    if name in stored:
        return stored[name]
    alike = {stored.get(each, each) for each in (*known, *stored) if folded(each) == folded(name)}
    return alike.pop() if len(alike) == 1 else None


def spellings(column: str) -> dict[str, str]:
    """Return alias -> name of a column such as `accelerator`, from the reference tables."""
    from warehouse.database.catalog import packaged_catalog  # here: few questions have an alias

    catalog = packaged_catalog()
    return {
        alias: name
        for table, aliases in catalog.aliases.items()
        for alias, name in aliases.items()
        if column in next(iter(catalog.tables[table].values()))
    }


def with_known_names(connection: DuckDBPyConnection, filters: Filters) -> Filters:
    """Return filters on problems with each name as it is stored.

    A name that no stored problem has stays for the caller to refuse, an alias as the name behind
    it. The name of a publication's system is replaced by that of its product (table ``priced_as``)
    if only the product has problems that pass all filters: estimators of products store a bare
    ``B200`` under the product's name.
    """
    names = dict(filters)
    for column, value in filters.items():
        if not isinstance(value, str) or column in OF_ESTIMATOR:
            continue
        name = quoted(column)
        query = f"select distinct {name} from current_cell inner join problem using (problem_id)"
        known = [row[0] for row in connection.execute(query).fetchall() if row[0] is not None]
        if value not in known:
            aliases = spellings(column)
            names[column] = find_name(value, known, aliases) or aliases.get(value, value)
    if "accelerator" not in names:
        return names
    query = "select accelerator, priced_as from priced_as"
    products = dict(connection.execute(query).fetchall())
    system = find_name(str(names["accelerator"]), products, {})
    if system is None or _is_stored(connection, names):
        return names
    of_product = {**names, "accelerator": products[system]}
    return of_product if _is_stored(connection, of_product) else names


def _is_stored(connection: DuckDBPyConnection, filters: Filters) -> bool:
    query = (
        "select 1 from current_cell inner join problem using (problem_id) "
        f"where {condition(filters)} limit 1"
    )
    return connection.execute(query, list(filters.values())).fetchall() != []


def is_known_name(name: str, value: str | int) -> bool:
    """Return whether a value is a name that the package knows, though nothing of it is stored."""
    if name not in ("model", "accelerator"):
        return False
    # read as text: the catalog needs numpy, which a ranking does without
    tables = (name, "named_cluster") if name == "accelerator" else (name,)
    for table in tables:
        with (reference_directory() / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            if str(value) in {row[0] for row in csv.reader(file) if row}:
                return True
    return False
