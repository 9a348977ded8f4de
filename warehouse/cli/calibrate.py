"""`warehouse calibrate`: fit a few constants to published steps, and show the errors of the fit."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from estimators import registry
from warehouse.cli.common import put_document, put_for_people, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Name, Replace
from warehouse.cli.output import Output
from warehouse.cli.waiting import working
from warehouse.options import Accelerator, EstimatorName
from warehouse.show.formats import Format, count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from estimators.contract import Estimator
    from warehouse.calibrate.kernels import KernelCalibration
    from warehouse.calibrate.run import Calibration

Found = TypeVar("Found")

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

DEFAULT_FIT = "product_rate_factor,exposed_communication"


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
    ] = DEFAULT_FIT
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
            help="Let constants leave the range of their sources, within the limits of their "
            "columns.",
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
            "machine: products, attention or collectives. May be repeated.",
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
    shape, is scaled by the median of measured over estimated time of its rows. A file of products
    has columns num_rows, num_columns, inner_size and seconds. It may have number_format, layout (TN
    forward, NN gradient of an input, NT gradient of a weight) and accelerator. Files of attention
    have stage, seq_len, num_heads and head_size, those of collectives in a node have collective,
    num_gpus and message_bytes, both with seconds.
    """
    from warehouse.calibrate.run import find_estimator
    from warehouse.errors import UsageError

    if replace and name is None:
        raise UsageError("`--replace` needs --name", "name the profile to replace")
    _refuse_mixed(reference, fitting, timed)
    chosen = find_estimator(estimator)
    if timed.kernels:
        _calibrate_kernels(chosen, timed, name, output, db, replace=replace)
    else:
        _calibrate_steps(chosen, str(reference), fitting, name, output, db, replace=replace)
    if name is None:
        say("not stored: --name NAME keeps the fitted constants as a profile")
    else:
        say(f"{db}: profile {name} stored; use it with --profile {name}")


def _refuse_mixed(reference: str | None, fitting: FitOptions, timed: TimedOptions) -> None:
    """Raise `UsageError` unless either a reference or timings are given, with their options."""
    from warehouse.errors import UsageError

    if timed.kernels:
        mixed = {
            "REFERENCE": reference,
            "--rows": fitting.rows,
            "--beyond-range": fitting.beyond_range,
        }
        mixed["--fit"] = fitting.fit != DEFAULT_FIT
        given = next((option for option, value in mixed.items() if value), None)
        if given is not None:
            hint = f"leave {given} out: kernels are not fitted to steps"
            raise UsageError(f"`{given}` and `--kernels` exclude one another", hint)
        return
    if reference is None:
        raise UsageError(
            "neither REFERENCE nor `--kernels` is given",
            "name a table of published steps, or a file of timings",
        )
    for option, value in {
        "--accelerator": timed.accelerator,
        "--sustained": timed.sustained,
    }.items():
        if value:
            raise UsageError(f"`{option}` needs --kernels", f"leave {option} out")


def _calibrate_steps(
    estimator: Estimator,
    reference: str,
    fitting: FitOptions,
    name: str | None,
    output: Output,
    db: Path,
    *,
    replace: bool,
) -> None:
    from warehouse.calibrate.run import run_calibration
    from warehouse.calibrate.store import store_calibration

    run = partial(
        run_calibration,
        reference,
        Path(reference),
        estimator=estimator,
        asked=[text.strip() for text in fitting.fit.split(",") if text.strip()],
        conditions=fitting.rows or [],
        wide=fitting.beyond_range,
    )
    with working("fitting the constants"):
        found = (
            run() if name is None else _stored(db, name, run, store_calibration, replace=replace)
        )
    with output.opened():
        _put(found, name, output)
    for note in found.notes:
        say(f"note: {note}")


def _calibrate_kernels(
    estimator: Estimator,
    timed: TimedOptions,
    name: str | None,
    output: Output,
    db: Path,
    *,
    replace: bool,
) -> None:
    from warehouse.calibrate.kernels import calibrate_kernels
    from warehouse.calibrate.store import store_kernels

    run = partial(
        calibrate_kernels,
        estimator,
        timed.kernels or [],
        timed.accelerator,
        is_sustained=timed.sustained,
    )
    with working("fitting the constants"):
        found = run() if name is None else _stored(db, name, run, store_kernels, replace=replace)
    with output.opened():
        _put_kernels(found, name, output)
    for note in found.notes:
        say(f"note: {note}")


def _stored(
    db: Path, name: str, run: Callable[[], Found], store: Callable[..., None], *, replace: bool
) -> Found:
    """Calibrate and store; a name that cannot be used is refused before the fit."""
    from warehouse.calibrate.store import refuse_name
    from warehouse.database.connection import writing

    with writing(db) as connection:
        refuse_name(connection, name, replace=replace)
        found = run()
        store(connection, name, found, replace=replace)
    return found


def _put_kernels(found: KernelCalibration, name: str | None, output: Output) -> None:
    from warehouse.calibrate.store import error_lines, kernel_constants, kind_lines

    constants = kernel_constants(found)
    errors = error_lines(found.errors, found.num_used)
    if output.is_json:
        document = {
            "profile": name,
            "files": list(found.files),
            "accelerator": found.accelerator,
            "is_sustained": found.is_sustained,
            "num_rows": found.num_rows,
            "num_used": found.num_used,
            "kinds": kind_lines(found),
            "constants": constants,
            "errors": errors,
            "left_out": dict(found.left_out),
            "notes": list(found.notes),
        }
        put_document(document)
        return
    if not output.is_for_people:
        _table(constants, output.form)
        return
    put = partial(_section, output.form)
    how = "timed in long loops" if found.is_sustained else "timed at full clock"
    rows = f"{count(found.num_used, 'row')} of {found.num_rows:,}"
    put(f"{found.accelerator}: {rows} of {found.reference}, {how}", _rounded(kind_lines(found)))
    put("Error of the kernels' time; left out: each tenth by the other rows", errors)
    if found.left_out:
        lines = [{"rows_left_out": n, "why": reason} for reason, n in found.left_out.items()]
        put("Rows that were not used", lines)


def _rounded(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records whose real numbers have three decimals, or small ones three digits."""
    return [
        {
            key: _shortened(value) if isinstance(value, float) else value
            for key, value in one.items()
        }
        for one in records
    ]


def _shortened(value: float) -> float:
    return round(value, 3) if abs(value) >= 0.01 else float(f"{value:.3g}")


def _put(found: Calibration, name: str | None, output: Output) -> None:
    from warehouse.calibrate.store import (
        constant_records,
        error_records,
        other_records,
        row_records,
    )

    constants, others = constant_records(found), other_records(found)
    if output.is_json:
        document = {
            "profile": name,
            "reference": found.reference,
            "row_filters": list(found.filters),
            "constants": constants,
            "errors": error_records(found),
            "rows": row_records(found),
            "others": others,
            "notes": list(found.notes),
        }
        put_document(document)
        return
    if not output.is_for_people:
        _table(constants, output.form)
        return
    where = f" where {' and '.join(found.filters)}" if found.filters else ""
    put = partial(_section, output.form)
    put(
        f"Constants fitted to {count(len(found.row_names), 'row')} of {found.reference}{where}",
        [{title: one[key] for key, title in _CONSTANTS.items()} for one in constants],
    )
    put(
        "Error of the step's time; left out: each row by constants fitted to the others",
        error_records(found),
    )
    is_own = Path(found.reference).suffix in (".csv", ".parquet")
    rows = [{key: one[key] for key in _ROWS} for one in row_records(found)]
    put("Row by row", rows, _OWN_HEADINGS if is_own else {})
    for one in others:
        one["reference"] += "" if one.pop("is_own_framework") else ", other programs"
    if not any(one["num_refused"] for one in others):
        others = [{key: one[key] for key in one if key != "num_refused"} for one in others]
    if others:
        put("Published steps that had no part in the fit", others)


def _section(
    form: Format,
    heading: str,
    records: Sequence[dict[str, Any]],
    headings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    mark = "## " if form is Format.MARKDOWN else ""
    sys.stdout.write(f"\n{mark}{heading}\n\n")
    _table(records, form, headings)


def _table(
    records: Sequence[dict[str, Any]],
    form: Format,
    headings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    columns = tuple(records[0])
    put_for_people(columns, [list(one.values()) for one in records], form, headings=headings)
