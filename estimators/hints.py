"""Hints that are tried: each value that a hint names is put in place, and every rule is read again.

Defaults that follow from the changed value follow it here too: replicas from the other degrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from estimators.columns import COLUMNS, NUMBERS
from estimators.inputs import Broken, Inputs
from estimators.rules import Rule, anything
from estimators.values import Array, Columns

Complete = Callable[[Columns], Inputs]
"""Fills the defaults of given rows and refuses faulty ones."""

_OTHERS_FIRST = "the hints on the other rules keep this one too"


@dataclass
class _Trials:
    """Rows to try: copies of given rows, each with another value of one column."""

    rows: list[int] = field(default_factory=list)
    changes: dict[str, list[tuple[int, object]]] = field(default_factory=dict)

    def add(self, row: int, name: str, values: Array) -> slice:
        """Add a trial for each value of a column; return their places."""
        start = len(self.rows)
        self.rows += [row] * len(values)
        numbered = enumerate(values.tolist(), start)
        self.changes.setdefault(name, []).extend(numbered)
        return slice(start, len(self.rows))

    def columns(self, given: Columns) -> Columns:
        """Return the columns of the trials."""
        columns = {name: values[self.rows] for name, values in given.items()}
        for name, changes in self.changes.items():
            is_number = COLUMNS[name].kind in NUMBERS
            unknown = np.full(len(self.rows), np.nan if is_number else None)
            column = columns.setdefault(name, unknown)
            for place, value in changes:
                column[place] = value
        return columns


def tried_hints(
    broken: Sequence[Broken], given: Columns, rules: Iterable[Rule], complete: Complete
) -> list[str]:
    """Return a hint for each broken rule; its values keep every rule.

    Where no value does, they break no rule that the row keeps.

    Parameters
    ----------
    given
        The rows as they were given, without defaults.
    rules
        Every rule of the rows.
    """
    trials, places = _Trials(), []
    for fault in broken:
        noted = _Noted(trials, fault.row)
        fault.rule.hint(fault.values, noted)
        places.append(noted.places)
    if not trials.rows:
        return [fault.rule.hint(fault.values) for fault in broken]
    admitted, keep_rules = _admitted(trials, given, rules, complete)
    keep_all = [any(keep_rules[place].any() for place in tried.values()) for tried in places]
    mended = {fault.row for fault, keeps_all in zip(broken, keep_all, strict=True) if keeps_all}
    hints = []
    for fault, tried, keeps_all in zip(broken, places, keep_all, strict=True):
        if fault.row in mended and tried and not keeps_all:
            hints.append(_OTHERS_FIRST)
            continue
        chosen = keep_rules if keeps_all else admitted
        hints.append(fault.rule.hint(fault.values, partial(_chosen, chosen, tried)))
    return hints


def _chosen(chosen: Array, places: Mapping[str, slice], name: str, _values: Array) -> Array:
    return np.asarray(chosen[places[name]])


class _Noted:
    """Admits all values that a rule proposes for a row, and adds a trial of each."""

    def __init__(self, trials: _Trials, row: int) -> None:
        self._trials, self._row = trials, row
        self.places: dict[str, slice] = {}

    def __call__(self, name: str, values: Array) -> Array:
        self.places[name] = self._trials.add(self._row, name, values)
        return anything(name, values)


def _admitted(
    trials: _Trials, given: Columns, rules: Iterable[Rule], complete: Complete
) -> tuple[Array, Array]:
    """Return for each trial whether it breaks no rule that its row keeps, and whether none at all.

    Where the row itself cannot be completed, all of its trials are admitted.
    """
    changed = trials.columns(given)
    rows = sorted(set(trials.rows))
    before = {
        name: given[name][rows] if name in given else np.full_like(values[: len(rows)], None)
        for name, values in changed.items()
    }
    inputs = complete({name: np.concatenate([before[name], changed[name]]) for name in changed})
    place = {row: number for number, row in enumerate(rows)}
    of = np.array([*range(len(rows)), *(place[row] for row in trials.rows)])
    is_sound = ~inputs.is_faulty & ~inputs.is_faulty[of]
    sound = np.flatnonzero(is_sound)
    is_worse, is_broken = np.zeros((2, len(of)), dtype=bool)
    for rule in rules:
        is_kept = np.ones(len(of), dtype=bool)
        with np.errstate(all="ignore"):
            is_kept[sound] = rule.holds({name: inputs[name][sound] for name in rule.needs})
        is_worse |= is_kept[of] & ~is_kept
        is_broken |= ~is_kept
    admitted = inputs.is_faulty[of] | (is_sound & ~is_worse)
    return admitted[len(rows) :], (is_sound & ~is_broken)[len(rows) :]
