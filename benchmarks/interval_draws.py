"""The linear interval of a step against draws of all its constants at once.

`estimators.interval` moves one constant at a time. A step is a sum of maxima, so that two constants
may matter together where neither does alone. Draws see that. Each draw takes one quantile for each
cause, moves every constant of that cause to it, and evaluates the step anew.

Usage: ``python -m benchmarks.interval_draws [ROWS] [DRAWS]``. The rows are the published steps, and
layouts that fit, drawn evenly from the cells of study `training_step_grid`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array, Catalog, Cell, Columns, Mends, Relation
from estimators.estimator import Estimator
from estimators.inputs import limits_of
from estimators.interval import (
    COVERAGE,
    Interval,
    Moves,
    combined,
    constant_spreads,
    interval_term,
    moved,
    normal_quantile,
    steps_under,
)
from estimators.registry import get
from warehouse.calibrate.published import published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import resolve_rows
from warehouse.evaluate.profiles import cells_of_space
from warehouse.studies.study import load_study

STUDY = Path("studies/training_step_grid.toml")
ESTIMATOR = get(load_study(STUDY).estimator)
CATALOG = packaged_catalog()

NUM_DRAWS = 256
SEED = 20_240_101


def rows(num_rows: int) -> Columns:
    """Return resolved rows: every published step, and layouts of the study."""
    relation = ESTIMATOR.relations[0]
    published = resolve_rows(ESTIMATOR, relation, published_steps(), CATALOG, PUBLISHED).good
    own = len(published["seq_len"])
    if num_rows <= own:
        return {name: values[:num_rows] for name, values in published.items()}
    cells = [
        cell
        for space in load_study(STUDY).spaces
        for cell in cells_of_space(ESTIMATOR, space, CATALOG, PUBLISHED)
    ]
    generator = np.random.default_rng(1)
    wanted = 2 * num_rows // len(cells) + 1  # some cells have few layouts that fit
    parts = [published, *(_layouts(cell, wanted, generator) for cell in cells)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in published}
    others = generator.permutation(np.arange(own, len(columns["seq_len"])))
    chosen = np.concatenate([np.arange(own), others])[:num_rows]
    return {name: values[chosen] for name, values in columns.items()}


def _layouts(cell: Cell, wanted: int, generator: np.random.Generator) -> Columns:
    """Return some layouts of a cell that fit in memory, complete."""
    relation = ESTIMATOR.relations[0]
    if ESTIMATOR.search is None:
        raise TypeError(f"{ESTIMATOR.name} has no search")
    layouts = next(ESTIMATOR.search.layouts(cell, 1_000_000))
    height = len(layouts[relation.keys[0]])
    fits: Array = np.empty(height, dtype=bool)
    ESTIMATOR.estimate(relation, cell.values, layouts, PUBLISHED, {"fits_memory": fits}, CATALOG)
    chosen = generator.permutation(np.flatnonzero(fits))[:wanted]
    shared = (*ESTIMATOR.problem_columns, *ESTIMATOR.choice_columns)
    own = {name: _constant(name, cell.values.get(name), len(chosen)) for name in shared}
    return own | {name: np.asarray(layouts[name])[chosen] for name in relation.keys}


def _constant(name: str, value: Any, size: int) -> Array:
    dtype = COLUMNS[name].dtype
    if value is None:
        return np.full(size, None if dtype is np.object_ else np.nan)
    return np.full(size, value, dtype=dtype)


def latin_hypercube(num_draws: int, num_axes: int) -> Array:
    """Return points of the unit cube, one row a point: each axis has one in each of its slices.

    Source: McKay, Beckman and Conover, Technometrics 21 (1979) 239. Every run has the same points.
    """
    generator = np.random.default_rng(SEED)
    slices = np.array([generator.permutation(num_draws) for _ in range(num_axes)])
    return ((slices + generator.random(slices.shape)) / num_draws).T


def drawn_interval(
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    mends: Mends,
    catalog: Catalog,
    step: Array,
    moves: Sequence[Moves],
    num_draws: int = NUM_DRAWS,
) -> Interval:
    """Return the interval of the steps of resolved rows by draws.

    Parameters
    ----------
    step, moves
        As `estimators.interval.moved` returns them: they say which end of a range is slower.
    """
    causes = list(dict.fromkeys(each.spread.cause for each in moves))
    points = latin_hypercube(num_draws, len(causes) + 2)
    changes = [_change(moves, dict(zip(causes, point, strict=False)), columns) for point in points]
    seconds = np.array(list(steps_under(estimator, relation, columns, mends, catalog, changes)))
    share = estimator.constants.independent_share(relation, columns, mends, catalog)
    logs = np.log(seconds / step)
    logs += _term(catalog, "left_out", points[:, -2])[:, None]
    logs += _term(catalog, "product_error", points[:, -1])[:, None] * share
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail], axis=0)
    return Interval(step * np.exp(np.minimum(low, 0.0)), step * np.exp(np.maximum(high, 0.0)))


def _change(
    moves: Sequence[Moves], point: Mapping[str, float], columns: Columns
) -> dict[str, Array]:
    """Return every constant at its cause's quantile: above one half the step is slower."""
    return {
        each.spread.name: _moved(each, columns[each.spread.name], point[each.spread.cause])
        for each in moves
    }


def _moved(each: Moves, values: Array, quantile: float) -> Array:
    spread = each.spread
    given = values.astype(np.float64)
    is_low_slower = each.at_lowest > each.at_highest
    slower = np.where(is_low_slower, spread.lowest, spread.highest)
    faster = np.where(is_low_slower, spread.highest, spread.lowest)
    up = np.where(each.up > 0, slower, given)
    down = np.where(each.down > 0, faster, given)
    half_widths = normal_quantile(quantile)
    end = up if half_widths > 0 else down
    with np.errstate(all="ignore"):
        by_ratio = given * (end / given) ** abs(half_widths)
    by_difference = given + (end - given) * abs(half_widths)
    found = np.where((given > 0) & (end > 0), by_ratio, by_difference)
    # of a choice the last runs, as many as its share, are the others
    is_other = spread.is_choice & (quantile > 1 - np.nan_to_num(spread.other_share))
    other = np.where(
        np.abs(each.at_lowest) > np.abs(each.at_highest), spread.lowest, spread.highest
    )
    found = np.where(spread.is_choice, np.where(is_other, other, given), found)
    column = COLUMNS[spread.name]
    if limits_of(column):
        found = np.clip(found, column.minimum, column.maximum)
    return np.asarray(found)


def _term(catalog: Catalog, name: str, quantiles: Array) -> Array:
    value, low, high = np.log1p(np.array(interval_term(catalog, name)))
    z = np.array([normal_quantile(float(one)) for one in quantiles])
    return np.asarray(value + np.where(z > 0, (high - value) * z, (value - low) * z))


def main(num_rows: int = 1000, num_draws: int = NUM_DRAWS) -> None:
    """Print how far both intervals differ."""
    relation, columns = ESTIMATOR.relations[0], rows(num_rows)
    spreads = constant_spreads(ESTIMATOR, columns, CATALOG)
    step, moves = moved(ESTIMATOR, relation, columns, PUBLISHED, CATALOG, spreads)
    share = ESTIMATOR.constants.independent_share(relation, columns, PUBLISHED, CATALOG)
    linear = combined(step, moves, share, CATALOG)
    drawn = drawn_interval(ESTIMATOR, relation, columns, PUBLISHED, CATALOG, step, moves, num_draws)
    width = np.log(linear.high / linear.low)
    print(f"{len(step):,} rows, {num_draws} draws; mean width {np.expm1(width).mean():.1%}")
    print("end: linear over drawn, less one (5 %, median, 95 % of the rows)")
    for name in ("low", "high"):
        ratio = getattr(linear, name) / getattr(drawn, name) - 1
        print(f"{name:5}", " ".join(f"{q:+.1%}" for q in np.quantile(ratio, [0.05, 0.5, 0.95])))
    wider = width / np.log(drawn.high / drawn.low) - 1
    print("width", " ".join(f"{q:+.1%}" for q in np.quantile(wider, [0.05, 0.5, 0.95])))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
