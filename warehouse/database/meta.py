"""Table `warehouse_meta`: versions and hashes of what a database was made from.

It tells whether a database is up to date without importing the estimators.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import duckdb

from warehouse.database.source import source_hash
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

SCHEMA_VERSION = 1
"""Version of the storage: increase it when older packages can no longer read or write it."""

META = "warehouse_meta"
REFERENCE = "reference:"
"""Prefix of the keys that hold the fingerprints of reference tables."""

MEASURED = ".parquet"
"""Ending of those keys of measured tables."""

STAMP = "stamp"
"""Key of the hash over all other values and the source that they were made from."""

FACTS_ID, FACTS_LAST = "facts_id", "facts_last"
"""Keys of the folder of facts, and of the number and checksum of the last entry that is stored.
They are of one database, not of the package: the stamp leaves them out."""

KEPT_NAMES = "kept_names"
"""Key of the names of the kept tables. A database without it has the tables `_FORMER` instead."""

_FORMER = (
    *("stored_best", "stored_front", "stored_price", "stored_problem"),
    *("pipeline_leading", "roofline_leading", "training_step_leading"),
)

_OWN = (STAMP, FACTS_ID, FACTS_LAST)


def stamp_of(meta: Mapping[str, str]) -> str:
    """Return the stamp of a database that has these values and was made from this package."""
    values = sorted((key, value) for key, value in meta.items() if key not in _OWN)
    content = f"{source_hash()} {values!r}"
    return blake2b(content.encode(), digest_size=16).hexdigest()


def is_stamped(connection: DuckDBPyConnection) -> bool:
    """Return whether a database was made from exactly the files of this package.

    If it was not, it may be up to date nevertheless: `schema.is_current` compares the contents.

    Raises
    ------
    DatabaseError
        If the database is not a warehouse, or was made by a newer package.
    """
    meta = read_meta(connection)
    return STAMP in meta and meta[STAMP] == stamp_of(meta)


def read_meta(connection: DuckDBPyConnection) -> dict[str, str]:
    """Return the stored values by key; none for an empty database.

    Raises
    ------
    DatabaseError
        If the database is not a warehouse, or was made by a newer package.
    """
    try:
        meta = dict(connection.execute(f"select key, value from {META}").fetchall())
    except duckdb.CatalogException:  # trying the query is faster than listing the tables
        _refuse_foreign(connection)
        return {}
    version = meta.get("schema_version") or "missing"
    if not version.isdecimal():
        raise DatabaseError(
            f"{path_of(connection)}: `schema_version` in {META} is {version}",
            "put a backup in its place, and keep this file: its rows can still be read",
        )
    if int(version) > SCHEMA_VERSION:
        from warehouse import __version__

        raise DatabaseError(
            f"{path_of(connection)}: was made by training-warehouse {meta.get('package_version')}, "
            f"which is newer than this one ({__version__})",
            "upgrade with `pip install --upgrade training-warehouse`",
        )
    return meta


def last_fact(connection: DuckDBPyConnection) -> tuple[str, int, str]:
    """Return the id of a database's folder of facts, and number and checksum of its last entry."""
    query = f"select key, value from {META} where key in (?, ?)"
    try:
        found = dict(connection.execute(query, [FACTS_ID, FACTS_LAST]).fetchall())
    except duckdb.CatalogException:  # an empty file: its tables are not made yet
        found = {}
    number, _, checksum = found.get(FACTS_LAST, "0 ").partition(" ")
    return found.get(FACTS_ID, ""), int(number), checksum


def _refuse_foreign(connection: DuckDBPyConnection) -> None:
    """Raise `DatabaseError` for a database without the table that has any other."""
    query = "select 1 from duckdb_tables() where not internal and not temporary limit 1"
    if connection.execute(query).fetchall():
        raise DatabaseError(
            f"{path_of(connection)}: is a DuckDB database, but not a warehouse",
            "name another file with --db",
        )


def path_of(connection: DuckDBPyConnection) -> str:
    """Return the path of the database file."""
    query = "select path from duckdb_databases() where database_name = current_database()"
    [(path,)] = connection.execute(query).fetchall()
    return str(path)


def reference_keys(meta: Iterable[str]) -> list[str]:
    """Return the keys of the fingerprints of reference tables, in order."""
    return sorted(key for key in meta if key.startswith(REFERENCE))


def kept_names(meta: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the kept tables of a database, whose rows follow from others."""
    return meta[KEPT_NAMES].split() if KEPT_NAMES in meta else _FORMER


def table_of(key: str) -> str:
    """Return the reference table that a key is about."""
    return key.removeprefix(REFERENCE).removesuffix(MEASURED)


def reference_names(connection: DuckDBPyConnection) -> list[str]:
    """Return the names of the stored reference tables."""
    return [table_of(key) for key in reference_keys(read_meta(connection))]


def measured_names(connection: DuckDBPyConnection) -> list[str]:
    """Return the names of those of the stored reference tables that are measured tables."""
    keys = reference_keys(read_meta(connection))
    return [table_of(key) for key in keys if key.endswith(MEASURED)]
