"""The macros of sql/ as their files have them: the comment above each, and its arguments."""

from __future__ import annotations

import re
from typing import NamedTuple

_MACRO = re.compile(
    r"((?:^--[^\n]*\n)*)^create or replace macro (\w+)\s*\((.*?)\)\s*as\b",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)


class Argument(NamedTuple):
    """An argument; `default` is the SQL of what it is if left out, none where it must be given."""

    name: str
    default: str | None


class Macro(NamedTuple):
    """A macro; `comment` is the text above it, its lines joined."""

    name: str
    comment: str
    arguments: tuple[Argument, ...]


def macros_in(text: str) -> list[Macro]:
    """Return the macros that `text`, the content of a file of sql/, creates."""
    return [
        Macro(name.lower(), comment_text(above.splitlines()), _arguments(arguments))
        for above, name, arguments in _MACRO.findall(text)
    ]


def comment_text(lines: list[str]) -> str:
    """Return the comment lines at the top of `lines` as running text."""
    found = []
    for line in lines:
        if not line.startswith("--"):
            break
        found.append(line.removeprefix("--").strip())
    return " ".join(part for part in found if part)


def _arguments(text: str) -> tuple[Argument, ...]:
    found = []
    for part in text.split(","):
        name, is_optional, default = part.partition(":=")
        if name.strip():
            found.append(Argument(name.strip(), default.strip() if is_optional else None))
    return tuple(found)
