"""The search of an estimator: the cells of a study's space, and the layouts of each.

`BaseSearch` makes cells and says why a space is empty. `TableSearch` keeps the layouts of a
cell as one table. Both read columns, rules and defaults from their estimator.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from estimators.base import BaseEstimator
from estimators.columns import COLUMNS
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
    Relation,
    Scalar,
    Search,
    Space,
    Values,
)
from estimators.enumeration import Axis, enumerate_layouts
from estimators.idle import with_idle_layouts
from estimators.inputs import Inputs, records
from estimators.rules import Rule

_ROWS_KEPT = 2_000_000
"""Rows of cached tables of layouts. Planning counts them and evaluation reads them soon after;
cells that differ only in what no layout depends on share one."""

Pair = tuple[str, Scalar]
Key = tuple[tuple[Pair, ...], tuple[Pair, ...], Mends]
"""Everything that the layouts of a cell depend on: values, kept columns, mends."""


class BaseSearch(ABC):
    """A search with a cell for each problem, choice and kept value.

    Parameters
    ----------
    estimator
        Gives columns, rules and defaults.
    relation
        The relation of the cells.
    """

    row_columns: frozenset[str] = frozenset()

    def __init__(self, estimator: SearchedEstimator, relation: Relation) -> None:
        self.estimator = estimator
        self.relation = relation

    @property
    def space_columns(self) -> tuple[str, ...]:
        """Names a study may give under [space]."""
        of = self.estimator
        named = (*of.problem_columns, *of.choice_columns, *of.space_inputs, *self.relation.keys)
        return tuple(name for name in named if name not in of.system_columns)

    @property
    def system_columns(self) -> tuple[str, ...]:
        """Names a study may give under [system]."""
        return self.estimator.system_columns

    @property
    def neutral(self) -> Mapping[str, Scalar]:
        """Choices that are left out of the id of a cell at these values."""
        return self.estimator.neutral_choices

    @abstractmethod
    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""

    @abstractmethod
    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts in order, in chunks; see `contract.Search`."""

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield a cell for each problem, choice and kept value; see `contract.Search`.

        Raises
        ------
        RefusedError
            If a value is faulty, or if a kept value leaves no layout in any cell.
        """
        of = self.estimator
        space = {**of.searched_by_default, **space}
        rows = self._resolved(space, catalog, mends)
        names = [name for name in self.relation.keys if name in space]
        kept = [
            dict(zip(names, values, strict=True))
            for values in itertools.product(*(space[name] for name in names))
        ]
        cells = [
            Cell(
                of.name,
                of.version,
                self.relation.name,
                Problem({name: row[name] for name in of.problem_columns}),
                mends,
                {name: row[name] for name in of.choice_columns},
                dict(keep),
                self.neutral,
            )
            for row in rows
            for keep in kept
        ]
        every = with_idle_layouts(of, cells)
        added = every[len(cells) :]
        self._refuse_empty(cells, added)
        yield from cells
        yield from (cell for cell in added if self.count(cell))

    def _resolved(self, space: Space, catalog: Catalog, mends: Mends) -> list[dict[str, Scalar]]:
        """Return every combination of problem and choice values of a space, resolved.

        Problem values vary fastest: cells that follow one another share a strategy.

        Raises
        ------
        RefusedError
            If one is faulty; each fault is reported once.
        """
        of = self.estimator
        given = (*of.choice_columns, *of.problem_columns, *of.space_inputs)
        columns = combinations({name: space[name] for name in given if name in space})
        columns = columns or {of.problem_columns[0]: np.array([None])}  # all defaults
        inputs = Inputs(columns, self.relation.real)
        of.complete_space(inputs, self.relation, catalog, mends)
        if inputs.refusals:
            raise RefusedError(distinct(inputs.refusals))
        names = (*of.problem_columns, *of.choice_columns)
        return records(inputs.finish(names, of.optional_columns))

    def _refuse_empty(self, cells: Sequence[Cell], added: Sequence[Cell]) -> None:
        """Refuse a space without a layout, or with a kept value that no layout has.

        Parameters
        ----------
        added
            Cells that nobody asked for by name, which have some layouts of `cells`.
        """
        every = (*cells, *added)
        counts = [self.count(cell) for cell in every]
        used = {
            pair
            for cell, n in zip(every, counts, strict=True)
            if n
            for pair in self._kept(cell).items()
        }
        asked = {pair: cell for cell in reversed(cells) for pair in self._kept(cell).items()}
        lost = [(pair, cell) for pair, cell in asked.items() if pair not in used]
        if lost:
            raise EmptySpaceError(self._why(cell, *pair) for pair, cell in reversed(lost))
        if not any(counts):
            raise EmptySpaceError([self._empty(cells[0])])

    def _kept(self, cell: Cell) -> Mapping[str, Scalar]:
        """Return the values that a study holds layouts to."""
        return cell.kept

    def _known(self, cell: Cell) -> dict[str, Any]:
        return {**dict.fromkeys(self.estimator.optional_columns), **cell.values}

    def _why(self, cell: Cell, name: str, value: Scalar) -> Refusal:
        """Return why `value` leaves nothing: the rule that it breaks, or that nothing has it."""
        known = {**self._known(cell), **cell.kept}
        for rule in self.estimator.search_rules(cell.mends):
            applies = rule.column == name and all(need in known for need in rule.needs)
            if applies and not np.all(rule.holds(known)):
                return Refusal(name, value, rule.reason(known), rule.hint(known))
        hint = "use a value that divides what it splits, given the other values of the study"
        return Refusal(name, value, "leaves no layout in any cell of the space", hint)

    def _empty(self, cell: Cell) -> Refusal:
        """Return why a space has no layout at all: a rule of the problem alone, or the GPUs."""
        known = self._known(cell)
        for rule in self.estimator.search_rules(cell.mends):
            if all(need in known for need in rule.needs) and not np.all(rule.holds(known)):
                value = known.get(rule.column)
                return Refusal(rule.column, value, rule.reason(known), rule.hint(known))
        size = next(
            n for n in ("num_gpus", "num_clusters", *self.estimator.problem_columns) if n in known
        )
        hint = "degrees must multiply to it and divide what they split"
        return Refusal(size, known[size], "leaves no layout in the whole space", hint)


class TableSearch(BaseSearch):
    """A search whose cells' layouts fit in memory as columns."""

    def __init__(self, estimator: SearchedEstimator, relation: Relation) -> None:
        super().__init__(estimator, relation)
        self._tables: OrderedDict[Key, Columns] = OrderedDict()
        self._counts: dict[Key, int] = {}

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
        table = self.estimator.layouts_of(self.relation, self._known(cell), cell.kept, cell.mends)
        table = {name: table[name] for name in self.relation.keys}
        self._tables[key] = table
        while sum(map(_height, self._tables.values())) > _ROWS_KEPT:
            self._tables.popitem(last=False)
        return table

    def _key(self, cell: Cell) -> Key:
        independent = self.estimator.independent
        values = (pair for pair in cell.values.items() if pair[0] not in independent)
        return tuple(values), tuple(cell.kept.items()), cell.mends


class RelationSearches:
    """The searches of an estimator with a table of layouts for each of its relations."""

    def __init__(self, estimator: SearchedEstimator) -> None:
        self.of = {
            relation.name: TableSearch(estimator, relation) for relation in estimator.relations
        }

    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""
        return self.of[cell.relation].count(cell)

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts; see `contract.Search`."""
        return self.of[cell.relation].layouts(cell, max_rows)


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


class SearchedEstimator(BaseEstimator):
    """An estimator whose cells a search makes: by default with layouts as one table.

    A subclass defines `complete_problem`, `complete_layout` and `axes`; its rules prune the
    layouts. The problem, its rules and its layouts are those of batches and of searches alike.
    """

    search: Search

    system_columns: tuple[str, ...] = ()
    """Problem columns that a study gives under [system]."""

    required_in_space: Mapping[str, str] = MappingProxyType({})
    """Problem column that a study must give -> the hint where it does not."""

    independent: frozenset[str] = frozenset()
    """Problem columns and choices that no layout depends on."""

    def __init__(self) -> None:
        self.search = self.make_search()

    def make_search(self) -> Search:
        """Return the search over the rows of the first relation."""
        return TableSearch(self, self.relations[0])

    @property
    def space_inputs(self) -> tuple[str, ...]:
        """Those of `input_columns` that a study may give."""
        return self.input_columns

    def complete_problem(self, inputs: Inputs, catalog: Catalog, mends: Mends) -> None:
        """Fill and check problem and choices."""
        raise NotImplementedError(f"{self.name} has no `complete_problem`")

    def complete_space(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check problem and choices of a search over `relation`."""
        del relation
        self.complete_problem(inputs, catalog, mends)
        for name, hint in self.required_in_space.items():
            inputs.require((name,), hint)
            inputs.check((name,))

    def complete_layout(
        self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends
    ) -> None:
        """Fill and check the layouts of a batch, whose problems are complete."""

    def complete(self, inputs: Inputs, relation: Relation, catalog: Catalog, mends: Mends) -> None:
        """Fill and check problems, choices and layouts of a batch."""
        self.complete_problem(inputs, catalog, mends)
        self.complete_layout(inputs, relation, catalog, mends)

    def search_rules(self, mends: Mends) -> tuple[Rule, ...]:
        """Return the rules that prune a search."""
        return self.rules(mends)

    def axes(self, values: Values) -> tuple[Axis, ...]:
        """Return the axes that the layouts of a problem are grown by, in order."""
        raise NotImplementedError(f"{self.name} has neither `axes` nor `layouts_of`")

    def layouts_of(
        self, relation: Relation, values: Values, kept: Mapping[str, Scalar], mends: Mends
    ) -> Columns:
        """Return every layout of a cell.

        Parameters
        ----------
        values
            Problem and choices; absent optional ones are None.
        kept
            Key -> the one value that a study holds it to.
        """
        del relation
        table = enumerate_layouts(values, self.axes(values), self.search_rules(mends), kept)
        return {
            name: column.astype(COLUMNS[name].dtype, copy=False) for name, column in table.items()
        }
