"""Refusals: the reasons why an input cannot be evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from estimators.values import Scalar

_LONGEST = 120
"""Characters of a name or value that an error shows."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why an input is refused.

    `row` is the zero-based input row where there is one; the warehouse adds file and line.
    `is_of_program` says that one program cannot run it, and that others can.
    """

    column: str
    value: Scalar
    reason: str
    hint: str = ""
    row: int | None = None
    is_of_program: bool = False

    def __str__(self) -> str:
        """Return ``column value reason``, with the hint on the next line.

        A missing column has no value to show.
        """
        is_missing = self.value is None and self.reason.startswith("is missing")
        value = "" if is_missing else f"{_shown(self.value)} "
        text = f"`{_shortened(self.column)}` {value}{self.reason}"
        return f"{text}\nhint: {self.hint}" if self.hint else text


class RefusedError(ValueError):
    """Input that cannot be evaluated; carries every `Refusal` found."""

    def __init__(self, refusals: Iterable[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("\n".join(str(refusal) for refusal in self.refusals))


class EmptySpaceError(RefusedError):
    """A valid space without a layout."""


def _shown(value: Scalar) -> str:
    if value is None:
        return "(none)"
    if not isinstance(value, str):
        return str(value)
    printable = value if value.isprintable() else repr(value)[1:-1]
    return f'"{_shortened(printable)}"'


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
