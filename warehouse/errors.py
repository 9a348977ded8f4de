"""Errors that a user can act on: one class per exit code, each with a hint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from estimators.contract import Refusal
    from estimators.estimator import Estimator

MAX_SHOWN = 10
"""Most refusals that a message lists; the others are counted."""

LONGEST_HINT = 300
"""Longest hint, in characters, when a message has several."""

LONGEST_MESSAGE = 5000
"""Characters of a message that is shown."""

CONTROL = r"[\x00-\x1f\x7f-\x9f]"
"""A control character, as a pattern."""


class WarehouseError(Exception):
    """Base of all errors meant for the user; the CLI prints it and exits with `exit_code`.

    The message names file, key, value and reason. The hint says what the user can do.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = escaped(message), escaped(hint)
        super().__init__(self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(WarehouseError):
    """The command was called wrongly."""

    exit_code = 2


class InputError(WarehouseError):
    """A study, batch, query, reference table or SQL file is refused; nothing was written."""

    exit_code = 3

    @classmethod
    def from_refusals(
        cls, refusals: Sequence[Refusal], file: str = "", names: Sequence[str] = ()
    ) -> InputError:
        """Return one error that lists all faults of `file`, by the names or numbers of its rows.

        A hint that all refusals share is printed once, at the end. Any other hint follows the last
        of the consecutive refusals that have it, and is cut if it is long.
        """
        shown = refusals[:MAX_SHOWN]
        hints = {refusal.hint for refusal in shown}
        shared = hints.pop() if len(hints) == 1 else ""
        lines = []
        for refusal, following in zip_longest(shown, shown[1:]):
            where = [file] if file else []
            if refusal.row is not None:
                where.append(names[refusal.row] if names else f"row {refusal.row + 1}")
            lines.append(": ".join([*where, str(replace(refusal, hint=""))]))
            if refusal.hint and not shared and (not following or following.hint != refusal.hint):
                lines.append(f"hint: {shortened(refusal.hint, LONGEST_HINT)}")
        if len(refusals) > len(shown):
            lines.append(f"... and {len(refusals) - len(shown):,} more")
        return cls("\n".join(lines), shared)


def escaped(text: str) -> str:
    """Escape the control characters of a message, which may quote a file; lines stay lines."""
    return re.sub(CONTROL, lambda mark: mark[0] if mark[0] in "\n\t" else repr(mark[0])[1:-1], text)


def shortened(text: str, longest: int) -> str:
    """Return a text, cut after its last whole word if it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    whole = text[: longest - 4].rpartition(" ")[0] or text[: longest - 4]
    return f"{whole} ..."


def require_capability(estimator: Estimator, capability: str, lack: str) -> None:
    """Raise `UsageError` unless an estimator has a capability; the hint names those that have it.

    `lack` is the reason, such as "has no constants to calibrate".
    """
    if not attrgetter(capability)(estimator):
        from estimators.registry import with_capability

        able = " or ".join(with_capability(capability))
        raise UsageError(f"`--estimator` {estimator.name} {lack}", f"use {able}")


class CheckError(WarehouseError):
    """A check of the stored data found rows."""

    exit_code = 4


class DatabaseError(WarehouseError):
    """The database is missing, locked, damaged, foreign or newer than this package."""

    exit_code = 5


class LockedError(DatabaseError):
    """Another process has the database open."""

    process: int | None = None
    """The process that has it open, where DuckDB names it."""


def space_error(path: object, reason: str) -> DatabaseError | None:
    """Return the error of a file that has no room; None where the system gives another reason."""
    if "File too large" in reason:
        what = "raise the largest size of a file (`ulimit -f`)"
    elif "No space left on device" in reason or "Disk quota exceeded" in reason:
        what = "free some disk space"
    else:
        return None
    return DatabaseError(
        f"{path}: there is no space left for it",
        f"{what} and run the same command again: committed rows stay",
    )
