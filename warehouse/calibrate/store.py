"""Calibrations as records, and in the database. A profile is stored whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from warehouse.calibrate.fit import errors_of
from warehouse.database.sink import registered, transaction
from warehouse.errors import InputError
from warehouse.evaluate.profiles import DEFAULT

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
    stored = connection.execute("select 1 from calibration where profile = ?", [name]).fetchone()
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
    rows = [{**own, **each} for each in row_records(found)]
    with transaction(connection):
        for table, records in zip(TABLES, (constants, rows), strict=True):
            connection.execute(f"delete from {table} where profile = ?", [name])
            with registered(connection, "incoming_records", pa.Table.from_pylist(records)):
                connection.execute(f"insert into {table} by name select * from incoming_records")


class Dropped(NamedTuple):
    """A removed profile: the number of its constants, and the rows and studies that used it."""

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
    errors: Record = {}
    for name, predicted in fit.estimates.items():
        own = errors_of(predicted, fit.published)
        errors[f"{name}_mean_absolute_relative_error"] = own.mean
        errors[f"{name}_max_absolute_relative_error"] = own.worst
        errors[f"{name}_bias"] = own.bias
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
    words = {"untuned": "untuned", "fitted": "fitted (in sample)", "left_out": "left out"}
    records = []
    for name, predicted in found.fit.estimates.items():
        own = errors_of(predicted, found.fit.published)
        records.append(
            {
                "estimate": words[name],
                "num_rows": len(found.row_names),
                "mean_absolute_relative_error": own.mean,
                "max_absolute_relative_error": own.worst,
                "bias": own.bias,
            }
        )
    return records


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
