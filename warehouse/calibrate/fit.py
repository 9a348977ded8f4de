"""Fit a few named constants to published steps, and predict steps that the fit has not seen.

The fit minimises the mean of the squared ln(predicted / published) over the rows. It evaluates a
grid within the bounds as one batch and zooms in: that is deterministic. A fit to all other rows
also predicts each row. That error says how good the fit is; the error on the fitted rows does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.columns import COLUMNS
from estimators.contract import PUBLISHED, Array, Columns
from warehouse.errors import InputError
from warehouse.evaluate.inputs import estimated, taken
from warehouse.evaluate.profiles import Profile
from warehouse.show.formats import count

if TYPE_CHECKING:
    from estimators.contract import Catalog, Estimator

STEP = "step_seconds"
"""The output that is compared with what was measured."""

MAX_PARAMETERS = 3
"""Most parameters that are fitted at once: the grid grows exponentially with their number."""

POINTS = {1: 65, 2: 33, 3: 13}
"""Points of the grid along an axis, by the number of axes."""

TOLERANCE = 1e-5
"""The grid's last step, relative to the value."""

SHRINK = 0.3
"""Smallest factor of a zoom. The misfit has creases where memory traffic takes over from
products; the next grid must still contain the floor of the crease."""

MAX_ZOOMS = 200
BLOCK_ROWS = 65_536
"""Rows evaluated at a time."""


@dataclass(frozen=True)
class Parameter:
    """A number that is fitted, and the constants that take it.

    Attributes
    ----------
    name
        The name that the user gave.
    places
        Constant -> its row of table `step_constant`.
    defaults
        Constant -> its value before the fit.
    lowest, highest
        The bounds.
    """

    name: str
    places: Mapping[str, str]
    defaults: Mapping[str, float]
    lowest: float
    highest: float

    @property
    def scale(self) -> float:
        """Size of the value, for the tolerance where the value is zero."""
        return max(map(abs, self.defaults.values())) or self.highest - self.lowest


class Steps:
    """Published steps, and an estimator that predicts them under many settings of constants.

    Parameters
    ----------
    resolved
        Complete columns of the steps.
    published
        Their measured seconds.
    catalog
        The reference tables.
    """

    def __init__(
        self, estimator: Estimator, resolved: Columns, published: Array, catalog: Catalog
    ) -> None:
        self.estimator = estimator
        self.values = resolved
        self.published = published
        self.catalog = catalog

    def __len__(self) -> int:
        return len(self.published)

    def taken(self, rows: Array) -> Steps:
        """Return some of the steps."""
        columns = taken(self.values, rows)
        return Steps(self.estimator, columns, self.published[rows], self.catalog)

    def predict(self, settings: Mapping[str, Array]) -> Array:
        """Return the seconds of every step (columns) under each setting of constants (rows)."""
        size = len(next(iter(settings.values()))) if settings else 1
        some = max(BLOCK_ROWS // len(self), 1)
        parts = []
        for start in range(0, size, some):
            part = {name: values[start : start + some] for name, values in settings.items()}
            parts.append(self._block(part, min(some, size - start)))
        return np.concatenate(parts)

    def _block(self, settings: Mapping[str, Array], size: int) -> Array:
        values = {name: np.tile(own, size) for name, own in self.values.items()}
        values |= {name: np.repeat(own, len(self)) for name, own in settings.items()}
        relation = self.estimator.relations[0]
        seconds = estimated(self.estimator, relation, values, PUBLISHED, [STEP], self.catalog)[STEP]
        return seconds.reshape(size, len(self))


def fit(steps: Steps, parameters: Sequence[Parameter]) -> Array:
    """Return the values of the parameters that predict the steps best, within their bounds.

    The first grid spans the bounds. Each next one spans two steps of the last around its best
    point, until a step is below `TOLERANCE`. Its axes are those of the misfit's valley: where two
    constants have nearly the same effect, the zoom would otherwise stop short of the best point.
    If the best point lies at a grid's edge, the next grid moves there and keeps its size.
    """
    lowest = np.array([each.lowest for each in parameters])
    highest = np.array([each.highest for each in parameters])
    least_size = np.array([each.scale for each in parameters])
    points = POINTS[len(parameters)]
    units = np.array(list(itertools.product(np.linspace(-1, 1, points), repeat=len(parameters))))
    grid = np.clip(lowest + (highest - lowest) * (units + 1) / 2, lowest, highest)
    misfit = _misfit(steps, parameters, grid)
    found = _least(misfit, grid, parameters)
    least, best = misfit[found], grid[found]
    window = (highest - lowest) * 2 / (points - 1)
    for _ in range(MAX_ZOOMS):
        turned = units @ _axes(steps, parameters, best, window).T
        grid = np.clip(best + turned * window, lowest, highest)
        misfit = _misfit(steps, parameters, grid)
        found = _least(misfit, grid, parameters)
        is_edge = np.abs(units[found]).max() == 1 and misfit[found] < least
        if misfit[found] < least:
            least, best = misfit[found], grid[found]
        if is_edge:
            continue
        if np.all(window * 2 / (points - 1) <= TOLERANCE * np.maximum(np.abs(best), least_size)):
            break
        window = window * max(4 / (points - 1), SHRINK)
    return np.asarray(best)


def _axes(steps: Steps, parameters: Sequence[Parameter], best: Array, window: Array) -> Array:
    """Return the axes of the misfit around a point, in units of the window: columns."""
    lowest = np.array([each.lowest for each in parameters])
    highest = np.array([each.highest for each in parameters])
    ahead = np.minimum(best + np.diag(window) / 4, highest)
    behind = np.maximum(best - np.diag(window) / 4, lowest)
    predicted = steps.predict(settings_of(parameters, np.concatenate([ahead, behind])))
    size = len(parameters)
    with np.errstate(all="ignore"):
        apart = np.log(predicted[:size] / predicted[size:])
        slopes = apart * (window / np.diag(ahead - behind))[:, None]
    slopes = np.nan_to_num(slopes, posinf=0.0, neginf=0.0)
    return np.asarray(np.linalg.eigh(slopes @ slopes.T)[1])


def _least(misfit: Array, grid: Array, parameters: Sequence[Parameter]) -> int:
    """Return the point of least misfit; of equal ones the nearest to the default constants."""
    start = np.array([np.mean(list(each.defaults.values())) for each in parameters])
    tied = np.flatnonzero(misfit <= misfit.min() * (1 + 1e-12))
    return int(tied[np.argmin(np.abs(grid[tied] - start).sum(axis=1))])


def _misfit(steps: Steps, parameters: Sequence[Parameter], grid: Array) -> Array:
    predicted = steps.predict(settings_of(parameters, grid))
    with np.errstate(all="ignore"):
        squared = np.log(predicted / steps.published) ** 2
    return np.asarray(np.nan_to_num(squared.mean(axis=1), nan=np.inf))


def settings_of(parameters: Sequence[Parameter], grid: Array) -> dict[str, Array]:
    """Return every constant's values from those of the parameters, one row a setting."""
    return {name: grid[:, place] for place, each in enumerate(parameters) for name in each.places}


@dataclass(frozen=True)
class Errors:
    """Mean size, largest size and mean of predicted / published - 1."""

    mean: float
    worst: float
    bias: float


def errors_of(predicted: Array, published: Array) -> Errors:
    """Return the errors of predicted times."""
    error = predicted / published - 1
    return Errors(float(abs(error).mean()), float(abs(error).max()), float(error.mean()))


@dataclass(frozen=True)
class Fit:
    """Fitted values, and the steps that they predict.

    Attributes
    ----------
    values
        One value for each parameter.
    left_out_values
        The values fitted without one step: a row for each step.
    untuned, fitted, left_out
        Seconds of every step: by the default constants, by the fitted ones, and by those fitted
        to the other steps.
    """

    parameters: tuple[Parameter, ...]
    values: Array
    left_out_values: Array
    published: Array
    untuned: Array
    fitted: Array
    left_out: Array

    @property
    def estimates(self) -> dict[str, Array]:
        """Return the three predictions by name."""
        return {"untuned": self.untuned, "fitted": self.fitted, "left_out": self.left_out}

    def is_at_bound(self, place: int) -> bool:
        """Return whether a parameter ended at one of its bounds."""
        each, value = self.parameters[place], self.values[place]
        close = TOLERANCE * (each.highest - each.lowest)
        return bool(min(value - each.lowest, each.highest - value) <= close)

    def profile(self, name: str, estimator: Estimator) -> Profile:
        """Return the fitted constants as a profile."""
        constants = {
            place: float(value)
            for each, value in zip(self.parameters, self.values, strict=True)
            for place in each.places.values()
        }
        return Profile(name, estimator.name, constants)


def calibrate(steps: Steps, parameters: Sequence[Parameter]) -> Fit:
    """Fit the parameters to all steps, and to all but each.

    Raises
    ------
    InputError
        If there are not more steps than parameters.
    """
    if not parameters:
        raise InputError("no constant is left to fit", "name one with --fit")
    if len(steps) <= len(parameters):
        names = ", ".join(each.name for each in parameters)
        hint = (
            "give more rows" if len(parameters) == 1 else "give more rows, or --fit fewer constants"
        )
        raise InputError(
            f"to fit {count(len(parameters), 'constant')} ({names}), at least "
            f"{len(parameters) + 1} rows are needed; given: {len(steps)}",
            hint,
        )
    every = np.arange(len(steps))
    values = fit(steps, parameters)
    without = np.array([fit(steps.taken(every != row), parameters) for row in every])
    return Fit(
        tuple(parameters),
        values,
        without,
        steps.published,
        untuned=steps.predict({})[0],
        fitted=steps.predict(settings_of(parameters, values[None, :]))[0],
        left_out=np.diagonal(steps.predict(settings_of(parameters, without))).copy(),
    )


def is_real(constant: str) -> bool:
    """Return whether a constant is a real number: flags and counts are not fitted."""
    return constant in COLUMNS and COLUMNS[constant].kind == "float"
