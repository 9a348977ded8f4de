"""New databases: every table, reference table, macro and view, but no result.

Making one takes seconds, copying one takes milliseconds. So one is made, kept in the cache
directory, and every new database starts as a copy of it. A damaged file of the cache is replaced.

The name of a cached file has all that a copy needs: a hash of everything that it is made from, how
many tables and views it has, and the digest of its bytes. So nothing opens it, and DuckDB is
imported only where a database is made or read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from warehouse import settings
from warehouse.database.cache import note_use, remove_old
from warehouse.database.facts import ASIDE, free_name, refuse_abandoned_facts
from warehouse.database.paths import (
    ANOTHER,
    CONFIG,
    PLANNING,
    STORAGE_VERSION,
    duckdb_version,
    file_of,
    is_database,
    leftovers,
    log_of,
    remove_database,
)
from warehouse.database.sql_text import IN_MAIN, literal
from warehouse.database.stamp import source_hash
from warehouse.errors import DatabaseError, space_error
from warehouse.files import digest_of, partial_path, remove_abandoned, target_of_partial

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_MOST = 4
"""Number of cached files that stay: versions of the package share a cache."""


class Contents(NamedTuple):
    """Numbers of tables and views of a database without results."""

    num_tables: int
    num_views: int


def create_missing(path: Path) -> Contents | None:
    """Create the database at `path` if there is none; return what it has.

    None: it must be opened for writing first, because it existed, has no tables yet, or has files
    of an earlier database next to it.
    """
    if is_database(path):
        return None
    file = file_of(path)
    refuse_abandoned_facts(file)
    # A process killed while it writes the first blocks would leave a file that cannot be opened.
    partial = partial_path(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(file)
        remove_database(partial)  # of a killed process that had the number of this one
        contents = _create(partial)
        is_first = _put(partial, file)
    except OSError as error:
        other = DatabaseError(f"{file}: cannot be created: {error.strerror}", ANOTHER)
        raise (space_error(file, str(error)) or other) from error
    finally:
        remove_database(partial)
    return contents if is_first and not leftovers(file) else None


def _put(new: Path, path: Path) -> bool:
    """Give `new` the name `path`, unless another process was faster; return whether it was done.

    The file of another process is as good. Where there are no hard links, DuckDB makes the file
    when it is opened.
    """
    if not path.exists():
        log = log_of(path)  # of a missing database, which somebody may bring back
        with suppress(FileNotFoundError):  # there is none, or another process was faster
            log.rename(free_name(log, ASIDE))
    with suppress(OSError):
        os.link(new, path)
        return True
    return False


def _create(path: Path) -> Contents | None:
    """Write a database to a partial file; without a cache it has no tables yet: return None."""
    template = _template()
    if template is not None:
        with suppress(OSError):  # another process removed it, or the disk is full
            shutil.copyfile(template, path)
            if _is_intact(path, template):
                with path.open("rb+") as file:  # a power cut must not leave half of it
                    os.fsync(file.fileno())
                _, _, tables, views, _ = template.stem.split("-")
                return Contents(int(tables), int(views))
        remove_database(path)
    import duckdb

    from warehouse.database.failures import database_error

    try:
        duckdb.connect(str(path), config=CONFIG).close()
    except duckdb.Error as error:
        raise database_error(error, target_of_partial(path)) from error
    return None


def in_memory() -> DuckDBPyConnection:
    """Return a new database in memory; use it with `with`."""
    import duckdb

    template = _template()
    connection = duckdb.connect(config={**PLANNING})
    if template is None:
        from warehouse.database.schema import prepare

        prepare(connection)
    else:
        connection.execute(f"attach {literal(str(template))} as prepared (read_only)")
        connection.execute("copy from database prepared to memory")
        connection.execute("detach prepared")
    return connection


def contents_of(connection: DuckDBPyConnection) -> Contents:
    """Return the numbers of tables and views of a database."""
    tables, views = (
        connection.execute(f"select count(*) from {kind} where {IN_MAIN}").fetchall()[0][0]
        for kind in ("duckdb_tables()", "duckdb_views()")
    )
    return Contents(tables, views)


def _template() -> Path | None:
    """Return an intact, up-to-date file of the cache, made if necessary; None if none can be."""
    directory = settings.cache()
    if directory is None:
        return None
    content = f"{duckdb_version()} {STORAGE_VERSION} {source_hash()}"
    key = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in sorted(directory.glob(f"empty-{key}-*-*-*.duckdb")):
            if _is_intact(path, path):
                note_use(path)
                return path
            with suppress(OSError):
                path.unlink()
    except OSError:
        return None
    import duckdb

    try:
        return _made(directory, key)
    except (OSError, duckdb.Error):
        return None


def _made(directory: Path, key: str) -> Path:
    import duckdb

    from warehouse.database.schema import prepare

    partial = partial_path(directory / f"empty-{key}-{threading.get_ident()}.duckdb")
    remove_database(partial)
    try:
        with duckdb.connect(str(partial), config=CONFIG) as connection:
            prepare(connection)
            tables, views = contents_of(connection)
            connection.execute("checkpoint")  # closing would not say that the disk is full
        name = f"empty-{key}-{tables}-{views}-{_digest(partial)}.duckdb"
        path = partial.replace(directory / name)
    finally:
        remove_database(partial)
    remove_old(directory, "empty-*.duckdb", _MOST)
    return path


def _is_intact(copy: Path, template: Path) -> bool:
    return template.stem.endswith(f"-{_digest(copy)}")


def _digest(path: Path) -> str:
    return digest_of(path)[:32]
