"""One hash of everything that a database is made from: SQL, reference tables, code.

Files are read, nothing is imported: the hash takes milliseconds, where the fingerprints of
`warehouse.database.schema` need every estimator. Equal hashes have equal fingerprints.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from estimators import registry
from warehouse.database import resources

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGES = Path(__file__).parents[2]
_CODE = ("estimators", "warehouse/database")
"""Directories whose modules decide the contents of a database."""

_ENDINGS = (".py", ".sql", ".csv", ".parquet")

_SKIPPED = {"__pycache__", "resources"}
"""Directories that are skipped. The wheel has SQL and tables in `resources`, a clone has them
elsewhere: they are read from there."""


_SEEN: ContextVar[dict[str, tuple[_File, ...]] | None] = ContextVar("seen", default=None)
"""Directory -> its files as first seen in a `seen_once` block; None outside such blocks."""


class _File(NamedTuple):
    """A file, and what changes when its content does."""

    name: str
    path: str
    size: int
    modified: int
    inode: int


@contextmanager
def seen_once() -> Iterator[None]:
    """Stat each file only once until the block ends: a package does not change during a command."""
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def package_hash() -> str:
    """Return the hash of every module, and of everything that a database is made from."""
    return f"{source_hash()} {_hash(_files_in(_PACKAGES / 'warehouse'), ())}"


def source_hash() -> str:
    """Return the hash of everything that a database of this package is made from."""
    directories = [
        *(_PACKAGES / name for name in _CODE),
        resources.sql_directory(),
        resources.reference_directory(),
    ]
    files = [file for place in directories for file in _files_in(place)]
    return _hash(tuple(files), tuple(registry.ESTIMATORS.items()))


@lru_cache(maxsize=8)
def _hash(files: tuple[_File, ...], registered: tuple[tuple[str, str], ...]) -> str:
    result = blake2b(repr(registered).encode(), digest_size=16)
    for file in files:
        content = Path(file.path).read_bytes()
        result.update(f"{file.name} {len(content)}\n".encode())
        result.update(content)
    return result.hexdigest()


def _files_in(place: Path) -> tuple[_File, ...]:
    seen = _SEEN.get()
    if seen is None:
        return tuple(_files(str(place), place.name))
    if str(place) not in seen:
        seen[str(place)] = tuple(_files(str(place), place.name))
    return seen[str(place)]


def _files(directory: str, name: str) -> Iterator[_File]:
    """Yield the files below a directory by name, the same on every machine."""
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name in _SKIPPED and entry.is_dir():
            continue
        if entry.is_dir():
            yield from _files(entry.path, f"{name}/{entry.name}")
        elif entry.name.endswith(_ENDINGS):
            stat = entry.stat()
            yield _File(
                f"{name}/{entry.name}", entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino
            )
