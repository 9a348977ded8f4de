"""`warehouse calibrate`: fit a few constants to published steps, and show the errors of the fit."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from estimators import registry
from warehouse.cli.common import put_for_people, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, EstimatorName, Name, Output, Replace
from warehouse.show.formats import Format, count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warehouse.calibrate.run import Calibration

DEFAULT_ESTIMATOR = registry.default("calibrate")

_CONSTANTS = {
    "step_constant": "constant",
    "default_constant_value": "default",
    "fitted_constant_value": "fitted",
    "lowest_left_out_value": "left_out_from",
    "highest_left_out_value": "left_out_to",
    "lower_bound": "lower_bound",
    "upper_bound": "upper_bound",
    "is_at_bound": "at_bound",
}
"""Column of a constant's record -> its heading."""

_ROWS = (
    *("published_row", "published_step_seconds", "fitted_step_seconds"),
    *("untuned_relative_error", "fitted_relative_error", "left_out_relative_error"),
)


def calibrate(
    output: Output,
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE",
            help="A table of published steps, such as published_megatron_scaling; or a .csv or "
            ".parquet file with the columns that `evaluate` takes, and step_seconds.",
        ),
    ],
    fit: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Constants to fit, 1 to 3; A+B share one value. exposed_communication: one "
            "value for the tensor, gradient and parameter overlap fractions that may change; "
            "exposed share = 1 - overlap.",
        ),
    ] = "product_rate_factor,exposed_communication",
    estimator: EstimatorName = DEFAULT_ESTIMATOR,
    name: Name = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Take these rows only: group=PTD-P, row!=76B,1T. May be repeated; all must hold.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="Let constants leave the range of their sources, within the limits of their "
            "columns.",
        ),
    ] = False,
    replace: Replace = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Fit a few constants to published steps.

    Shown are the errors of the default constants, of the fitted ones on the same rows, and of
    each row by constants fitted to the others; then the errors on all other published tables.
    With --name the constants are stored as a profile, which `sweep`, `evaluate` and `show` take
    with --profile. The default constants stay the default. As CSV only the constants are written.
    """
    from warehouse.calibrate.run import find_estimator, run_calibration
    from warehouse.errors import UsageError

    if replace and name is None:
        raise UsageError("`--replace` needs --name", "name the profile to replace")
    run = partial(
        run_calibration,
        reference,
        Path(reference),
        estimator=find_estimator(estimator),
        asked=[text.strip() for text in fit.split(",") if text.strip()],
        conditions=rows or [],
        wide=wide,
    )
    found = run() if name is None else _stored(db, name, run, replace=replace)
    with output.opened():
        _put(found, name, output)
    for note in found.notes:
        say(f"note: {note}")
    if name is None:
        say("not stored: --name NAME keeps the fitted constants as a profile")
    else:
        say(f"{db}: profile {name} stored; use it with --profile {name}")


def _stored(db: Path, name: str, run: Callable[[], Calibration], *, replace: bool) -> Calibration:
    """Calibrate and store; a name that cannot be used is refused before the fit."""
    from warehouse.calibrate.store import refuse_name, store_calibration
    from warehouse.database.connection import open_for_write

    with open_for_write(db) as connection:
        refuse_name(connection, name, replace=replace)
        found = run()
        store_calibration(connection, name, found, replace=replace)
    return found


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
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
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
    put("Row by row", [{key: one[key] for key in _ROWS} for one in row_records(found)])
    for one in others:
        one["reference"] += "" if one.pop("is_own_framework") else ", other programs"
    if not any(one["num_refused"] for one in others):
        others = [{key: one[key] for key in one if key != "num_refused"} for one in others]
    if others:
        put("Published steps that had no part in the fit", others)


def _section(form: Format, heading: str, records: Sequence[dict[str, Any]]) -> None:
    mark = "## " if form is Format.MARKDOWN else ""
    sys.stdout.write(f"\n{mark}{heading}\n\n")
    _table(records, form)


def _table(records: Sequence[dict[str, Any]], form: Format) -> None:
    columns = tuple(records[0])
    put_for_people(columns, [list(one.values()) for one in records], form)
