"""Fit the constants of kernels to timings of a machine: one factor for each kind of kernel.

Module `factors` computes them. Nothing is fitted to steps. Each tenth of the rows is also predicted
with the factors of the other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from estimators.accelerators import product_of
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, RefusedError
from estimators.limits import limits_of
from warehouse.calibrate.factors import LEAST_ROWS, factors_of, predicted, rows_of, values_of
from warehouse.calibrate.fit import Errors
from warehouse.calibrate.timings import Timings, read_timings
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError, require_capability

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Estimator
    from estimators.timings import Compared

LARGEST_FACTOR = 100.0
"""Factor above which the times are taken to be in another unit: milliseconds make 1,000."""

FOLDS = 10
"""Parts into which the rows are cut; each is predicted from the others."""

ESTIMATES = ("untuned", "fitted", "left_out")


@dataclass(frozen=True)
class Kind:
    """A kind of kernels with its factor.

    Attributes
    ----------
    name
        The kind in words.
    step_constant
        Key of the constant, with the accelerator.
    default, value
        The constant before and after.
    num_rows
        Rows that the factor is fitted to.
    factor, quartiles
        Seconds over those estimated, after the factors of the kinds before; and the middle half of
        the rows. 1 where there are too few rows.
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
    errors: Mapping[str, Errors] = field(default_factory=dict)
    is_cost: bool = False

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
    files
        The files, as the user named them.
    num_rows, num_used
        Rows of all files, and those of them that were used.
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
    errors: Mapping[str, Errors]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def fitted(self) -> tuple[Kind, ...]:
        """The kinds with enough rows."""
        return tuple(kind for kind in self.kinds if kind.is_fitted)

    @property
    def reference(self) -> str:
        """The files in one text."""
        return ", ".join(self.files)


def calibrate_kernels(
    estimator: Estimator, paths: Sequence[Path], accelerator: str | None, *, is_sustained: bool
) -> KernelCalibration:
    """Fit the constants of kernels to the timings in files.

    Parameters
    ----------
    accelerator
        The accelerator that was timed; None: the files say it.
    is_sustained
        Whether the kernels were timed in long loops, at the clock that the power limit leaves.

    Raises
    ------
    UsageError
        If the estimator reads no timings.
    InputError
        If a file is refused, or no kind of kernels has enough rows.
    """
    require_capability(estimator, "timed_kernels", "reads no timings of kernels")
    catalog = packaged_catalog()
    read = [read_timings(path, estimator.timed_kernels, accelerator, catalog) for path in paths]
    named = list(dict.fromkeys(each.accelerator for each in read))
    if len(named) > 1:
        raise InputError(
            f"{paths[1]}: is of {named[1]}, and {paths[0]} of {named[0]}",
            "a profile of kernels is of one accelerator: name it with --accelerator",
        )
    kinds: list[Kind] = []
    logs: dict[str, list[Array]] = {name: [] for name in ESTIMATES}
    left_out: dict[str, int] = {}
    for each in read:
        compared = _compare(each, catalog, is_sustained=is_sustained)
        own, errors = _fit(compared, each, catalog)
        twice = {kind.constant for kind in kinds} & {kind.constant for kind in own}
        if twice:
            raise InputError(
                f"{each.path}: another file is of {each.kernels.name} too",
                "put all rows into one file",
            )
        kinds += own
        for name in ESTIMATES:
            logs[name].append(errors[name])
        reasons = {**each.left_out, **{r: int(n.sum()) for r, n in compared.left_out.items()}}
        for reason, count in reasons.items():
            left_out[reason] = left_out.get(reason, 0) + count
    if not any(kind.is_fitted for kind in kinds):
        raise InputError(
            f"{', '.join(map(str, paths))}: no kind of kernels has {LEAST_ROWS} rows to use",
            _why(left_out) or f"add rows: each kind takes {LEAST_ROWS} or more",
        )
    return KernelCalibration(
        estimator,
        named[0],
        tuple(map(str, paths)),
        is_sustained,
        sum(each.num_rows for each in read),
        sum(len(own) for own in logs["fitted"]),
        tuple(kinds),
        {name: errors_of_logs(np.concatenate(own)) for name, own in logs.items()},
        left_out,
        _notes(kinds),
    )


def _compare(each: Timings, catalog: Catalog, *, is_sustained: bool) -> Compared:
    try:
        return each.kernels.compare(each.columns, each.accelerator, catalog, is_sustained)
    except RefusedError as error:
        raise InputError.from_refusals(error.refusals, str(each.path)) from None


def _why(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{count} rows {reason}" for reason, count in left_out.items())


def _fit(
    compared: Compared, timings: Timings, catalog: Catalog
) -> tuple[list[Kind], dict[str, Array]]:
    """Return the kinds of a file, and the logarithm of predicted over measured of its rows."""
    kinds = compared.kinds
    with np.errstate(all="ignore"):
        logs = np.log(compared.ratios)
    is_used = np.isfinite(logs)
    factors = factors_of(logs, kinds)
    folds = np.arange(len(logs)) % FOLDS
    # without a tenth of the rows the same kinds have a factor
    rows = [int(last.sum()) for last in rows_of(logs, kinds)]
    least = [1 if number >= LEAST_ROWS else number + 1 for number in rows]
    without = np.array(
        [factors_of(np.where(folds == fold, np.nan, logs), kinds, least) for fold in range(FOLDS)]
    )
    apart = np.array([predicted(each, kinds) for each in without])
    estimates = {
        "untuned": -logs,
        "fitted": predicted(factors, kinds) - logs,
        "left_out": apart[folds, np.arange(len(logs))] - logs,
    }
    product = product_of(catalog, timings.accelerator)
    defaults = [compared.defaults[kind.constant] for kind in kinds]
    values = values_of(factors, kinds, defaults)
    own_values = np.array([values_of(each, kinds, defaults) for each in without])
    found = []
    for place, last in enumerate(rows_of(logs, kinds)):
        kind = kinds[place]
        rest = logs - predicted(factors, kinds) + factors[place]
        is_fitted = last.sum() >= LEAST_ROWS
        low, high = np.exp(np.quantile(rest[last], (0.25, 0.75))) if is_fitted else (1.0, 1.0)
        own = own_values[:, place]
        found.append(
            Kind(
                kind.name,
                kind.constant,
                f"{kind.constant}@{product}",
                defaults[place],
                float(values[place]),
                int(last.sum()),
                float(np.exp(factors[place])),
                (float(low), float(high)),
                (float(own.min()), float(own.max())),
                {n: errors_of_logs(e[last]) for n, e in estimates.items()} if is_fitted else {},
                kind.is_cost,
            )
        )
        _refuse_far(found[-1], timings)
    return found, {name: own[is_used] for name, own in estimates.items()}


def errors_of_logs(logs: Array) -> Errors:
    """Return the errors of times, given the logarithms of predicted over measured."""
    if not logs.size:
        return Errors(0.0, 0.0, 0.0)
    error = np.expm1(logs)
    return Errors(float(np.abs(error).mean()), float(np.abs(error).max()), float(error.mean()))


def _refuse_far(kind: Kind, timings: Timings) -> None:
    """Raise if a constant leaves the limits of its column, or is far away: a unit is wrong."""
    broken = [each for each in limits_of(COLUMNS[kind.constant]) if each.is_broken(kind.value)]
    if broken or kind.factor > LARGEST_FACTOR:
        times = f"{kind.factor:,.0f}" if kind.factor >= LARGEST_FACTOR else f"{kind.factor:.3g}"
        why = f"; `{kind.constant}` {kind.value:.3g} {broken[0].reason}" if broken else ""
        raise InputError(
            f"{timings.path}: {kind.name}: {kind.num_rows} rows take {times} times "
            f"as long as those measured on {timings.accelerator}{why}",
            "are the times in seconds, and the sizes those of one GPU?",
        )


def _notes(kinds: Sequence[Kind]) -> tuple[str, ...]:
    return tuple(
        f"{kind.name}: {kind.num_rows} rows are too few for a factor, which takes {LEAST_ROWS}; "
        f"`{kind.constant}` keeps {kind.default:g}"
        for kind in kinds
        if not kind.is_fitted
    )
