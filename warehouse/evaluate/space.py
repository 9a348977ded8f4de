"""Every layout of one problem, evaluated in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from estimators.contract import Array, Cell, Mends, Problem, Scalar
from warehouse.database.record_batches import CHUNK_ROWS, keep_freed_memory, num_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from estimators.contract import Catalog, Columns, Relation
    from estimators.estimator import Estimator


def named_choices(estimator: Estimator) -> dict[str, tuple[Scalar, ...]]:
    """Return the searched choices that a study must name to search all of their values."""
    by_default = estimator.searched_by_default
    return {n: v for n, v in estimator.searched_choices.items() if n not in by_default}


def cells_of_problem(
    estimator: Estimator,
    relation: Relation,
    values: Mapping[str, Scalar],
    mends: Mends,
    held: Mapping[str, Scalar] = MappingProxyType({}),
) -> list[Cell]:
    """Return the cells that together have every layout of a problem that has the `held` values.

    `values` are those of the problem, and the choices of one of its layouts. Choices that are not
    searched keep their value if it is compatible with the others.
    """
    problem = Problem({name: values[name] for name in estimator.problem_columns})
    given = {name: held.get(name, values[name]) for name in estimator.choice_columns}
    searched = {n: some for n, some in estimator.searched_choices.items() if n not in held}
    neutral = estimator.neutral_choices if estimator.search is None else estimator.search.neutral
    cells = []
    for combination in itertools.product(*searched.values()):
        choices = estimator.consistent_choices(
            {**given, **dict(zip(searched, combination, strict=True))}
        )
        cells.append(
            Cell(
                estimator.name,
                estimator.version,
                relation.name,
                problem,
                mends,
                choices,
                {name: held[name] for name in relation.keys if name in held},
                neutral=neutral,
            )
        )
    return list(estimator.with_idle_layouts(mends, lambda: cells))


OnEvaluated = Callable[[int, int], None]
"""Takes the number of layouts that are evaluated, and of all."""


@dataclass(frozen=True)
class Layouts:
    """Every layout of some cells, in the cells' order: keys and results, one element a layout.

    A choice is that of the layout's cell: one value a cell, not one a row. Each cell has the number
    of its first layout.
    """

    estimator: Estimator
    relation: Relation
    catalog: Catalog
    columns: Mapping[str, Array]
    cells: Sequence[tuple[Cell, int]]

    def __len__(self) -> int:
        """Return the number of layouts."""
        return len(next(iter(self.columns.values())))

    def differs(self, name: str, value: Scalar, rows: Array) -> Array:
        """Return whether some layouts have another value of a key or of a choice."""
        if name in self.columns:
            return np.asarray(self.columns[name][rows] != value)
        of_cell = np.array([cell.choices[name] != value for cell, _ in self.cells], dtype=bool)
        return np.asarray(of_cell[self._cell_of(rows)])

    def row(self, row: int) -> dict[str, Scalar]:
        """Return keys, choices and results of a layout."""
        values = {name: column[row].item() for name, column in self.columns.items()}
        cell, _ = self.cells[int(self._cell_of(np.array(row)))]
        keys = {name: values.pop(name) for name in self.relation.keys if name in values}
        return {**keys, **cell.choices, **values}

    def more_of(self, rows: Iterable[int], names: Iterable[str]) -> dict[int, dict[str, Scalar]]:
        """Return further results of some layouts, by their number.

        The pieces in which they lie are evaluated again as they were, so that the results are those
        that all layouts would have, to the last bit.
        """
        wanted, names = np.unique(np.fromiter(rows, np.int64)), tuple(names)
        results: dict[int, dict[str, Scalar]] = {}
        for cell, piece, layouts in _pieces(self.estimator, self.cells):
            here = wanted[(wanted >= piece.start) & (wanted < piece.stop)]
            if not len(here):
                continue
            out = _allocated(self.relation, names, piece.stop - piece.start)
            self.estimator.estimate(
                self.relation, cell.values, layouts, cell.mends, out, self.catalog
            )
            for row in here.tolist():
                results[row] = {name: out[name][row - piece.start].item() for name in names}
        return results

    def _cell_of(self, rows: Array) -> Array:
        begins = [begin for _, begin in self.cells]
        return np.searchsorted(begins, rows, side="right") - 1


def evaluated(
    estimator: Estimator,
    relation: Relation,
    cells: Iterable[Cell],
    names: Iterable[str],
    catalog: Catalog,
    on_evaluated: OnEvaluated | None = None,
) -> Layouts:
    """Return every layout of `cells` with some keys and outputs of the estimator, evaluated."""
    keep_freed_memory()
    search = estimator.search
    counted = [] if search is None else [(cell, search.count(cell)) for cell in cells]
    counted = [(cell, count) for cell, count in counted if count]
    begins = np.cumsum([0, *(count for _, count in counted)]).tolist()
    placed = [(cell, begin) for (cell, _), begin in zip(counted, begins, strict=False)]
    columns, done = _allocated(relation, names, begins[-1]), 0
    for cell, rows, layouts in _pieces(estimator, placed):
        out = {name: column[rows] for name, column in columns.items()}
        estimator.estimate(relation, cell.values, layouts, cell.mends, out, catalog)
        done += rows.stop - rows.start
        if on_evaluated is not None:
            on_evaluated(done, begins[-1])
    return Layouts(estimator, relation, catalog, columns, placed)


def _allocated(relation: Relation, names: Iterable[str], size: int) -> dict[str, Array]:
    return {name: np.empty(size, relation.column(name).dtype) for name in names}


def _pieces(
    estimator: Estimator, cells: Sequence[tuple[Cell, int]]
) -> Iterator[tuple[Cell, slice, Columns]]:
    """Yield the layouts of cells in pieces, those of all cells in turn, with their rows.

    Cells that differ in one choice share most of the figures of a piece. The estimator keeps these
    until the next piece.
    """
    search = estimator.search
    if search is None:
        return
    ends = [begin for _, begin in cells]
    pieces = (search.layouts(cell, CHUNK_ROWS) for cell, _ in cells)
    for several in itertools.zip_longest(*pieces):
        for number, layouts in enumerate(several):
            if layouts is not None:
                rows = slice(ends[number], ends[number] + num_rows(layouts))
                ends[number] = rows.stop
                yield cells[number][0], rows, layouts
        estimator.forget()
