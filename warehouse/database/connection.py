"""Connections to a warehouse database, and errors for a file that cannot be opened."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.access import current
from warehouse.database.failures import ANOTHER, database_error, foreign_log
from warehouse.database.file_format import CONFIG
from warehouse.database.leftovers import NEW, SNAPSHOT, remove_abandoned, remove_leftovers
from warehouse.database.log_length import missing_log_bytes
from warehouse.database.meta import is_stamped
from warehouse.errors import DatabaseError, LockedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAGIC_AT, _MAGIC = 8, b"DUCK"
_LOG_HEAD = b"d\x00b"
"""First bytes of every write-ahead log: the entry with its version."""

_ADDRESS = re.compile(r"[A-Za-z0-9_]{2,}:")
"""DuckDB takes such a beginning for a server or an extension, which it would download."""

_POLL_SECONDS = 0.1

_SAID_CUT: set[tuple[Path, int]] = set()
"""Logs that this process has warned of, each with its missing bytes."""


def open_for_write(path: Path) -> duckdb.DuckDBPyConnection:
    """Return the only connection that may write to the database at `path`; use it with `with`.

    The file and its directory are created if they are missing. Tables, reference tables and views
    are brought up to date.

    Raises
    ------
    DatabaseError
        If the file is locked, damaged, foreign or newer than this package, or cannot be made.
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    path = Path(path)
    if not _exists(path):
        _create(_file_of(path))
    connection = _connect(path, read_only=False)
    try:
        if not is_stamped(connection):
            from warehouse.database.schema import prepare

            prepare(connection)
        remove_leftovers(_file_of(path))
    except duckdb.Error as error:
        connection.close()
        raise database_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the database at `path`; use it with `with`.

    A database of another version of the package is brought up to date first, where `Access` admits
    that. For this moment no other process may have it open.

    Raises
    ------
    DatabaseError
        If there is no such file, it is of another version and may not be written, or as
        `open_for_write`.
    """
    path = Path(path)
    try:
        connection = open_as_it_is(path)
    except LockedError as error:
        if not current().snapshot:
            raise
        return _open_snapshot(path, error)
    try:
        if is_stamped(connection) or _is_current(connection):
            return connection
    except duckdb.Error as error:
        connection.close()
        raise database_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    connection.close()
    if not current().upgrades:
        raise DatabaseError(
            f"{path}: was made by another version of this package, and reading writes nothing",
            f"run `warehouse init --db {path}`: it makes views and tables again and keeps the rows",
        )
    open_for_write(path).close()
    current().say(f"{path}: brought up to date with this version of the package; rows stay")
    return _connect(path, read_only=True)


def _open_snapshot(path: Path, error: LockedError) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the state that the sweep into a database published."""
    snapshot = snapshot_path(path)
    try:
        published = time.localtime(snapshot.stat().st_mtime)
        connection = _connect(snapshot, read_only=True)
    except OSError:
        raise LockedError(
            error.message,
            "it has published no snapshot yet: a sweep does after its first few million rows; "
            f"wait for it with --wait SECONDS, or {ANOTHER}",
        ) from None
    if not (is_stamped(connection) or _is_current(connection)):
        connection.close()
        raise DatabaseError(
            f"{snapshot}: was published by another version of this package",
            "ask with that version, or wait for the end of the sweep with --wait SECONDS",
        )
    current().say(
        f"{path}: a sweep has it; this is what it had stored at "
        f"{time.strftime('%H:%M:%S', published)} ({snapshot.name})"
    )
    return connection


def snapshot_path(database: Path) -> Path:
    """Return the path at which a sweep into `database` publishes what it has stored."""
    file = _file_of(database)
    return file.with_name(file.name + SNAPSHOT)


def _is_current(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the views and tables are up to date, even if other files made them."""
    from warehouse.database.schema import is_current

    return is_current(connection)


def open_as_it_is(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to a database of any version; use it with `with`.

    Raises
    ------
    DatabaseError
        If there is no such file, or it is locked, damaged or foreign.
    """
    path = Path(path)
    if not _exists(path):
        raise DatabaseError(
            f"{path}: there is no such database",
            "run `warehouse init` or `warehouse quickstart`, or name the file with --db",
        )
    return _connect(path, read_only=True)


def _exists(path: Path) -> bool:
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


def _refuse_foreign_log(path: Path) -> None:
    """Raise if DuckDB would pass over the log of a database, and then write over it.

    It takes an unknown beginning for a log that a crash cut short. A file system may leave zeros
    after a power cut: nothing was committed then.
    """
    file = _file_of(path)
    log = file.with_name(f"{file.name}.wal")
    try:
        with log.open("rb") as opened:
            head = opened.read(64)
    except OSError:
        return
    if len(head) >= len(_LOG_HEAD) and any(head) and not head.startswith(_LOG_HEAD):
        raise foreign_log(path, log)


def _warn_of_cut_log(path: Path) -> None:
    """Say once that a log ends before its last commit: DuckDB would pass over it in silence."""
    file = _file_of(path)
    log = file.with_name(f"{file.name}.wal")
    missing = missing_log_bytes(log)
    if missing and (log, missing) not in _SAID_CUT:
        _SAID_CUT.add((log, missing))
        current().say(
            f"warning: {path}: its log {log} was cut: it lacks {missing:,} bytes that were"
            " committed, and what they held is lost\n"
            "hint: if you have the whole log, put it there before a command writes; else run the "
            "last commands again: a sweep evaluates the cells that are missing"
        )


def _create(path: Path) -> None:
    """Make an empty database that appears whole under its name, or not at all.

    A process killed while it writes the first blocks would leave a file that cannot be opened.
    """
    new = path.with_name(f"{path.name}{NEW}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        new.unlink(missing_ok=True)
        from warehouse.database import empty

        empty.create(new)
        _put(new, path)
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be created: {error.strerror}", ANOTHER) from error
    except duckdb.Error as error:
        raise database_error(error, path) from error
    finally:
        for unfinished in (new, new.with_name(f"{new.name}.wal")):
            with suppress(OSError):
                unfinished.unlink()


def _put(new: Path, path: Path) -> None:
    """Rename `new` to `path`, unless another process was faster: its file is as good."""
    if not path.exists():
        _keep_log(path)
    # Where there are no hard links, DuckDB makes the file when it is opened.
    with suppress(OSError):
        os.link(new, path)


def _keep_log(path: Path) -> None:
    """Move the log of a database that is gone aside: the database may be brought back."""
    log = path.with_name(f"{path.name}.wal")
    if not log.exists():
        return
    number = 1
    while (kept := log.with_name(f"{log.name}.kept{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    with suppress(FileNotFoundError):  # another process was faster
        log.rename(kept)


def _file_of(path: Path) -> Path:
    """Return the absolute path of a file, or of what a link leads to, whether or not it exists.

    Through a link DuckDB would write its log next to the link, where no other process looks.
    """
    return path.resolve() if path.is_symlink() else path.absolute()


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open a file, and wait for a lock of another process as long as the access says."""
    access = current()
    seconds = access.read_seconds if read_only else access.write_seconds
    until: float | None = None
    while True:
        try:
            return duckdb.connect(str(_file_of(path)), read_only=read_only, config=CONFIG)
        except duckdb.Error as error:
            found = database_error(error, path, is_opening=True)
            if not isinstance(found, LockedError) or seconds <= 0:
                raise found from error
            now = time.monotonic()
            if until is None:
                until = now + seconds
                access.say(f"{found.message}; waiting for it, {seconds:g} s at most")
            elif now >= until:
                raise found from error
        time.sleep(min(_POLL_SECONDS, max(0.0, until - now)))


def rows_as_dicts(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> list[Mapping[str, Any]]:
    """Return the rows of a query, each by the names of its columns."""
    result = connection.execute(query, list(values))
    columns = [column[0] for column in result.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
