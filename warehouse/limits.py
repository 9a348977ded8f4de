"""Checks values of studies and reference tables against their columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from estimators.contract import Refusal, RefusedError, Scalar
from warehouse.errors import CONTROL

if TYPE_CHECKING:
    from estimators.columns import Column

_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


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
        hint = plain_number(column, value) if isinstance(value, str) else ""
        raise _refused(column, value, f"must be {kind_in_words(column)}", hint)
    try:
        number = float(value)
    except OverflowError:
        raise _refused(column, value, "is too large") from None
    from estimators.limits import limits_of  # here: options with numbers need no numpy

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
    r"(?:b|(?-i:B)/s|flops?|flop/s|w|usd|tokens)?",
    re.IGNORECASE,
)
"""A number with a unit that the package uses. Gb/s is left out, because it counts bits."""


def without_unit(text: str) -> str:
    """Return a text such as ``144GB`` or ``$2.20`` without its unit; empty for other texts."""
    match = _WITH_UNIT.fullmatch(text.strip())
    plain = "" if match is None else "".join(match.groups())
    return plain if read_number(plain) is not None else ""


def plain_number(column: Column, text: object) -> str:
    """Return a hint with the plain form of a number with a unit or grouped digits; else nothing."""
    number = read_number(without_unit(str(text)) or "-")
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
