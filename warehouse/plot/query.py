"""Queries of pictures: files of sql/plots, their filters and their values.

A filter is a line of its own with a parameter, such as ``and model = $model``. A line whose
parameter has no value is left out, so that the remaining conditions reach the scan.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warehouse.database import resources
from warehouse.database.sql_text import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from estimators.contract import Scalar

FOLDER = "plots"
"""Directory of sql/ with one query for each picture; they are no views."""

_PARAMETER = re.compile(r"\$([a-z_][a-z0-9_]*)")
_COMMENT = re.compile(r"--.*")


def query_of(name: str) -> str:
    """Return the text of a picture's query."""
    return (resources.sql_directory() / FOLDER / f"{name}.sql").read_text("utf-8")


def parameters_of(text: str) -> tuple[str, ...]:
    """Return the parameters of a query, each once, in order."""
    return tuple(dict.fromkeys(_PARAMETER.findall(_COMMENT.sub("", text))))


def filtered(text: str, values: Mapping[str, Scalar]) -> str:
    """Return a query without the lines whose parameter has no value."""
    kept = [
        line
        for line in text.splitlines()
        if all(name in values for name in _PARAMETER.findall(_COMMENT.sub("", line)))
    ]
    return "\n".join(kept)


def with_values(text: str, values: Mapping[str, Scalar]) -> str:
    """Return a query with the values in place of its parameters, as a shell takes it."""
    return _PARAMETER.sub(lambda found: _written(values[found[1]]), filtered(text, values)) + "\n"


def _written(value: Scalar) -> str:
    if isinstance(value, str):
        return literal(value)
    if value is None:
        return "null"
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return repr(value).lower()
