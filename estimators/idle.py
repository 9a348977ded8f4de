"""Choices without effect where a degree is 1: a search has each such layout once.

A cell with a schedule has no layouts without a pipeline: the cell with the neutral schedule has
them. A study that names only another schedule also gets that part of the neutral cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from estimators.id_set import IdSet
from estimators.rules import Rule

if TYPE_CHECKING:
    from estimators.contract import Array, Cell, IdleChoices, Mends, Scalar, Values
    from estimators.inputs import Inputs


class HasChoices(Protocol):
    """The part of an estimator that says which choices change nothing, and where."""

    @property
    def idle_choices(self) -> tuple[IdleChoices, ...]:
        """See `estimators.estimator`."""

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """See `estimators.estimator`."""

    def rules(self, mends: Mends) -> tuple[Rule, ...]:
        """See `estimators.estimator`."""

    @property
    def neutral_choices(self) -> Mapping[str, Scalar]:
        """See `estimators.estimator`."""


def with_idle_layouts(estimator: HasChoices, cells: Callable[[], Iterable[Cell]]) -> Iterator[Cell]:
    """Yield cells, then cells with those of their layouts for which choices have no effect.

    None is added if `cells` has the neutral cell, which has these layouts. None is added either for
    choices that break a rule where the degree is 1, such as a text with several stages.

    Parameters
    ----------
    cells
        Returns the cells, always in the same order. It is called once for each round of cells that
        are found: only their ids are kept.
    """
    known = IdSet()
    rounds: list[IdSet] = []
    goes_on = False
    for cell in cells():
        if estimator.idle_choices:
            known.add(cell.id)
            goes_on = goes_on or _has_idle(estimator, cell)
        yield cell
    while goes_on:
        found, goes_on = IdSet(), False
        for cell in _of_round(estimator, cells, rounds):
            for idle, whole, part in _parts(estimator, cell):
                if whole.id in known or part.id in known:
                    continue
                if not _is_admitted(estimator, cell, idle):
                    continue
                known.add(part.id)
                found.add(part.id)
                goes_on = goes_on or _has_idle(estimator, part)
                yield part
        rounds.append(found)


def _of_round(
    estimator: HasChoices, cells: Callable[[], Iterable[Cell]], rounds: Sequence[IdSet]
) -> Iterator[Cell]:
    """Yield the cells of the last round again: the given ones, or those that a round found."""
    if not rounds:
        yield from cells()
        return
    *earlier, last = rounds
    seen = IdSet()
    for cell in _of_round(estimator, cells, earlier):
        for idle, _, part in _parts(estimator, cell):
            if part.id in last and part.id not in seen and _is_admitted(estimator, cell, idle):
                seen.add(part.id)
                yield part


def _has_idle(estimator: HasChoices, cell: Cell) -> bool:
    return any(_given(cell.choices, i, estimator.neutral_choices) for i in estimator.idle_choices)


def _parts(estimator: HasChoices, cell: Cell) -> Iterator[tuple[IdleChoices, Cell, Cell]]:
    """Yield the idle choices of a cell, the neutral cell, and its part with degree 1."""
    for idle in estimator.idle_choices:
        if not _given(cell.choices, idle, estimator.neutral_choices):
            continue
        if cell.fixed.get(idle.degree, 1) != 1:
            continue
        choices = {**cell.choices, **_neutral(idle, estimator.neutral_choices)}
        whole = replace(cell, choices=choices)
        yield idle, whole, replace(whole, fixed={**cell.fixed, idle.degree: 1})


def _is_admitted(estimator: HasChoices, cell: Cell, idle: IdleChoices) -> bool:
    """Return whether the choices of a cell break no rule where the degree is 1."""
    known: dict[str, Any] = {
        **dict.fromkeys(estimator.optional_columns),
        **cell.values,
        **dict.fromkeys((idle.degree, *idle.implied), 1),
    }
    rules = (rule for rule in estimator.rules(cell.mends) if known.keys() >= {*rule.needs})
    return all(bool(np.all(rule.holds(known))) for rule in rules)


def idle_rules(estimator: HasChoices) -> tuple[Rule, ...]:
    """Return the rules that exclude layouts whose choices change nothing from a search."""
    return tuple(_rule(idle, estimator.neutral_choices) for idle in estimator.idle_choices)


def without_idle_choices(estimator: HasChoices, inputs: Inputs) -> None:
    """Give choices that change nothing their neutral values, in each row of a batch."""
    for idle in estimator.idle_choices:
        rows = np.equal(inputs[idle.degree], 1)
        for name, value in _neutral(idle, estimator.neutral_choices).items():
            column = inputs[name]
            column[rows] = np.nan if value is None and column.dtype == np.float64 else value


def _neutral(idle: IdleChoices, neutral: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name: neutral.get(name) for name in idle.choices}


def _given(
    values: Mapping[str, Any], idle: IdleChoices, neutral: Mapping[str, Scalar]
) -> dict[str, Any]:
    """Return the choices of a cell whose values are not neutral."""
    return {
        name: values[name]
        for name in idle.choices
        if values.get(name) not in (None, neutral.get(name))
    }


def _rule(idle: IdleChoices, neutral: Mapping[str, Scalar]) -> Rule:
    """Return the rule that a degree is above 1 if one of its idle choices is not neutral."""

    def holds(values: Values) -> Array:
        least = 2 if _given(values, idle, neutral) else 1
        return np.asarray(values[idle.degree] >= least)

    def reason(row: Values) -> str:
        given = ", ".join(f"`{name}` {value}" for name, value in _given(row, idle, neutral).items())
        return f"is 1, where {given} changes nothing"

    return Rule(
        f"{idle.choices[0]} needs {idle.degree}",
        idle.degree,
        (idle.degree, *idle.choices),
        holds,
        reason,
        lambda _row: f"leave out {', '.join(idle.choices)}, or use more",
    )
