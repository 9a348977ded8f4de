"""`warehouse init`, `drop`, `backup` and `compact`: the database file itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warehouse.cli.common import say
from warehouse.cli.options import DEFAULT_DATABASE, Database, Overwrite
from warehouse.cli.waiting import working
from warehouse.options import whole_option
from warehouse.show.formats import count


def init(
    *,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Make everything again that follows from the stored rows."),
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Create the database, or bring it up to date.

    Reference tables, macros and views are made again: changes and removals by hand are undone.
    Commands that write do the same for a database of another version. --anew also makes best
    layouts and ranks again. Use it if `warehouse validate` reports wrong ones.
    """
    existed = db.exists()
    bring_up_to_date(db, again=True, anew=anew)
    if existed:
        say("stored values were not checked: `warehouse validate` does")


def bring_up_to_date(db: Path, *, again: bool = False, anew: bool = False) -> None:
    """Create the database, or bring one of another version up to date, and say so.

    `again` makes tables and views of this version again, `anew` also the rows that follow.
    """
    from warehouse.database.new_file import contents_of, create_missing

    existed = db.exists()
    contents = create_missing(db)
    if contents is None:
        from warehouse.database.connection import writing

        # a new database starts without numpy
        options = {"remakes": again, "keeps_rows": not anew}
        with working("making tables and views"), writing(db, **options) as connection:
            contents = contents_of(connection)
    done = "is up to date" if existed else "created"
    say(f"{db} {done}: {count(contents.num_tables, 'table')}, {count(contents.num_views, 'view')}")


def drop(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Name of a stored study.")],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Remove a study and the rows that no other study asks for.

    The file keeps its size, and new rows take the space; `warehouse compact` shrinks it.
    """
    from warehouse.sweep.record import drop_study

    with working("dropping rows"):
        report = drop_study(db, study)
    say(
        f"dropped {report.study}: {count(report.cells, 'cell')}, {count(report.rows, 'row')}; "
        f"{report.free_in_words}"
    )


def backup(
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="The copy; with --keep by default DB.backup.", readable=False
        ),
    ] = None,
    *,
    keep: Annotated[
        int | None,
        whole_option(
            "--keep", "Keep this many copies: FILE is the newest, FILE.1 the one before it."
        ),
    ] = None,
    force: Overwrite = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Copy the database to a file, and check the copy.

    Others may read the database meanwhile. The copy is a database like any other: name it with
    --db. Setting `backups` keeps as many copies as DB.backup, a new one before each sweep.
    """
    from warehouse.database.copies import backup as copied
    from warehouse.database.copies import keep_backups, usual_backup
    from warehouse.errors import UsageError
    from warehouse.files import refuse_existing

    if out is None and keep is None:
        raise UsageError("give a FILE for the copy, or --keep", "warehouse backup --keep 3")
    out = out or usual_backup(db)
    if keep is None:
        refuse_existing(out, force=force)
    with working("copying the database"):
        size = copied(db, out) if keep is None else keep_backups(db, out, keep)
    say(f"{out}: {size / 1e6:,.1f} MB, opened and compared with {db}")


def compact(db: Database = DEFAULT_DATABASE) -> None:
    """Shrink the database file.

    Dropped and replaced rows leave space behind. The others are copied to a new file, which
    takes the place of the old one once its tables have as many rows. This needs free disk space
    for the copy.
    """
    from warehouse.database.copies import compact as shrink
    from warehouse.database.paths import refuse_missing

    refuse_missing(db)  # opening for write would make one
    before = db.stat().st_size
    with working("shrinking the file"):
        shrink(db)
    after = db.stat().st_size
    say(f"{db}: {after / 1e6:,.1f} MB, {max(before - after, 0) / 1e6:,.1f} MB freed")
