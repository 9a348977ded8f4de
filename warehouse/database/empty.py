"""Empty databases: every table, reference table, macro and view, but no result.

Making one takes seconds, copying one takes milliseconds. So one is made, kept in a cache directory,
and every new database starts as a copy of it. The cache is optional: a directory that cannot be
read or written is not used, and a damaged file in it is replaced.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from warehouse import settings
from warehouse.database.file_format import CONFIG, PLANNING, STORAGE_VERSION
from warehouse.database.source import source_hash
from warehouse.database.sql_text import literal

_KEPT_FILES = 4
"""The most recently used stay: several versions of the package may share a cache."""

_ABANDONED_SECONDS = 3600
"""A database takes seconds to make; one that is older belongs to a process that was killed."""


def create(path: Path) -> None:
    """Write an empty database to `path`.

    Without a cache the file has no tables yet: `warehouse.database.schema.prepare` makes them.

    Raises
    ------
    OSError, duckdb.Error
        If the file cannot be written.
    """
    cached = _cached()
    if cached is not None:
        with suppress(FileNotFoundError):  # another process removed it in the meantime
            shutil.copyfile(cached, path)
            if _digest(path) == _digest_in_name(cached):
                _write_through(path)
                return
    path.unlink(missing_ok=True)
    duckdb.connect(str(path), config=CONFIG).close()


def in_memory() -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory; use it with `with`.

    Raises
    ------
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    cached = _cached()
    if cached is not None:
        connection = duckdb.connect(config={**PLANNING})
        try:
            connection.execute(f"attach {literal(str(cached))} as prepared (read_only)")
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


def _cached() -> Path | None:
    """Return an intact file of the cache that is up to date, made if need be; None if none can be.

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
        return _found(directory, key) or _made(directory, key)
    except (OSError, duckdb.Error):
        return None


def _key() -> str:
    """Return a hash of everything that an empty database is made from."""
    content = f"{duckdb.__version__} {STORAGE_VERSION} {source_hash()}"
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _found(directory: Path, key: str) -> Path | None:
    for path in sorted(directory.glob(f"empty-{key}-*.duckdb")):
        if _digest(path) == _digest_in_name(path):
            with suppress(OSError):  # a directory that may only be read
                os.utime(path)
            return path
        with suppress(OSError):
            path.unlink()
    return None


def _made(directory: Path, key: str) -> Path:
    """Make an empty database; it appears whole under its name, or not at all."""
    from warehouse.database.schema import prepare

    with TemporaryDirectory(prefix="new-", dir=directory) as temporary:
        new = Path(temporary) / "empty.duckdb"
        with duckdb.connect(str(new), config=CONFIG) as connection:
            prepare(connection)
            connection.execute("checkpoint")  # closing would not say that the disk is full
        path = directory / f"empty-{key}-{_digest(new)}.duckdb"
        new.replace(path)
    _remove_old(directory)
    return path


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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _digest_in_name(path: Path) -> str:
    return path.stem.rpartition("-")[2]


def _write_through(path: Path) -> None:
    """Have the file on the disk before it gets its name: a power cut must not leave half of it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
