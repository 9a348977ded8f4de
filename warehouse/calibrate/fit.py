"""Fit a few named constants to published steps, and predict steps that the fit has not seen.

The fit minimises the mean of the squared ln(predicted / published) over the rows. It evaluates a
grid within the bounds as one batch and zooms in: that is deterministic. A fit to all other rows
also predicts each row. That error says how good the fit is; the error on the fitted rows does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from estimators.contract import PUBLISHED, Array, Columns
from warehouse.errors import InputError
from warehouse.evaluate.inputs import estimated, taken
from warehouse.evaluate.profiles import Profile
from warehouse.show.formats import count

if TYPE_CHECKING:
    from estimators.contract import Catalog
    from estimators.estimator import Estimator

STEP = "step_seconds"
"""The output that is compared with what was measured."""

MAX_PARAMETERS = 3
"""Most parameters that are fitted at once: the grid grows exponentially with their number."""

POINTS = {1: 65, 2: 33, 3: 13}
"""Points of the grid along an axis, by the number of axes."""

TOLERANCE = 1e-5
"""The grid's last step, relative to the value."""

SHRINK = 0.3
"""Smallest factor of a zoom. The misfit has kinks where memory traffic takes over from matmuls; a
stronger zoom can lose its minimum."""

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


@dataclass
class Steps:
    """Published steps, and an estimator that predicts them under many settings of constants.

    Attributes
    ----------
    values
        Complete columns of the steps.
    published
        Their measured seconds.
    """

    estimator: Estimator
    values: Columns
    published: Array
    catalog: Catalog

    def __len__(self) -> int:
        return len(self.published)

    def taken(self, rows: Array) -> Steps:
        """Return some of the steps."""
        return replace(self, values=taken(self.values, rows), published=self.published[rows])

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
        values = {name: np.tile(column, size) for name, column in self.values.items()}
        values |= {name: np.repeat(column, len(self)) for name, column in settings.items()}
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
    lowest, highest = _bounds(parameters)
    least_size = np.array([parameter.scale for parameter in parameters])
    points = POINTS[len(parameters)]
    units = np.array(list(itertools.product(np.linspace(-1, 1, points), repeat=len(parameters))))
    grid = np.clip(lowest + (highest - lowest) * (units + 1) / 2, lowest, highest)
    misfit = _misfit(steps, parameters, grid)
    row = _least(misfit, grid, parameters)
    least, best = misfit[row], grid[row]
    window = (highest - lowest) * 2 / (points - 1)
    for _ in range(MAX_ZOOMS):
        turned = units @ _axes(steps, parameters, best, window).T
        grid = np.clip(best + turned * window, lowest, highest)
        misfit = _misfit(steps, parameters, grid)
        row = _least(misfit, grid, parameters)
        if misfit[row] < least:
            least, best = misfit[row], grid[row]
            if np.abs(units[row]).max() == 1:
                continue
        if np.all(window * 2 / (points - 1) <= TOLERANCE * np.maximum(np.abs(best), least_size)):
            break
        window = window * max(4 / (points - 1), SHRINK)
    return np.asarray(best)


def _bounds(parameters: Sequence[Parameter]) -> tuple[Array, Array]:
    lowest = np.array([parameter.lowest for parameter in parameters])
    return lowest, np.array([parameter.highest for parameter in parameters])


def _axes(steps: Steps, parameters: Sequence[Parameter], best: Array, window: Array) -> Array:
    """Return the axes of the misfit around a point, in units of the window: columns."""
    lowest, highest = _bounds(parameters)
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
    start = np.array([np.mean(list(parameter.defaults.values())) for parameter in parameters])
    tied = np.flatnonzero(misfit <= misfit.min() * (1 + 1e-12))
    return int(tied[np.argmin(np.abs(grid[tied] - start).sum(axis=1))])


def _misfit(steps: Steps, parameters: Sequence[Parameter], grid: Array) -> Array:
    predicted = steps.predict(settings_of(parameters, grid))
    with np.errstate(all="ignore"):
        squared = np.log(predicted / steps.published) ** 2
    return np.asarray(np.nan_to_num(squared.mean(axis=1), nan=np.inf))


def settings_of(parameters: Sequence[Parameter], grid: Array) -> dict[str, Array]:
    """Return every constant's values from those of the parameters, one row a setting."""
    return {
        name: values
        for parameter, values in zip(parameters, grid.T, strict=True)
        for name in parameter.places
    }


class FitErrors(NamedTuple):
    """Errors of predicted times, predicted / measured - 1, by the ends of their columns' names."""

    mean_absolute_relative_error: float
    max_absolute_relative_error: float
    bias: float


def errors_of(error: Array) -> FitErrors:
    """Return the mean size, the largest size and the mean of errors; zeros if there are none."""
    if not error.size:
        return FitErrors(0.0, 0.0, 0.0)
    return FitErrors(float(abs(error).mean()), float(abs(error).max()), float(error.mean()))


@dataclass(frozen=True)
class Fit:
    """Fitted values, and the steps that they predict.

    Attributes
    ----------
    values
        One value for each parameter.
    left_out_values
        The values fitted without one step: a row for each step.
    estimates
        Seconds of every step by the default constants (`untuned`), by the fitted ones (`fitted`)
        and by those fitted to the other steps (`left_out`).
    """

    parameters: tuple[Parameter, ...]
    values: Array
    left_out_values: Array
    published: Array
    estimates: Mapping[str, Array]

    @property
    def errors(self) -> dict[str, FitErrors]:
        """The errors of each estimate."""
        return {
            name: errors_of(seconds / self.published - 1)
            for name, seconds in self.estimates.items()
        }

    def is_at_bound(self, index: int) -> bool:
        """Return whether a parameter ended at one of its bounds."""
        parameter, value = self.parameters[index], self.values[index]
        close = TOLERANCE * (parameter.highest - parameter.lowest)
        return bool(min(value - parameter.lowest, parameter.highest - value) <= close)

    def profile(self, name: str, estimator: Estimator) -> Profile:
        """Return the fitted constants as a profile."""
        constants = {
            place: float(value)
            for parameter, value in zip(self.parameters, self.values, strict=True)
            for place in parameter.places.values()
        }
        return Profile(name, estimator.name, constants)


def calibrate(steps: Steps, parameters: Sequence[Parameter]) -> Fit:
    """Fit the parameters to all steps, and to all but each; refuse as few steps as parameters."""
    if not parameters:
        raise InputError("no constant is left to fit", "name one with --fit")
    if len(steps) <= len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
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
    estimates = {
        "untuned": steps.predict({})[0],
        "fitted": steps.predict(settings_of(parameters, values[None, :]))[0],
        "left_out": np.diagonal(steps.predict(settings_of(parameters, without))).copy(),
    }
    return Fit(tuple(parameters), values, without, steps.published, estimates)
