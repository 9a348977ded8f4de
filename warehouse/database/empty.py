"""Empty databases: every table, reference table, macro and view, but no result.

Making one takes seconds, copying one takes milliseconds. So one is made, kept in a cache directory,
and every new database starts as a copy of it. The cache is optional: a directory that cannot be
read or written is not used, and a damaged file in it is replaced.

The name of a kept file has all that a copy needs: a hash of everything that it is made from, how
many tables and views it has, and the digest of its bytes. So nothing opens it, and DuckDB is
imported only where a database is made or read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from warehouse import settings
from warehouse.database.file_format import CONFIG, PLANNING, STORAGE_VERSION, duckdb_version
from warehouse.database.source import source_hash
from warehouse.database.sql_text import IN_MAIN, literal
from warehouse.files import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

_KEPT_FILES = 4
"""Number of files that stay, the most recently used ones: versions of the package share a cache."""

_ABANDONED_SECONDS = 3600
"""Age in seconds of an unfinished file that counts as abandoned: making one takes seconds."""


class Contents(NamedTuple):
    """Numbers of tables and views of a database without results."""

    num_tables: int
    num_views: int


class _Kept(NamedTuple):
    """A file of the cache, and what its name says."""

    path: Path
    contents: Contents
    digest: str


def create(path: Path) -> Contents | None:
    """Write an empty database to `path`, and return its numbers of tables and views.

    Without a cache the file has no tables yet, and None is returned:
    `warehouse.database.schema.prepare` makes them.

    Raises
    ------
    InputError
        If a reference table or a file of sql/ is faulty.
    OSError, duckdb.Error
        If the file cannot be written.
    """
    # After an error the copy below succeeds with a checked file, or raises the same error.
    with suppress(OSError):
        for kept in _named(settings.cache(), _key()):
            if _is_copied(kept, path):
                return kept.contents
    checked = _cached()
    if checked is not None:
        with suppress(FileNotFoundError):  # another process removed it in the meantime
            if _is_copied(checked, path):
                return checked.contents
    path.unlink(missing_ok=True)
    import duckdb

    duckdb.connect(str(path), config=CONFIG).close()
    return None


def in_memory() -> DuckDBPyConnection:
    """Return an empty database in memory; use it with `with`.

    Raises
    ------
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    import duckdb

    cached = _cached()
    if cached is not None:
        connection = duckdb.connect(config={**PLANNING})
        try:
            connection.execute(f"attach {literal(str(cached.path))} as prepared (read_only)")
            connection.execute("copy from database prepared to memory")
            connection.execute("detach prepared")
        except duckdb.Error:
            connection.close()
        else:
            return connection
    from warehouse.database.schema import prepare

    connection = duckdb.connect(config={**PLANNING})
    prepare(connection)
    return connection


def prepared_file() -> Path | None:
    """Return an empty database of this package, in the cache; None if none can be.

    Raises
    ------
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    found = _cached()
    return None if found is None else found.path


def _cached() -> _Kept | None:
    """Return an intact, up-to-date file of the cache, made if necessary; None if none can be made.

    Raises
    ------
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    directory = settings.cache()
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        key = _key()
        found = _found(directory, key)
    except OSError:
        return None
    if found is not None:
        return found
    import duckdb

    try:
        return _made(directory, key)
    except (OSError, duckdb.Error):
        return None


def _key() -> str:
    """Return a hash of everything that an empty database is made from."""
    content = f"{duckdb_version()} {STORAGE_VERSION} {source_hash()}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _named(directory: Path | None, key: str) -> Iterator[_Kept]:
    """Yield the cached files that are up to date by their names; their bytes are not read."""
    paths = [] if directory is None else directory.glob(f"empty-{key}-*-*-*.duckdb")
    for path in sorted(paths):
        *_, tables, views, digest = path.stem.split("-")
        if tables.isdecimal() and views.isdecimal():
            yield _Kept(path, Contents(int(tables), int(views)), digest)


def _found(directory: Path, key: str) -> _Kept | None:
    for kept in _named(directory, key):
        if _digest(kept.path) == kept.digest:
            _note_use(kept.path)
            return kept
        with suppress(OSError):
            kept.path.unlink()
    return None


def _made(directory: Path, key: str) -> _Kept:
    """Make an empty database; it appears whole under its name, or not at all."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import duckdb

    from warehouse.database.schema import prepare

    with TemporaryDirectory(prefix="new-", dir=directory) as temporary:
        new = Path(temporary) / "empty.duckdb"
        with duckdb.connect(str(new), config=CONFIG) as connection:
            prepare(connection)
            contents = contents_of(connection)
            connection.execute("checkpoint")  # closing would not say that the disk is full
        digest = _digest(new)
        name = f"empty-{key}-{contents.num_tables}-{contents.num_views}-{digest}.duckdb"
        path = directory / name
        new.replace(path)
    _remove_old(directory)
    return _Kept(path, contents, digest)


def contents_of(connection: DuckDBPyConnection) -> Contents:
    """Return the numbers of tables and views of a database."""
    tables, views = (
        connection.execute(f"select count(*) from {kind} where {IN_MAIN}").fetchall()[0][0]
        for kind in ("duckdb_tables()", "duckdb_views()")
    )
    return Contents(tables, views)


def _is_copied(kept: _Kept, path: Path) -> bool:
    """Copy a cached file to `path`, and return whether the copy has the digest in its name."""
    shutil.copyfile(kept.path, path)
    if _digest(path) != kept.digest:
        return False
    _note_use(kept.path)
    _write_through(path)
    return True


def _note_use(path: Path) -> None:
    with suppress(OSError):  # a directory that may only be read
        os.utime(path)


def _remove_old(directory: Path) -> None:
    """Remove the files of versions no longer used, and what killed processes left."""
    used = sorted(directory.glob("empty-*.duckdb"), key=_last_used, reverse=True)
    for path in used[_KEPT_FILES:]:
        with suppress(OSError):
            path.unlink()
    for path in directory.glob("new-*"):
        if time.time() - _last_used(path) > _ABANDONED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0


def _digest(path: Path) -> str:
    return digest_of(path)[:32]


def _write_through(path: Path) -> None:
    """Flush the file to the disk before it gets its name: a power cut must not leave half of it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
