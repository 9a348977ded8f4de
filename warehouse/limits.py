"""Values that users give: numbers as people write them, and limits of options and columns."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING

from estimators.contract import Refusal, RefusedError, Scalar
from warehouse.errors import CONTROL, InputError, UsageError

if TYPE_CHECKING:
    from estimators.columns import Column

FIT_PROBABILITY = 0.9
"""Least probability to fit in memory of a layout that may be the best: macro
`least_fit_probability`."""

_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


def accept(column: Column, value: object) -> Scalar:
    """Return `value` as the Python type of `column`; raise `RefusedError` if it breaks a limit."""
    if column.kind == "str":
        return _accept_text(column, value)
    if column.kind == "bool":
        if not isinstance(value, bool):
            raise _refused(column, value, f"must be {_WORDS['bool']}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = plain_number(column, value) if isinstance(value, str) else ""
        raise _refused(column, value, f"must be {kind_in_words(column)}", hint)
    try:
        number = float(value)
    except OverflowError:
        raise _refused(column, value, "is too large") from None
    from estimators.inputs import limits_of  # here: options with numbers need no numpy

    for limit in limits_of(column):
        if limit.is_broken(number):
            raise _refused(column, value, limit.reason)
    return int(number) if column.kind == "int" else number


_POWERS = {"": 0, "k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
_NUMBER = re.compile(
    r"""([+-]?)
    ([0-9]{1,3}(?:,[0-9]{3})+ | [0-9]+(?:_[0-9]+)* | (?=\.[0-9]))  # whole part, grouped or plain
    (\.[0-9]*)?
    (?: e([+-]?[0-9]{1,3}) | ([kmbgt]) )?""",
    re.IGNORECASE | re.VERBOSE,
)


def read_number(text: str) -> float | None:
    """Return the number in a text as people write it, or None.

    ``1_000`` and ``1,000`` group digits. ``k``, ``M``, ``B`` or ``G``, and ``T`` are powers of ten,
    in either case: a thousand, a million, a billion, a trillion. A whole number without an exponent
    is an int. ``nan`` and ``inf`` are read, for the caller to refuse by name.
    """
    plain = text.strip()
    if plain.lstrip("+-").lower() in ("nan", "inf", "infinity"):
        return float(plain)
    match = _NUMBER.fullmatch(plain)
    if match is None or len(plain) > 400:
        return None
    sign, whole, fraction, exponent, letter = match.groups()
    whole = whole.replace("_", "").replace(",", "")
    power = int(exponent or _POWERS[(letter or "").lower()])
    if fraction is None and exponent is None:
        return int(f"{sign}{whole}{'0' * power}")
    return float(f"{sign}{whole}{fraction or ''}e{power}")


_WITH_UNIT = re.compile(
    r"[$\u20ac\u00a3]?\s*([0-9][0-9_,.]*(?:e[+-]?[0-9]+)?)\s*([kmbgt]?)"
    r"(?:b|(?-i:B)/s|flops?(?:/s)?|w|usd|tokens)?",
    re.IGNORECASE,
)
"""A number with a unit that the package uses. Gb/s is left out, because it counts bits."""

_WITH_OTHER_UNIT = re.compile(
    r"([0-9][0-9_,.]*)\s*(?:([kmgt])i(?-i:B)(?:/s)?|([kmgt])(?:(?-i:b)/s|bit/s|bps))", re.IGNORECASE
)
"""A number of powers of 1,024 bytes, or of bits a second."""


def _in_bytes(text: str) -> float | None:
    """Return the bytes of a text such as ``80GiB`` or ``400Gb/s``; None for other texts."""
    match = _WITH_OTHER_UNIT.fullmatch(text.strip())
    number = None if match is None else read_number(match[1])
    if match is None or number is None:
        return None
    binary, bits = match[2], match[3]
    power: int = _POWERS[(binary or bits).lower()]
    unit: float = 1024 ** (power // 3) if binary else 10**power / 8
    return number * unit


def without_unit(text: str) -> str:
    """Return a text such as ``144GB`` or ``$2.20`` without its unit; empty for other texts."""
    match = _WITH_UNIT.fullmatch(text.strip())
    plain = "" if match is None else "".join(match.groups())
    return plain if read_number(plain) is not None else ""


_LEAST_ABOVE_ZERO = 1e-30
"""Least number above zero: products of smaller ones would be zero."""


class Number:
    """Reads the number of an option as `read_number` does, and checks its limits.

    Limit `above` is exclusive, `least` and `most` are inclusive. A number outside them is wrong
    usage if `is_usage`, by default if it must be whole, and otherwise refused input.
    """

    def __init__(
        self,
        option: str,
        *,
        above: float | None = None,
        least: float | None = None,
        most: float = 1e30,
        whole: bool = False,
        is_usage: bool | None = None,
    ) -> None:
        self.option = option
        self.above, self.least, self.most = above, least, most
        self.whole = whole
        self.is_usage = whole if is_usage is None else is_usage
        self.__name__ = "number"  # typer asks a parser for it

    def named(self, option: str) -> Number:
        """Return the same reader for an option of another name."""
        number = copy(self)
        number.option = option
        return number

    def __call__(self, given: str | float) -> float:
        """Return the number in a text."""
        text = str(given).strip()
        number = read_number(text)
        hint = "write it as 64, 1_000 or 4k" if self.whole else "write it as 15e12, 15T or 1_000"
        if number is None:
            plain = without_unit(text)
            hint = f"write {plain}, without a unit" if plain else hint
            text = text or '""'
            raise UsageError(f"`{self.option}` {text} is not a number", hint)
        if self.whole and number == number and not float(number).is_integer():
            raise UsageError(f"`{self.option}` {text} is not a whole number", hint)
        limit = self._broken_limit(number)
        if limit:
            refused = UsageError if self.is_usage else InputError
            is_percent = self.most is not None and 0.99 < self.most <= 1 < number <= 100
            share = f"it is a share, not a percentage: {number / 100:g}" if is_percent else ""
            raise refused(f"`{self.option}` {text} must be {limit}", share)
        return int(number) if self.whole else float(number)

    def _broken_limit(self, number: float) -> str:
        """Return the limit that the number breaks, in words; NaN breaks the first."""
        if self.above is not None and not number > self.above:
            return f"above {self.above:g}"
        if self.above == 0 and number < _LEAST_ABOVE_ZERO:
            return f"at least {_LEAST_ABOVE_ZERO:g}"
        if self.least is not None and not number >= self.least:
            return f"at least {self.least:g}"
        return "" if number <= self.most else f"at most {self.most:g}"


def plain_number(column: Column, text: object) -> str:
    """Return a hint with the plain form of a number with a unit or grouped digits; else nothing."""
    number = read_number(without_unit(str(text)) or "-")
    if number is None and column.unit in ("bytes", "bytes/s"):
        number = _in_bytes(str(text))
    if number is None:
        return ""
    return f"write {number:.15g}{f', in {column.unit}' if column.unit else ''}"


LINE_MARKS = "\t\n\r"
"""Control characters of texts with several lines."""


def control_character(text: str, allowed: str = "") -> str:
    """Return the reason to refuse a text with a control character; empty if it has none.

    A terminal obeys such characters, and arrays of numpy lose zero bytes at the end of a text.
    """
    found = next((mark for mark in re.findall(CONTROL, text) if mark not in allowed), "")
    return f"has the control character {repr(found)[1:-1]}" if found else ""


def kind_in_words(column: Column) -> str:
    """Return the kind of a column in words: "a whole number", "a text" ..."""
    return _WORDS.get(column.kind, f"a {column.kind}")


def shown(value: object) -> Scalar:
    """Return `value` as errors show it: scalars unchanged, others as in a study file."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**30 else f"{str(value)[:12]}..."
    return _shortened(as_toml(value))


def as_toml(value: object) -> str:
    """Return a value as a study file writes it."""
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


def _shortened(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
