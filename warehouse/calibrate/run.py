"""Run a calibration: read its reference, fit, and compare with steps that the fit has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators import registry
from estimators.contract import PUBLISHED, Array, Catalog, Refusal
from warehouse.calibrate.fit import Errors, Fit, Steps, calibrate, errors_of
from warehouse.calibrate.parameters import DEFAULT_FIT, EXPOSED, find_parameters
from warehouse.calibrate.published import (
    IS_OWN,
    MEASURED,
    ROW,
    filtered,
    load_reference,
    names_of_rows,
    published_reference,
    published_tables,
)
from warehouse.database.catalog import packaged_catalog
from warehouse.errors import InputError, require_capability
from warehouse.evaluate.inputs import Resolved, resolve_rows, taken
from warehouse.evaluate.profiles import systems

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Estimator
    from warehouse.evaluate.profiles import Profile


@dataclass(frozen=True)
class Other:
    """Errors on published steps that the fit has not seen.

    Attributes
    ----------
    is_reached
        Whether any row takes one of the fitted constants.
    num_refused
        Rows that the estimator refuses; the errors are without them.
    """

    reference: str
    is_own_framework: bool
    num_rows: int
    num_refused: int
    untuned: Errors
    fitted: Errors
    is_reached: bool


@dataclass(frozen=True)
class Calibration:
    """A fit with its rows, and its errors on other published steps.

    Attributes
    ----------
    filters
        Conditions that its rows meet.
    row_names
        The rows, in the order of the fit's columns.
    notes
        Remarks for the reader: constants without effect, values at a bound.
    """

    estimator: Estimator
    reference: str
    filters: tuple[str, ...]
    row_names: tuple[str, ...]
    fit: Fit
    others: tuple[Other, ...]
    notes: tuple[str, ...]


def find_estimator(name: str | None) -> Estimator:
    """Return the estimator whose constants are fitted, by default that of `calibrate`.

    Raises
    ------
    UsageError
        If it has no constants.
    """
    estimator = registry.get(name or registry.default("calibrate"))
    require_capability(estimator, "constants", "has no constants to calibrate")
    return estimator


def run_calibration(
    reference: str,
    path: Path,
    *,
    estimator: Estimator | None = None,
    asked: Sequence[str] = DEFAULT_FIT,
    conditions: Sequence[str] = (),
    wide: bool = False,
) -> Calibration:
    """Fit constants to a published table, or to the file at `path`.

    Parameters
    ----------
    estimator
        The estimator whose constants are fitted, by default that of `calibrate`.
    asked, wide
        See `parameters.find_parameters`.
    conditions
        Only rows that meet all of them: see `published.filtered`.

    Raises
    ------
    InputError
        If there is no such reference, a row is refused, or the constants cannot be fitted.
    """
    estimator, catalog = estimator or find_estimator(None), packaged_catalog()
    source = load_reference(reference, estimator, path)
    kept = filtered(source.frame, conditions)
    is_own = kept & source.frame[IS_OWN]
    num_foreign = int((kept & ~is_own).sum()) if is_own.any() else 0
    kept = is_own if is_own.any() else kept
    if not kept.any():
        raise InputError(
            f"{source.name}: no row meets {' and '.join(conditions)}", "use other --rows"
        )
    frame = source.frame.filter(kept)
    steps = _steps(estimator, frame, catalog, source.name)
    parameters = find_parameters(asked, steps, catalog, wide=wide)
    fit = calibrate(steps, parameters)
    notes = _notes(fit, asked, num_foreign, wide=wide)
    profile = fit.profile("", estimator)
    others: list[Other] = []
    rest = [
        rows.filter(~kept) if name == source.name else rows
        for name in (published_tables() if estimator.takes_published_steps else ())
        for rows in [published_reference(name).frame]
    ]
    if rest:
        others = _others(estimator, pl.concat(rest), catalog, profile)
    names = tuple(frame[ROW].to_list())
    return Calibration(estimator, source.name, tuple(conditions), names, fit, tuple(others), notes)


def _steps(estimator: Estimator, frame: pl.DataFrame, catalog: Catalog, file: str) -> Steps:
    """Return the rows of a reference as steps.

    Raises
    ------
    InputError
        If any is refused; all of them are listed.
    """
    steps, refusals = _admitted(estimator, frame, catalog)
    if refusals:
        raise InputError.from_refusals(refusals, file, names_of_rows(frame))
    return steps


def _admitted(
    estimator: Estimator, frame: pl.DataFrame, catalog: Catalog
) -> tuple[Steps, Sequence[Refusal]]:
    """Return the steps that the estimator admits, and why it refuses the others."""
    resolved = resolve_rows(estimator, estimator.relations[0], frame, catalog, PUBLISHED)
    return _steps_of(resolved, frame, resolved.is_good), resolved.refusals


def _steps_of(resolved: Resolved, frame: pl.DataFrame, rows: Array) -> Steps:
    """Return the good ones of some rows of a frame, with their measured times."""
    good = rows & resolved.is_good
    published: Array = frame[MEASURED].to_numpy()[good]
    columns = taken(resolved.columns, good[resolved.rows])
    return Steps(resolved.estimator, columns, published, resolved.catalog)


def _others(
    estimator: Estimator, frame: pl.DataFrame, catalog: Catalog, profile: Profile
) -> list[Other]:
    """Return the errors on each table: rows of known frameworks apart from those of others."""
    relation = estimator.relations[0]
    both = [
        resolve_rows(estimator, relation, frame, one, PUBLISHED)
        for one in (catalog, profile.added_to(catalog))
    ]
    refused = {refusal.row for refusal in both[0].refusals}
    groups = frame.select("reference", IS_OWN).rows()
    found = []
    for name, is_own in itertools.product(dict.fromkeys(frame["reference"]), (True, False)):
        group = np.array([one == (name, is_own) for one in groups])
        before, after = (_steps_of(resolved, frame, group) for resolved in both)
        if len(before) == 0:
            continue
        found.append(
            Other(
                name,
                is_own,
                len(before),
                sum(row in refused for row in np.flatnonzero(group).tolist()),
                errors_of(before.predict({})[0], before.published),
                errors_of(after.predict({})[0], after.published),
                any(profile.reaches(estimator, catalog, one) for one in systems(before.values)),
            )
        )
    return found


def _notes(fit: Fit, asked: Sequence[str], num_foreign: int, *, wide: bool) -> tuple[str, ...]:
    notes = []
    if num_foreign:
        notes.append(
            f"{num_foreign} rows of a program that table framework does not have are left out; "
            "--rows group=... names them"
        )
    if EXPOSED in asked and EXPOSED not in {each.name for each in fit.parameters}:
        notes.append(
            f"{EXPOSED} is not fitted: every overlap is held to one value by its range, or has "
            "no effect on these rows"
        )
    for place, each in enumerate(fit.parameters):
        if each.name == EXPOSED:
            share = 1 - fit.values[place]
            kinds = " and ".join(name.partition("_")[0] for name in each.places)
            notes.append(
                f"{EXPOSED}: {100 * share:.1f} % of the {kinds} collectives cannot be hidden"
            )
        if fit.is_at_bound(place):
            notes.append(f"{each.name} ended at its bound {fit.values[place]:g}: {_further(wide)}")
    return tuple(notes)


def _further(wide: bool) -> str:
    """Return the meaning of a value that ended at its bound, and a remedy."""
    if wide:
        return "the limit of its column; fit another constant, or check the rows"
    return (
        "the end of the range of its sources, which these rows would leave; fit another constant "
        "as well (--fit), or --beyond-range lets it go on, to the limit of its column"
    )
