"""What a column of the data dictionary is, and short ways to write the common kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Kind = Literal["int", "float", "bool", "str", "date", "time"]

_STORAGE = {
    "int": "INTEGER",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "str": "VARCHAR",
    "date": "DATE",
    "time": "TIMESTAMP",
}
NUMPY_TYPES: dict[str, type] = {
    "TINYINT": np.int8,
    "UTINYINT": np.uint8,
    "SMALLINT": np.int16,
    "USMALLINT": np.uint16,
    "INTEGER": np.int32,
    "UINTEGER": np.uint32,
    "BIGINT": np.int64,
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "BOOLEAN": np.bool_,
    "VARCHAR": np.object_,
}
"""DuckDB types that a stored column may have, and what they are in memory."""

_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_, "str": np.object_}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes
    ----------
    name, kind, unit, meaning, source
        As documented to users; `unit` is empty for pure numbers and texts.
    storage
        DuckDB type, by default that of the kind.
    minimum, maximum
        Smallest and largest value accepted as input (an integer is also bound by `storage`).
    above
        Exclusive lower bound, for quantities that must be positive.
    choices
        The accepted values, where they are few.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    source: str = ""
    storage: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def duckdb_type(self) -> str:
        """DuckDB type of the column in storage."""
        return self.storage or _STORAGE[self.kind]

    @property
    def dtype(self) -> type:
        """Numpy dtype of the column in arithmetic."""
        return _DTYPES[self.kind]

    def as_real(self) -> Column:
        """Return the column with real values, where an estimator takes degrees as continuous."""
        return replace(self, kind="float", storage="")

    @property
    def comment(self) -> str:
        """Meaning, unit and source in one line, for COMMENT ON and docs."""
        unit = f" [{self.unit}]" if self.unit else ""
        source = f" Source: {self.source}." if self.source else ""
        return f"{self.meaning}{unit}.{source}"


def count(name: str, meaning: str, unit: str = "", **more: object) -> Column:
    """Return a column of a positive whole number."""
    return Column(name, "int", unit, meaning, minimum=1, **more)  # type: ignore[arg-type]


def positive(name: str, unit: str, meaning: str, source: str = "") -> Column:
    """Return a column of a positive real number."""
    return Column(name, "float", unit, meaning, source, above=0)


def rate(name: str, unit: str, meaning: str) -> Column:
    """Return a column of a rate or capacity: bounded, so that no time over- or underflows."""
    return Column(name, "float", unit, meaning, minimum=1, maximum=1e30)


def latency(name: str, meaning: str, source: str = "") -> Column:
    """Return a column of a latency in seconds."""
    return Column(name, "float", "seconds", meaning, source, minimum=0, maximum=1e6)


def efficiency(name: str, meaning: str, source: str = "") -> Column:
    """Return a column of a share of a peak that is reached: above 0, to 1."""
    return Column(name, "float", "", meaning, source, minimum=1e-6, maximum=1)


def measure(name: str, unit: str, meaning: str, source: str = "") -> Column:
    """Return a column of a real number that is not negative."""
    return Column(name, "float", unit, meaning, source, minimum=0)


def fraction(name: str, meaning: str, source: str = "") -> Column:
    """Return a column of a share: 0 to 1."""
    return Column(name, "float", "", meaning, source, minimum=0, maximum=1)


def text(name: str, meaning: str, *choices: str) -> Column:
    """Return a column of text, one of `choices` where there are any."""
    return Column(name, "str", "", meaning, choices=choices)


PAPER = "arXiv 2410.00273"
MEGATRON = "arXiv 2104.04473"
