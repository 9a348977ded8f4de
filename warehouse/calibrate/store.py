"""Calibrations as records, and in the database. A profile is stored whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from warehouse.calibrate.fit import errors_of
from warehouse.database import derived
from warehouse.database.facts import CALIBRATION
from warehouse.database.recording import record, record_removal
from warehouse.database.sink import arrow_table, transaction
from warehouse.database.temporary import registered
from warehouse.errors import InputError
from warehouse.evaluate.profiles import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.calibrate.fit import Errors
    from warehouse.calibrate.kernels import KernelCalibration
    from warehouse.calibrate.run import Calibration

Record = dict[str, Any]

TABLES = ("calibration", "calibration_row")


def refuse_name(connection: DuckDBPyConnection, name: str, *, replace: bool) -> None:
    """Raise `InputError` if a profile cannot be called `name`, or one of that name is stored."""
    if name == DEFAULT or not name.strip() or not name.isprintable() or name != name.strip():
        raise InputError(
            f"`--name` {name!r} cannot name a profile",
            f"choose another name; {DEFAULT} is table step_constant without changes",
        )
    stored = connection.execute("select 1 from calibration where profile = ?", [name]).fetchall()
    if stored and not replace:
        raise InputError(
            f"`--name` {name}: there is a profile of that name",
            "choose another, or --replace it; rows that were evaluated with it do not change",
        )


def store_calibration(
    connection: DuckDBPyConnection, name: str, found: Calibration, *, replace: bool
) -> None:
    """Store a calibration as profile `name`, in one transaction."""
    refuse_name(connection, name, replace=replace)
    created = datetime.now(UTC).replace(tzinfo=None)
    own = {"profile": name, "reference": found.reference}
    constants = [{**own, **each, "created_at": created} for each in constant_records(found)]
    replace_profile(connection, name, constants, [{**own, **each} for each in row_records(found)])


def store_kernels(
    connection: DuckDBPyConnection, name: str, found: KernelCalibration, *, replace: bool
) -> None:
    """Store the constants of kernels as profile `name`, in one transaction.

    Table `calibration_row` has no row of it: the constants were fitted to no step.
    """
    refuse_name(connection, name, replace=replace)
    created = datetime.now(UTC).replace(tzinfo=None)
    own = {"profile": name, "reference": found.reference, "created_at": created}
    replace_profile(connection, name, [{**own, **each} for each in kernel_constants(found)], [])


def replace_profile(
    connection: DuckDBPyConnection,
    name: str,
    constants: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Store a profile and the steps that it was fitted to, in place of one of its name."""
    with transaction(connection):
        for table, records in zip(TABLES, (constants, rows), strict=True):
            connection.execute(f"delete from {table} where profile = ?", [name])
            if not records:
                continue
            with registered(connection, "incoming_records", arrow_table(records)):
                connection.execute(f"insert into {table} by name select * from incoming_records")
        derived.refresh_problems(connection, [name])
        record(connection, CALIBRATION, name)


class Dropped(NamedTuple):
    """The removal of a profile: its number of constants, and the rows and studies that used it."""

    constants: int
    rows: int
    studies: tuple[str, ...]


def drop_profile(connection: DuckDBPyConnection, name: str) -> Dropped:
    """Remove profile `name` in one transaction. Rows that were evaluated with it stay.

    Their problems hold the constants as numbers, so they remain right and comparable. Studies that
    name the profile are refused from then on.

    Raises
    ------
    InputError
        If there is no such profile, or it is the default.
    """
    if name == DEFAULT:
        raise InputError(
            f"`--drop` {name}: is table step_constant without changes, and cannot be removed",
            "name a profile that `warehouse calibrate` stored",
        )
    stored = connection.execute("select profile, count(*) from calibration group by all order by 1")
    known = dict(stored.fetchall())
    if name not in known:
        raise InputError(
            f"`--drop` {name}: is not a stored profile",
            f"stored: {', '.join(known) or 'none'}",
        )
    with transaction(connection):
        for table in TABLES:
            connection.execute(f"delete from {table} where profile = ?", [name])
        derived.refresh_problems(connection, [name])
        record_removal(connection, CALIBRATION, name)
    [(rows, studies)] = connection.execute(
        """
        with evaluated as (
            select cell_id, num_rows from cell inner join problem using (problem_id)
            where problem.profile = ?
        )
        select
            (select coalesce(sum(num_rows), 0)::bigint from evaluated),
            (select coalesce(list(distinct study order by study), [])
             from study_cell semi join evaluated using (cell_id))
        """,
        [name],
    ).fetchall()
    return Dropped(known[name], rows, tuple(studies))


def constant_records(found: Calibration) -> list[Record]:
    """Return a record for each constant: default, fitted value, bounds and errors."""
    fit = found.fit
    errors = _by_estimate(
        {name: errors_of(predicted, fit.published) for name, predicted in fit.estimates.items()}
    )
    return [
        {
            "row_filters": " and ".join(found.filters),
            "estimator": found.estimator.name,
            "estimator_version": found.estimator.version,
            "fit_parameter": each.name,
            "constant": constant,
            "step_constant": key,
            "default_constant_value": each.defaults[constant],
            "fitted_constant_value": float(fit.values[place]),
            "lower_bound": each.lowest,
            "upper_bound": each.highest,
            "is_at_bound": fit.is_at_bound(place),
            "lowest_left_out_value": float(fit.left_out_values[:, place].min()),
            "highest_left_out_value": float(fit.left_out_values[:, place].max()),
            "num_rows": len(found.row_names),
            **errors,
        }
        for place, each in enumerate(fit.parameters)
        for constant, key in each.places.items()
    ]


def kernel_constants(found: KernelCalibration) -> list[Record]:
    """Return a record for each constant of a kind of kernels; errors are of the kernels' times."""
    return [
        {
            "row_filters": "",
            "estimator": found.estimator.name,
            "estimator_version": found.estimator.version,
            "fit_parameter": kind.name,
            "constant": kind.constant,
            "step_constant": kind.step_constant,
            "default_constant_value": kind.default,
            "fitted_constant_value": kind.value,
            "lower_bound": kind.bounds[0],
            "upper_bound": kind.bounds[1],
            "is_at_bound": False,
            "lowest_left_out_value": kind.left_out[0],
            "highest_left_out_value": kind.left_out[1],
            "num_rows": kind.num_rows,
            **_by_estimate(kind.errors),
        }
        for kind in found.fitted
    ]


def kind_lines(found: KernelCalibration) -> list[Record]:
    """Return a line for each kind of kernels: its factor, and the constant before and after."""
    return [
        {
            "kernels": kind.name,
            "num_rows": kind.num_rows,
            "times_as_long": kind.factor if kind.is_fitted else None,
            "half_from": kind.quartiles[0] if kind.is_fitted else None,
            "half_to": kind.quartiles[1] if kind.is_fitted else None,
            "constant": kind.step_constant,
            "default": kind.default,
            "fitted": kind.value,
        }
        for kind in found.kinds
    ]


def _by_estimate(errors: Mapping[str, Errors]) -> Record:
    """Return errors by the names of their columns."""
    record: Record = {}
    for name, own in errors.items():
        record[f"{name}_mean_absolute_relative_error"] = own.mean
        record[f"{name}_max_absolute_relative_error"] = own.worst
        record[f"{name}_bias"] = own.bias
    return record


def row_records(found: Calibration) -> list[Record]:
    """Return a record for each fitted row, with its three estimates."""
    fit = found.fit
    return [
        {
            "published_row": name,
            "published_step_seconds": float(fit.published[row]),
            **{f"{how}_step_seconds": float(own[row]) for how, own in fit.estimates.items()},
            **{
                f"{how}_relative_error": float(own[row] / fit.published[row] - 1)
                for how, own in fit.estimates.items()
            },
        }
        for row, name in enumerate(found.row_names)
    ]


def error_records(found: Calibration) -> list[Record]:
    """Return the errors on the rows of the fit, a record for each estimate."""
    fit = found.fit
    errors = {name: errors_of(own, fit.published) for name, own in fit.estimates.items()}
    return error_lines(errors, len(found.row_names))


def error_lines(errors: Mapping[str, Errors], num_rows: int) -> list[Record]:
    """Return errors as lines for people, a record for each estimate."""
    words = {"untuned": "untuned", "fitted": "fitted (in sample)", "left_out": "left out"}
    return [
        {
            "estimate": words[name],
            "num_rows": num_rows,
            "mean_absolute_relative_error": own.mean,
            "max_absolute_relative_error": own.worst,
            "bias": own.bias,
        }
        for name, own in errors.items()
    ]


def other_records(found: Calibration) -> list[Record]:
    """Return the errors on published steps that the fit has not seen."""
    return [
        {
            "reference": each.reference,
            "is_own_framework": each.is_own_framework,
            "num_rows": each.num_rows,
            "num_refused": each.num_refused,
            "takes_fitted": each.is_reached,
            "untuned_mean_absolute_relative_error": each.untuned.mean,
            "fitted_mean_absolute_relative_error": each.fitted.mean,
            "untuned_max_absolute_relative_error": each.untuned.worst,
            "fitted_max_absolute_relative_error": each.fitted.worst,
            "untuned_bias": each.untuned.bias,
            "fitted_bias": each.fitted.bias,
        }
        for each in found.others
    ]
