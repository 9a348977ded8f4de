"""Resolves and checks the path of a database without DuckDB."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from warehouse.database.access import current
from warehouse.database.log_failures import foreign_log
from warehouse.database.log_length import missing_log_bytes
from warehouse.errors import DatabaseError

ANOTHER = "name another file with --db"

_MAGIC_AT, _MAGIC = 8, b"DUCK"
_LOG_HEAD = b"d\x00b"
"""First bytes of every write-ahead log: the entry with its version."""

_ADDRESS = re.compile(r"[A-Za-z0-9_]{2,}:")
"""Beginnings of a path that DuckDB reads as a server, or as an extension that it would download."""

_SAID_CUT: set[tuple[Path, int]] = set()
"""Logs that this process has warned of, each with its missing bytes."""


def file_of(path: Path) -> Path:
    """Return the absolute path of a file, or of what a link leads to, whether or not it exists.

    Through a link DuckDB would write its log next to the link, where no other process looks.
    """
    return path.resolve() if path.is_symlink() else path.absolute()


def is_database(path: Path) -> bool:
    """Return whether `path` is a DuckDB file; raise if it is something else."""
    if _ADDRESS.match(str(path)) or str(path) == ":memory:":
        raise DatabaseError(
            f"{path}: is an address, not a file",
            f"{ANOTHER}; a file of this name needs its whole path",
        )
    try:
        str(path).encode()
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DatabaseError(f"{path}: is a directory", "name a file in it with --db")
        if not stat.S_ISREG(mode):  # reading from a pipe would wait for its writer
            raise DatabaseError(f"{path}: is a pipe or a device, not a file", ANOTHER)
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
    _refuse_foreign_log(path)
    _warn_of_cut_log(path)
    return True


def refuse_missing(path: Path) -> None:
    """Raise unless `path` is a DuckDB file.

    Raises
    ------
    DatabaseError
        If there is no such file, or it is something else.
    """
    if not is_database(path):
        raise DatabaseError(
            f"{path}: there is no such database",
            "run `warehouse init` or `warehouse quickstart`, or name the file with --db",
        )


def _refuse_foreign_log(path: Path) -> None:
    """Raise if DuckDB would ignore the log of a database, and then overwrite it.

    It treats a log with an unknown beginning as one that a crash cut short. A file system may leave
    zeros after a power cut: in that case nothing was committed.
    """
    file = file_of(path)
    log = file.with_name(f"{file.name}.wal")
    try:
        with log.open("rb") as opened:
            head = opened.read(64)
    except OSError:
        return
    if len(head) >= len(_LOG_HEAD) and any(head) and not head.startswith(_LOG_HEAD):
        raise foreign_log(path, log)


def _warn_of_cut_log(path: Path) -> None:
    """Warn once that a log ends before its last commit: DuckDB would ignore this silently."""
    file = file_of(path)
    log = file.with_name(f"{file.name}.wal")
    missing = missing_log_bytes(log)
    if missing and (log, missing) not in _SAID_CUT:
        _SAID_CUT.add((log, missing))
        current().say(
            f"warning: {path}: its log {log} was cut: it lacks {missing:,} bytes that were"
            " committed, and their rows are lost\n"
            "hint: if you have the whole log, put it there before a command writes; else run the "
            "last commands again: a sweep evaluates the cells that are missing"
        )
