"""Named rules that a configuration must keep. Batches and searches use the same predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from estimators.columns import COLUMNS, NUMBERS
from estimators.divisors import divisors
from estimators.names import any_of
from estimators.values import Array, Flag, Values

Explanation = Callable[[Values], str]
Admits = Callable[[str, Array], Array]
"""Takes a column and values of it that keep a rule; returns which of them break no other rule."""

_TRIED = 4_096
"""Values that a hint tries: the least ones, and those to either side of the row's."""

_NEAR = 8
"""Values to either side of the row's that keep a rule, of which other rules admit some."""


def anything(_name: str, values: Array) -> Array:
    """Admit all values: no other rule is known."""
    return np.ones(len(values), dtype=bool)


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
    reason
        Why a row breaks the rule, from the row's scalars.
    advice
        The hint for such a row. By default values that keep the rule are found by trying.
    varies
        Columns of which `hint` tries values; by default `column`.
    listed
        Returns all values that keep the rule, by column, where trying does not find them.
    is_of_program
        Whether it is a rule of one program, and no rule of arithmetic: a run that happened may
        break it.
    """

    name: str
    column: str
    needs: tuple[str, ...]
    holds: Callable[[Values], Flag]
    reason: Explanation
    advice: Explanation | None = None
    varies: tuple[str, ...] = ()
    is_of_program: bool = False
    listed: Callable[[Values], Mapping[str, Iterable[int]]] | None = None

    def is_kept(self, row: Values) -> bool:
        """Return whether a row keeps the rule; a faulty row may divide by zero."""
        with np.errstate(all="ignore"):
            return bool(np.all(self.holds(row)))

    def may_keep(self, row: Values, name: str) -> bool:
        """Return whether the row keeps the rule with another value of a column of numbers."""
        least = int(COLUMNS[name].minimum or 0)
        tried = np.arange(least, least + _TRIED, dtype=np.float64)
        return len(self._keeping(row, name, tried)) > 0

    def hint(self, row: Values, admits: Admits = anything) -> str:
        """Return how to keep the rule: values of a column that do and are admitted, or advice."""
        if self.advice is not None:
            return self.advice(row)
        if self.listed is not None:
            lists = {
                name: self._listed(name, some, admits) for name, some in self.listed(row).items()
            }
        else:
            lists = {
                name: self._nearest(row, name, admits) for name in self.varies or (self.column,)
            }
        words: list[str] = []
        for name, values in lists.items():
            is_named = bool(words) or name != self.column
            words += [f"`{name}` {values}" if is_named else values] if values else []
        others = " or ".join(f"`{name}`" for name in self.needs)
        return f"use {', or '.join(words)}" if words else f"use another {others}"

    def _listed(self, name: str, values: Iterable[int], admits: Admits) -> str:
        tried = np.array(list(values), dtype=np.float64)
        return one_of(map(int, tried[admits(name, tried)].tolist()))

    def _nearest(self, row: Values, name: str, admits: Admits) -> str:
        """Return the values of a column next to the row's that keep the rule; "" for none."""
        column, value = COLUMNS[name], row[name]
        if column.kind in ("str", "bool"):
            known = (True, False) if column.kind == "bool" else column.choices
            keeping = self._keeping(row, name, np.array(known, dtype=object))
            return any_of([str(kept).lower() for kept in keeping[admits(name, keeping)]])
        if column.kind == "float" or value is None:
            return ""
        least = int(column.minimum or 0)
        near = np.arange(max(int(value) - _TRIED, least), int(value) + _TRIED)
        tried = np.union1d(np.arange(least, least + _TRIED), near)
        tried = tried[tried != value].astype(np.float64)
        keeping = self._keeping(row, name, tried)
        below, above = keeping[keeping < value], keeping[keeping > value]
        has_all_below = not len(above) and 1 < len(below) == np.count_nonzero(tried <= below[-1])
        has_all_above = not len(below) and 0 < len(above) == np.count_nonzero(tried >= above[0])
        below, above = below[-_NEAR:], above[:_NEAR]
        is_admitted = admits(name, np.concatenate([below, above]))
        if has_all_below and is_admitted.all():
            return f"at most {below[-1]:.0f}"
        if has_all_above and is_admitted.all():
            return f"{above[0]:.0f} or more"
        below, above = below[is_admitted[: len(below)]], above[is_admitted[len(below) :]]
        return any_of([f"{number:.0f}" for number in (*below[-1:], *above[:1])])

    def _keeping(self, row: Values, name: str, tried: Array) -> Array:
        """Return those of the tried values of a column with which the row keeps the rule."""
        columns = {}
        for need in self.needs:
            is_number = COLUMNS[need].kind in NUMBERS
            columns[need] = np.full(len(tried), row[need], dtype=float if is_number else object)
        with np.errstate(all="ignore"):
            holds = np.broadcast_to(self.holds({**columns, name: tried}), len(tried))
        return np.asarray(tried[np.asarray(holds, dtype=bool)])


INTERLEAVING_NEEDS_STAGES = Rule(
    "interleaving needs stages",
    "virtual_pipeline",
    ("virtual_pipeline", "pipeline_parallel"),
    lambda v: np.less_equal(v["virtual_pipeline"], 1) | np.greater(v["pipeline_parallel"], 1),
    lambda _: "interleaves a pipeline of one stage",
    varies=("virtual_pipeline", "pipeline_parallel"),
)
"""Chunks of a stage are interleaved with those of other stages."""


def divides(column: str, whole: str, *, name: str = "") -> Rule:
    """Return the rule that `column` divides `whole` without remainder."""
    return divides_number(
        name or f"{column} divides {whole}",
        column,
        (whole,),
        lambda values: values[whole],
        lambda row: f"`{whole}` {row[whole]}",
    )


def divides_number(
    name: str,
    column: str,
    needs: tuple[str, ...],
    number: Callable[[Values], int | Array],
    words: Explanation,
    advice: Explanation | None = None,
) -> Rule:
    """Return the rule that `column` divides a number without remainder.

    Parameters
    ----------
    needs, number
        The columns that make the number, and the number from their values.
    words
        The number in words, made from the row's scalars.
    advice
        By default all divisors.
    """

    def divisors_of_number(row: Values) -> dict[str, Iterable[int]]:
        return {column: divisors(max(int(number(row)), 1))}

    return Rule(
        name,
        column,
        (column, *needs),
        lambda values: np.equal(np.remainder(number(values), np.maximum(values[column], 1)), 0),
        lambda row: f"does not divide {words(row)}",
        advice,
        listed=divisors_of_number,
    )


def at_most(name: str, column: str, whole: str, advice: Explanation | None = None) -> Rule:
    """Return the rule that `column` is not more than `whole`."""
    return Rule(
        name,
        column,
        (column, whole),
        lambda values: np.less_equal(values[column], values[whole]),
        lambda row: f"is more than `{whole}` {_plain(row[whole])}",
        advice,
    )


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def only(column: str, value: str, rule: Rule) -> Rule:
    """Return `rule` for rows whose `column` is `value`; others keep it."""
    return replace(
        rule,
        name=f"{rule.name} ({value})",
        needs=(*rule.needs, column),
        holds=lambda values: np.not_equal(values[column], value) | rule.holds(values),
    )


def keeps(rules: Iterable[Rule], values: Values, num_rows: int) -> Array:
    """Return for each of `num_rows` rows whether it keeps every rule."""
    keeps_all = np.ones(num_rows, dtype=bool)
    for rule in rules:
        keeps_all &= rule.holds(values)
    return keeps_all


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
    return any_of(words)
