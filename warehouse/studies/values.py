"""Values of a study's key: a scalar, a list or a range table, expanded and checked.

A range is one of ``{powers_of_two = [lo, hi]}`` (exponents), ``{linear = [lo, hi, n]}`` and
``{logarithmic = [lo, hi, n]}``; both ends are included. Points between the ends are rounded to
15 significant digits, so that they equal the numbers that a person would write.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from estimators.contract import Refusal, RefusedError, Scalar
from warehouse.limits import accept, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from estimators.columns import Column

MAX_POINTS = 100_000
"""Most points of one range or list."""


def expand(column: Column, given: object, *, repeats: bool = False) -> tuple[Scalar, ...]:
    """Return every value of `given` in order; with `repeats`, a list may hold a value twice.

    `RefusedError` has every faulty value of a list, or the first fault of a range.
    """
    if isinstance(given, dict):
        return _distinct(column, _accepted_range(column, given))
    if isinstance(given, list):
        if not given:
            raise _refused(column, given, "is empty", "name a value, or leave the key out")
        if len(given) > MAX_POINTS:
            raise _refused(column, given, f"has more than {MAX_POINTS} values")
        values = _accepted_list(column, given)
        return tuple(values) if repeats else _distinct(column, values)
    return (accept(column, given),)


def _accepted_list(column: Column, given: list[Any]) -> list[Scalar]:
    values: list[Scalar] = []
    refusals: list[Refusal] = []
    for item in given:
        try:
            values.append(accept(column, item))
        except RefusedError as error:
            refusals.extend(error.refusals)
    if refusals:
        raise RefusedError(refusals)
    return values


def _accepted_range(column: Column, given: dict[str, Any]) -> list[Scalar]:
    if column.kind not in ("int", "float"):
        raise _refused(column, given, "must be a text or a list of texts, not a range")
    forms = ", ".join(f"{{{name} = [{of}]}}" for name, (of, _) in _RANGES.items())
    if len(given) != 1 or next(iter(given)) not in _RANGES:
        raise _refused(column, given, "is not a range", f"use one of {forms}")
    [(name, numbers)] = given.items()
    of, points = _RANGES[name]
    if not isinstance(numbers, list) or len(numbers) != len(of.split(",")):
        raise _refused(column, given, "is not a range", f"write {{{name} = [{of}]}}")
    if not all(_is_number(number) for number in numbers):
        raise _refused(column, given, "must hold finite numbers only")
    # A range's points follow from two numbers: the first fault is enough.
    return [_accept_point(column, point, given) for point in points(column, numbers, given)]


def _accept_point(column: Column, point: float, given: dict[str, Any]) -> Scalar:
    try:
        return accept(column, point)
    except RefusedError as error:
        [refusal] = error.refusals
        hint = "choose n so that every step is whole" if "whole" in refusal.reason else ""
        raise _refused(column, given, f"gives {point}, which {refusal.reason}", hint) from None


def _powers_of_two(column: Column, numbers: list[Any], given: object) -> list[float]:
    least, most = (0, 62) if column.kind == "int" else (-1022, 1023)
    low, high = numbers
    if not all(isinstance(exponent, int) for exponent in numbers) or low > high:
        raise _refused(column, given, "needs whole exponents, the smaller first")
    if low < least or high > most:
        raise _refused(column, given, f"needs exponents from {least} to {most}")
    return [2**exponent for exponent in range(low, high + 1)]


def _linear(column: Column, numbers: list[Any], given: object) -> list[float]:
    low, high, count = _ends(column, numbers, given)
    step = (Fraction(high) - Fraction(low)) / (count - 1)
    between = [_rounded(float(Fraction(low) + i * step)) for i in range(1, count - 1)]
    return [low, *between, high]


def _logarithmic(column: Column, numbers: list[Any], given: object) -> list[float]:
    low, high, count = _ends(column, numbers, given)
    if low <= 0:
        raise _refused(column, given, "needs a smallest value above zero")
    if not math.isfinite(high / low):
        raise _refused(column, given, "spans more than a float can hold")
    between = [_rounded(low * (high / low) ** (i / (count - 1))) for i in range(1, count - 1)]
    return [low, *between, high]


def _ends(column: Column, numbers: list[Any], given: object) -> tuple[float, float, int]:
    low, high, count = numbers
    if not isinstance(count, int) or not 2 <= count <= MAX_POINTS:
        hint = "for a single point write the value itself"
        raise _refused(column, given, f"needs a whole n from 2 to {MAX_POINTS}", hint)
    if low >= high:
        raise _refused(column, given, "needs two different ends, the smaller first")
    return low, high, count


def _distinct(column: Column, values: list[Scalar]) -> tuple[Scalar, ...]:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise RefusedError(
            Refusal(column.name, value, "is given twice", "name every value once")
            for value in twice
        )
    return tuple(values)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= 1e300  # false for NaN; larger ends would overflow in between


def _rounded(value: float) -> float:
    return float(f"{value:.15g}")


def _refused(column: Column, value: object, reason: str, hint: str = "") -> RefusedError:
    return RefusedError([Refusal(column.name, shown(value), reason, hint)])


_RANGES: dict[str, tuple[str, Callable[[Column, list[Any], object], list[float]]]] = {
    "powers_of_two": ("lo_exponent, hi_exponent", _powers_of_two),
    "linear": ("lo, hi, n", _linear),
    "logarithmic": ("lo, hi, n", _logarithmic),
}
