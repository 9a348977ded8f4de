"""New database files: each appears whole under its name, or not at all.

DuckDB is imported only where there is no prepared database to copy.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from warehouse.database import empty
from warehouse.database.facts import ASIDE, free_name, refuse_abandoned_facts
from warehouse.database.leftovers import NEW, leftovers, remove_abandoned
from warehouse.database.paths import ANOTHER, file_of, is_database
from warehouse.database.space import space_error
from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.database.empty import Contents


def create_missing(path: Path) -> Contents | None:
    """Create the database at `path` if there is none.

    Returns
    -------
    Contents | None
        Numbers of tables and views of the new database. None if it must be opened for writing
        first: because it existed, has no tables yet, or has files of an earlier database next to
        it.

    Raises
    ------
    DatabaseError
        If the path leads to something else, or no file can be made there.
    InputError
        If a reference table or a file of sql/ is faulty.
    """
    if is_database(path):
        return None
    file = file_of(path)
    refuse_abandoned_facts(file)
    contents = _create(file)
    return None if leftovers(file) else contents


def _create(path: Path) -> Contents | None:
    """Make an empty database; return its contents if this process created the whole file.

    A process killed while it writes the first blocks would leave a file that cannot be opened.
    """
    new = path.with_name(f"{path.name}{NEW}{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        new.unlink(missing_ok=True)
        contents = empty.create(new)
        return contents if _put(new, path) else None
    except OSError as error:
        full = space_error(path, str(error))
        other = DatabaseError(f"{path}: cannot be created: {error.strerror}", ANOTHER)
        raise (full or other) from error
    except Exception as error:
        import duckdb

        from warehouse.database.failures import database_error

        if isinstance(error, duckdb.Error):
            raise database_error(error, path) from error
        raise
    finally:
        for unfinished in (new, new.with_name(f"{new.name}.wal")):
            with suppress(OSError):
                unfinished.unlink()


def _put(new: Path, path: Path) -> bool:
    """Rename `new` to `path`, unless another process was faster; return whether it was done.

    The file of another process is as good. Where there are no hard links, DuckDB makes the file
    when it is opened.
    """
    if not path.exists():
        _keep_log(path)
    with suppress(OSError):
        os.link(new, path)
        return True
    return False


def _keep_log(path: Path) -> None:
    """Move the log of a missing database aside: somebody may bring the database back."""
    log = path.with_name(f"{path.name}.wal")
    with suppress(FileNotFoundError):  # there is none, or another process was faster
        log.rename(free_name(log, ASIDE))
