"""`warehouse status`: what is stored, and how far a running sweep is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse.cli.common import fetched, put_page, records
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.show.formats import count
from warehouse.show.page import Page, Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


_SUPERSEDED = "superseded_rows"
"""Rows that a newer version of their estimator replaced: views do not show them."""

STUDIES = (
    *("study", "study_file", "estimator", "created_at", "num_cells", "num_cells_done"),
    *("num_rows", "num_rows_done", "evaluated_at", _SUPERSEDED),
)
RELATIONS = ("relation", "estimator", "estimator_version", "variant", "cells", "rows", _SUPERSEDED)
_STUDY = ("of the study", "value")
PROGRESS = ("study", "rows", "total_rows", "cells", "total_cells", "rows_per_second")
"""Columns of the tables: the studies, the rows by table, one study, and a running sweep."""

_TIMES = ("created_at", "evaluated_at")
_SHOWN = 8
"""Values of a column of a study that are shown."""

_COUNT_ROWS = f"""\
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

    Lists studies, rows by table and the size of the file; questions of `plan` are counted in a
    line. While a sweep holds the database, the
    figures come from the sweep's progress file. CSV has the studies alone. Superseded rows are
    those that a newer version of their estimator replaced: no view shows them.
    """
    from warehouse.sweep.progress import read_progress

    if study is not None:
        output.expect(_STUDY, csv=_STUDY)
        page = _study_page(db, study)
    elif (progress := read_progress(db)) is not None:
        output.expect(PROGRESS, csv=PROGRESS)
        page = _progress_page(db, progress)
    else:
        output.expect((*STUDIES, *RELATIONS), csv=STUDIES)
        page = _stored_page(db)
    with output.opened():
        put_page(page)


def _stored_page(db: Path) -> Page:
    from warehouse.database.connection import is_snapshot, open_for_read
    from warehouse.database.facts import folder_of, is_folder, read_facts
    from warehouse.database.paths import leftovers
    from warehouse.database.stamp import reference_in_words, reference_version
    from warehouse.settings import plan_cache_bytes
    from warehouse.show.units import size_in_words
    from warehouse.sweep.plan_cache import cached_questions

    with open_for_read(db) as connection:
        is_written = is_snapshot(connection, db)
        # without a process: this one reads the file, so no other writes
        left = {} if is_written else leftovers(db.resolve())
        query = f"select {', '.join(STUDIES)} from study_progress order by study"
        studies = fetched(connection, query)
        questions = cached_questions(connection)
        relations = fetched(connection, _COUNT_ROWS)
    size, folder = db.stat().st_size, folder_of(db)
    num_facts = len(read_facts(folder).live()) if is_folder(folder) else 0
    cache = {
        "questions": len(questions),
        "rows": sum(question.num_rows for question in questions),
        "bytes": round(sum(question.num_bytes for question in questions)),
        "most_bytes": round(plan_cache_bytes()),
    }
    document = {
        "database": str(db),
        "reference_data": reference_version(),
        "bytes": size,
        "facts": num_facts,
        "running": None,
        "leftovers": {path.name: size for path, size in left.items()},
        "studies": records(studies),
        "plan_cache": cache,
        "relations": records(relations),
    }
    running = "" if is_written else ", no sweep is running"
    facts = f"; {count(num_facts, 'fact')} in {folder.name}" if num_facts else ""
    data = f"; {reference_in_words()}"
    remarks = [f"{db}: {size / 1e6:,.1f} MB{running}{facts}{data}"]
    if cache["questions"]:
        remarks.append(
            f"{count(cache['questions'], 'question')} of `plan`: {count(cache['rows'], 'row')}, "
            f"{size_in_words(cache['bytes'])} of at most {size_in_words(cache['most_bytes'])}; "
            "the oldest go first (plan_cache_gb)"
        )
    if left:
        remarks.append(
            f"{db}: a command that was killed left {', '.join(path.name for path in left)}"
            f" ({sum(left.values()) / 1e6:,.1f} MB); the next command that writes removes it"
        )
    sections = []
    for (columns, rows), lines in ((studies, ()), (relations, ("",))):
        # only a database with superseded rows has their column
        drop = () if any(row[-1] for row in rows) else (_SUPERSEDED,)
        sections.append(Section("", columns, rows, drop, lines=lines))
    return Page(document, Section("the first table", *studies), sections, remarks)


def _study_page(db: Path, name: str) -> Page:
    """Return a line for each figure of one stored study; JSON has base units."""
    import json

    from warehouse.database.connection import open_for_read, rows_as_dicts
    from warehouse.show.units import in_words
    from warehouse.show.values import json_value
    from warehouse.studies.stored import stored_study

    with open_for_read(db) as connection:
        (study,) = rows_as_dicts(connection, _ONE, [stored_study(connection, name)])
    definition = json.loads(study["definition"])
    figures = {
        column: ", ".join(map(str, value)) if isinstance(value, list) else in_words("", value)
        for column, value in study.items()
        if column not in ("definition", *_TIMES)
    }
    figures |= {c: f"{study[c]:%Y-%m-%d %H:%M} UTC" for c in _TIMES if study[c]}
    rows = [(column.replace("_", " "), words) for column, words in figures.items()]
    spaces = definition.get("spaces", [])
    rows += [(column, words) for space in spaces[:1] for column, words in _values_of(space)]
    if len(spaces) > 1:
        rows.append(("further spaces", f"{len(spaces) - 1:,}"))
    document = json_value({**study, "definition": definition})
    table = Section("", _STUDY, rows, is_text=True)
    return Page(document, table, [table])


def _values_of(space: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """Yield the columns of a search space, each with its first values in their unit."""
    from warehouse.show.units import in_words

    for column, values in space.items():
        words = [in_words(column, v) if isinstance(v, float) else str(v) for v in values[:_SHOWN]]
        more = f" ... ({len(values)} values)" if len(values) > _SHOWN else ""
        yield column, ", ".join(words) + more


def _progress_page(db: Path, progress: dict[str, Any]) -> Page:
    size = db.stat().st_size if db.exists() else None
    document = {"database": str(db), "bytes": size, "running": progress}
    table = Section("", PROGRESS, [[progress[name] for name in PROGRESS]])
    remarks = [f"{db}: process {progress['pid']} is sweeping into it; this is its progress file"]
    if progress["rows_per_second"] > 0:
        from warehouse.show.units import sweep_time_in_words

        left = progress["total_rows"] - progress["rows"]
        time = sweep_time_in_words(left / progress["rows_per_second"])
        remarks.append(f"{count(left, 'row')} left, about {time}")
    return Page(document, table, [table], remarks)
