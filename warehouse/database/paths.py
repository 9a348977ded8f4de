"""Database files without DuckDB: their paths, their format, and the files beside them."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warehouse.database.facts import folder_of, is_folder, rebuild_command
from warehouse.errors import DatabaseError
from warehouse.files import abandoned

STORAGE_VERSION = "v1.5.0"
"""The format of DuckDB 2 cannot be read by the 1.5 shell, which is the one pip can install."""

PLANNING = {"disabled_optimizers": "projection_pullup"}
"""After each move of a projection, `projection_pullup` renames its columns in the whole plan. That
takes a quarter of the time to plan views that rest on many others, and no query runs faster."""

CONFIG: dict[str, Any] = {"storage_compatibility_version": STORAGE_VERSION, **PLANNING}
"""Settings with which every database file is opened."""
if hasattr(os, "sched_getaffinity"):
    # DuckDB counts the machine's cores; this process may use fewer.
    CONFIG["threads"] = len(os.sched_getaffinity(0))

SNAPSHOT, PROGRESS, REBUILT = ".snapshot", ".progress.json", ".rebuilt"
"""Suffixes of a database's snapshot, of the progress of a sweep, and of its successor."""

ANOTHER = "name another file with --db"

_MAGIC_AT, _MAGIC = 8, b"DUCK"
_ADDRESS = re.compile(r"[A-Za-z0-9_]{2,}:")
"""Beginnings of a path that DuckDB reads as a server, or as an extension that it would download."""


def duckdb_version() -> str:
    """Return the name of DuckDB's installation, with its version; an import would take longer."""
    spec = find_spec("duckdb")
    packages = Path(spec.origin).parents[1] if spec and spec.origin else Path()
    return " ".join(sorted(path.name for path in packages.glob("duckdb-*.dist-info")))


def file_of(path: Path) -> Path:
    """Return the absolute path of a file, or of what a link leads to, whether or not it exists.

    Through a link DuckDB would write its log next to the link, where no other process looks.
    """
    return path.resolve() if path.is_symlink() else path.absolute()


def log_of(database: Path) -> Path:
    """Return the path of DuckDB's log of a database."""
    return database.with_name(f"{database.name}.wal")


def remove_database(path: Path) -> None:
    """Remove a database and its log, if there are any."""
    for file in (path, log_of(path)):
        with suppress(OSError):
            file.unlink()


def is_address(path: Path) -> bool:
    """Return whether DuckDB would read a path as something else than the name of a file."""
    return _ADDRESS.match(str(path)) is not None or str(path) == ":memory:"


def refuse_backslash(path: Path) -> None:
    """Refuse a path with a backslash, unless it separates folders here.

    DuckDB takes it for a slash everywhere, and would open another file.
    """
    file = str(file_of(path))
    if os.sep == "/" and "\\" in file:
        reason = "has a backslash, which DuckDB reads as /"
        raise DatabaseError(f"{file}: {reason}", "name a file whose whole path has none")


def is_database(path: Path) -> bool:
    """Return whether `path` is a DuckDB file; raise if it is something else."""
    if is_address(path):
        raise DatabaseError(
            f"{path}: is an address, not a file",
            f"{ANOTHER}; a file of this name needs its whole path",
        )
    refuse_backslash(path)
    try:
        str(path).encode()
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DatabaseError(f"{path}: is a directory", "name a file in it with --db")
        if not stat.S_ISREG(mode):  # reading from a pipe would wait for its writer
            raise DatabaseError(f"{path}: is a pipe or a device, not a file", ANOTHER)
        if _is_open_here(path):
            return True
        with path.open("rb") as file:
            header = file.read(_MAGIC_AT + len(_MAGIC))
    except FileNotFoundError:
        return False
    except UnicodeEncodeError as error:
        raise DatabaseError(f"{path!a}: is not UTF-8 text", f"rename it, or {ANOTHER}") from error
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise DatabaseError(f"{path}: cannot be opened: {reason}", ANOTHER) from error
    if header[_MAGIC_AT:] != _MAGIC:
        raise DatabaseError(f"{path}: is not a DuckDB database", f"move it away, or {ANOTHER}")
    return True


def _is_open_here(path: Path) -> bool:
    """Return whether this process has a file open, where the system shows that.

    To open it once more and close it would end every lock that the process has on it (fcntl(2),
    POSIX.1-2017): another process could then write to it too.
    """
    status = path.stat()
    try:
        handles = [int(link.name) for link in Path("/proc/self/fd").iterdir()]
    except OSError:
        return False
    for handle in handles:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.fstat(handle), status):
                return True
    return False


def refuse_missing(path: Path) -> None:
    """Raise unless `path` is a DuckDB file."""
    if not is_database(path):
        makes_again = f"`{rebuild_command(path)}` makes it again from {folder_of(path).name}"
        begins = "run `warehouse init` or `warehouse quickstart`, or name the file with --db"
        raise DatabaseError(
            f"{path}: there is no such database",
            makes_again if is_folder(folder_of(path)) else begins,
        )


def leftovers(database: Path) -> dict[Path, int]:
    """Return the files that killed processes left next to a database, with their sizes.

    Call it while this process has the database open: then none writes to it, shrinks it or
    publishes a snapshot.
    """
    rebuilt = database.with_name(database.name + REBUILT)
    published = [
        file.name + ending for file in (database, rebuilt) for ending in (SNAPSHOT, PROGRESS)
    ]
    paths = [rebuilt, log_of(rebuilt), *map(database.with_name, published)]
    paths += abandoned(database.parent, [database.name, *published])
    sizes = {}
    for path in paths:
        with suppress(OSError):
            sizes[path] = path.stat().st_size
    return sizes


def remove_leftovers(database: Path) -> None:
    """Remove what killed processes left next to a database that this process may write to."""
    for path in leftovers(database):
        with suppress(OSError):
            path.unlink()
