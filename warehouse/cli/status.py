"""`warehouse status`: what is stored, and how far a running sweep is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from warehouse.cli.common import (
    DEFAULT_DATABASE,
    Database,
    count,
    fetched,
    put_for_people,
    records,
    say,
)

_STUDIES = "from study_progress order by study"

_RELATIONS = """\
select relation, estimator, estimator_version, variant,
    count(*) as cells, sum(num_rows)::bigint as rows
from cell
group by all
order by all"""


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show what is stored, and how far a running sweep is.

    Studies, rows by table, the size of the file. Answers while a sweep holds the database as
    well: then from the progress file beside it.
    """
    from warehouse.errors import DatabaseError
    from warehouse.sweep.progress import read_progress

    try:
        _show_stored(db, as_json=as_json)  # whoever can read it knows that no sweep is running
    except DatabaseError:
        progress = read_progress(db)
        if progress is None:
            raise
        _show_progress(db, progress, as_json=as_json)


def _show_stored(db: Path, *, as_json: bool) -> None:
    from warehouse.database.connection import open_for_read

    with open_for_read(db) as connection:
        studies = fetched(connection, _STUDIES)
        relations = fetched(connection, _RELATIONS)
    size = db.stat().st_size
    if as_json:
        found = {
            "database": str(db),
            "bytes": size,
            "running": None,
            "studies": records(studies),
            "relations": records(relations),
        }
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    say(f"{db}: {size / 1e6:,.1f} MB, no sweep is running")
    put_for_people(*studies)
    sys.stdout.write("\n")
    put_for_people(*relations)


def _show_progress(db: Path, progress: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        size = db.stat().st_size if db.exists() else None
        found = {"database": str(db), "bytes": size, "running": progress}
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    say(f"{db}: process {progress['pid']} is sweeping into it; this is from its progress file")
    shown = ("study", "rows", "total_rows", "cells", "total_cells", "rows_per_second")
    put_for_people(shown, [[progress[name] for name in shown]])
    left = progress["total_rows"] - progress["rows"]
    if progress["rows_per_second"] > 0:
        say(f"{count(left, 'row')} left, about {left / progress['rows_per_second']:,.0f} s")
