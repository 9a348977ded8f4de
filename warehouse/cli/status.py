"""`warehouse status`: what is stored, and how far a running sweep is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warehouse.cli.common import (
    Section,
    fetched,
    put_document,
    put_for_people,
    put_sections,
    records,
    say,
)
from warehouse.cli.options import DEFAULT_DATABASE, Output, WatchedDatabase
from warehouse.show.formats import count

if TYPE_CHECKING:
    from pathlib import Path

    from warehouse.cli.common import Table

_SUPERSEDED = "superseded_rows"
"""Rows that a newer version of their estimator replaced: views do not show them."""

_STUDIES = f"""\
select study_progress.*,
    coalesce(sum(cell.num_rows) filter (where cell.is_superseded), 0)::bigint as {_SUPERSEDED}
from study_progress
left join study_cell using (study)
left join cell using (cell_id)
group by all
order by study"""

_RELATIONS = f"""\
select relation, estimator, estimator_version, variant,
    count(*) as cells, sum(num_rows)::bigint as rows,
    coalesce(sum(num_rows) filter (where is_superseded), 0)::bigint as {_SUPERSEDED}
from cell
group by all
order by all"""


def status(*, output: Output, db: WatchedDatabase = DEFAULT_DATABASE) -> None:
    """Show what is stored, and how far a running sweep is.

    Lists studies, rows by table and the size of the file. While a sweep holds the database, the
    figures come from the sweep's progress file. CSV has the studies alone. Superseded rows are
    those that a newer version of their estimator replaced: no view shows them.
    """
    from warehouse.errors import DatabaseError
    from warehouse.sweep.progress import read_progress

    try:
        _put_stored(db, output)  # a database that can be read is held by no sweep
    except DatabaseError:
        progress = read_progress(db)
        if progress is None:
            raise
        _put_progress(db, progress, output)


def _put_stored(db: Path, output: Output) -> None:
    from warehouse.database.connection import open_for_read
    from warehouse.database.leftovers import leftovers

    with open_for_read(db) as connection:
        left = leftovers(db.resolve())  # of no process: this one reads, so that none writes
        studies = fetched(connection, _STUDIES)
        relations = fetched(connection, _RELATIONS)
    size = db.stat().st_size
    document = {
        "database": str(db),
        "bytes": size,
        "running": None,
        "leftovers": {path.name: size for path, size in left.items()},
        "studies": records(studies),
        "relations": records(relations),
    }
    if not output.is_json:
        say(f"{db}: {size / 1e6:,.1f} MB, no sweep is running")
    if left and not output.is_json:
        say(
            f"{db}: a command that was killed left {', '.join(path.name for path in left)}"
            f" ({sum(left.values()) / 1e6:,.1f} MB); the next command that writes removes it"
        )
    with output.opened():
        if output.is_json:
            put_document(document)
        else:
            sections = [
                Section("", *table, () if _has_superseded(table) else (_SUPERSEDED,))
                for table in (studies, relations)
            ]
            put_sections(sections, output.form)


def _has_superseded(table: Table) -> bool:
    columns, rows = table
    place = columns.index(_SUPERSEDED)
    return any(row[place] for row in rows)


def _put_progress(db: Path, progress: dict[str, Any], output: Output) -> None:
    with output.opened():
        if output.is_json:
            size = db.stat().st_size if db.exists() else None
            put_document({"database": str(db), "bytes": size, "running": progress})
            return
        say(f"{db}: process {progress['pid']} is sweeping into it; this is its progress file")
        shown = ("study", "rows", "total_rows", "cells", "total_cells", "rows_per_second")
        put_for_people(shown, [[progress[name] for name in shown]], output.form)
    left = progress["total_rows"] - progress["rows"]
    if progress["rows_per_second"] > 0:
        from warehouse.show.units import sweep_time_in_words

        seconds = left / progress["rows_per_second"]
        say(f"{count(left, 'row')} left, about {sweep_time_in_words(seconds)}")
