"""A search made of parts: the cells of a study's space, each with its layouts as one table.

What an estimator brings is how a problem is resolved, and a function that enumerates the
layouts of one cell; this module brings the rest of `contract.Search`.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    EmptySpaceError,
    Mends,
    Problem,
    Refusal,
    RefusedError,
    Scalar,
    Space,
)
from estimators.inputs import Inputs, records
from estimators.rules import Rule

_ROWS_KEPT = 2_000_000
"""Rows of the tables of layouts that are kept: counted while planning, they are evaluated soon
after, and cells that differ only in what no layout depends on share one."""


Key = tuple[tuple[tuple[str, Any], ...], tuple[tuple[str, Scalar], ...], Mends]
"""What the layouts of a cell depend on."""


@dataclass(frozen=True)
class TableSearch:
    """A search whose cells' layouts fit in memory as columns.

    Attributes
    ----------
    estimator, version, relation
        Which estimator the cells are for.
    problem, choices, keys
        Its columns.
    system_columns
        Problem columns that a study gives under [system].
    other_inputs
        The estimator's `input_columns`.
    optional
        Problem columns that may be missing.
    resolve
        Completes and checks problem and choices: `(inputs, catalog, mends) -> None`.
    enumerate
        Returns every layout of a cell: `(values, kept, mends) -> columns`.
    rules
        Returns the rules under `mends`, to say why a kept value leaves nothing.
    neutral
        The estimator's `neutral_choices`.
    real
        As in `contract.Relation`.
    independent
        Problem columns and choices that no layout depends on.
    row_columns
        None: a kept value makes a cell of its own.
    searched
        Choices of which a study that names none means these.
    """

    estimator: str
    version: int
    relation: str
    problem: tuple[str, ...]
    choices: tuple[str, ...]
    keys: tuple[str, ...]
    resolve: Callable[[Inputs, Catalog, Mends], None]
    enumerate: Callable[[Mapping[str, Any], Mapping[str, Scalar], Mends], Columns]
    rules: Callable[[Mends], Sequence[Rule]]
    system_columns: tuple[str, ...] = ()
    other_inputs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    neutral: Mapping[str, Scalar] = field(default_factory=dict)
    real: frozenset[str] = frozenset()
    independent: frozenset[str] = frozenset()
    row_columns: frozenset[str] = frozenset()
    searched: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    _tables: OrderedDict[Key, Columns] = field(default_factory=OrderedDict, compare=False)
    _counts: dict[Key, int] = field(default_factory=dict, compare=False)

    @property
    def space_columns(self) -> tuple[str, ...]:
        """Names a study may give under [space]."""
        named = (*self.problem, *self.choices, *self.other_inputs, *self.keys)
        return tuple(name for name in named if name not in self.system_columns)

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield a cell for each problem, choice and kept value; see `contract.Search`.

        Raises
        ------
        RefusedError
            If a value is faulty, or if a kept value leaves no layout in any cell.
        """
        space = {**self.searched, **space}
        rows = resolved_combinations(self, space, catalog, mends)
        names = [name for name in self.keys if name in space]
        kept = [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*(space[name] for name in names))
        ]
        cells = [
            Cell(
                self.estimator,
                self.version,
                self.relation,
                Problem({name: row[name] for name in self.problem}),
                mends,
                {name: row[name] for name in self.choices},
                dict(keep),
                self.neutral,
            )
            for row in rows
            for keep in kept
        ]
        self._refuse_empty(cells)
        yield from cells

    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""
        key = self._key(cell)
        if key not in self._counts:
            self._counts[key] = _height(self._table(cell))
        return self._counts[key]

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts in order, in chunks; see `contract.Search`."""
        table = self._table(cell)
        for start in range(0, _height(table), max_rows):
            chunk = slice(start, start + max_rows)
            yield {name: column[chunk] for name, column in table.items()}

    def _table(self, cell: Cell) -> Columns:
        key = self._key(cell)
        if key in self._tables:
            self._tables.move_to_end(key)
            return self._tables[key]
        missing: dict[str, Any] = dict.fromkeys(self.optional)
        table = self.enumerate({**missing, **cell.values}, cell.kept, cell.mends)
        table = {name: table[name] for name in self.keys}
        self._tables[key] = table
        while sum(map(_height, self._tables.values())) > _ROWS_KEPT:
            self._tables.popitem(last=False)
        return table

    def _key(self, cell: Cell) -> Key:
        values = (pair for pair in cell.values.items() if pair[0] not in self.independent)
        return tuple(values), tuple(cell.kept.items()), cell.mends

    def _refuse_empty(self, cells: Sequence[Cell]) -> None:
        """Refuse a space without a layout, or with a kept value that no layout has."""
        counts = [self.count(cell) for cell in cells]
        used = {
            pair for cell, n in zip(cells, counts, strict=True) if n for pair in cell.kept.items()
        }
        asked = {pair: cell for cell in reversed(cells) for pair in cell.kept.items()}
        lost = [(pair, cell) for pair, cell in asked.items() if pair not in used]
        if lost:
            raise EmptySpaceError(self._why(cell, *pair) for pair, cell in reversed(lost))
        if not any(counts):
            raise EmptySpaceError([self._empty(cells[0])])

    def _why(self, cell: Cell, name: str, value: Scalar) -> Refusal:
        """Say why `value` leaves nothing: the rule that it breaks, or that nothing has it."""
        known = {**dict.fromkeys(self.optional), **cell.values, **cell.kept}
        for rule in self.rules(cell.mends):
            applies = rule.column == name and all(need in known for need in rule.needs)
            if applies and not np.all(rule.holds(known)):
                return Refusal(name, value, rule.reason(known), rule.hint(known))
        hint = "it must divide what it splits, beside the other values that the study names"
        return Refusal(name, value, "leaves no layout in any cell of the space", hint)

    def _empty(self, cell: Cell) -> Refusal:
        """Say why a space has no layout at all: a rule of the problem alone, or the GPUs."""
        known = {**dict.fromkeys(self.optional), **cell.values}
        for rule in self.rules(cell.mends):
            if all(need in known for need in rule.needs) and not np.all(rule.holds(known)):
                value = known.get(rule.column)
                return Refusal(rule.column, value, rule.reason(known), rule.hint(known))
        size = next(n for n in ("num_gpus", "num_clusters", *self.problem) if n in known)
        hint = "degrees must multiply to it and divide what they split"
        return Refusal(size, known[size], "leaves no layout in the whole space", hint)


def resolved_combinations(
    search: TableSearch, space: Space, catalog: Catalog, mends: Mends
) -> list[dict[str, Scalar]]:
    """Return every combination of problem and choice values of a space, resolved.

    Raises
    ------
    RefusedError
        If one is faulty; each fault is told once.
    """
    given = (*search.choices, *search.problem, *search.other_inputs)
    columns = combinations({name: space[name] for name in given if name in space})
    columns = columns or {search.problem[0]: np.array([None])}  # all defaults
    inputs = Inputs(columns, search.real)
    search.resolve(inputs, catalog, mends)
    if inputs.refusals:
        raise RefusedError(distinct(inputs.refusals))
    return records(inputs.finish((*search.problem, *search.choices), search.optional))


def combinations(space: Space) -> dict[str, Array]:
    """Return every combination of values, one column a name, the last name fastest."""
    total = math.prod(len(values) for values in space.values())
    place = np.arange(total)
    columns = {}
    stride = total
    for name, some in space.items():  # not unravel_index, which ends at 64 names
        if total:
            stride //= len(some)
        values = np.array([*some, None], dtype=object)[:-1]
        columns[name] = values[place // stride % len(some)] if total else values[:0]
    return columns


def distinct(refusals: Sequence[Refusal]) -> list[Refusal]:
    """Return one refusal a fault: combinations repeat them."""
    found = {(r.column, r.value, r.reason): r for r in reversed(refusals)}
    return [Refusal(r.column, r.value, r.reason, r.hint) for r in reversed(found.values())]


def _height(table: Columns) -> int:
    return len(next(iter(table.values())))
