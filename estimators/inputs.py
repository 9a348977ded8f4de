"""Input columns while they are being resolved: defaults, look-ups, checks, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from estimators.columns import COLUMNS, NUMBERS, Column
from estimators.contract import Array, Catalog, Columns, Refusal, RefusedError, Scalar
from estimators.rules import Rule

LARGEST_WHOLE = 2**53 - 1
"""Largest whole number up to which float64, the type of all inputs, has no gaps."""

_LEAST = 1e6
"""Least rate and size of a machine: bytes, bytes/s and FLOP/s."""

_HINTED = 100
"""Rows of a rule that get a hint: it tries thousands of values, and an error lists ten rows."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a row breaks, with the values that it reads and the number of the refusal."""

    rule: Rule
    row: int
    values: Mapping[str, Scalar]
    refusal: int = 0


class Inputs(dict[str, Array]):
    """A batch of input rows, completed and checked column by column.

    A column that was not given is missing in all rows.

    Parameters
    ----------
    columns
        Input columns: numbers with NaN for missing, texts and flags as objects with None.
    real
        Columns whose whole numbers may be real here.
    has_hints
        Whether refusals by rules get a hint.

    Attributes
    ----------
    refusals
        Why rows are refused.
    broken
        The first of them that come from rules.
    is_faulty
        The rows that are refused for another reason than a rule.
    """

    def __init__(
        self, columns: Columns, real: Collection[str] = (), *, has_hints: bool = True
    ) -> None:
        super().__init__()
        self._dictionary = {**COLUMNS, **{name: COLUMNS[name].as_real() for name in real}}
        self.num_rows = len(next(iter(columns.values()))) if columns else 0
        self.refusals: list[Refusal] = []
        self.broken: list[Broken] = []
        self.is_faulty = np.zeros(self.num_rows, dtype=bool)
        self._has_hints = has_hints
        self._good = np.ones(self.num_rows, dtype=bool)
        for name, values in columns.items():
            is_number = self._dictionary[name].kind in NUMBERS
            self[name] = np.array(values, dtype=np.float64 if is_number else np.object_)

    def __missing__(self, name: str) -> Array:
        """Return a column that was not given."""
        is_number = self._dictionary[name].kind in NUMBERS
        self[name] = np.full(self.num_rows, np.nan) if is_number else np.full(self.num_rows, None)
        return self[name]

    def offer(self, name: str, *choices: str) -> None:
        """Admit only these choices of a column."""
        self._dictionary[name] = replace(self._dictionary[name], choices=choices)

    def missing(self, name: str) -> Array:
        """Return for each row whether the column's value is missing."""
        column = self[name]
        if column.dtype == np.float64:
            return np.isnan(column)
        return np.asarray(np.equal(column, np.array(None)))

    def default(self, name: str, value: Scalar | Array) -> None:
        """Set missing values of a column to a scalar or to those of an array."""
        missing = self.missing(name)
        if missing.any():
            values = np.broadcast_to(np.asarray(value, dtype=self[name].dtype), self.num_rows)
            self[name] = np.where(missing, values, self[name])

    def replace(self, name: str, values: Array) -> None:
        """Set a column to `values` in all rows."""
        self[name] = np.array(values, dtype=self[name].dtype)

    def look_up(self, catalog: Catalog, table: str, key: str, names: Iterable[str]) -> None:
        """Fill missing values of `names` from the catalog row that column `key` names.

        The key of the catalog replaces an alias.
        """
        names = tuple(names)
        for value in dict.fromkeys(self[key].tolist()):
            if value is None:
                continue
            rows = np.equal(self[key], value)
            try:
                record = catalog.find(table, value)
            except RefusedError as error:
                [refusal] = error.refusals
                self.refuse(key, rows, refusal.reason, refusal.hint)
                continue
            self[key][rows] = record.get(key, value)
            for name in names:
                if record.get(name) is not None:
                    self[name][rows & self.missing(name)] = record[name]

    def refuse(self, name: str, rows: Array, reason: str, hint: str = "") -> None:
        """Refuse `rows` because of their value of column `name`."""
        for row in np.flatnonzero(rows).tolist():
            value = _scalar(self[name][row], self._dictionary[name])
            self.refusals.append(Refusal(name, value, reason, hint, row))
        self.is_faulty |= rows
        self._good &= ~rows

    def require(self, names: Iterable[str], hint: str) -> None:
        """Refuse rows that miss one of `names`."""
        for name in names:
            self.refuse(name, self.missing(name) & self._good, "is missing", hint)

    def check(self, names: Iterable[str]) -> None:
        """Refuse values outside the limits of the data dictionary."""
        for name in names:
            sound = ~self.missing(name)
            for limit in limits_of(self._dictionary[name]):
                with np.errstate(invalid="ignore"):
                    faulty = limit.is_broken(self[name]) & sound
                if faulty.any():
                    self.refuse(name, faulty, limit.reason, limit.hint)
                    sound &= ~faulty

    def check_units(self, names: Iterable[str]) -> None:
        """Refuse rates and sizes of a machine that are in the unit that people read: 80 for 80 GB.

        Without a unit, 80 GB are 80,000 MB, and 990 TFLOP/s 990,000 GFLOP/s: all below `_LEAST`.
        """
        for name in names:
            column = self._dictionary[name]
            with np.errstate(invalid="ignore"):
                rows = self._good & (self[name] < _LEAST)
            power = math.log10(column.form.per)
            hint = f"it is in {column.unit}: write 1e{power:.0f} for 1 {column.form.unit}"
            self.refuse(name, rows, f"is less than {_LEAST:g} {column.unit}", hint)

    def apply(self, rules: Iterable[Rule]) -> None:
        """Refuse rows that break a rule; rows that are already refused are skipped."""
        for rule in rules:
            with np.errstate(all="ignore"):
                broken = self._good & ~rule.holds(self)
            for number, row in enumerate(np.flatnonzero(broken).tolist()):
                scalars = {n: _scalar(self[n][row], self._dictionary[n]) for n in rule.needs}
                has_hint = self._has_hints and number < _HINTED
                if has_hint:
                    self.broken.append(Broken(rule, row, scalars, len(self.refusals)))
                self.refusals.append(
                    Refusal(
                        rule.column,
                        scalars.get(rule.column),
                        rule.reason(scalars),
                        rule.hint(scalars) if has_hint else "",
                        row,
                        rule.is_of_program,
                    )
                )
            self._good &= ~broken

    def finish(self, names: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Array]:
        """Return `names` in dictionary dtypes; `optional` numbers stay float64 with NaN.

        The values of refused rows mean nothing.
        """
        optional = frozenset(optional)
        done = {}
        for name in names:
            column, values = self._dictionary[name], self[name]
            if column.kind == "int" and name not in optional:
                with np.errstate(invalid="ignore"):  # a refused number may be too large
                    values = np.where(np.isfinite(values), values, 0).astype(np.int64)
            if column.kind == "bool" and not self.missing(name).any():
                values = values.astype(np.bool_)
            done[name] = values
        return done


def _scalar(value: Any, column: Column) -> Scalar:
    """Return a value of a column as a Python scalar; None where it is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if column.kind == "int":
        return int(value) if np.isfinite(value) and value == np.floor(value) else float(value)
    if column.kind == "float":
        return float(value)
    return bool(value) if column.kind == "bool" else str(value)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `is_broken` takes a value or an array of them, and returns a bool or an array."""

    is_broken: Callable[[Any], Any]
    reason: str
    hint: str = ""


@cache
def limits_of(column: Column) -> tuple[Limit, ...]:
    """Return the limits of a column, in the order of reporting."""
    choices, above = column.choices, column.above
    if choices:
        hint = f"use {', '.join(choices)}"
        return (Limit(lambda x: np.isin(x, choices, invert=True), "is not known", hint),)
    if column.kind not in NUMBERS:
        return ()
    least, most = column.minimum, column.maximum
    limits = [Limit(lambda x: np.logical_not(np.isfinite(x)), "is not a finite number")]
    if column.kind == "int":
        limits.append(Limit(lambda x: np.not_equal(x, np.floor(x)), "must be a whole number"))
        stored = np.iinfo(column.stored_dtype)
        least = max(stored.min, -LARGEST_WHOLE) if least is None else least
        most = min(stored.max, LARGEST_WHOLE) if most is None else most
    if least is not None:
        limits.append(Limit(lambda x: np.less(x, least), f"must be at least {_plain(least)}"))
    if above is not None:
        limits.append(
            Limit(lambda x: np.less_equal(x, above), f"must be more than {_plain(above)}")
        )
    if most is not None:
        limits.append(Limit(lambda x: np.greater(x, most), f"must be at most {_plain(most)}"))
    return tuple(limits)


def _plain(number: float) -> str:
    is_whole = isinstance(number, int) or (number.is_integer() and abs(number) < 1e15)
    return str(int(number)) if is_whole else f"{number:g}"


def records(columns: Mapping[str, Array]) -> list[dict[str, Scalar]]:
    """Return columns as a list of rows of Python scalars, missing numbers as None."""
    lists = []
    for name, values in columns.items():
        cells = values.tolist()
        if values.dtype == np.float64:
            number = int if COLUMNS[name].kind == "int" else float
            cells = [None if cell != cell else number(cell) for cell in cells]
        lists.append(cells)
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def nearly_whole(numbers: Array) -> Array:
    """Return `numbers`, rounded where the nearest whole one is within 1e-9: 1.1 x 6400 is 7040."""
    with np.errstate(all="ignore"):
        whole = np.rint(numbers)
        return np.where(np.abs(numbers - whole) <= 1e-9 * np.abs(whole), whole, numbers)
