"""Errors that a user can act on: one class per exit code, each with a hint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from estimators.contract import Estimator, Refusal

MAX_SHOWN = 10
"""Most refusals that a message lists; the others are counted."""

LONGEST_HINT = 300
"""Most characters of a hint in a message with several: a list of all known names can be longer."""

LONGEST_MESSAGE = 5000
"""Characters of a message that is shown."""

CONTROL = r"[\x00-\x1f\x7f-\x9f]"
"""A control character, as a pattern."""


class WarehouseError(Exception):
    """Base of all errors meant for the user; the CLI prints it and exits with `exit_code`.

    Parameters
    ----------
    message
        What is wrong: file, key, value, reason.
    hint
        What the user can do.
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
        """Return one error that lists all faults of `file`.

        A hint that all refusals share is printed once, at the end. Any other hint follows the last
        of the consecutive refusals that have it, and is cut if it is long.

        Parameters
        ----------
        file
            The refused file; empty if it has no name.
        names
            Names of the rows; by default their numbers.
        """
        shown = refusals[:MAX_SHOWN]
        hints = {refusal.hint for refusal in shown}
        shared = hints.pop() if len(hints) == 1 else ""
        lines = []
        for refusal, following in zip_longest(shown, shown[1:]):
            place = [file] if file else []
            if refusal.row is not None:
                place.append(names[refusal.row] if names else f"row {refusal.row + 1}")
            lines.append(": ".join([*place, str(replace(refusal, hint=""))]))
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
    """Raise unless an estimator has a capability; the hint names those that have it.

    Parameters
    ----------
    capability
        As `registry.with_capability` takes it.
    lack
        Reason of the refusal, such as "has no constants to calibrate".

    Raises
    ------
    UsageError
        If it has not.
    """
    if not getattr(estimator, capability):
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
