"""Connections to a warehouse database, and errors for a file that cannot be opened."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from warehouse.database.file_format import CONFIG
from warehouse.database.meta import is_stamped
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAGIC_AT, _MAGIC = 8, b"DUCK"
_ANOTHER = "name another file with --db"
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_HOLDER = re.compile(r"PID (\d+)")


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
    except duckdb.Error as error:
        connection.close()
        raise database_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_read(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a read-only connection to the database at `path`; use it with `with`.

    A database of another version of the package is brought up to date first. For this moment no
    other process may have it open.

    Raises
    ------
    DatabaseError
        If there is no such file, or as `open_for_write`.
    """
    path = Path(path)
    connection = open_as_it_is(path)
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
    open_for_write(path).close()
    return _connect(path, read_only=True)


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


def database_error(error: duckdb.Error, path: Path) -> DatabaseError:
    """Return an error of DuckDB about the file at `path` as one that says what to do."""
    said = str(error)
    if "set lock on file" in said:
        holder = _HOLDER.search(said)
        return DatabaseError(
            f"{path}: is in use by {f'process {holder[1]}' if holder else 'another process'}: "
            f"wait for it, `warehouse status` shows its progress, or {_ANOTHER}",
        )
    if "different configuration" in said:
        return DatabaseError(
            f"{path}: this process has it open in another mode", "close the other connection first"
        )
    if "version number" in said or "newer version" in said:
        return DatabaseError(
            f"{path}: was written by another version of DuckDB",
            f"upgrade with `pip install --upgrade duckdb`, or {_ANOTHER}",
        )
    if any(reason in said for reason in _FULL):
        return DatabaseError(
            f"{path}: there is no space left for it",
            "free some disk space and run the same command again: committed rows stay",
        )
    if "Permission denied" in said or "Read-only file system" in said:
        return DatabaseError(
            f"{path}: may not be written",
            f"change its permissions, or those of its directory, or {_ANOTHER}",
        )
    if "Cannot open file" in said:
        return DatabaseError(
            f"{path}: cannot be opened: {said.partition(chr(10))[0]}",
            f"let this user read and write it and its directory, or {_ANOTHER}",
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return DatabaseError(
            f"{path}: there is not enough memory: {said.partition(chr(10))[0]}",
            "end other programs, or ask for less; committed rows stay",
        )
    if isinstance(error, duckdb.CatalogException):
        return DatabaseError(
            f"{path}: something is missing in it: {said.partition(chr(10))[0]}",
            "run `warehouse init`: it makes tables and views again and keeps the rows",
        )
    return DatabaseError(
        f"{path}: cannot be used: {said.partition(chr(10))[0]}",
        "if the file is damaged, restore a copy of it, or sweep again into another with --db",
    )


def _exists(path: Path) -> bool:
    """Return whether `path` is a DuckDB file; raise if it is something else."""
    try:
        if path.is_dir():
            raise DatabaseError(f"{path}: is a directory", "name a file in it with --db")
        with path.open("rb") as file:
            header = file.read(_MAGIC_AT + len(_MAGIC))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be opened: {error.strerror}", _ANOTHER) from error
    if header[_MAGIC_AT:] != _MAGIC:
        raise DatabaseError(f"{path}: is not a DuckDB database", f"move it away, or {_ANOTHER}")
    return True


def _create(path: Path) -> None:
    """Make an empty database that appears whole under its name, or not at all.

    A process killed while it writes the first blocks would leave a file that cannot be opened.
    """
    new = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        from warehouse.database import empty

        empty.create(new)
        _put(new, path)
    except OSError as error:
        raise DatabaseError(f"{path}: cannot be created: {error.strerror}", _ANOTHER) from error
    except duckdb.Error as error:
        raise database_error(error, path) from error


def _put(new: Path, path: Path) -> None:
    """Rename `new` to `path`, unless another process was faster: its file is as good."""
    if not path.exists():  # a log without a database is left from one that was deleted
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
    # Where there are no hard links, DuckDB makes the file when it is opened.
    with suppress(OSError):
        os.link(new, path)
    new.unlink()


def _file_of(path: Path) -> Path:
    """Return what a link leads to, whether or not it exists; other paths as they are.

    Through a link DuckDB would write its log next to the link, where no other process looks.
    """
    return path.resolve() if path.is_symlink() else path


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    file = str(_file_of(path))
    try:
        return duckdb.connect(file, read_only=read_only, config=CONFIG)
    except duckdb.Error as error:
        raise database_error(error, path) from error


def rows_as_dicts(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> list[Mapping[str, Any]]:
    """Return the rows of a query, each by the names of its columns."""
    result = connection.execute(query, list(values))
    columns = [column[0] for column in result.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
