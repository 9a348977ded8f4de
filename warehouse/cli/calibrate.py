"""`warehouse calibrate`: fit a few constants to published steps, and say how far that carries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import DEFAULT_DATABASE, Database, count, put_for_people, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warehouse.calibrate.run import Calibration

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
    reference: Annotated[
        str,
        typer.Argument(
            metavar="REFERENCE",
            help="A table of published steps, such as published_megatron_scaling; or a .csv or "
            ".parquet file with the columns of `evaluate training_step` and step_seconds.",
        ),
    ],
    fit: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Constants to fit, 1 to 3; A+B share one value. exposed_communication: one "
            "value for the tensor, gradient and parameter overlap fractions that may change; "
            "the exposed share of those collectives is one less it.",
        ),
    ] = "gemm_efficiency,exposed_communication",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Store the fitted constants as a profile of this name."),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Take these rows only: group=PTD-P, row!=76B,1T; several conditions all hold.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="Let constants leave the range that their sources admit, within what the "
            "column can hold.",
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a stored profile of that name.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, in base units.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Fit a few constants of training_step to published steps.

    Shown are the errors of the untuned constants, of the fitted ones on the rows that they have
    seen, and of each row by constants fitted to the others; then those on all other published
    tables. With --name the constants are stored as a profile, which `sweep`, `evaluate` and
    `show` take with --profile. The uncalibrated constants stay the default.
    """
    from warehouse.calibrate.run import run_calibration
    from warehouse.errors import UsageError

    if replace and name is None:
        raise UsageError("`--replace` needs --name", "name the profile that is to be replaced")
    asked = [text.strip() for text in fit.split(",") if text.strip()]

    def run() -> Calibration:
        return run_calibration(
            reference, Path(reference), asked=asked, conditions=rows or [], wide=wide
        )

    found = run() if name is None else _stored(db, name, run, replace=replace)
    if as_json:
        sys.stdout.write(json.dumps(_document(found, name), indent=1) + "\n")
    else:
        _show(found)
    for note in found.notes:
        say(f"note: {note}")
    if name is None:
        say("not stored: --name NAME keeps the fitted constants as a profile")
    else:
        say(f"{db}: profile {name} stored; use it with --profile {name}")


def _stored(db: Path, name: str, run: Any, *, replace: bool) -> Calibration:
    """Calibrate and store; a name that is taken is told before the fit."""
    from warehouse.calibrate.store import refuse_name, store_calibration
    from warehouse.database.connection import open_for_write

    with open_for_write(db) as connection:
        refuse_name(connection, name, replace=replace)
        found: Calibration = run()
        store_calibration(connection, name, found, replace=replace)
    return found


def _show(found: Calibration) -> None:
    from warehouse.calibrate.store import (
        constant_records,
        error_records,
        other_records,
        row_records,
    )

    where = f" where {' and '.join(found.filters)}" if found.filters else ""
    _heading(
        f"Constants fitted to {count(len(found.row_names), 'row')} of {found.reference}{where}"
    )
    own = constant_records(found)
    _table([{title: one[name] for name, title in _CONSTANTS.items()} for one in own])
    _heading("Error of the step's time; left out: each row by constants fitted to the others")
    _table(error_records(found))
    _heading("Row by row")
    _table(row_records(found), _ROWS)
    others = other_records(found)
    if others:
        _heading("Published steps that had no part in the fit")
        for one in others:
            one["reference"] += "" if one.pop("is_own_framework") else ", other programs"
        _table(others, drop=() if any(one["num_refused"] for one in others) else ("num_refused",))


def _heading(text: str) -> None:
    sys.stdout.write(f"\n{text}\n\n")


def _table(
    records: Sequence[dict[str, Any]], columns: Sequence[str] = (), drop: Sequence[str] = ()
) -> None:
    columns = columns or tuple(records[0])
    put_for_people(columns, [[one[name] for name in columns] for one in records], drop=drop)


def _document(found: Calibration, name: str | None) -> dict[str, Any]:
    from warehouse.calibrate.store import (
        constant_records,
        error_records,
        other_records,
        row_records,
    )

    return {
        "profile": name,
        "reference": found.reference,
        "row_filters": list(found.filters),
        "constants": constant_records(found),
        "errors": error_records(found),
        "rows": row_records(found),
        "others": other_records(found),
        "notes": list(found.notes),
    }
