"""Table `warehouse_meta`: a stamp of the files that a database was made from, and names.

The stamp is one hash of SQL, reference tables and code. Files are read for it, nothing is imported:
it takes milliseconds.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from estimators import registry
from warehouse.database import resources
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

SCHEMA_VERSION = 1
"""Version of the storage: increase it when older packages can no longer read or write it."""

META = "warehouse_meta"

REFERENCE, MEASURED = "reference:", ".parquet"
"""Beginning of the keys that name reference tables, and ending of those of measured tables."""

STAMP = "stamp"

FACTS_ID, FACTS_LAST = "facts_id", "facts_last"
"""Keys of the folder of facts, and of the number and checksum of the last entry that is stored."""

KEPT_NAMES = "kept_names"
"""Key of the names of the kept tables. A database without it has the tables `_FORMER` instead."""

_FORMER = (
    *("stored_best", "stored_front", "stored_price", "stored_problem"),
    *("pipeline_leading", "roofline_leading", "training_step_leading"),
)

_PACKAGES = Path(__file__).parents[2]

_CODE = ("estimators", "warehouse/database")
"""Directories whose modules decide the contents of a database."""

_DATA = (".csv", ".parquet")
_ENDINGS = (".py", ".sql", *_DATA)

_SKIPPED = {"__pycache__", "resources"}
"""Directories that are skipped. The wheel has SQL and tables in `resources`, a clone has them
elsewhere: they are read from there."""


def package_hash() -> str:
    """Return the hash of every module, and of everything that a database is made from."""
    return f"{source_hash()} {_hash((_PACKAGES / 'warehouse',), ())}"


def reference_version() -> str:
    """Return the version of the reference data: a hash of its files, the same wherever they are.

    These are the tables of db/reference and the constants in the packages of estimators.
    """
    constants = (path for path in (_PACKAGES / "estimators").iterdir() if path.name != "columns")
    directories = (resources.reference_directory(), *sorted(filter(Path.is_dir, constants)))
    return _hash(directories, (), _DATA)[:8]


def reference_in_words() -> str:
    """Return the version of the reference data as answers show it."""
    return f"reference data {reference_version()}"


def source_hash() -> str:
    """Return the hash of everything that a database of this package is made from."""
    code = (_PACKAGES / name for name in _CODE)
    directories = (*code, resources.sql_directory(), resources.reference_directory())
    return _hash(directories, tuple(registry.ESTIMATORS.items()))


@cache  # a running process has the code that it began with
def _hash(
    directories: tuple[Path, ...],
    registered: tuple[tuple[str, str], ...],
    endings: tuple[str, ...] = _ENDINGS,
) -> str:
    result = blake2b(repr(registered).encode(), digest_size=16)
    for directory in directories:
        for file in sorted(directory.rglob("*")):
            inside = file.relative_to(directory)
            if file.suffix in endings and _SKIPPED.isdisjoint(inside.parts):
                content = file.read_bytes()
                result.update(f"{directory.name}/{inside.as_posix()} {len(content)}\n".encode())
                result.update(content)
    return result.hexdigest()


def is_stamped(connection: DuckDBPyConnection) -> bool:
    """Return whether a database was made from exactly the files of this package."""
    return read_meta(connection).get(STAMP) == source_hash()


def read_meta(connection: DuckDBPyConnection) -> dict[str, str]:
    """Return the stored values by key; none for an empty database.

    A database that is not a warehouse, or was made by a newer package, is a `DatabaseError`.
    """
    from duckdb import CatalogException

    try:
        meta = dict(connection.execute(f"select key, value from {META}").fetchall())
    except CatalogException:  # trying the query is faster than listing the tables
        query = "select 1 from duckdb_tables() where not internal and not temporary limit 1"
        if connection.execute(query).fetchall():
            raise DatabaseError(
                f"{path_of(connection)}: is a DuckDB database, but not a warehouse",
                "name another file with --db",
            ) from None
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
    from duckdb import CatalogException

    query = f"select key, value from {META} where key in (?, ?)"
    try:
        values = dict(connection.execute(query, [FACTS_ID, FACTS_LAST]).fetchall())
    except CatalogException:  # an empty file: its tables are not made yet
        values = {}
    number, _, checksum = values.get(FACTS_LAST, "0 ").partition(" ")
    return values.get(FACTS_ID, ""), int(number), checksum


def path_of(connection: DuckDBPyConnection) -> str:
    """Return the path of the database file."""
    query = "select path from duckdb_databases() where database_name = current_database()"
    [(path,)] = connection.execute(query).fetchall()
    return str(path)


def reference_tables(meta: Iterable[str]) -> dict[str, str]:
    """Return the keys that name reference tables, in order, each with its table."""
    keys = sorted(key for key in meta if key.startswith(REFERENCE))
    return {key: key.removeprefix(REFERENCE).removesuffix(MEASURED) for key in keys}


def kept_names(meta: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the kept tables of a database, whose rows follow from others."""
    return meta[KEPT_NAMES].split() if KEPT_NAMES in meta else _FORMER


def reference_names(connection: DuckDBPyConnection, *, measured: bool = False) -> list[str]:
    """Return the names of the stored reference tables, or of the measured tables among them."""
    tables = reference_tables(read_meta(connection))
    return [name for key, name in tables.items() if key.endswith(MEASURED) or not measured]
