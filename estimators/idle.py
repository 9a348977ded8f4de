"""Choices without effect where a degree is 1: a search has each such layout once.

A layout without a pipeline has no schedule: the cell with the neutral schedule stores it. A study
that names only another schedule also gets that part of the neutral cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from estimators.contract import Array, Cell, Scalar, Values
from estimators.id_set import IdSet
from estimators.inputs import Inputs
from estimators.rules import Rule

Cells = Callable[[], Iterable[Cell]]
"""Returns cells, at each call the same ones in the same order."""


@dataclass(frozen=True)
class IdleChoices:
    """Choices that change nothing where a degree is 1, such as a schedule without a pipeline.

    Attributes
    ----------
    neutral
        Choice -> its value in the cell that has such layouts.
    degree
        A key of the first relation.
    implied
        Other keys that are 1 wherever the degree is.
    """

    neutral: Mapping[str, Scalar]
    degree: str
    implied: tuple[str, ...] = ()

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choices of a cell whose values are not neutral."""
        return {
            name: values[name]
            for name, neutral in self.neutral.items()
            if values.get(name) not in (None, neutral)
        }

    def neutralize(self, inputs: Inputs) -> None:
        """Give the choices their neutral values in the rows of a batch where the degree is 1."""
        rows = np.equal(inputs[self.degree], 1)
        for name, value in self.neutral.items():
            column = inputs[name]
            column[rows] = np.nan if value is None and column.dtype == np.float64 else value

    @property
    def rule(self) -> Rule:
        """The rule of a search that the degree is above 1 if a choice is not neutral."""

        def holds(values: Values) -> Array:
            return np.asarray(values[self.degree] >= (2 if self.given(values) else 1))

        def reason(row: Values) -> str:
            given = ", ".join(f"`{name}` {value}" for name, value in self.given(row).items())
            return f"is 1, where {given} changes nothing"

        return Rule(
            f"{next(iter(self.neutral))} needs {self.degree}",
            self.degree,
            (self.degree, *self.neutral),
            holds,
            reason,
            lambda _row: f"leave out {', '.join(self.neutral)}, or use more",
        )


def with_idle_layouts(
    choices: Iterable[IdleChoices], rules: Iterable[Rule], optional: Iterable[str], cells: Cells
) -> Iterator[Cell]:
    """Yield cells, then cells with those of their layouts for which choices have no effect.

    None is added if `cells` has the neutral cell, which has these layouts. None is added either for
    choices that break a rule where the degree is 1, such as a text with several stages.

    Parameters
    ----------
    rules, optional
        Rules of an estimator, and its columns that may be missing.
    cells
        It is called several times: only the ids of cells are kept.
    """
    for idle in choices:
        cells = partial(_with_parts, idle, tuple(rules), tuple(optional), cells)
    yield from cells()


def _with_parts(
    idle: IdleChoices, rules: tuple[Rule, ...], optional: tuple[str, ...], cells: Cells
) -> Iterator[Cell]:
    known, is_idle = IdSet(), False
    for cell in cells():
        known.add(cell.id)
        is_idle = is_idle or bool(idle.given(cell.choices))
        yield cell
    for cell in cells() if is_idle else ():
        if not idle.given(cell.choices) or cell.fixed.get(idle.degree, 1) != 1:
            continue
        whole = replace(cell, choices={**cell.choices, **idle.neutral})
        part = replace(whole, fixed={**cell.fixed, idle.degree: 1})
        if whole.id in known or part.id in known:
            continue
        values = {**dict.fromkeys(optional), **cell.values}
        values |= dict.fromkeys((idle.degree, *idle.implied), 1)
        applied = (rule for rule in rules if values.keys() >= {*rule.needs})
        if all(rule.is_kept(values) for rule in applied):
            known.add(part.id)
            yield part
