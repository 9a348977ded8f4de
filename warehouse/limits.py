"""What a value of a column may be, from the data dictionary, and what to say when it is not.

The same rules serve one value of a study and a whole column of a batch: each rule is a test
that takes a float or an array of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.contract import Refusal, RefusedError, Scalar

if TYPE_CHECKING:
    from estimators.columns import Column

LARGEST_INTEGER = 2**53 - 1
"""Beyond it float64 no longer tells neighbouring integers apart."""

_STORED = {
    "TINYINT": 2**7 - 1,
    "UTINYINT": 2**8 - 1,
    "SMALLINT": 2**15 - 1,
    "USMALLINT": 2**16 - 1,
    "INTEGER": 2**31 - 1,
    "UINTEGER": 2**32 - 1,
}
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One limit: `is_broken` takes a float or an array and returns a bool or an array."""

    is_broken: Callable[[Any], Any]
    reason: str


def rules(column: Column) -> list[Rule]:
    """Return the limits of a numeric column, in the order in which they are to be told."""
    found = [Rule(lambda x: np.logical_not(np.isfinite(x)), "is not a finite number")]
    if column.kind == "int":
        found.append(Rule(lambda x: np.not_equal(x, np.floor(x)), "must be a whole number"))
    low, above, high = column.minimum, column.above, column.maximum
    if low is not None:
        found.append(Rule(lambda x: np.less(x, low), f"must be at least {_plain(low)}"))
    if above is not None:
        found.append(Rule(lambda x: np.less_equal(x, above), f"must be more than {_plain(above)}"))
    if high is not None:
        found.append(Rule(lambda x: np.greater(x, high), f"must be at most {_plain(high)}"))
    if column.kind == "int":
        most = _STORED.get(column.duckdb_type, LARGEST_INTEGER)
        least = 0 if column.duckdb_type.startswith("U") else -most - 1
        found.append(Rule(lambda x: np.greater(x, most), f"must be at most {most}"))
        found.append(Rule(lambda x: np.less(x, least), f"must be at least {least}"))
    return found


def accept(column: Column, value: object) -> Scalar:
    """Return `value` as the Python type of `column`.

    Raises
    ------
    RefusedError
        If the type is wrong or a limit is broken.
    """
    if column.kind == "str":
        return _accept_text(column, value)
    if column.kind == "bool":
        if not isinstance(value, bool):
            raise _refused(column, value, f"must be {_WORDS['bool']}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(column, value, f"must be {kind_in_words(column)}")
    try:
        number = float(value)
    except OverflowError:
        raise _refused(column, value, "is too large") from None
    for rule in rules(column):
        if rule.is_broken(number):
            raise _refused(column, value, rule.reason)
    return int(number) if column.kind == "int" else number


def kind_in_words(column: Column) -> str:
    """Return what the column holds, as errors say it: "a whole number", "a text" ..."""
    return _WORDS.get(column.kind, f"a {column.kind}")


def shown(value: object) -> Scalar:
    """Return `value` as errors show it: scalars as they are, the rest as it looks in a file."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**30 else f"{str(value)[:12]}..."
    return _shortened(as_toml(value))


def as_toml(value: object) -> str:
    """Return a value as it would stand in a study file."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items())
        return "{" + pairs + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _accept_text(column: Column, value: object) -> str:
    if not isinstance(value, str):
        raise _refused(column, value, f"must be {_WORDS['str']}", 'write it in quotes: "..."')
    if not value.strip() or not value.isprintable():
        raise _refused(column, value, "must be a text that can be printed on one line")
    if column.choices and value not in column.choices:
        raise _refused(column, value, "is not known", f"use {', '.join(column.choices)}")
    return value


def _refused(column: Column, value: object, reason: str, hint: str = "") -> RefusedError:
    return RefusedError([Refusal(column.name, shown(value), reason, hint)])


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
