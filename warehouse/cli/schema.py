"""`warehouse schema`: tables, views and macros, and the meaning of their columns."""

from __future__ import annotations

import shlex
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warehouse import settings
from warehouse.cli import completion
from warehouse.cli.common import put, put_document, say
from warehouse.cli.display import terminal_width
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.errors import UsageError
from warehouse.options import text_option
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from estimators.columns import Column
    from warehouse.database.describe import Description, Thing, Use

    Record = dict[str, Any]

_GAP = "  "
_LEAST = 40
"""Width below which the last column of a list is not wrapped."""
_SIGNATURE = 40
"""Characters of a macro's call that a list shows."""

_THINGS = ("name", "kind", "role", "layer", "what", "grain", "key", "rows")
_COLUMNS = ("name", "type", "unit", "meaning", "source")
_USES = ("name", "role", "layer", "type")
"""Columns of the tables: the list, the columns of one entry, the places of a column."""


def schema(
    context: typer.Context,
    *,
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completion.relations,
            metavar="[NAME]",
            help="A table, view, macro or column, or the role of some, such as mart.",
        ),
    ] = None,
    json_schema: Annotated[
        str | None,
        text_option("--json-schema", "COMMAND", "Print the JSON Schema of a command's JSON."),
    ] = None,
    output: Output,
    db: ReadDatabase = DEFAULT_DATABASE,
) -> None:
    """Say what there is to ask, and what it means.

    Without NAME, list all tables, views and macros by role, marts first, with their content, grain
    and number of rows. The role is the first word of a comment in the database. With the NAME of a
    table, view or macro, show its columns with type, unit and meaning, its arguments, what it
    reads, what reads it, and an example. With the NAME of a column, show its meaning and where it
    occurs. Without a database the schema of the package is shown. CSV and Markdown have one table:
    the list, the columns of one entry, or the places of a column.
    """
    if json_schema is not None:
        _put_json_schema(json_schema, name, output)
        return
    from warehouse.database.describe import Description

    columns = (*_THINGS, *_COLUMNS, *_USES)
    output.expect(columns, csv=columns)
    source = context.get_parameter_source("db")
    is_default = source is not None and source.name.startswith("DEFAULT")
    with (
        _opened(db, may_be_missing=is_default) as (connection, is_stored),
        output.opened(),
    ):
        described = Description(connection)
        rows = described.rows if is_stored else {}
        things = _listed(described, name)
        if things is None:
            lines, answer, records = _found(described, name or "", rows, db)
        else:
            records = [_record(thing, rows) for thing in things]
            lines, answer = _list_lines(things, rows), {"things": records}
        if output.form is Format.TABLE:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        elif output.is_json:
            put_document({"database": str(db) if is_stored else None, **answer})
        else:
            put(list(records[0]), [[list(record.values()) for record in records]])


def _put_json_schema(command: str, name: str | None, output: Output) -> None:
    """Print the schema of the document of a command, as JSON in every format."""
    if name is not None:
        raise UsageError(f"`--json-schema` and NAME {name} exclude one another", "use one of them")
    from warehouse.cli.documents import DOCUMENTS, document_schema

    if command not in DOCUMENTS:
        known = ", ".join(DOCUMENTS)
        raise UsageError(f"`--json-schema` {command}: no command prints JSON of it", f"use {known}")
    with output.opened():
        put_document(document_schema(command))


def _listed(described: Description, name: str | None) -> list[Thing] | None:
    """Return the whole list, or a role or layer of it; None if `name` is that of one entry."""
    from warehouse.database.meanings import DEPRECATED, LAYERS, ROLES

    group = name.strip().lower() if name else None
    if group is not None and (group not in {*ROLES, *LAYERS} or group in described.things):
        return None
    return [
        thing
        for thing in described.things.values()
        if group in (None, thing.role) or (thing.layer == group and thing.role != DEPRECATED)
    ]


def _found(
    described: Description, name: str, rows: Mapping[str, int], db: Path
) -> tuple[list[str], Record, list[Record]]:
    """Return the entry and the column called `name`: as lines, as a document and as rows."""
    thing, column, uses = described.find(name)
    thing_record = _thing_record(described, thing, rows) if thing else None
    column_record = _column_record(name, column, uses) if uses else None
    lines = _thing_lines(described, thing, rows, db) if thing else []
    if uses:
        lines += [*([""] if thing else []), *_column_lines(uses, column)]
    records = thing_record["columns"] if thing_record else (column_record or {})["uses"]
    return lines, {"thing": thing_record, "column": column_record}, records


@contextmanager
def _opened(db: Path, *, may_be_missing: bool) -> Iterator[tuple[DuckDBPyConnection, bool]]:
    """Yield a connection, and whether it is to the database, not to the packaged schema."""
    from warehouse.database.connection import open_for_read
    from warehouse.database.new_file import in_memory

    if may_be_missing and not db.exists():
        say(f"{db}: there is no such database; this is the schema that `warehouse init` makes")
        with in_memory() as connection:
            yield connection, False
    else:
        with open_for_read(db) as connection:
            yield connection, True


# ---- for people ----


def _list_lines(things: Sequence[Thing], rows: Mapping[str, int]) -> list[str]:
    from warehouse.database.meanings import ROLES

    lines: list[str] = []
    for role in dict.fromkeys(thing.role for thing in things):
        of_role = [thing for thing in things if thing.role == role]
        lines += [*([""] if lines else []), f"{role}: {ROLES[role]}"]
        has_rows = any(thing.name in rows for thing in of_role)
        cells = []
        for thing in of_role:
            stored = (f"{rows[thing.name]:,}" if thing.name in rows else "",) if has_rows else ()
            cells.append((_in_short(thing), *stored, _line(thing, is_short=True)))
        lines += _lines(cells, numeric={1} if has_rows else set())
    return lines


def _thing_lines(
    described: Description, thing: Thing, rows: Mapping[str, int], db: Path
) -> list[str]:
    from warehouse.database.meanings import argument_meaning

    option = "" if db == settings.database() else f" --db {shlex.quote(str(db))}"
    lines = [
        *_lines([(f"{_called(thing)}: {thing.kind}, {thing.role}",)], indent=0),
        *_lines([(_line(thing),)]),
        *(_lines([(thing.notes,)]) if thing.notes else []),
    ]
    if thing.arguments:
        arguments = [
            (name, "" if default is None else f":= {default}", argument_meaning(name))
            for name, default in thing.arguments
        ]
        lines += ["", "arguments", *_lines(arguments)]
    if columns := described.columns(thing.name):
        cells = [
            (
                column.name,
                _short(column.type),
                column.unit,
                column.meaning + (f" ({column.source})" if column.source else ""),
            )
            for column in columns
        ]
        lines += ["", "columns", *_lines(cells)]
    under, reads = described.tables_under(thing.name), described.reads.get(thing.name, ())
    found = [
        ("rows stored", f"{rows[thing.name]:,}" if thing.name in rows else ""),
        ("key", ", ".join(thing.key)),
        ("made from", thing.source),
        ("reads", ", ".join(reads)),
        ("read by", ", ".join(described.readers.get(thing.name, ()))),
        ("rests on", ", ".join(under) if under != reads else ""),
        ("example", f"warehouse sql{option} {_in_quotes(thing.example)}" if thing.example else ""),
    ]
    return [*lines, "", *_lines([pair for pair in found if pair[1]], indent=0)]


def _column_lines(uses: Sequence[Use], column: Column | None) -> list[str]:
    from warehouse.database.describe import group_of

    common = uses[0].type
    if column is None:
        lines = _lines([("column: the data dictionary has no such name",)], indent=0)
    else:
        common = common if common.startswith("STRUCT") else column.duckdb_type
        group = group_of(column.name)
        title = f"{column.name}: column" + (f", {group}" if group else "")
        found = [
            ("meaning", column.meaning),
            ("type", _short(common)),
            ("unit", column.unit),
            ("accepted", ", ".join(column.choices)),
            ("source", column.source),
        ]
        lines = [*_lines([(title,)], indent=0), *_lines([pair for pair in found if pair[1]])]
    by_role: dict[str, list[str]] = {}
    for use in uses:
        differs = use.type != common and not use.type.startswith("STRUCT")
        kind = f" ({use.type})" if differs else ""
        by_role.setdefault(use.thing.role, []).append(use.thing.name + kind)
    occurs = [(role, ", ".join(names)) for role, names in by_role.items()]
    return [*lines, "", "occurs in", *_lines(occurs)]


def _called(thing: Thing) -> str:
    if "macro" not in thing.kind:
        return thing.name
    return f"{thing.name}({', '.join(argument.name for argument in thing.arguments)})"


def _in_short(thing: Thing) -> str:
    """Return its name, for a macro with its required arguments if there is room."""
    called = _called(thing)
    if len(called) <= _SIGNATURE:
        return called
    needed = [argument.name for argument in thing.arguments if argument.default is None]
    shorter = f"{thing.name}({', '.join([*needed, '...'])})"
    return shorter if len(shorter) <= _SIGNATURE else f"{thing.name}(...)"


def _line(thing: Thing, *, is_short: bool = False) -> str:
    what = thing.what
    if is_short and thing.kind == "macro":
        what = what.partition(". ")[0]
    return f"{what.rstrip('.')}: {thing.grain}" if thing.grain else what


def _short(kind: str) -> str:
    """Return a DuckDB type without the fields of a struct, which may be dozens."""
    return f"{kind.partition('(')[0]}(...)" if kind.startswith("STRUCT(") else kind


def _in_quotes(query: str) -> str:
    return f'"{query}"' if not set('"$`\\') & set(query) else shlex.quote(query)


def _lines(
    cells: Sequence[Sequence[str]], *, numeric: Collection[int] = (), indent: int = 2
) -> list[str]:
    """Return rows whose last cell is text; on a terminal it is wrapped, under its own beginning."""
    if not cells:
        return []
    *first, _ = zip(*cells, strict=True)
    widths = [max(map(len, column)) for column in first]
    used = indent + sum(width + len(_GAP) for width in widths if width)
    whole = terminal_width()
    lines: list[str] = []
    for *row, text in cells:
        before = " " * indent
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            if width:
                before += (cell.rjust(width) if at in numeric else cell.ljust(width)) + _GAP
        wrapped = [text]
        if whole is not None and whole - used >= _LEAST:
            wrapped = textwrap.wrap(text, whole - used, break_on_hyphens=False) or [""]
        lines += [
            (start + line).rstrip()
            for start, line in zip([before, *[" " * used] * len(wrapped)], wrapped, strict=False)
        ]
    return lines


# ---- for programs ----


def _record(thing: Thing, rows: Mapping[str, int]) -> Record:
    key = ", ".join(thing.key)
    figures = (thing.what, thing.grain or None, key or None, rows.get(thing.name))
    return dict(
        zip(_THINGS, (thing.name, thing.kind, thing.role, thing.layer, *figures), strict=True)
    )


def _thing_record(described: Description, thing: Thing, rows: Mapping[str, int]) -> Record:
    from warehouse.database.meanings import argument_meaning

    return {
        **_record(thing, rows),
        "notes": thing.notes or None,
        "arguments": [
            {**argument._asdict(), "meaning": argument_meaning(argument.name)}
            for argument in thing.arguments
        ],
        "columns": [column._asdict() for column in described.columns(thing.name)],
        "made_from": thing.source,
        "reads": described.reads.get(thing.name, ()),
        "read_by": described.readers.get(thing.name, ()),
        "all_sources": described.tables_under(thing.name),
        "example": thing.example or None,
    }


def _column_record(name: str, column: Column | None, uses: Sequence[Use]) -> Record:
    meaning = {} if column is None else asdict(column)
    return {
        "name": name.strip().lower(),
        **{key: meaning.get(key) for key in ("meaning", "unit", "source", "choices")},
        "uses": [
            {key: getattr(use.thing, key) for key in ("name", "role", "layer")} | {"type": use.type}
            for use in uses
        ],
    }
