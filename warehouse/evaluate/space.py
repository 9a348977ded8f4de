"""Every layout of one problem, evaluated in memory."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Array, Cell, Mends, Problem, Scalar
from estimators.idle import with_idle_layouts
from warehouse.database.pieces import CHUNK_ROWS, num_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from estimators.contract import Catalog, Estimator, Relation


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
    """Return the cells that together have every layout of a problem.

    Parameters
    ----------
    values
        The problem's values and the choices of one of its layouts. Choices that are not searched
        keep their value if it is compatible with the others.
    held
        Choices and layout columns with the value that every layout must have.
    """
    problem = Problem({name: _plain(name, values[name]) for name in estimator.problem_columns})
    own = {name: _plain(name, held.get(name, values[name])) for name in estimator.choice_columns}
    every = estimator.searched_choices
    searched = {name: some for name, some in every.items() if name not in held}
    cells = []
    for combination in itertools.product(*searched.values()):
        choices = estimator.consistent_choices(
            {**own, **dict(zip(searched, combination, strict=True))}
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
                neutral=estimator.neutral_choices,
            )
        )
    return list(with_idle_layouts(estimator, lambda: cells))


def _plain(name: str, value: Scalar) -> Scalar:
    """Return a value as a search has it: whole numbers as int, also in optional columns."""
    return int(value) if isinstance(value, float) and COLUMNS[name].kind == "int" else value


def evaluated(
    estimator: Estimator,
    relation: Relation,
    cells: Iterable[Cell],
    names: Iterable[str],
    catalog: Catalog,
) -> dict[str, Array]:
    """Return columns of every layout of `cells`, in order.

    Parameters
    ----------
    names
        Keys, choices and outputs of the estimator.
    """
    names = tuple(names)
    computed = {n: relation.column(n).dtype for n in names if n not in estimator.choice_columns}
    parts: dict[str, list[Array]] = {name: [] for name in names}
    search = estimator.search
    for cell in cells:
        if search is None:
            break
        for layouts in search.layouts(cell, CHUNK_ROWS):
            size = num_rows(layouts)
            out: dict[str, Any] = {name: np.empty(size, dtype) for name, dtype in computed.items()}
            estimator.estimate(relation, cell.values, layouts, cell.mends, out, catalog)
            for name in names:
                column = out[name] if name in out else np.full(size, cell.choices[name], object)
                parts[name].append(column)
    return {
        name: np.concatenate(columns) if columns else np.empty(0, computed.get(name, object))
        for name, columns in parts.items()
    }
