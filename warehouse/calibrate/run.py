"""Run a calibration: read its reference, fit, and compare with steps that the fit has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators import registry
from estimators.contract import PUBLISHED, Array, Catalog
from warehouse.calibrate.fit import Fit, FitErrors, Steps, calibrate, errors_of
from warehouse.calibrate.parameters import EXPOSED, find_parameters
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
from warehouse.errors import InputError
from warehouse.evaluate.inputs import Resolved, resolve_rows, taken
from warehouse.evaluate.profiles import systems
from warehouse.options import DEFAULT_FIT

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.estimator import Estimator
    from warehouse.evaluate.profiles import Profile


@dataclass(frozen=True)
class Other:
    """Errors on published steps that the fit has not seen, by the default and the fitted constants.

    Attributes
    ----------
    num_refused
        Rows that the estimator refuses; the errors are without them.
    takes_fitted
        Whether any row takes one of the fitted constants.
    """

    reference: str
    is_own_framework: bool
    num_rows: int
    num_refused: int
    takes_fitted: bool
    untuned: FitErrors
    fitted: FitErrors


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


def run_calibration(
    reference: str,
    path: Path,
    *,
    estimator: Estimator | None = None,
    constants: Sequence[str] = DEFAULT_FIT,
    conditions: Sequence[str] = (),
    wide: bool = False,
) -> Calibration:
    """Fit constants to a published table, or to the file at `path`.

    Raise `InputError` if there is no such reference, a row is refused, or the constants cannot be
    fitted.

    Parameters
    ----------
    estimator
        The estimator whose constants are fitted, by default that of `calibrate`.
    constants, wide
        See `parameters.find_parameters`.
    conditions
        Only rows that meet all of them: see `published.filtered`.
    """
    estimator = estimator or registry.get(registry.default("calibrate"))
    catalog = packaged_catalog()
    name, rows = load_reference(reference, estimator, path)
    is_taken = filtered(rows, conditions)
    is_own = is_taken & rows[IS_OWN]
    num_foreign = int((is_taken & ~is_own).sum()) if is_own.any() else 0
    is_taken = is_own if is_own.any() else is_taken
    if not is_taken.any():
        raise InputError(f"{name}: no row meets {' and '.join(conditions)}", "use other --rows")
    frame = rows.filter(is_taken)
    relation = estimator.relations[0]
    resolved = resolve_rows(estimator, relation, frame, catalog, PUBLISHED, are_runs=True)
    if resolved.refusals:
        raise InputError.from_refusals(resolved.refusals, name, names_of_rows(frame))
    steps = _steps_of(resolved, frame, resolved.is_good)
    fit = calibrate(steps, find_parameters(constants, steps, catalog, wide=wide))
    rest = [
        published_reference(table).filter(~is_taken)
        if table == name
        else published_reference(table)
        for table in (published_tables() if estimator.source.takes_published_steps else ())
    ]
    profile = fit.profile("", estimator)
    others = _others(estimator, pl.concat(rest), catalog, profile) if rest else []
    notes = _notes(fit, constants, num_foreign, wide=wide)
    row_names = tuple(frame[ROW].to_list())
    return Calibration(estimator, name, tuple(conditions), row_names, fit, tuple(others), notes)


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
    untuned, fitted = (
        resolve_rows(estimator, relation, frame, constants, PUBLISHED)
        for constants in (catalog, profile.added_to(catalog))
    )
    refused = {refusal.row for refusal in untuned.refusals}
    groups = frame.select("reference", IS_OWN).rows()
    others = []
    for name, is_own in itertools.product(dict.fromkeys(frame["reference"]), (True, False)):
        rows = np.array([group == (name, is_own) for group in groups])
        before, after = (_steps_of(resolved, frame, rows) for resolved in (untuned, fitted))
        if len(before) == 0:
            continue
        num_refused = sum(row in refused for row in np.flatnonzero(rows).tolist())
        is_reached = any(
            profile.reaches(estimator, catalog, system) for system in systems(before.values)
        )
        errors = (
            errors_of(steps.predict({})[0] / steps.published - 1) for steps in (before, after)
        )
        others.append(Other(name, is_own, len(before), num_refused, is_reached, *errors))
    return others


def _notes(fit: Fit, constants: Sequence[str], num_foreign: int, *, wide: bool) -> tuple[str, ...]:
    notes = []
    if num_foreign:
        notes.append(
            f"{num_foreign} rows of a program that table framework does not have are left out; "
            "--rows group=... names them"
        )
    if EXPOSED in constants and EXPOSED not in {each.name for each in fit.parameters}:
        notes.append(
            f"{EXPOSED} is not fitted: every overlap is held to one value by its range, or has "
            "no effect on these rows"
        )
    further = (
        "the limit of its column: fit another constant, or check the rows"
        if wide
        else "the end of its published range: these rows fit better beyond it. Fit another "
        "constant as well (--fit), or let it go on to the limit of its column (--beyond-range)"
    )
    for index, parameter in enumerate(fit.parameters):
        value = fit.values[index]
        if parameter.name == EXPOSED:
            kinds = " and ".join(name.partition("_")[0] for name in parameter.places)
            notes.append(
                f"{EXPOSED}: {100 * (1 - value):.1f} % of the {kinds} collectives cannot be hidden"
            )
        if fit.is_at_bound(index):
            notes.append(f"{parameter.name} stopped at {value:g}, {further}")
    return tuple(notes)
