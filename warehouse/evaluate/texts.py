"""Records given as texts, and the checks of values that texts and frames share.

Texts are read as polars reads them in a frame, without importing polars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import NUMBERS
from estimators.contract import Refusal
from estimators.inputs import limits_of
from warehouse.limits import control_character, kind_in_words, plain_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from estimators.columns import Column
    from estimators.contract import Array, Relation

_BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
"""Characters of the property White_Space (Unicode 15, PropList.txt), which polars strips."""

_FLAGS = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), True),
    **dict.fromkeys(("false", "0", "0.0", "no"), False),
}


def read_texts(
    records: Sequence[Mapping[str, str]], inputs: Sequence[str], relation: Relation
) -> tuple[dict[str, Array], list[Refusal]]:
    """Return the input columns of records and every refused value.

    An empty or missing text is NaN in a column of numbers, and None in a column of texts or flags.
    """
    columns: dict[str, Array] = {}
    refusals: list[Refusal] = []
    for name in inputs:
        column = relation.column(name)
        if not any(name in texts for texts in records):
            columns[name] = missing(column, len(records))
            continue
        given = [texts.get(name) for texts in records]
        texts = [None if text is None else text.strip(_BLANKS) or None for text in given]
        spellings = relation.spellings.get(name)
        if spellings is not None:
            texts = [_spelt(text, spellings) for text in texts]
        if column.kind == "bool":
            columns[name], refused = checked_flags(column, texts, given)
        elif column.kind == "str":
            columns[name], refused = checked_texts(column, texts)
        else:
            columns[name], refused = _read_numbers(column, texts)
        refusals += refused
    return columns, refusals


def _spelt(text: str | None, spellings: Mapping[str, str]) -> str | None:
    if text is None:
        return None
    plain = text.lower().replace("-", "_").replace(" ", "_")
    return spellings.get(plain, plain).strip(_BLANKS) or None


def missing(column: Column, size: int) -> Array:
    """Return a column without a value."""
    return np.full(size, np.nan if column.kind in NUMBERS else None)


def checked_texts(column: Column, texts: Sequence[str | None]) -> tuple[Array, list[Refusal]]:
    """Return texts as a column, and those that are not among its choices or cannot be printed."""
    values = np.array(texts, dtype=object)
    if not column.choices:
        return values, control_characters(column.name, texts)
    hint = f"use {', '.join(column.choices)}"
    return values, [
        Refusal(column.name, text, "is not known", hint, row)
        for row, text in enumerate(texts)
        if text is not None and text not in column.choices
    ]


def control_characters(name: str, texts: Sequence[str | None], allowed: str = "") -> list[Refusal]:
    """Return a refusal for each text of a column with a control character that is not allowed."""
    reasons = {text: control_character(text or "", allowed) for text in dict.fromkeys(texts)}
    if not any(reasons.values()):
        return []
    return [
        Refusal(name, text, reasons[text], "remove it", row)
        for row, text in enumerate(texts)
        if reasons[text]
    ]


def checked_flags(
    column: Column, texts: Sequence[str | None], given: Sequence[Any]
) -> tuple[Array, list[Refusal]]:
    """Return flags as a column, and the given values that are not flags."""
    flags = [None if text is None else _FLAGS.get(text.lower()) for text in texts]
    reason = f"must be {kind_in_words(column)}"
    refusals = [
        Refusal(column.name, given[row], reason, "", row)
        for row, (text, flag) in enumerate(zip(texts, flags, strict=True))
        if text is not None and flag is None
    ]
    return np.array(flags, dtype=object), refusals


def _read_numbers(column: Column, texts: Sequence[str | None]) -> tuple[Array, list[Refusal]]:
    numbers = [None if text is None else _number(text) for text in texts]
    reason = f"must be {kind_in_words(column)}"
    refusals = [
        Refusal(column.name, text, reason, plain_number(column, text), row)
        for row, (text, number) in enumerate(zip(texts, numbers, strict=True))
        if text is not None and number is None
    ]
    values = np.array([np.nan if number is None else number for number in numbers])
    is_missing = np.array([number is None for number in numbers])
    return values, refusals + broken_limits(column, values, is_missing, texts.__getitem__)


def _number(text: str) -> float | None:
    """Return the number in a text, or None; some texts that Python accepts are not numbers."""
    if "_" in text or " " in text or not (text.isascii() and text.isprintable()):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def broken_limits(
    column: Column, values: Array, is_settled: Array, given: Callable[[int], Any]
) -> list[Refusal]:
    """Return a refusal for each value that breaks a limit of its column; `given` has it as written.

    A value that is settled needs no further check: a broken rule marks it in place, since one
    reason is enough.
    """
    refusals = []
    for rule in limits_of(column):
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(rule.is_broken(values) & ~is_settled)
        hint = "leave it out to take the default" if "finite" in rule.reason else ""
        refusals += [
            Refusal(column.name, given(row), rule.reason, hint, row) for row in rows.tolist()
        ]
        is_settled[rows] = True
    return refusals
