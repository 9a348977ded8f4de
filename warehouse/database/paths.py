"""Resolves and checks the path of a database without DuckDB."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from warehouse.database.facts import folder_of, is_folder, rebuild_command
from warehouse.errors import DatabaseError

ANOTHER = "name another file with --db"

_MAGIC_AT, _MAGIC = 8, b"DUCK"
_ADDRESS = re.compile(r"[A-Za-z0-9_]{2,}:")
"""Beginnings of a path that DuckDB reads as a server, or as an extension that it would download."""


def file_of(path: Path) -> Path:
    """Return the absolute path of a file, or of what a link leads to, whether or not it exists.

    Through a link DuckDB would write its log next to the link, where no other process looks.
    """
    return path.resolve() if path.is_symlink() else path.absolute()


def is_address(path: Path) -> bool:
    """Return whether DuckDB would read a path as something else than the name of a file."""
    return _ADDRESS.match(str(path)) is not None or str(path) == ":memory:"


def refuse_backslash(path: Path) -> None:
    """Refuse a path with a backslash, unless it separates folders here.

    DuckDB takes it for a slash everywhere, and would open another file.

    Raises
    ------
    DatabaseError
        If it has one.
    """
    place = str(file_of(path))
    if os.sep == "/" and "\\" in place:
        reason = "has a backslash, which DuckDB reads as /"
        raise DatabaseError(f"{place}: {reason}", "name a file whose whole path has none")


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
        handles = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
    except OSError:
        return False
    for handle in handles:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.fstat(handle), status):
                return True
    return False


def refuse_missing(path: Path) -> None:
    """Raise unless `path` is a DuckDB file.

    Raises
    ------
    DatabaseError
        If there is no such file, or it is something else.
    """
    if not is_database(path):
        makes_again = f"`{rebuild_command(path)}` makes it again from {folder_of(path).name}"
        begins = "run `warehouse init` or `warehouse quickstart`, or name the file with --db"
        raise DatabaseError(
            f"{path}: there is no such database",
            makes_again if is_folder(folder_of(path)) else begins,
        )
