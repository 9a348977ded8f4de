"""Fit the constants of kernels to timings of a machine: one factor for each kind of kernel.

A factor is the measured over the estimated time. Nothing is fitted to steps. Each tenth of the rows
is also predicted with the factors of the other rows.

The kinds of a product multiply: a factor is the median of its rows, after those of the kinds before
it. The parts of a collective add up: their factors are those with the least squares of the relative
errors, ``sum over rows of (sum over parts of factor x part / measured - 1) ^ 2``. If several
solutions are equally good, as with messages of one size, the one nearest to 1 is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from estimators.catalog import product_of
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, RefusedError
from estimators.inputs import limits_of
from warehouse.calibrate.fit import FitErrors, errors_of
from warehouse.calibrate.timings import Timings, read_timings
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError, require_capability

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.estimator import Estimator
    from estimators.timings import TimedKind

LEAST_ROWS = 5
"""Rows below which a kind keeps its constant: the median of fewer rows is too uncertain."""

LEAST_FACTOR = 0.02
"""Least factor of a part of a sum. If a fit is below it, the times do not determine the part, and
it keeps its constant."""

LARGEST_FACTOR = 100.0
"""Factor above which the times are taken to be in another unit: milliseconds make 1,000."""

FOLDS = 10
"""Parts into which the rows are cut; each is predicted from the others."""

Estimates = Mapping[str, Array]
"""Estimate, untuned, fitted or left_out -> logarithm of predicted over measured of each row."""


@dataclass(frozen=True)
class Kind:
    """A kind of kernels with its factor.

    Attributes
    ----------
    step_constant
        Key of the constant, with the accelerator.
    factor, quartiles
        Seconds over those estimated, after the factors of the kinds before; and the middle half of
        the rows that it is fitted to. 1 where there are too few rows.
    left_out
        Least and largest value of the constant without a tenth of the rows.
    errors
        Estimate -> its errors on these rows; empty where there are too few.
    is_cost
        Whether the constant is in seconds and not a rate.
    """

    name: str
    constant: str
    step_constant: str
    default: float
    value: float
    num_rows: int
    factor: float
    quartiles: tuple[float, float]
    left_out: tuple[float, float]
    errors: Mapping[str, FitErrors]
    is_cost: bool

    @property
    def is_fitted(self) -> bool:
        """Whether there are enough rows."""
        return self.num_rows >= LEAST_ROWS

    @property
    def bounds(self) -> tuple[float, float]:
        """The constant at the quartiles of the rows, up to the most that its column holds."""
        fast, slow = (end / self.factor for end in self.quartiles)
        if self.is_cost:
            return self.value * fast, self.value * slow
        most = COLUMNS[self.constant].maximum
        return self.value / slow, min(self.value / fast, np.inf if most is None else most)


@dataclass(frozen=True)
class KernelCalibration:
    """The constants of a machine's kernels.

    Attributes
    ----------
    errors
        Estimate -> its errors on all rows that were used.
    left_out
        Why rows were not used -> how many.
    """

    estimator: Estimator
    accelerator: str
    files: tuple[str, ...]
    is_sustained: bool
    num_rows: int
    num_used: int
    kinds: tuple[Kind, ...]
    errors: Mapping[str, FitErrors]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def reference(self) -> str:
        """The files in one text."""
        return ", ".join(self.files)


def calibrate_kernels(
    estimator: Estimator, paths: Sequence[Path], accelerator: str | None, *, is_sustained: bool
) -> KernelCalibration:
    """Fit the constants of kernels to the timings in files.

    Raise `UsageError` if the estimator reads no timings, and `InputError` if a file is refused or
    no kind of kernels has enough rows.

    Parameters
    ----------
    accelerator
        The accelerator that was timed; None: the files say it.
    is_sustained
        Whether the kernels were timed in long loops, at the clock that the power limit leaves.
    """
    require_capability(estimator, "constants.timed_kernels", "reads no timings of kernels")
    catalog = packaged_catalog()
    files = [
        read_timings(path, estimator.constants.timed_kernels, accelerator, catalog)
        for path in paths
    ]
    accelerators = list(dict.fromkeys(file.accelerator for file in files))
    if len(accelerators) > 1:
        other = next(file for file in files if file.accelerator == accelerators[1])
        raise InputError(
            f"{other.path}: is of {accelerators[1]}, and {paths[0]} of {accelerators[0]}",
            "a profile of kernels is of one accelerator: name it with --accelerator",
        )
    kinds: list[Kind] = []
    estimates: list[Estimates] = []
    left_out: Counter[str] = Counter()
    for file in files:
        of_file, logs, reasons = _fit(file, catalog, is_sustained=is_sustained)
        if {kind.constant for kind in kinds} & {kind.constant for kind in of_file}:
            raise InputError(
                f"{file.path}: another file is of {file.kernels.name} too",
                "put all rows into one file",
            )
        kinds += of_file
        estimates.append(logs)
        left_out.update(reasons)
    if not any(kind.is_fitted for kind in kinds):
        raise InputError(
            f"{', '.join(map(str, paths))}: no kind of kernels has {LEAST_ROWS} rows to use",
            "; ".join(f"{count} rows {reason}" for reason, count in left_out.items())
            or f"add rows: each kind takes {LEAST_ROWS} or more",
        )
    all_logs = {n: np.concatenate([logs[n] for logs in estimates]) for n in estimates[0]}
    return KernelCalibration(
        estimator,
        accelerators[0],
        tuple(map(str, paths)),
        is_sustained,
        sum(file.num_rows for file in files),
        len(all_logs["fitted"]),
        tuple(kinds),
        {name: errors_of(np.expm1(logs)) for name, logs in all_logs.items()},
        left_out,
        tuple(
            f"{kind.name}: {kind.num_rows} rows are too few for a factor, which takes "
            f"{LEAST_ROWS}; `{kind.constant}` keeps {kind.default:g}"
            for kind in kinds
            if not kind.is_fitted
        ),
    )


def _fit(
    file: Timings, catalog: Catalog, *, is_sustained: bool
) -> tuple[list[Kind], Estimates, Mapping[str, int]]:
    """Return the kinds of a file, the estimates of its rows, and why others are not used."""
    try:
        compared = file.kernels.compare(file.columns, file.accelerator, catalog, is_sustained)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, str(file.path)) from None
    kinds = compared.kinds
    with np.errstate(all="ignore"):
        logs = np.log(compared.ratios)
    factors = factors_of(logs, kinds)
    rows = rows_of(logs, kinds)
    folds = np.arange(len(logs)) % FOLDS
    # without a tenth of the rows the same kinds have a factor
    counts = [int(of_kind.sum()) for of_kind in rows]
    least = [1 if count >= LEAST_ROWS else count + 1 for count in counts]
    without = np.array(
        [factors_of(np.where(folds == fold, np.nan, logs), kinds, least) for fold in range(FOLDS)]
    )
    apart = np.array([predicted(of_fold, kinds) for of_fold in without])
    fitted = predicted(factors, kinds)
    estimates = {
        "untuned": -logs,
        "fitted": fitted - logs,
        "left_out": apart[folds, np.arange(len(logs))] - logs,
    }
    product = product_of(catalog, file.accelerator)
    defaults = [compared.defaults[kind.constant] for kind in kinds]
    values = values_of(factors, kinds, defaults)
    left_out = np.array([values_of(of_fold, kinds, defaults) for of_fold in without])
    found = []
    for index, (kind, of_kind) in enumerate(zip(kinds, rows, strict=True)):
        rest = (logs - fitted + factors[index])[of_kind]
        is_fitted = counts[index] >= LEAST_ROWS
        low, high = np.exp(np.quantile(rest, (0.25, 0.75))) if is_fitted else (1.0, 1.0)
        errors = {name: errors_of(np.expm1(error[of_kind])) for name, error in estimates.items()}
        found.append(
            Kind(
                kind.name,
                kind.constant,
                f"{kind.constant}@{product}",
                defaults[index],
                float(values[index]),
                counts[index],
                float(np.exp(factors[index])),
                (float(low), float(high)),
                (float(left_out[:, index].min()), float(left_out[:, index].max())),
                errors if is_fitted else {},
                kind.is_cost,
            )
        )
        _refuse_far(found[-1], file)
    is_used = np.isfinite(logs)
    reasons = {reason: int(which.sum()) for reason, which in compared.left_out.items()}
    used = {name: error[is_used] for name, error in estimates.items()}
    return found, used, {**file.left_out, **reasons}


def _refuse_far(kind: Kind, file: Timings) -> None:
    """Raise if a constant leaves the limits of its column, or is far away: a unit is wrong."""
    broken = [limit for limit in limits_of(COLUMNS[kind.constant]) if limit.is_broken(kind.value)]
    if broken or kind.factor > LARGEST_FACTOR:
        times = f"{kind.factor:,.0f}" if kind.factor >= LARGEST_FACTOR else f"{kind.factor:.3g}"
        why = f"; `{kind.constant}` {kind.value:.3g} {broken[0].reason}" if broken else ""
        raise InputError(
            f"{file.path}: {kind.name}: {kind.num_rows} rows take {times} times "
            f"as long as those measured on {file.accelerator}{why}",
            "are the times in seconds, and the sizes those of one GPU?",
        )


# ---- factors ----


def factors_of(
    logs: Array, kinds: Sequence[TimedKind], least_rows: Sequence[int] | None = None
) -> Array:
    """Return the logarithm of each kind's factor; 0 where it has too few rows.

    Parameters
    ----------
    logs
        Logarithms of measured over estimated seconds; NaN: a row that is not used.
    least_rows
        Rows that each kind needs, by default `LEAST_ROWS`.
    """
    least = [LEAST_ROWS] * len(kinds) if least_rows is None else least_rows
    rows = rows_of(logs, kinds)
    is_fitted = np.array([of_kind.sum() for of_kind in rows]) >= np.array(least)
    if _are_sums(kinds):
        return _of_sums(logs, kinds, is_fitted)
    factors = np.zeros(len(kinds))
    for index in np.flatnonzero(is_fitted).tolist():
        factors[index] = np.median((logs - predicted(factors, kinds))[rows[index]])
    return factors


def _of_sums(logs: Array, kinds: Sequence[TimedKind], is_fitted: Array) -> Array:
    """Return the logarithms of the factors of parts that add up.

    Rows with a part that has too few of them are left out, if others remain. Such a part keeps its
    constant; a constant that is a ratio takes the factor of its base.
    """
    is_used = np.isfinite(logs)
    shares = _shares(kinds)
    is_whole = is_used & ~(shares[~is_fitted] > 0).any(axis=0)
    is_used = is_whole if is_whole.any() else is_used
    # the share of each part in the measured seconds of a row
    parts = shares[:, is_used] / np.exp(logs[is_used])
    factors = np.ones(len(kinds))
    is_free = is_fitted.copy()
    while is_free.any() and is_used.any():
        missing = 1.0 - parts.sum(axis=0)
        changes, *_ = np.linalg.lstsq(parts[is_free].T, missing, rcond=1e-6)
        factors[:] = 1.0
        factors[is_free] += changes
        if factors.min() >= LEAST_FACTOR:
            break
        is_free[factors.argmin()] = False
        factors[:] = 1.0
    indices = {kind.constant: index for index, kind in enumerate(kinds)}
    for index in np.flatnonzero(~is_fitted).tolist():
        if kinds[index].base:
            factors[index] = factors[indices[kinds[index].base]]
    return np.asarray(np.log(factors))


def predicted(factors: Array, kinds: Sequence[TimedKind]) -> Array:
    """Return the logarithm of each row's factor: those of its kinds together."""
    if _are_sums(kinds):
        return np.asarray(np.log(np.exp(factors) @ _shares(kinds)))
    scaled = np.array([kind.is_scaled for kind in kinds], dtype=np.float64)
    return np.asarray(factors @ scaled)


def rows_of(logs: Array, kinds: Sequence[TimedKind]) -> list[Array]:
    """Return for each kind the rows that its factor is fitted to.

    A factor of products is fitted to the rows of which it is the last kind; a part of a sum to all
    rows that have it.
    """
    free = np.isfinite(logs)
    if _are_sums(kinds):
        return [free & kind.is_scaled for kind in kinds]
    rows = []
    for kind in reversed(kinds):
        rows.append(free & kind.is_scaled)
        free = free & ~kind.is_scaled
    return rows[::-1]


def values_of(factors: Array, kinds: Sequence[TimedKind], defaults: Sequence[float]) -> Array:
    """Return the constants that give the kinds these factors, as logarithms."""
    of_constant = {kind.constant: factor for kind, factor in zip(kinds, factors, strict=True)}
    values = [
        default * np.exp(factor if kind.is_cost else of_constant.get(kind.base, 0.0) - factor)
        for kind, factor, default in zip(kinds, factors, defaults, strict=True)
    ]
    return np.minimum(values, [kind.highest for kind in kinds])


def _are_sums(kinds: Sequence[TimedKind]) -> bool:
    return any(kind.share is not None for kind in kinds)


def _shares(kinds: Sequence[TimedKind]) -> Array:
    return np.array([kind.share for kind in kinds], dtype=np.float64)
