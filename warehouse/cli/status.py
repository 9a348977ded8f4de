"""`warehouse status`: what is stored, and how far a running sweep is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import (
    fetched,
    put,
    put_document,
    put_for_people,
    put_sections,
    records,
    say,
)
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.show.formats import count
from warehouse.show.page import Section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from warehouse.show.values import Row

_SUPERSEDED = "superseded_rows"
"""Rows that a newer version of their estimator replaced: views do not show them."""

_TIMES = ("created_at", "evaluated_at")
_SHOWN = 8
"""Values of a column of a study that are shown."""

_STUDIES = "from study_progress order by study"

_RELATIONS = f"""\
select relation, estimator, estimator_version, variant,
    count(*) as cells, sum(num_rows)::bigint as rows,
    coalesce(sum(num_rows) filter (where is_superseded), 0)::bigint as {_SUPERSEDED}
from cell
group by all
order by all"""


_ONE = """\
select study, estimator, study_file, created_at, max(cell.evaluated_at) as evaluated_at,
    study.num_cells, count(cell.cell_id) as num_cells_done,
    count(cell.cell_id) filter (where cell.num_rows = 0) as num_cells_without_rows,
    coalesce(sum(cell.num_rows), 0)::bigint as num_rows,
    coalesce(sum(cell.num_rows) filter (where cell.is_superseded), 0)::bigint as superseded_rows,
    list(distinct cell.estimator_version order by cell.estimator_version) as estimator_versions,
    list(distinct cell.variant order by cell.variant) as variants,
    definition
from study
left join study_cell using (study)
left join (select * exclude (estimator) from cell) as cell using (cell_id)
where study = ?
group by all"""


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="Show this stored study: its cells, rows and values. A question of `plan` may go "
            "by the six digits at the end of its name.",
        ),
    ] = None,
    *,
    output: Output,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Show what is stored, and how far a running sweep is.

    Lists studies, rows by table and the size of the file. While a sweep holds the database, the
    figures come from the sweep's progress file. CSV has the studies alone. Superseded rows are
    those that a newer version of their estimator replaced: no view shows them.
    """
    from warehouse.sweep.progress import read_progress

    if study is not None:
        _put_study(db, study, output)
        return
    progress = read_progress(db)
    if progress is None:
        _put_stored(db, output)
    else:
        _put_progress(db, progress, output)


def _put_stored(db: Path, output: Output) -> None:
    from warehouse.database.connection import is_snapshot, open_for_read
    from warehouse.database.facts import folder_of, is_folder, read_facts
    from warehouse.database.paths import leftovers

    with open_for_read(db) as connection:
        is_written = is_snapshot(connection, db)
        # without a process: this one reads the file, so no other writes
        left = {} if is_written else leftovers(db.resolve())
        studies = fetched(connection, _STUDIES)
        relations = fetched(connection, _RELATIONS)
    size, folder = db.stat().st_size, folder_of(db)
    num_facts = len(read_facts(folder).live()) if is_folder(folder) else 0
    document = {
        "database": str(db),
        "bytes": size,
        "facts": num_facts,
        "running": None,
        "leftovers": {path.name: size for path, size in left.items()},
        "studies": records(studies),
        "relations": records(relations),
    }
    with output.opened():
        if output.is_json:
            put_document(document)
            return
        running = "" if is_written else ", no sweep is running"
        facts = f"; {count(num_facts, 'fact')} in {folder.name}" if num_facts else ""
        say(f"{db}: {size / 1e6:,.1f} MB{running}{facts}")
        if left:
            say(
                f"{db}: a command that was killed left {', '.join(path.name for path in left)}"
                f" ({sum(left.values()) / 1e6:,.1f} MB); the next command that writes removes it"
            )
        sections = [
            Section("", columns, rows, _unused(columns, rows), lines=lines)
            for (columns, rows), lines in ((studies, ()), (relations, ("",)))
        ]
        put_sections(sections, output.form)


def _unused(columns: Sequence[str], rows: Sequence[Row]) -> Collection[str]:
    """Return the column of superseded rows if there are none."""
    index = columns.index(_SUPERSEDED)
    return () if any(row[index] for row in rows) else (_SUPERSEDED,)


def _put_study(db: Path, name: str, output: Output) -> None:
    """Print one stored study: a line for each figure, or a JSON object in base units."""
    import json

    from warehouse.database.connection import open_for_read, rows_as_dicts
    from warehouse.show.units import in_words
    from warehouse.show.values import json_value
    from warehouse.studies.stored import stored_study

    with open_for_read(db) as connection:
        stored = rows_as_dicts(connection, _ONE, [stored_study(connection, name)])
    study = dict(stored[0])
    definition = json.loads(study.pop("definition"))
    with output.opened():
        if output.is_json:
            put_document(json_value({**study, "definition": definition}))
            return
        times = {column: study.pop(column) for column in _TIMES}
        figures = {
            column: ", ".join(map(str, value)) if isinstance(value, list) else in_words("", value)
            for column, value in study.items()
        }
        figures |= {c: f"{time:%Y-%m-%d %H:%M} UTC" for c, time in times.items() if time}
        rows = [(column.replace("_", " "), words) for column, words in figures.items()]
        spaces = definition.get("spaces", [])
        rows += [(column, words) for space in spaces[:1] for column, words in _values_of(space)]
        if len(spaces) > 1:
            rows.append(("further spaces", f"{len(spaces) - 1:,}"))
        put(("of the study", "value"), [rows], output.form)


def _values_of(space: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """Yield the columns of a search space, each with its first values in their unit."""
    from warehouse.show.units import in_words

    for column, values in space.items():
        words = [in_words(column, v) if isinstance(v, float) else str(v) for v in values[:_SHOWN]]
        more = f" ... ({len(values)} values)" if len(values) > _SHOWN else ""
        yield column, ", ".join(words) + more


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
