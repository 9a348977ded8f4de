"""`warehouse calibrate` fits a few constants to steps; `warehouse profiles` lists the fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from estimators import registry
from warehouse.cli.common import fetched, put_for_people, put_page, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Drop, Name, Replace, refuse_given
from warehouse.cli.output import Output
from warehouse.cli.waiting import working
from warehouse.options import DEFAULT_FIT, Accelerator, EstimatorName
from warehouse.show.formats import count
from warehouse.show.page import Page, Section, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from estimators.estimator import Estimator
    from warehouse.calibrate.kernels import KernelCalibration
    from warehouse.calibrate.run import Calibration

DEFAULT_ESTIMATOR = registry.default("calibrate")

_CONSTANTS = {
    "step_constant": "constant",
    "default_constant_value": "default",
    "fitted_constant_value": "fitted",
    "lowest_left_out_value": "lowest_without_one_row",
    "highest_left_out_value": "highest_without_one_row",
    "lower_bound": "lower_bound",
    "upper_bound": "upper_bound",
    "is_at_bound": "at_bound",
}
"""Column of a constant's record -> its heading."""

_ROWS = (
    *("published_row", "published_step_seconds", "fitted_step_seconds"),
    *("untuned_relative_error", "fitted_relative_error", "left_out_relative_error"),
)

_OWN_HEADINGS = {"published_row": "measured row", "published_step_seconds": "measured step s"}
"""Headings for a user's own runs, which are not published."""

_TABLES = (
    *(*_CONSTANTS.values(), "estimate", "num_rows", "mean_absolute_relative_error"),
    *("max_absolute_relative_error", "bias", *_ROWS, *_OWN_HEADINGS.values()),
    *("reference", "num_refused", "takes_fitted", "untuned_mean_absolute_relative_error"),
    *("fitted_mean_absolute_relative_error", "untuned_max_absolute_relative_error"),
    *("fitted_max_absolute_relative_error", "untuned_bias", "fitted_bias"),
    *("kernels", "times_as_long", "half_from", "half_to", "rows_left_out", "why"),
)
"""Columns of all tables that people read, of fits to steps and to timings."""

PROFILES = (
    *("profile", "reference", "row_filters", "num_rows", "step_constant", "default_constant_value"),
    *("fitted_constant_value", "is_at_bound", "left_out_mean_absolute_relative_error"),
)
"""Columns of the list of profiles."""

DEFAULT_FITTED = ",".join(DEFAULT_FIT)


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit to steps."""

    fit: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Constants to fit, 1 to 3; A+B share one value. exposed_communication: one "
            "value for the tensor, gradient and parameter overlap fractions that may change; "
            "exposed share = 1 - overlap.",
        ),
    ] = DEFAULT_FITTED
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Take these rows only: group=PTD-P, row!=76B,1T. May be repeated; all must hold.",
        ),
    ] = None
    beyond_range: Annotated[
        bool,
        typer.Option(
            "--beyond-range",
            help="Let constants leave their published ranges, up to the limits of their columns.",
        ),
    ] = False


@dataclass(frozen=True)
class TimedOptions:
    """Options of a fit to timings of kernels."""

    kernels: Annotated[
        list[Path] | None,
        typer.Option(
            "--kernels",
            metavar="FILE",
            readable=False,
            help="Instead of REFERENCE: a .csv or .parquet file of kernels that were timed on a "
            "machine: matmuls, attention or collectives. May be repeated.",
        ),
    ] = None
    accelerator: Accelerator = None
    sustained: Annotated[
        bool,
        typer.Option(
            "--sustained",
            help="The kernels of --kernels were timed in long loops, at the clock that the power "
            "limit leaves.",
        ),
    ] = False


def calibrate(
    fitting: FitOptions,
    timed: TimedOptions,
    output: Output,
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="[REFERENCE]",
            help="A table of published steps, such as published_megatron_scaling; or a .csv or "
            ".parquet file with the columns that `evaluate` takes, and step_seconds.",
        ),
    ] = None,
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    name: Name = None,
    replace: Replace = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Fit constants to published steps, or to timed kernels.

    The output has three errors: with the default constants, with the fitted constants on the same
    rows, and of each row with constants fitted to the other rows. Then come the errors on all other
    published tables. With --name the constants are stored as a profile, which `sweep`, `plan`,
    `evaluate` and `show` take with --profile. The default constants stay the default. As CSV only
    the constants are written.

    With --kernels nothing is fitted to steps. Each kind of kernels, by number format, pass and
    shape, is scaled by the median of measured over estimated time of its rows. A file of matmuls
    has columns num_rows, num_columns, inner_size and seconds. It may have number_format, layout (TN
    forward, NN gradient of an input, NT gradient of a weight) and accelerator. Files of attention
    have stage, seq_len, num_heads and head_size, those of collectives in a node have collective,
    num_gpus and message_bytes, both with seconds.
    """
    from warehouse.database.tables import CALIBRATION_TABLES
    from warehouse.errors import require_capability

    if name is None:
        refuse_given({"--replace": replace}, "needs --name", "name the profile to replace")
    output.expect(_TABLES, csv=CALIBRATION_TABLES[0].columns)
    _refuse_mixed(reference, fitting, timed)
    chosen = registry.get(estimator or DEFAULT_ESTIMATOR)
    require_capability(chosen, "constants.names", "has no constants to calibrate")
    run: Callable[[], Calibration | KernelCalibration]
    run = partial(_fitted, chosen, str(reference), fitting)
    if timed.kernels:
        run = partial(_timed, chosen, timed)
    with working("fitting the constants"):
        found = run() if name is None else _stored(db, name, run, replace=replace)
    with output.opened():
        put_page(_page(found, name))
    for note in found.notes:
        say(f"note: {note}")
    if name is None:
        say("not stored: --name NAME keeps the fitted constants as a profile")
    else:
        say(f"{db}: profile {name} stored; use it with --profile {name}")


def _refuse_mixed(reference: str | None, fitting: FitOptions, timed: TimedOptions) -> None:
    """Raise `UsageError` unless either a reference or timings are given, with their options."""
    from warehouse.errors import UsageError

    if timed.kernels:
        of_steps = {
            "REFERENCE": reference,
            "--rows": fitting.rows or None,
            "--beyond-range": fitting.beyond_range,
            "--fit": fitting.fit != DEFAULT_FITTED,
        }
        hint = "leave it out: kernels are not fitted to steps"
        refuse_given(of_steps, "and `--kernels` exclude one another", hint)
        return
    if reference is None:
        raise UsageError(
            "neither REFERENCE nor `--kernels` is given",
            "name a table of published steps, or a file of timings",
        )
    of_kernels = {"--accelerator": timed.accelerator, "--sustained": timed.sustained}
    refuse_given(of_kernels, "needs --kernels", "leave it out")


def _fitted(estimator: Estimator, reference: str, fitting: FitOptions) -> Calibration:
    from warehouse.calibrate.run import run_calibration

    return run_calibration(
        *(reference, Path(reference)),
        estimator=estimator,
        constants=[text.strip() for text in fitting.fit.split(",") if text.strip()],
        conditions=fitting.rows or [],
        wide=fitting.beyond_range,
    )


def _timed(estimator: Estimator, timed: TimedOptions) -> KernelCalibration:
    from warehouse.calibrate.kernels import calibrate_kernels

    files = timed.kernels or []
    return calibrate_kernels(estimator, files, timed.accelerator, is_sustained=timed.sustained)


def _stored(
    db: Path, name: str, run: Callable[[], Calibration | KernelCalibration], *, replace: bool
) -> Calibration | KernelCalibration:
    """Calibrate and store; a name that cannot be used is refused before the fit."""
    from warehouse.calibrate.store import refuse_profile_name, store_calibration
    from warehouse.database.connection import writing

    with writing(db) as connection:
        refuse_profile_name(connection, name, replace=replace)
        found = run()
        store_calibration(connection, name, found, replace=replace)
    return found


def _page(found: Calibration | KernelCalibration, name: str | None) -> Page:
    from warehouse.calibrate.kernels import KernelCalibration

    if isinstance(found, KernelCalibration):
        return _page_of_kernels(found, name)
    return _page_of_steps(found, name)


def _page_of_kernels(found: KernelCalibration, name: str | None) -> Page:
    from warehouse.calibrate.store import error_lines, kernel_constants, kind_lines

    constants, kinds = kernel_constants(found), kind_lines(found)
    errors = error_lines(found.errors, found.num_used)
    document = {
        "profile": name,
        "files": list(found.files),
        "accelerator": found.accelerator,
        "is_sustained": found.is_sustained,
        "num_rows": found.num_rows,
        "num_used": found.num_used,
        "kinds": kinds,
        "constants": constants,
        "errors": errors,
        "left_out": dict(found.left_out),
        "notes": list(found.notes),
    }
    how = "timed in long loops" if found.is_sustained else "timed at full clock"
    rows = f"{count(found.num_used, 'row')} of {found.num_rows:,}"
    rounded = [
        {key: _rounded(value) if isinstance(value, float) else value for key, value in kind.items()}
        for kind in kinds
    ]
    heading = "Error of the kernels' time; left out: each tenth by the other rows"
    sections = [
        Section(f"{found.accelerator}: {rows} of {found.reference}, {how}", *table_of(rounded)),
        Section(heading, *table_of(errors)),
    ]
    if found.left_out:
        lines = [{"rows_left_out": n, "why": reason} for reason, n in found.left_out.items()]
        sections.append(Section("Rows that were not used", *table_of(lines)))
    return Page(document, Section("", *table_of(constants)), sections)


def _rounded(value: float) -> float:
    """Return a number with three decimals, or a small one with three digits."""
    return round(value, 3) if abs(value) >= 0.01 else float(f"{value:.3g}")


def _page_of_steps(found: Calibration, name: str | None) -> Page:
    from warehouse.calibrate.store import (
        constant_records,
        error_lines,
        other_records,
        row_records,
    )

    constants, others = constant_records(found), other_records(found)
    errors = error_lines(found.fit.errors, len(found.row_names))
    rows = row_records(found)
    document = {
        "profile": name,
        "reference": found.reference,
        "row_filters": list(found.filters),
        "constants": constants,
        "errors": errors,
        "rows": rows,
        "others": others,
        "notes": list(found.notes),
    }
    where = f" where {' and '.join(found.filters)}" if found.filters else ""
    fitted = count(len(found.row_names), "row")
    shown = [{title: line[key] for key, title in _CONSTANTS.items()} for line in constants]
    heading = "Error of the step's time; left out: each row by constants fitted to the others"
    is_own = Path(found.reference).suffix in (".csv", ".parquet")
    by_row = [{key: line[key] for key in _ROWS} for line in rows]
    sections = [
        Section(f"Constants fitted to {fitted} of {found.reference}{where}", *table_of(shown)),
        Section(heading, *table_of(errors)),
        Section("Row by row", *table_of(by_row), headings=_OWN_HEADINGS if is_own else {}),
    ]
    if others:
        drop = set() if any(line["num_refused"] for line in others) else {"num_refused"}
        named = [
            {
                **line,
                "reference": line["reference"]
                + ("" if line["is_own_framework"] else ", other programs"),
            }
            for line in others
        ]
        heading = "Published steps that had no part in the fit"
        sections.append(Section(heading, *table_of(named), drop={*drop, "is_own_framework"}))
    return Page(document, Section("", *table_of(constants)), sections)


def profiles(output: Output, drop: Drop = None, db: Database = DEFAULT_DATABASE) -> None:
    """Show the calibrated profiles, or drop one.

    One line for each constant: its default, its fitted value, and the mean error of steps that
    the fit had not seen. Dropping a profile leaves the rows that were evaluated with it, and its
    name in their column `profile`: `warehouse drop STUDY` removes them. Profile default is table
    step_constant without changes, and cannot be dropped.
    """
    from warehouse.database.connection import open_for_read

    if drop is not None:
        _drop_profile(db, drop)
        return
    output.expect(PROFILES)
    query = f"select {', '.join(PROFILES)} from calibration order by profile, step_constant"
    with open_for_read(db) as connection:
        columns, rows = fetched(connection, query)
    with output.opened():
        put_for_people(columns, rows)
    if not rows:
        say("no profile is stored: `warehouse calibrate REFERENCE --name NAME` stores one")


def _drop_profile(db: Path, name: str) -> None:
    from warehouse.calibrate.store import drop_profile
    from warehouse.database.connection import writing
    from warehouse.database.paths import refuse_missing

    refuse_missing(db)  # opening for write would make one
    with writing(db) as connection:
        dropped = drop_profile(connection, name)
    say(f"dropped profile {name}: {count(dropped.constants, 'constant')}")
    if dropped.rows:
        studies = ", ".join(dropped.studies)
        say(
            f"{count(dropped.rows, 'row')} evaluated with it do not change ({studies}): "
            "`warehouse drop STUDY` removes them"
        )
