"""Columns of the data dictionary as the fields of a frozen dataclass.

A formula takes the structures that it reads. A field has the name of its column and holds a number
of a cell, or an array with one element a row of a batch: formulas take either and broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from estimators.columns import COLUMNS
from estimators.factored import take

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from estimators.values import Array, Flag, Real, Text


MISSING = np.float64(np.nan)


def real(value: Any) -> Real:
    """Return numbers in floating point: NaN where there is none."""
    # values of a cell are read without an array, which takes three times as long
    if value is None:
        return MISSING
    if isinstance(value, (int, float)):
        return np.float64(value)
    number: Real = np.asarray(value, dtype=np.float64)[()]
    return number


def flag(value: Any) -> Flag:
    """Return flags: False where there is none."""
    if value is None or isinstance(value, bool):
        return np.bool_(value)
    given = np.asarray(value)
    # an array has NaN where a flag is missing, which as a bool is True
    of_type: Flag = (given.astype(bool) & np.equal(given, given))[()]
    return of_type


def number(value: Any, missing: float = 0.0) -> Real:
    """Return numbers in floating point: `missing` where there is none."""
    given = real(value)
    filled: Real = np.where(np.isnan(given), missing, given)[()]
    return filled


def equals(text: Text, word: str) -> Flag:
    """Return where a text is `word`."""
    same: Flag = np.equal(np.asarray(text, dtype=object), word)[()]
    return same


def as_it_is(value: Any) -> Any:
    """Return texts, and whatever else is neither number nor flag."""
    return value


READERS = {"int": real, "float": real, "bool": flag}
"""Kind of a column -> the function that reads its values; others are kept as they are."""


@dataclass(frozen=True)
class Structure:
    """Fields named as columns: numbers are `Real`, flags are `Flag`, texts stay as they are."""

    @classmethod
    def of(cls, columns: Mapping[str, Any], **others: Any) -> Self:
        """Return the structure of a cell's values or of a batch's columns.

        A column that is missing is NaN, False, or a missing text. `others` are fields that are no
        columns.
        """
        values = {name: read(columns.get(name)) for name, read in cls._readers()}
        return cls(**values, **others)

    @classmethod
    @cache
    def _readers(cls) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        """Return the columns, each with the function that reads it; other fields are none."""
        names = (field.name for field in fields(cls))
        kinds = ((name, COLUMNS[name].kind) for name in names if name in COLUMNS)
        return tuple((name, READERS.get(kind, as_it_is)) for name, kind in kinds)

    def take(self, rows: Array) -> Self:
        """Return some rows of a batch; a field without rows stays."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: _taken(value, rows) for name, value in values.items()})


def _taken(value: Any, rows: Array) -> Any:
    if isinstance(value, dict):
        return {name: take(column, rows) for name, column in value.items()}
    return take(value, rows) if isinstance(value, np.ndarray) else value
