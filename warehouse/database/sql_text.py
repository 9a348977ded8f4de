"""Names and strings to write into SQL."""

from __future__ import annotations

import re

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def is_name(text: str) -> bool:
    """Return whether `text` may name a table or view: lower case, digits, underscores."""
    return _NAME.fullmatch(text) is not None


def quoted(name: str) -> str:
    """Return `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return `text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"
