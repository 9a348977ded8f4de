"""Calibrations as records, and in the database. A profile is stored whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from warehouse.calibrate.kernels import KernelCalibration
from warehouse.database.facts import CALIBRATION
from warehouse.database.problem_facts import refresh_problems
from warehouse.database.recording import record
from warehouse.database.sink import arrow_table, transaction
from warehouse.database.sql_text import registered
from warehouse.errors import InputError
from warehouse.evaluate.profiles import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from warehouse.calibrate.fit import FitErrors
    from warehouse.calibrate.run import Calibration

Record = dict[str, Any]

TABLES = ("calibration", "calibration_row")


def refuse_profile_name(connection: DuckDBPyConnection, name: str, *, replace: bool) -> None:
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
    connection: DuckDBPyConnection,
    name: str,
    calibration: Calibration | KernelCalibration,
    *,
    replace: bool,
) -> None:
    """Store a calibration as profile `name`, in one transaction.

    Table `calibration_row` has no row of kernels: their constants were fitted to no step.
    """
    refuse_profile_name(connection, name, replace=replace)
    if isinstance(calibration, KernelCalibration):
        constants, rows = kernel_constants(calibration), []
    else:
        constants, rows = constant_records(calibration), row_records(calibration)
    reference = {"profile": name, "reference": calibration.reference}
    created = {"created_at": datetime.now(UTC).replace(tzinfo=None)}
    replace_profile(
        *(connection, name, [{**reference, **line, **created} for line in constants]),
        [{**reference, **line} for line in rows],
    )


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
        refresh_problems(connection, [name])
        record(connection, CALIBRATION, name)


class Dropped(NamedTuple):
    """The removal of a profile: its number of constants, and the rows and studies that used it."""

    constants: int
    rows: int
    studies: tuple[str, ...]


def drop_profile(connection: DuckDBPyConnection, name: str) -> Dropped:
    """Remove profile `name` in one transaction. Rows that were evaluated with it stay.

    Their problems hold the constants as numbers, so they remain right and comparable. Studies that
    name the profile are refused from then on, as is the default or a profile that is not stored.
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
        refresh_problems(connection, [name])
        record(connection, CALIBRATION, name, is_removed=True)
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


def constant_records(calibration: Calibration) -> list[Record]:
    """Return a record for each constant: default, fitted value, bounds and errors."""
    fit = calibration.fit
    return [
        {
            "row_filters": " and ".join(calibration.filters),
            "estimator": calibration.estimator.name,
            "estimator_version": calibration.estimator.version,
            "fit_parameter": parameter.name,
            "constant": constant,
            "step_constant": key,
            "default_constant_value": parameter.defaults[constant],
            "fitted_constant_value": float(fit.values[index]),
            "lower_bound": parameter.lowest,
            "upper_bound": parameter.highest,
            "is_at_bound": fit.is_at_bound(index),
            "lowest_left_out_value": float(fit.left_out_values[:, index].min()),
            "highest_left_out_value": float(fit.left_out_values[:, index].max()),
            "num_rows": len(calibration.row_names),
            **_by_estimate(fit.errors),
        }
        for index, parameter in enumerate(fit.parameters)
        for constant, key in parameter.places.items()
    ]


def kernel_constants(calibration: KernelCalibration) -> list[Record]:
    """Return a record for each constant of a kind of kernels; errors are of the kernels' times."""
    return [
        {
            "row_filters": "",
            "estimator": calibration.estimator.name,
            "estimator_version": calibration.estimator.version,
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
        for kind in calibration.kinds
        if kind.is_fitted
    ]


def kind_lines(calibration: KernelCalibration) -> list[Record]:
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
        for kind in calibration.kinds
    ]


def _by_estimate(errors: Mapping[str, FitErrors]) -> Record:
    return {
        f"{estimate}_{column}": value
        for estimate, of_estimate in errors.items()
        for column, value in of_estimate._asdict().items()
    }


def row_records(calibration: Calibration) -> list[Record]:
    """Return a record for each fitted row, with its three estimates."""
    fit = calibration.fit
    errors = {name: seconds / fit.published - 1 for name, seconds in fit.estimates.items()}
    return [
        {
            "published_row": name,
            "published_step_seconds": float(fit.published[row]),
            **{f"{how}_step_seconds": float(column[row]) for how, column in fit.estimates.items()},
            **{f"{how}_relative_error": float(column[row]) for how, column in errors.items()},
        }
        for row, name in enumerate(calibration.row_names)
    ]


def error_lines(errors: Mapping[str, FitErrors], num_rows: int) -> list[Record]:
    """Return errors as lines for people, a record for each estimate."""
    words = {"untuned": "untuned", "fitted": "fitted (in sample)", "left_out": "left out"}
    return [
        {"estimate": words[name], "num_rows": num_rows, **of_estimate._asdict()}
        for name, of_estimate in errors.items()
    ]


def other_records(calibration: Calibration) -> list[Record]:
    """Return the errors on published steps that the fit has not seen."""
    return [
        {
            "reference": other.reference,
            "is_own_framework": other.is_own_framework,
            "num_rows": other.num_rows,
            "num_refused": other.num_refused,
            "takes_fitted": other.takes_fitted,
            **{
                f"{name}_{column}": getattr(errors, column)
                for column in other.untuned._fields
                for name, errors in (("untuned", other.untuned), ("fitted", other.fitted))
            },
        }
        for other in calibration.others
    ]
