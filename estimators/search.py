"""The search of an estimator: the cells of a study's space, and the layouts of each.

`BaseSearch` makes cells and says why a space is empty. `TableSearch` keeps the layouts of a
cell as one table. Both read columns, rules and defaults from their estimator.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import (
    Array,
    Catalog,
    Cell,
    Columns,
    EmptySpaceError,
    Mends,
    OnChecked,
    Problem,
    Refusal,
    RefusedError,
    Relation,
    Scalar,
    Search,
    Space,
    Values,
    say_nothing,
)
from estimators.enumeration import Axis, enumerate_layouts
from estimators.estimator import Estimator, height
from estimators.inputs import Broken, Inputs, records
from estimators.rules import Rule

CHUNK_CELLS = 2_048
"""Cells that a search makes at once: enough to share the cost of common work, few enough to need
little memory."""

_ROWS_KEPT = 2_000_000
"""Rows of cached tables of layouts. Planning counts the rows, and evaluation reads them soon after.
Cells that differ only in columns on which no layout depends share a table."""

_LEAST_ROWS = 256
"""Overhead of a cached table, in rows of memory."""

_COUNTS_KEPT = 65_536
"""Numbers of layouts that are cached."""

Pair = tuple[str, Scalar]
Key = tuple[tuple[Scalar, ...], tuple[Pair, ...], Mends, bool]
"""Everything on which the layouts of a cell depend: values, fixed columns, mends, and whether the
cell keeps the rules that read none of its layouts."""


class BaseSearch(Search):
    """A search with a cell for each problem, choice and fixed value.

    Parameters
    ----------
    estimator
        Gives columns, rules and defaults.
    relation
        The relation of the cells.
    """

    def __init__(self, estimator: SearchedEstimator, relation: Relation) -> None:
        self.estimator = estimator
        self.relation = relation
        self.system_columns = estimator.system_columns
        named = (*estimator.problem_columns, *estimator.choice_columns, *estimator.space_inputs)
        self.space_columns = tuple(
            name for name in (*named, *relation.keys) if name not in self.system_columns
        )

    @property
    def neutral(self) -> Mapping[str, Scalar]:
        """Choices that are left out of the id of a cell at these values."""
        return self.estimator.neutral_choices

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield a cell for each problem, choice and fixed value; see `contract.Search`.

        Choices vary slowest, so that consecutive cells share a strategy; then problem values; then
        the estimator's `searched_fastest`.
        """
        asked = self._num_cells(space)
        for place, cell in enumerate(self._with_idle_layouts(space, catalog, mends)):
            if place < asked or self.count(cell):
                yield cell

    def check(
        self, space: Space, catalog: Catalog, mends: Mends, on_checked: OnChecked = say_nothing
    ) -> None:
        """Raise if a value is faulty, or if a fixed value leaves no layout in any cell."""
        refusals: list[Refusal] = []
        layouts = _Layouts(self, space, catalog)
        for inputs in self._completed(space, catalog, mends):
            refusals = distinct([*refusals, *inputs.refusals])
            if not refusals and not layouts.is_settled:
                layouts.look_at(self._cells_of(inputs, space, mends))
            on_checked(inputs.num_rows)
        if refusals:
            raise RefusedError(refusals)
        if not layouts.is_settled:
            every = self._with_idle_layouts(space, catalog, mends)
            number = self._num_cells(space)
            layouts.look_at(itertools.islice(every, number, None), are_asked=False)
        layouts.raise_if_empty()

    def _with_idle_layouts(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        return self.estimator.with_idle_layouts(mends, lambda: self._cells(space, catalog, mends))

    def _given(self, space: Space) -> dict[str, Sequence[Scalar]]:
        """Return the problem values and choices of a space, in the order in which they vary."""
        of = self.estimator
        space = {**of.searched_by_default, **space}
        slow = (name for name in of.choice_columns if name not in of.searched_fastest)
        names = (*slow, *of.problem_columns, *of.space_inputs, *of.searched_fastest)
        return {name: space[name] for name in names if name in space}

    def _fixed_values(self, space: Space) -> dict[str, Sequence[Scalar]]:
        return {name: space[name] for name in self.relation.keys if name in space}

    def _num_fixed(self, space: Space) -> int:
        return math.prod(map(len, self._fixed_values(space).values()))

    def _num_cells(self, space: Space) -> int:
        """Return the number of cells that a space asks for by name."""
        return math.prod(map(len, self._given(space).values())) * self._num_fixed(space)

    def _completed(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Inputs]:
        """Yield the combinations of a space in chunks, completed, with their refusals."""
        of, given = self.estimator, self._given(space)
        if not given:
            given = {of.problem_columns[0]: (None,)}  # all defaults
        for columns in chunks_of(given, max(CHUNK_CELLS // max(self._num_fixed(space), 1), 1)):
            inputs = Inputs(columns, self.relation.real)
            of.complete_space(inputs, self.relation, catalog, mends)
            yield inputs

    def _cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield the cells that a space asks for by name.

        Raises
        ------
        RefusedError
            If a value is faulty; each fault of a chunk is reported once.
        """
        for inputs in self._completed(space, catalog, mends):
            if inputs.refusals:
                raise RefusedError(distinct(inputs.refusals))
            yield from self._cells_of(inputs, space, mends)

    def _cells_of(self, inputs: Inputs, space: Space, mends: Mends) -> Iterator[Cell]:
        """Yield the cells of completed combinations, one for each of the fixed values."""
        of, fixed = self.estimator, self._fixed_values(space)
        names = (*of.problem_columns, *of.choice_columns)
        for row in records(inputs.finish(names, of.optional_columns)):
            for values in itertools.product(*fixed.values()):
                yield Cell(
                    of.name,
                    of.version,
                    self.relation.name,
                    Problem({name: row[name] for name in of.problem_columns}),
                    mends,
                    {name: row[name] for name in of.choice_columns},
                    dict(zip(fixed, values, strict=True)),
                    self.neutral,
                )

    def held_pairs(self, space: Space) -> set[Pair]:
        """Return every column and value that `held` of a cell of the space may contain."""
        fixed = self._fixed_values(space)
        return {(name, value) for name, values in fixed.items() for value in values}

    def held(self, cell: Cell) -> Mapping[str, Scalar]:
        """Return the layout values that a study fixes."""
        return cell.fixed

    def _known(self, cell: Cell) -> Values:
        return {**dict.fromkeys(self.estimator.optional_columns), **cell.values}

    def why(self, cell: Cell, name: str, value: Scalar, catalog: Catalog) -> Refusal:
        """Return why `value` leaves no layout: a rule that it breaks, or no layout has it."""
        broken = self._broken({**self._known(cell), **cell.fixed}, cell.mends, name)
        broken = broken or self._broken_by_all(cell, name, catalog)
        hint = (
            "use a value that divides the number it splits (layers, heads, sequences ...), given "
            "the other values of the study"
        )
        return broken or Refusal(name, value, "leaves no layout in any cell of the space", hint)

    def empty(self, cell: Cell) -> Refusal:
        """Return why a space has no layout: a rule that its problem breaks, or the GPUs."""
        known = self._known(cell)
        broken = self._broken(known, cell.mends)
        size = next(
            n for n in ("num_gpus", "num_clusters", *self.estimator.problem_columns) if n in known
        )
        hint = "degrees must multiply to it and divide the numbers they split (layers, heads ...)"
        return broken or Refusal(size, known[size], "leaves no layout in the whole space", hint)

    def _broken(self, known: Values, mends: Mends, name: str = "") -> Refusal | None:
        """Return the refusal by the first rule that known values break, of one column or of any."""
        for rule in self.estimator.search_rules(mends):
            applies = name in ("", rule.column) and known.keys() >= {*rule.needs}
            if applies and not rule.is_kept(known):
                value = known.get(rule.column)
                return Refusal(rule.column, value, rule.reason(known), rule.hint(known))
        return None

    def _broken_by_all(self, cell: Cell, name: str, catalog: Catalog) -> Refusal | None:
        """Return the refusal by the first rule on a column that all layouts of a cell break.

        The fixed values break it with the least values of the columns that it reads besides, and
        with other values of each of these.
        """
        known, of = {**self._known(cell), **cell.fixed}, self.estimator
        for rule in of.search_rules(cell.mends):
            free = [need for need in rule.needs if need not in known]
            if name not in rule.needs or any(COLUMNS[need].kind != "int" for need in free):
                continue
            row = {**known, **{need: int(COLUMNS[need].minimum or 0) for need in free}}
            if rule.is_kept(row) or any(rule.may_keep(row, need) for need in free):
                continue
            given = {key: (some,) for key, some in {**cell.values, **cell.fixed}.items()}
            columns = Inputs(combinations(given), self.relation.real)
            broken = (Broken(rule, 0, row),)
            [hint] = of.hints(broken, self.relation, columns, catalog, cell.mends)
            return Refusal(rule.column, row[rule.column], rule.reason(row), hint)
        return None


class TableSearch(BaseSearch):
    """A search whose cells' layouts fit in memory as columns."""

    def __init__(self, estimator: SearchedEstimator, relation: Relation) -> None:
        super().__init__(estimator, relation)
        self._tables: OrderedDict[Key, Columns] = OrderedDict()
        self._rows_kept = 0
        self._counts: OrderedDict[Key, int] = OrderedDict()
        self._cell_rules: dict[Mends, tuple[tuple[Rule, ...], tuple[str, ...]]] = {}
        self._admitted: dict[tuple[Mends, tuple[Scalar, ...]], bool] = {}

    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""
        key = self._key(cell)
        if key in self._counts:
            self._counts.move_to_end(key)
            return self._counts[key]
        count = self._counts[key] = height(self._table(cell))
        if len(self._counts) > _COUNTS_KEPT:
            self._counts.popitem(last=False)
        return count

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts in order, in chunks; see `contract.Search`."""
        table = self._table(cell)
        for start in range(0, height(table), max_rows):
            chunk = slice(start, start + max_rows)
            yield {name: column[chunk] for name, column in table.items()}

    def _table(self, cell: Cell) -> Columns:
        """Return the layouts of a cell as columns, cached."""
        key = self._key(cell)
        if key in self._tables:
            self._tables.move_to_end(key)
            return self._tables[key]
        table = self.estimator.layouts_of(self.relation, self._known(cell), cell.fixed, cell.mends)
        table = {name: table[name] for name in self.relation.keys}
        for column in table.values():
            column.flags.writeable = False  # cells and estimators keep parts of it
        self._tables[key] = table
        self._rows_kept += _LEAST_ROWS + height(table)
        while self._rows_kept > _ROWS_KEPT and self._tables:
            _, dropped = self._tables.popitem(last=False)
            self._rows_kept -= _LEAST_ROWS + height(dropped)
        return table

    def _key(self, cell: Cell) -> Key:
        problem, choices = cell.problem.values, cell.choices
        of_problem, of_choices = self._key_columns
        values = (*map(problem.get, of_problem), *map(choices.get, of_choices))
        return values, tuple(cell.fixed.items()), cell.mends, self._is_admitted(cell)

    def _is_admitted(self, cell: Cell) -> bool:
        """Return whether a cell keeps the rules that read none of its layouts, cached."""
        if cell.mends not in self._cell_rules:
            self._cell_rules[cell.mends] = self._rules_of_cells(cell.mends)
        rules, names = self._cell_rules[cell.mends]
        problem, choices = cell.problem.values, cell.choices
        read = tuple(problem.get(name, choices.get(name)) for name in names)
        key = cell.mends, read
        if key not in self._admitted:
            values = dict(zip(names, read, strict=True))
            self._admitted[key] = all(rule.is_kept(values) for rule in rules)
        return self._admitted[key]

    def _rules_of_cells(self, mends: Mends) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
        """Return the rules that read problem and choices alone, and the columns that they read."""
        of = self.estimator
        known = {*of.problem_columns, *of.choice_columns}
        rules = tuple(rule for rule in of.search_rules(mends) if known.issuperset(rule.needs))
        return rules, tuple(dict.fromkeys(need for rule in rules for need in rule.needs))

    @cached_property
    def _key_columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The problem columns and the choices that layouts depend on."""
        of = self.estimator
        named = (of.problem_columns, of.choice_columns)
        problem, choices = (tuple(n for n in some if n not in of.independent) for some in named)
        return problem, choices


class RelationSearches(Search):
    """One search for each relation of an estimator, each with a table of layouts."""

    def __init__(self, estimator: SearchedEstimator) -> None:
        self.of = {
            relation.name: TableSearch(estimator, relation) for relation in estimator.relations
        }

    def spaces(self, space: Space) -> Mapping[str, Space]:
        """Return for each relation that a study's space asks for its part of the space."""
        return dict.fromkeys(self.of, space)

    def cells(self, space: Space, catalog: Catalog, mends: Mends) -> Iterator[Cell]:
        """Yield the cells of each relation; see `contract.Search`."""
        for relation, part in self.spaces(space).items():
            yield from self.of[relation].cells(part, catalog, mends)

    def check(
        self, space: Space, catalog: Catalog, mends: Mends, on_checked: OnChecked = say_nothing
    ) -> None:
        """Raise if the space of a relation is faulty or empty; see `contract.Search`."""
        for relation, part in self.spaces(space).items():
            self.of[relation].check(part, catalog, mends, on_checked)

    def count(self, cell: Cell) -> int:
        """Return the number of layouts; see `contract.Search`."""
        return self.of[cell.relation].count(cell)

    def layouts(self, cell: Cell, max_rows: int) -> Iterator[Columns]:
        """Yield the layouts; see `contract.Search`."""
        return self.of[cell.relation].layouts(cell, max_rows)


def distinct(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Return one refusal a fault, without its row: combinations repeat a fault.

    A fault is in the place of its last refusal and has the hint of its first.
    """
    by_fault: dict[tuple[str, Scalar, str], Refusal] = {}
    for refusal in refusals:
        fault = (refusal.column, refusal.value, refusal.reason)
        by_fault[fault] = by_fault.pop(fault, replace(refusal, row=None))
    return list(by_fault.values())


class _Layouts:
    """Checks that a space has a layout, and one for each value that a study fixes.

    Attributes
    ----------
    is_settled
        Whether every value has a layout, so that further cells need not be counted.
    """

    def __init__(self, search: BaseSearch, space: Space, catalog: Catalog) -> None:
        self._search, self._catalog = search, catalog
        self._wanted = search.held_pairs(space)
        self._first: Cell | None = None
        self._asked: dict[Pair, Cell] = {}
        self._used: set[Pair] = set()
        self._has_layout = False
        self.is_settled = False

    def look_at(self, cells: Iterable[Cell], *, are_asked: bool = True) -> None:
        """Count the layouts of cells, up to the one that settles the question.

        Parameters
        ----------
        are_asked
            Whether the study asks for these cells by name.
        """
        for cell in cells:
            if self.is_settled:
                return
            self._first = self._first or cell
            pairs = list(self._search.held(cell).items())
            for pair in reversed(pairs) if are_asked else ():
                self._asked[pair] = self._asked.pop(pair, cell)
            if self._has_layout and self._used.issuperset(pairs):
                continue
            if self._search.count(cell):
                self._has_layout = True
                self._used.update(pairs)
                self.is_settled = self._used >= self._wanted

    def raise_if_empty(self) -> None:
        """Raise `EmptySpaceError` unless every value and the space have a layout."""
        lost = {pair: cell for pair, cell in self._asked.items() if pair not in self._used}
        if lost:
            refused = (self._search.why(cell, *pair, self._catalog) for pair, cell in lost.items())
            raise EmptySpaceError(distinct(refused))
        if not self._has_layout and self._first is not None:
            raise EmptySpaceError([self._search.empty(self._first)])


def chunks_of(space: Space, size: int) -> Iterator[dict[str, Array]]:
    """Yield the combinations of a space in chunks of at most `size`; see `combinations`."""
    total = math.prod(len(values) for values in space.values())
    for start in range(0, max(total, 1), size):
        yield combinations(space, start, min(start + size, total))


def combinations(space: Space, start: int = 0, end: int | None = None) -> dict[str, Array]:
    """Return combinations of values, one column a name, the last name fastest.

    Parameters
    ----------
    start, end
        The first of them and the one after the last; by default all.
    """
    total = math.prod(len(values) for values in space.values())
    place = np.arange(start, total if end is None else end)
    columns = {}
    stride = total
    for name, some in space.items():  # not unravel_index, which ends at 64 names
        if total:
            stride //= len(some)
        values = np.array([*some, None], dtype=object)[:-1]
        columns[name] = values[place // stride % len(some)] if total else values[:0]
    return columns


class SearchedEstimator(Estimator):
    """An estimator with a search: by default a cell's layouts are one table.

    A subclass defines `complete_problem`, `complete_layout` and `axes`; its rules prune the
    layouts. Batches and searches use the same defaults and rules.
    """

    search: Search

    system_columns: tuple[str, ...] = ()
    """Problem columns that a study gives under [system]."""

    required_in_space: Mapping[str, str] = MappingProxyType({})
    """Problem column that a study must give -> the hint where it does not."""

    independent: frozenset[str] = frozenset()
    """Problem columns and choices on which no layout depends."""

    searched_fastest: tuple[str, ...] = ()
    """Choices that vary fastest: cells that differ only in these share work in evaluation."""

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
        """Return the columns of a layout with their values, in the order in which a table grows."""
        raise NotImplementedError(f"{self.name} has neither `axes` nor `layouts_of`")

    def layouts_of(
        self, relation: Relation, values: Values, fixed: Mapping[str, Scalar], mends: Mends
    ) -> Columns:
        """Return every layout of a cell.

        Parameters
        ----------
        values
            Problem and choices; absent optional ones are None.
        fixed
            Key -> the one value that a study holds it to.
        """
        del relation
        table = enumerate_layouts(values, self.axes(values), self.search_rules(mends), fixed)
        return {
            name: column.astype(COLUMNS[name].dtype, copy=False) for name, column in table.items()
        }
