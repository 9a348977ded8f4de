"""Named rules that a configuration must keep. Batches and searches use the same predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimators.divisors import divisors
from estimators.values import Array, Flag, Values

Explanation = Callable[[Values], str]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    name
        Its name in tests, documents and `why`.
    column
        The column that the refusal names.
    needs
        Columns that the rule reads.
    holds
        Predicate: takes columns (or scalars) by these names.
    reason, hint
        Texts for a row that breaks the rule: functions of the row's scalars.
    """

    name: str
    column: str
    needs: tuple[str, ...]
    holds: Callable[[Values], Flag]
    reason: Explanation
    hint: Explanation


INTERLEAVING_NEEDS_STAGES = Rule(
    "interleaving needs stages",
    "virtual_pipeline",
    ("virtual_pipeline", "pipeline_parallel"),
    lambda v: np.less_equal(v["virtual_pipeline"], 1) | np.greater(v["pipeline_parallel"], 1),
    lambda _: "interleaves a pipeline of one stage",
    lambda _: "use 1, or more than one stage",
)
"""Chunks of a stage are interleaved with those of other stages."""


def divides(column: str, whole: str, *, name: str = "", hint: Explanation | None = None) -> Rule:
    """Return the rule that `column` divides `whole` without remainder."""

    def divisors_of_whole(row: Values) -> str:
        return f"use {one_of(divisors(int(row[whole])))}" if int(row[whole]) >= 1 else ""

    return divides_number(
        name or f"{column} divides {whole}",
        column,
        (whole,),
        lambda values: values[whole],
        lambda row: f"`{whole}` {row[whole]}",
        hint or divisors_of_whole,
    )


def divides_number(
    name: str,
    column: str,
    needs: tuple[str, ...],
    number: Callable[[Values], Any],
    words: Explanation,
    hint: Explanation | None = None,
) -> Rule:
    """Return the rule that `column` divides a number without remainder.

    Parameters
    ----------
    needs, number
        The columns that make the number, and the number from their values.
    words
        The number in words, made from the row's scalars.
    hint
        Default: all divisors.
    """

    def divisors_of_number(row: Values) -> str:
        return f"use {one_of(divisors(max(int(number(row)), 1)))}"

    return Rule(
        name,
        column,
        (column, *needs),
        lambda values: np.equal(np.remainder(number(values), np.maximum(values[column], 1)), 0),
        lambda row: f"does not divide {words(row)}",
        hint or divisors_of_number,
    )


def at_most(name: str, column: str, whole: str, *, hint: Explanation | None = None) -> Rule:
    """Return the rule that `column` is not more than `whole`."""
    return Rule(
        name,
        column,
        (column, whole),
        lambda values: np.less_equal(values[column], values[whole]),
        lambda row: f"is more than `{whole}` {_plain(row[whole])}",
        hint or (lambda row: f"use at most {_plain(row[whole])}"),
    )


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def only(column: str, value: str, rule: Rule) -> Rule:
    """Return `rule` for rows whose `column` is `value`; others keep it."""
    return Rule(
        f"{rule.name} ({value})",
        rule.column,
        (*rule.needs, column),
        lambda values: np.not_equal(values[column], value) | rule.holds(values),
        rule.reason,
        rule.hint,
    )


def keeps(rules: Iterable[Rule], values: Values, num_rows: int) -> Array:
    """Return for each of `num_rows` rows whether it keeps every rule."""
    kept = np.ones(num_rows, dtype=bool)
    for rule in rules:
        kept &= rule.holds(values)
    return kept


def nearest(numbers: Iterable[int], value: int) -> str:
    """Return the numbers next to `value`, ``4 or 8``; where there is none, ``another``."""
    known = sorted(set(numbers))
    below = [number for number in known if number < value][-1:]
    above = [number for number in known if number > value][:1]
    return one_of(below + above) if below + above else "another"


def one_of(numbers: Iterable[int]) -> str:
    """Return ``1, 2, 4 or 8``; long lists are cut in the middle."""
    words = [str(number) for number in numbers]
    if len(words) > 14:
        words = [*words[:9], "...", *words[-3:]]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
