"""The interval of a step: nine in ten of the steps that the ranges of its constants admit.

The step is evaluated with one constant at a time at either end of its range. Table `step_constant`
has the ranges; each is taken for the middle nine tenths of a normal distribution.

- Constants with the same cause (table `step_constant_cause`) err together: their moves are added.
- Causes err independently: the squares of their moves are added. Moves to slower steps and moves to
  faster steps are summed separately.
- A choice of the program, such as an overlap that a flag switches, has no range. In a share of all
  runs the program makes the other choice: the interval covers the mixture of both.
- Products err independently: their common error falls with the root of their number.
- Row ``left_out`` of table `interval_term` makes the step longer, for effects outside the model.

The interval always contains the estimate. Source: first-order propagation of errors (JCGM 100:2008,
section 5), in the logarithm of the step and separately for both signs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Columns, Mends, Record, Relation, Scalar
from estimators.estimator import Estimator
from estimators.values import Real

STEP = "step_seconds"

ENDS = ("low_step_seconds", "high_step_seconds")
"""Columns of an interval."""

STACKED_ROWS = 16_384
"""Rows evaluated at a time. Variations of few rows are stacked, because each call has a fixed
cost."""

COVERAGE = 0.9
"""Share of the probability within an interval."""

QUANTILE = 1.6448536269514722
"""Standard deviations from the median to the 95 % quantile of a normal distribution."""

EXACT = 4
"""Largest number of alternatives that are enumerated; weaker ones add their variance."""

_HALVINGS = 40
_NARROW = 1e-12

Changes = Mapping[str, Array]
"""Column -> values that replace the given ones."""

Variation = tuple[Changes, Array]
"""Changes, and the numbers of the rows that they change."""

System = tuple[Scalar, Scalar]
"""An accelerator and a framework."""


class Interval(NamedTuple):
    """Seconds of a step at both ends of its interval, one element a row."""

    low: Array
    high: Array


@dataclass(frozen=True)
class Spread:
    """A constant's range in each row.

    Attributes
    ----------
    lowest, highest
        Ends of the range; both are the row's value if that is not the default of its system.
    cause
        Constants with the same cause err together.
    other_share
        Share of all runs whose program makes the other choice; NaN where the constant has a range.
    """

    name: str
    lowest: Array
    highest: Array
    cause: str
    other_share: Array

    @property
    def is_choice(self) -> Array:
        """Whether it is a choice of the program in each row."""
        return ~np.isnan(self.other_share)


@dataclass(frozen=True)
class Moves:
    """Moves by a constant: ln(step at an end of its range / step), for both ends."""

    spread: Spread
    at_lowest: Array
    at_highest: Array

    @property
    def up(self) -> Array:
        """The move to the slower end, 0 where neither end is slower."""
        return np.maximum(np.maximum(self.at_lowest, self.at_highest), 0.0)

    @property
    def down(self) -> Array:
        """The size of the move to the faster end, 0 where neither end is faster."""
        return -np.minimum(np.minimum(self.at_lowest, self.at_highest), 0.0)

    @property
    def to_other(self) -> Array:
        """The larger move: one end of a choice's range is the choice itself, and moves nothing."""
        is_low = np.abs(self.at_lowest) > np.abs(self.at_highest)
        return np.where(is_low, self.at_lowest, self.at_highest)


def has_interval(estimator: Estimator, relation: Relation) -> bool:
    """Return whether the rows of a relation have an interval: a step that depends on constants."""
    return bool(estimator.constants.names) and STEP in relation.outputs


def interval(
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    mends: Mends,
    catalog: Catalog,
    pinned: Collection[str] = (),
) -> Interval:
    """Return the interval of the step of resolved rows.

    Parameters
    ----------
    columns
        Problem, choice and key columns, complete.
    pinned
        Constants that are known: they have no range.
    """
    spreads = constant_spreads(estimator, columns, catalog, pinned)
    step, moves = moved(estimator, relation, columns, mends, catalog, spreads)
    share = estimator.constants.independent_share(relation, columns, mends, catalog)
    return combined(step, moves, share, catalog)


def place_of(estimator: Estimator, catalog: Catalog, constant: str, system: System) -> str | None:
    """Return the row of `step_constant` that a system takes a constant from."""
    accelerator, framework = system
    places = estimator.constants.places(catalog, framework, accelerator)
    return _most_specific(catalog.tables.get("step_constant", {}), constant, places)


def _most_specific(table: Mapping[str, Record], constant: str, places: Sequence[str]) -> str | None:
    """Return the key of a constant at the first place that the table has; None without one."""
    for place in places:
        if constant + place in table:
            return constant + place
    return None


def constant_spreads(
    estimator: Estimator, columns: Columns, catalog: Catalog, pinned: Collection[str] = ()
) -> list[Spread]:
    """Return the constants that have a range in any row.

    A constant has a range in a row if its value there is the default of the row's system: given,
    stored or filled in. Other inputs may set the range (`Constants.ends`).
    """
    ranges = catalog.tables.get("step_constant", {})
    causes = catalog.tables.get("step_constant_cause", {})
    systems = [
        (estimator.constants.places(catalog, framework, accelerator), np.array(rows))
        for (accelerator, framework), rows in _systems(columns).items()
    ]
    spreads = []
    for name in estimator.constants.names:
        if name in pinned:
            continue
        values = columns[name].astype(np.float64)
        lowest, highest, share = values.copy(), values.copy(), np.full(len(values), np.nan)
        least, most = estimator.constants.ends(name, columns, catalog)
        for places, rows in systems:
            place = _most_specific(ranges, name, places)
            other_share = _other_share(causes, name, places)
            if place is None or other_share == 0:
                continue
            default, low, high = _value_and_ends(ranges[place])
            spread = rows[np.isclose(values[rows], default, rtol=1e-9)]
            lowest[spread] = np.where(np.isnan(least[spread]), low, least[spread])
            highest[spread] = np.where(np.isnan(most[spread]), high, most[spread])
            share[spread] = other_share
        if not (np.array_equal(lowest, values) and np.array_equal(highest, values)):
            cause = str(causes.get(name, {}).get("cause") or name)
            spreads.append(Spread(name, lowest, highest, cause, share))
    return spreads


def _other_share(causes: Mapping[str, Record], constant: str, places: Sequence[str]) -> float:
    """Return the share of runs that choose otherwise: NaN for a range, 0 for a certain flag."""
    place = _most_specific(causes, constant, places)
    share = None if place is None else causes[place].get("other_share")
    if share is None:
        return 0.0 if COLUMNS[constant].kind == "bool" else np.nan
    return float(share)


def _systems(columns: Columns) -> dict[System, list[int]]:
    """Return the row numbers of each system."""
    unknown = np.full(len(next(iter(columns.values()))), None)
    accelerators = columns.get("accelerator", unknown).tolist()
    frameworks = columns.get("framework", unknown).tolist()
    rows = defaultdict[System, list[int]](list)
    for row, system in enumerate(zip(accelerators, frameworks, strict=True)):
        rows[system].append(row)
    return rows


def _value_and_ends(record: Record) -> tuple[float, float, float]:
    """Return the value of a row with a range, and the least and largest one; 0 where missing."""
    value, low, high = map(record.get, ("constant_value", "lowest_value", "highest_value"))
    return float(value or 0), float(low or 0), float(high or 0)


def moved(
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    mends: Mends,
    catalog: Catalog,
    spreads: Sequence[Spread],
) -> tuple[Array, list[Moves]]:
    """Return the step's seconds, and how each constant moves their logarithm."""
    changes: list[Changes] = [{}]
    for spread in spreads:
        changes += [{spread.name: spread.lowest}, {spread.name: spread.highest}]
    seconds = steps_under(estimator, relation, columns, mends, catalog, changes)
    step = next(seconds)
    with np.errstate(all="ignore"):
        logs = [
            np.nan_to_num(np.log(changed / step), nan=0.0, posinf=0.0, neginf=0.0)
            for changed in seconds
        ]
    return step, [Moves(*ends) for ends in zip(spreads, logs[::2], logs[1::2], strict=True)]


def steps_under(
    estimator: Estimator,
    relation: Relation,
    columns: Columns,
    mends: Mends,
    catalog: Catalog,
    changes: Iterable[Changes],
) -> Iterator[Array]:
    """Yield the seconds of the step of every row under each set of changes.

    A set is evaluated only for the rows that it changes: a constant has a range on few systems.
    """
    shared = (*estimator.problem_columns, *estimator.choice_columns, *relation.keys)
    read = {name: columns[name] for name in shared if name in columns}
    every = np.arange(len(next(iter(read.values()))))
    variations: list[Variation] = [({}, every)]
    for change in changes:
        differs = [
            values.astype(read[n].dtype) != read[n] for n, values in change.items() if n in read
        ]
        variations.append((change, np.flatnonzero(np.any(differs, axis=0))))
    unchanged = None
    for group in _groups(variations):
        taken = np.concatenate([rows for _, rows in group])
        ends = np.cumsum([len(rows) for _, rows in group])
        stacked = {name: values[taken] for name, values in read.items()}
        for (change, rows), end in zip(group, ends, strict=True):
            for name in change.keys() & stacked.keys():
                stacked[name][end - len(rows) : end] = change[name][rows]
        keys = {name: stacked[name] for name in relation.keys}
        seconds = np.empty(len(taken), dtype=np.float64)
        estimator.estimate(relation, stacked, keys, mends, {STEP: seconds}, catalog)
        for (_, rows), changed in zip(group, np.split(seconds, ends[:-1]), strict=True):
            if unchanged is None:
                unchanged = changed
                continue
            steps = unchanged.copy()
            steps[rows] = changed
            yield steps


def _groups(variations: Iterable[Variation]) -> Iterator[list[Variation]]:
    """Yield groups of variations that are evaluated together."""
    group: list[Variation] = []
    height = 0
    for change, rows in variations:
        if len(rows) and height + len(rows) > STACKED_ROWS and group:
            yield group
            group, height = [], 0
        group.append((change, rows))
        height += len(rows)
    yield group


def combined(step: Array, moves: Sequence[Moves], share: Array, catalog: Catalog) -> Interval:
    """Return the interval of steps from the moves of their constants.

    Parameters
    ----------
    share
        Share with independent errors of the parts; see `Constants.independent_share`.
    """
    up = defaultdict[str, Real](float)
    down = defaultdict[str, Real](float)
    shift = defaultdict[str, Real](float)
    other: dict[str, Array] = {}
    for move in moves:
        cause, is_choice = move.spread.cause, move.spread.is_choice
        up[cause] += np.where(is_choice, 0.0, move.up)
        down[cause] += np.where(is_choice, 0.0, move.down)
        if is_choice.any():
            shift[cause] += np.where(is_choice, move.to_other, 0.0)
            share_of_runs = np.nan_to_num(move.spread.other_share)
            other[cause] = np.maximum(other.get(cause, 0.0), share_of_runs)
    left_out = np.log1p(interval_term(catalog, "left_out"))
    product_error = interval_term(catalog, "product_error")
    ups = [*up.values(), left_out[2] - left_out[0], np.log1p(product_error[2] * share)]
    downs = [*down.values(), left_out[0] - left_out[1], -np.log1p(product_error[1] * share)]
    down_width, up_width = (np.sqrt(sum(map(np.square, parts))) for parts in (downs, ups))
    low, high = middle(down_width, up_width, list(shift.values()), list(other.values()))
    # with likely alternatives the quantiles may exclude the estimate; the interval contains it
    return Interval(
        step * np.exp(np.minimum(left_out[0] + low, 0.0)),
        step * np.exp(np.maximum(left_out[0] + high, 0.0)),
    )


def interval_term(catalog: Catalog, name: str) -> tuple[float, float, float]:
    """Return value, least and largest value of a row of table `interval_term`; zeros without it."""
    return _value_and_ends(catalog.tables.get("interval_term", {}).get(name, {}))


def fit_probability(memory: Array, capacity: Real, catalog: Catalog) -> Array:
    """Return the probability that a run fits in the memory of a device.

    ln(measured / estimated memory) is normal, with the mean and deviation of the published rows:
    row ``memory_error`` of table `interval_term`, whose ends are the middle nine tenths. Without a
    deviation the probability is 0 or 1.
    """
    mean, low, high = interval_term(catalog, "memory_error")
    deviation = (high - low) / (2 * QUANTILE)
    with np.errstate(all="ignore"):
        room = np.log(np.asarray(capacity) / memory) - mean
        if deviation <= 0:
            return np.where(room >= 0, 1.0, 0.0)
        return normal_cumulative(room / deviation)


def fit_risk(probability: Array, least: float) -> Array:
    """Return the chance that a run does not fit; 0 where its probability to fit is `least` or more.

    Layouts are compared by it first, then by time: macro ``fit_risk`` is the same in SQL.
    """
    return np.where(probability >= least, 0.0, 1 - probability)


def memory_that_fits(probability: float, capacity: float, catalog: Catalog) -> float:
    """Return the estimated memory that fits in a device with a given probability, in bytes.

    It inverts `fit_probability`.

    Parameters
    ----------
    probability
        Above 0 and below 1.
    capacity
        Memory of the device, in bytes.
    """
    mean, low, high = interval_term(catalog, "memory_error")
    deviation = max(high - low, 0.0) / (2 * QUANTILE)
    return float(capacity * np.exp(-mean - deviation * NormalDist().inv_cdf(probability)))


def normal_cumulative(z: Array) -> Array:
    """Return the cumulative normal distribution, within 1e-7.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
    """
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(z < 0, tail, 1 - tail))


def normal_quantile(share: float) -> float:
    """Return a quantile of the normal distribution in half-widths: 1 at 0.95."""
    return NormalDist().inv_cdf(share) / QUANTILE


def middle(
    down: Array, up: Array, shifts: Sequence[Real], shares: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the middle nine tenths of a quantity around 0, one element a row.

    Parameters
    ----------
    down, up
        Half-widths below and above the median.
    shifts
        Moves of the median, each by an alternative that is independent of the others.
    shares
        Probability of each alternative.
    """
    down, up = np.maximum(down, _NARROW), np.maximum(up, _NARROW)
    if not shifts:
        return -down, up
    moves, weights = np.array(shifts), np.array(shares)
    order = np.argsort(-np.abs(moves * np.sqrt(weights * (1 - weights))), axis=0)
    moves = np.take_along_axis(moves, order, axis=0)
    weights = np.take_along_axis(weights, order, axis=0)
    # half-width of a move that is made or not, by its variance
    rest = QUANTILE * moves[EXACT:] * np.sqrt(weights[EXACT:] * (1 - weights[EXACT:]))
    up = np.sqrt(up**2 + (np.maximum(rest, 0) ** 2).sum(axis=0))
    down = np.sqrt(down**2 + (np.minimum(rest, 0) ** 2).sum(axis=0))
    # median and probability of every combination of the others
    centres, masses = np.zeros((1, moves.shape[1])), np.ones((1, moves.shape[1]))
    for move, weight in zip(moves[:EXACT], weights[:EXACT], strict=True):
        centres = np.concatenate([centres, centres + move])
        masses = np.concatenate([masses * (1 - weight), masses * weight])
    tail = (1 - COVERAGE) / 2
    return (
        _quantile(tail, down, up, centres, masses),
        _quantile(1 - tail, down, up, centres, masses),
    )


def _quantile(share: float, down: Array, up: Array, centres: Array, masses: Array) -> Array:
    """Return a quantile of the mixture, by halving."""
    low = centres.min(axis=0) - 4 * down
    high = centres.max(axis=0) + 4 * up
    for _ in range(_HALVINGS):
        half = (low + high) / 2
        distance = half - centres
        z = QUANTILE * distance / np.where(distance < 0, down, up)
        is_below = (masses * normal_cumulative(z)).sum(axis=0) < share
        low, high = np.where(is_below, half, low), np.where(is_below, high, half)
    return np.asarray((low + high) / 2)
