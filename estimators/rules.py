"""Named rules that a configuration must keep: one predicate for batches and for searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from estimators.contract import Array, Values
from estimators.spaces import divisors

Explanation = Callable[[Values], str]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    name
        Its name in tests, documents and `why`.
    column
        The column to blame.
    needs
        Columns the rule reads.
    holds
        Predicate over columns (or scalars) of those names.
    reason, hint
        Words for one row that breaks it, made from the row's scalars.
    """

    name: str
    column: str
    needs: tuple[str, ...]
    holds: Callable[[Values], Array]
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


def divides(column: str, whole: str) -> Rule:
    """Return the rule that `column` divides `whole` without remainder."""

    def hint(row: Values) -> str:
        if int(row[whole]) < 1:
            return ""
        return f"use {one_of(divisors(int(row[whole])))}"

    return Rule(
        f"{column} divides {whole}",
        column,
        (column, whole),
        lambda values: np.equal(np.remainder(values[whole], np.maximum(values[column], 1)), 0),
        lambda row: f"does not divide `{whole}` {row[whole]}",
        hint,
    )


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
