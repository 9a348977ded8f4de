"""`Column`, an entry of the data dictionary, and the entries of `columns.csv`.

The test of this module names the faults of the file with their lines; nothing checks it at start.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from estimators.columns.forms import FORM_OF_UNIT, FORMS, PLAIN, Form

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kind = Literal["int", "float", "bool", "str", "date", "time"]
NUMBERS = ("int", "float")
"""Kinds of columns of numbers."""

Better = Literal["lower", "higher", ""]

FILE = Path(__file__).with_name("columns.csv")

STORAGE = {
    "int": "INTEGER",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "date": "DATE",
    "time": "TIMESTAMP",
}
"""Kind of a column -> its DuckDB type, unless the column names another one."""

NUMPY = {
    "TINYINT": "int8",
    "UTINYINT": "uint8",
    "SMALLINT": "int16",
    "USMALLINT": "uint16",
    "INTEGER": "int32",
    "UINTEGER": "uint32",
    "BIGINT": "int64",
    "UBIGINT": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "BOOLEAN": "bool",
    "VARCHAR": "object",
}
"""DuckDB type of a column that an estimator reads or writes -> its numpy type."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    name, kind, unit, meaning, source
        As documented to users; `unit` is empty for pure numbers and texts.
    choices
        The accepted values, where they are few.
    minimum, maximum
        Smallest and largest value accepted as input (an integer is also bound by `storage`).
    above
        Exclusive lower bound, for quantities that must be positive.
    storage
        DuckDB type, by default that of the kind.
    shown_as
        How its figures are written for people; None: as its unit is.
    heading
        Heading in tables for people; by default its name, with the unit that people read.
    short
        Its name before its value in a layout in one line: `tp` in "tp8".
    better
        Whether "lower" or "higher" values are better; empty where neither is.
    neutral
        The value that means unused: tables omit the column if all rows have this value.
    is_optional
        Whether tables omit it if no row has a value, because some estimators do not have it.
    in_layout
        Whether it is part of a layout.
    other_names
        Names that other programs and papers give to its quantity, in lower case: of a model the
        keys of Hugging Face's ``config.json``, of a layout the options of Megatron-Core and
        DeepSpeed. Errors suggest the column for them. No input is read under them, because some
        are names of several quantities ("bandwidth").
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    source: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    storage: str = ""
    shown_as: Form | None = None
    heading: str = ""
    short: str = ""
    better: Better = ""
    neutral: int | str | None = None
    is_optional: bool = False
    in_layout: bool = False
    other_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Give the column the heading that follows from its name and form."""
        if not self.heading:
            object.__setattr__(self, "heading", self.form.heading(self.name))

    @property
    def form(self) -> Form:
        """How the column's figures are written for people."""
        if self.kind not in NUMBERS:
            return PLAIN
        return self.shown_as or FORM_OF_UNIT.get(self.unit, PLAIN)

    @property
    def duckdb_type(self) -> str:
        """DuckDB type of the column in storage."""
        return self.storage or STORAGE[self.kind]

    @property
    def dtype(self) -> type:
        """Numpy type of the column in arithmetic."""
        return _numpy_type("BIGINT" if self.kind == "int" else STORAGE[self.kind])

    @property
    def stored_dtype(self) -> type:
        """Numpy type of the column in storage."""
        return _numpy_type(self.duckdb_type)

    def as_real(self) -> Column:
        """Return the column with real values, where an estimator takes degrees as continuous."""
        return replace(self, kind="float", storage="")

    @property
    def comment(self) -> str:
        """Meaning, unit, accepted values and source in one line, for COMMENT ON and docs."""
        unit = f" [{self.unit}]" if self.unit else ""
        choices = f" One of {', '.join(self.choices)}." if self.choices else ""
        source = f" Source: {self.source}." if self.source else ""
        return f"{self.meaning}{unit}.{choices}{source}"


def read(lines: Iterable[str]) -> dict[str, tuple[Column, ...]]:
    """Return the columns of a dictionary's lines by their group, in order."""
    groups = groupby(csv.DictReader(lines), key=lambda line: line["group"])
    return {group: tuple(map(_column, members)) for group, members in groups}


def _numpy_type(duckdb_type: str) -> type:
    import numpy as np  # here: the dictionary is also read where no array is needed

    return np.dtype(NUMPY[duckdb_type]).type


def _column(line: Mapping[str, str]) -> Column:
    kind = cast("Kind", line["kind"])
    return Column(
        name=line["name"],
        kind=kind,
        unit=line["unit"],
        meaning=line["meaning"],
        source=line["source"],
        choices=_texts(line["choices"]),
        minimum=_number(line["minimum"]),
        maximum=_number(line["maximum"]),
        above=_number(line["above"]),
        storage=line["storage"],
        shown_as=FORMS[line["shown_as"]] if line["shown_as"] else None,
        heading=line["heading"],
        short=line["short"],
        better=cast("Better", line["better"]),
        neutral=_neutral(kind, line["neutral"]),
        is_optional=line["is_optional"] == "true",
        in_layout=line["in_layout"] == "true",
        other_names=_texts(line["other_names"]),
    )


def _texts(field: str) -> tuple[str, ...]:
    return tuple(field.split(";")) if field else ()


def _number(field: str) -> float | None:
    if not field:
        return None
    return int(field) if field.lstrip("-").isdecimal() else float(field)


def _neutral(kind: Kind, field: str) -> int | str | None:
    if not field or kind == "str":
        return field or None
    return field == "true" if kind == "bool" else int(field)


with FILE.open(encoding="utf-8", newline="") as _lines:
    GROUPS = read(_lines)
"""The columns in groups, in order; a new group begins with its first line."""

COLUMNS = {column.name: column for group in GROUPS.values() for column in group}
"""Every column by name."""

LAYOUT_COLUMNS = tuple(column.name for column in COLUMNS.values() if column.in_layout)
"""Columns that make a layout, in the order in which people read them."""


def names_in(group: str) -> tuple[str, ...]:
    """Return the names of the columns of a group, in order."""
    return tuple(column.name for column in GROUPS[group])
