"""Errors of a database file that has no room: the disk is full, or files may not grow so large."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.errors import DatabaseError

if TYPE_CHECKING:
    from pathlib import Path

_FULL = ("No space left on device", "Disk quota exceeded")
_TOO_LARGE = "File too large"


def space_error(path: Path, reason: str) -> DatabaseError | None:
    """Return the error of a file that has no room; None where that is not the reason.

    Parameters
    ----------
    reason
        Text of the failure, with the system's words for it.
    """
    if _TOO_LARGE in reason:
        what = "raise the largest size of a file (`ulimit -f`)"
    elif any(words in reason for words in _FULL):
        what = "free some disk space"
    else:
        return None
    return DatabaseError(
        f"{path}: there is no space left for it",
        f"{what} and run the same command again: committed rows stay",
    )
