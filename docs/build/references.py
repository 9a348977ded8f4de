"""Pages made from the data dictionary, the reference tables, and the views of an empty database."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from docs.build.lineage_picture import Box, picture
from estimators.columns import GROUPS
from warehouse.database import resources
from warehouse.database.describe import Description
from warehouse.database.lineage import readers_of, without
from warehouse.database.meanings import LAYERS
from warehouse.database.new_file import in_memory
from warehouse.database.reference import estimators_files, read_table
from warehouse.database.views import CONFIGURATION_SOURCE, CURRENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from estimators.columns import Column

_COLUMNS = """\
# Columns

Every column of the tables, batch files and studies, from `estimators/columns/columns.csv`. Do not
edit this page: `make pages` generates it.

Units are base units, in storage and in files; a name ends with its unit. *Accepted* is what a
study or batch file may give. `warehouse schema TABLE` lists the columns of a table or view with
their meanings, `warehouse schema COLUMN` where a column occurs. In a DuckDB shell meanings are
comments: `select column_name, comment from duckdb_columns() where table_name = 'TABLE'`.
"""

_COLUMN_HEADER = ("column", "type", "unit", "meaning", "accepted", "source")

_ERRATA = """\
# Errata

Faults of the sources: of published programs and figures, not of this project's code. From
`db/reference/erratum.csv`, which is table `erratum` in a database. Do not edit this page:
`make pages` generates it.

**Mended** errata have two figures. Variant `published` has no mend: formulas keep their faults and
give the source's own figures. Variant `corrected`, the default, has all mends of its estimator.
**Recorded** errata have no mend: they change no figure here, or are defensible choices of a model.
Both variants keep them.

`warehouse sweep`, `evaluate`, `show` and `operations` take `--variant published` or
`--variant corrected`, or `--mend R1,R2` for those mends alone. `warehouse rank --variant R2,R4`
ranks what is stored under them. A study says `variant`, where `each` is every mend alone, or
`mends = ["R1", "R2"]`.

View `erratum_effect` shows the effect of each mend on stored rows: for each problem the best layout
as published and as mended, their times and memory, and the mended time of the published best.

A section is an estimator, or a reference table whose published figures have the fault.
"""

_PROGRAMS = """\
# What each program can run

The layouts that a training program (`framework`) can run, from table `framework_rule` in a
database. Do not edit this page: `make pages` generates it.

A search leaves out a layout that breaks a rule of its program. `why`, `evaluate` and `show` refuse
it, with the sentence and the place in the program's code. `measure` stores a run that breaks one,
and says so: it ran. No rule excludes a published run. `framework_release` decides which releases
hold; without it the newest does.

A rule is a predicate on columns. `num_microbatches` is that of a replica; `is_placed` says that a
choice places layers, `has_layout` that it is `pipeline_layout`. A missing number counts as 0.
Rules that all programs have, such as degrees that divide heads, are not in the table. These are
left out on purpose:

- Schedules of `megatron_core`. It has 1F1B alone, but its constants are those of published runs
  with other schedules, and no search takes another schedule unless asked.

## Uneven stages

Megatron-Core asserts even stages unless a flag says otherwise. Where no choice places layers, they
are placed by shape, as the recipes of Megatron-Bridge place them, and `why`, `show` and `plan` name
the flags:

- even, if the stages divide the layers;
- else even with embedding and loss, if two more layers make them so: 126 layers on 16 stages
  (`--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split`);
- else equal with the rest on the last stage, of mixtures and of pipelines with chunks: 61 layers on
  16 stages are 15 x 4 and 1 (`--pipeline-model-parallel-layout "Et*4|(t*4|)*14tmL"`), on 8 stages
  7 x 8 and 5 (`--decoder-last-pipeline-num-layers 5`);
- else the first stages have a layer more.

Where ranks are uneven, chunks divide the fullest rank, or leave at most three places: embedding,
loss, and a layer that predicts further tokens.
"""

_PROGRAMS_HEADER = ("releases", "rule", "why", "source")

_LINEAGE = """\
# Lineage

The tables, views and macros that each view reads, found by DuckDB's parser. `make pages` generates
this page: do not edit it. `warehouse schema NAME` shows the same for one of them, with all tables
that it rests on.

[![From stored tables to marts](lineage.svg)](lineage.svg)

A line goes from a table or view to its reader; broken lines stay within a layer. The picture omits
macros, tables that no view reads, and the views `current_*`, each of which is one table of results
with columns of `problem` and `cell`. A view `leading_*` or `near_*` is drawn as the view that it is
made from. Opened by itself it is twice as wide, and the pointer highlights all lines of a box.
"""

_LAYERS_SHOWN = ("marts", "functions", "intermediate", "staging", CURRENT, "reference")
_COLUMNS_SHOWN = {
    "results": 0,
    "records": 0,
    "reference": 0,
    "staging": 1,
    "intermediate": 2,
    "functions": 3,
    "marts": 4,
}
"""Layer -> column of the picture."""

_LINEAGE_HEADER = ("name", "reads", "read by")

_MENDED = {
    "id": "erratum",
    "where": "place",
    "fault": "fault",
    "consequence": "consequence",
    "mend": "mend",
}
_RECORDED = {title: column for title, column in _MENDED.items() if column != "mend"}
"""Heading of a table -> the column of `erratum` under it."""


def columns_page() -> str:
    """Return the column reference as Markdown."""
    sections = [_COLUMNS]
    for title, columns in GROUPS.items():
        sections.append(f"## {title}\n\n{_table(_COLUMN_HEADER, map(_column_cells, columns))}")
    return "\n".join(sections)


def errata_page() -> str:
    """Return what table `erratum` has as Markdown: a section an estimator, mended errata first."""
    table = read_table(resources.reference_directory() / "erratum.csv")
    names = [column.name for column in table.columns]
    by_estimator: dict[str, list[Mapping[str, Any]]] = {}
    for row in table.rows:
        record = dict(zip(names, row, strict=True))
        by_estimator.setdefault(record["estimator"], []).append(record)
    return "\n".join([_ERRATA, *(_section(name, rows) for name, rows in by_estimator.items())])


def programs_page() -> str:
    """Return what table `framework_rule` has as Markdown: a section a program."""
    [path] = (path for path in estimators_files() if path.stem == "framework_rule")
    table = read_table(path)
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    parts = [_PROGRAMS]
    for program, own in groupby(rows, lambda row: row["framework"]):
        cells = [
            (_releases(row), f"`{row['rule']}`", str(row["why"]), str(row["source"])) for row in own
        ]
        parts.append(f"## {program}\n\n{_table(_PROGRAMS_HEADER, cells)}")
    return "\n".join(parts)


def _releases(row: Mapping[str, Any]) -> str:
    ends = {"from": row["from_release"], "before": row["until_release"]}
    return " ".join(f"{word} {end:.2f}" for word, end in ends.items() if end is not None)


def lineage_page() -> str:
    """Return what each view and macro reads, and what reads each table, as Markdown."""
    described = _description()
    parts = [_LINEAGE]
    for layer in _LAYERS_SHOWN:
        rows = [
            (
                f"`{thing.name}`",
                _names(described.reads.get(thing.name, ())),
                _names(_readers(thing.name)),
            )
            for thing in described.things.values()
            if thing.layer == layer
        ]
        parts.append(f"## {layer}\n\n{LAYERS[layer]}.\n\n{_table(_LINEAGE_HEADER, rows)}")
    for layer in ("results", "records", "macros"):
        stored = [
            (f"`{thing.name}`", _names(_readers(thing.name)))
            for thing in described.things.values()
            if thing.layer == layer
        ]
        parts.append(f"## {layer}\n\n{LAYERS[layer]}.\n\n{_table(('name', 'read by'), stored)}")
    return "\n".join(parts)


def lineage_picture() -> str:
    """Return the same as an SVG, from stored tables on the left to marts on the right."""
    described = _description()
    hidden = {
        thing.name for thing in described.things.values() if thing.layer in (CURRENT, "macros")
    }
    reads = without(described.reads, hidden)
    # every staging view would have a line from each of these two
    records = {thing.name for thing in described.things.values() if thing.layer == "records"}
    for name in [n for n in reads if described.things[n].layer == "staging"]:
        reads[name] = tuple(n for n in reads[name] if n not in records)
    readers = readers_of(reads)
    boxes = []
    for thing in described.things.values():
        if thing.layer in _COLUMNS_SHOWN and (thing.kind != "table" or thing.name in readers):
            column = _COLUMNS_SHOWN[thing.layer] + (thing.name == CONFIGURATION_SOURCE)
            boxes.append(
                Box(thing.name, thing.layer, column, f"{thing.what} {thing.grain}".strip())
            )
    boxes.sort(key=lambda box: (list(_COLUMNS_SHOWN).index(box.layer), box.name))
    return picture(boxes, reads)


@cache
def _description() -> Description:
    return Description(in_memory())


def _readers(name: str) -> tuple[str, ...]:
    return _description().readers.get(name, ())


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _section(estimator: str, rows: Sequence[Mapping[str, Any]]) -> str:
    sources = dict.fromkeys(row["source"] for row in rows)
    parts = [f"## {estimator}\n\nSource: {'; '.join(sources)}.\n"]
    for title, columns, is_mended in (("Mended", _MENDED, True), ("Recorded", _RECORDED, False)):
        own = [row for row in rows if row["is_mended"] is is_mended]
        if own:
            cells = ([row[name] or "" for name in columns.values()] for row in own)
            parts.append(f"**{title}**\n\n{_table(columns, cells)}")
    return "\n".join(parts)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [_line(header), _line("---" for _ in header)]
    lines += [_line(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _column_cells(column: Column) -> tuple[str, ...]:
    return (
        f"`{column.name}`",
        column.duckdb_type.lower(),
        column.unit,
        column.meaning,
        _accepted(column),
        column.source,
    )


def _accepted(column: Column) -> str:
    if column.choices:
        return ", ".join(f"`{choice}`" for choice in column.choices)
    bounds = (
        f"above {column.above:g}" if column.above is not None else "",
        f"at least {column.minimum:g}" if column.minimum is not None else "",
        f"at most {column.maximum:g}" if column.maximum is not None else "",
    )
    return ", ".join(bound for bound in bounds if bound)


PAGES = {
    "columns.md": columns_page,
    "errata.md": errata_page,
    "lineage.md": lineage_page,
    "programs.md": programs_page,
    "lineage.svg": lineage_picture,
}
"""File of a generated page -> what makes its text."""
