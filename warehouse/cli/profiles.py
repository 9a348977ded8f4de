"""`warehouse profiles`: show or drop the constants that `calibrate` stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.cli.common import fetched, put_for_people, say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Drop
from warehouse.cli.output import Output
from warehouse.show.formats import count

if TYPE_CHECKING:
    from pathlib import Path

_STORED = """\
select profile, reference, row_filters, num_rows, step_constant, default_constant_value,
    fitted_constant_value, is_at_bound, left_out_mean_absolute_relative_error
from calibration
order by profile, step_constant"""


def profiles(
    output: Output,
    drop: Drop = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show the calibrated profiles, or drop one.

    One line for each constant: its default, its fitted value, and the mean error of steps that
    the fit had not seen. Dropping a profile leaves the rows that were evaluated with it, and its
    name in their column `profile`: `warehouse drop STUDY` removes them. Profile default is table
    step_constant without changes, and cannot be dropped.
    """
    from warehouse.database.connection import open_for_read

    if drop is not None:
        _drop(db, drop)
        return
    with open_for_read(db) as connection:
        columns, rows = fetched(connection, _STORED)
    with output.opened():
        put_for_people(columns, rows, output.form)
    if not rows:
        say("no profile is stored: `warehouse calibrate REFERENCE --name NAME` stores one")


def _drop(db: Path, name: str) -> None:
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
