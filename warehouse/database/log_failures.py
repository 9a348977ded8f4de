"""Errors of a write-ahead log (WAL) that cannot be taken into its database.

No hint says to delete a log: it may have data that no other file has.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path


def foreign_log(path: Path, log: Path) -> DatabaseError:
    """Return the error of a file in place of the WAL that DuckDB would overwrite unread."""
    return log_error(path, log, "it does not begin as a log of DuckDB does")


def log_error(path: Path, log: Path, reason: str) -> DatabaseError:
    """Return the error of a WAL that cannot be taken into its database."""
    opens = "the database then opens as of its last checkpoint, without the commits since"
    if "newer version" in reason:
        return DatabaseError(
            f"{path}: is older than its log {log}: it was copied without it, or before it",
            "copy both again while no process has the database open, or use `warehouse backup`; "
            f"without the newer database, {aside(log, 'kept')}: {opens}",
        )
    if "older version" in reason:
        return DatabaseError(
            f"{path}: is newer than its log {log}: the log was copied without it, or is left over",
            f"{aside(log, 'kept')}: the newer database has the rows of its own log",
        )
    if "does not match database" in reason:
        return DatabaseError(
            f"{path}: its log {log} belongs to another database, or its head is damaged",
            f"put its own log there, or {aside(log, 'kept')}: {opens}",
        )
    return DatabaseError(
        f"{path}: its log {log} is damaged: {reason}",
        f"{aside(log, 'damaged')} and run the command again: {opens}; keep the moved file",
    )


def aside(file: Path, ending: str) -> str:
    """Return the command that moves a file aside."""
    return f"move it aside (`mv {shlex.quote(str(file))} {shlex.quote(f'{file}.{ending}')}`)"
