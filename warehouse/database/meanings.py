"""Meanings that are not in the data dictionary: layers, reference tables, arguments of macros.

The data dictionary, `estimators/columns/columns.csv`, has the columns of tables, files and studies.
`meanings.csv` beside it has the texts of this module, also for columns that one view only passes to
another.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import cast

from estimators import columns
from estimators.columns import COLUMNS, Column, Kind

LAYERS = {
    "marts": "Views to ask: ranks, comparisons, costs, accuracy",
    "functions": "Table macros to ask: views that take arguments",
    "macros": "Functions for queries: units, FLOPs, utilization",
    "reference": "Reference tables: published figures, each row with its source",
    "records": "Records: problems, cells, studies, calibrations, measurements",
    "intermediate": "Views that marts share",
    "staging": "An estimator's rows under the names that all estimators share",
    "current": "Stored rows of the newest versions, with their problem and choices",
    "results": "Stored rows, as written",
    "own": "Made by hand in this database, not by the package",
}
"""Layer -> its content, in the order in which people need them."""

_ROLE_OF = {
    "marts": "mart",
    "functions": "function",
    "macros": "macro",
    "records": "record",
    "current": "internal",
    "results": "internal",
}
"""Layer -> its role, if that has another name."""

DEPRECATED = "deprecated"
"""Role of a former name, whose comment begins with it and names the new one."""

ROLES = {_ROLE_OF.get(layer, layer): content for layer, content in LAYERS.items()} | {
    "internal": "Stored rows as written, and views of the newest: marts show them",
    DEPRECATED: "Former names, which stay for one minor version",
}
"""First word of a comment -> the tables, views and macros that have it, marts first."""

with Path(columns.__file__).with_name("meanings.csv").open(encoding="utf-8", newline="") as _file:
    _LINES = list(csv.DictReader(_file))

REFERENCE_TABLES = {
    line["name"]: line["meaning"] for line in _LINES if line["group"] == "reference"
}
"""Reference table -> its content, its grain and its key."""

ARGUMENTS = {line["name"]: line["meaning"] for line in _LINES if line["group"] == "argument"}
"""Argument of a macro that is not a column of the data dictionary -> its meaning."""

OTHER_COLUMNS = {
    line["name"]: Column(line["name"], cast(Kind, line["kind"]), line["unit"], line["meaning"])
    for line in _LINES
    if line["group"] == "column"
}
"""Columns that only views share, and those of `warehouse_meta` and of the data dictionary."""


def meaning_of(name: str) -> Column | None:
    """Return the column `name`, which means the same wherever it occurs; None if unknown."""
    return COLUMNS.get(name) or OTHER_COLUMNS.get(name)


def argument_meaning(name: str) -> str:
    """Return the meaning of a macro's argument: its own, else that of the column of its name."""
    column = meaning_of(name)
    return ARGUMENTS.get(name) or (column.comment if column else "")


def role_of(layer: str) -> str:
    """Return the role of the tables, views and macros of a layer."""
    return _ROLE_OF.get(layer, layer)


def comment_of(role: str, meaning: str) -> str:
    """Return the comment of a table, view or macro: its role, so that lists can be sorted by it."""
    return meaning if meaning.startswith(f"{DEPRECATED}: ") else f"{role}: {meaning}"


def reference_comment(name: str) -> str:
    """Return the comment of the reference table that `name`.csv becomes."""
    meaning = REFERENCE_TABLES.get(name, f"Reference table, from {name}.csv. One row per source")
    return comment_of("reference", meaning)
