"""`warehouse schema`: tables, views and macros, and the meaning of their columns."""

from __future__ import annotations

import shlex
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from warehouse import settings
from warehouse.cli import completion
from warehouse.cli.common import put, put_document, say
from warehouse.cli.display import terminal_width
from warehouse.cli.options import DEFAULT_DATABASE, ReadDatabase
from warehouse.cli.output import Output
from warehouse.show.formats import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from duckdb import DuckDBPyConnection

    from estimators.columns import Column
    from warehouse.database.describe import Description, Thing, Use

_GAP = "  "
_LEAST = 40
"""Width below which the last column of a list is not wrapped."""
_SIGNATURE = 40
"""Characters of a macro's call that a list shows."""


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
    from warehouse.database.describe import Description

    source = context.get_parameter_source("db")
    is_default = source is not None and source.name.startswith("DEFAULT")
    with (
        _opened(db, may_be_missing=is_default) as (connection, is_stored),
        output.opened(),
    ):
        answer = _answer(Description(connection), name, db, is_stored=is_stored)
        if output.form is Format.TABLE:
            answer.put_text()
        elif output.is_json:
            put_document(answer.document)
        else:
            rows = [list(record.values()) for record in answer.records]
            put(list(answer.records[0]), [rows], output.form)


class _Answer(NamedTuple):
    """The answer of a command: as a text, as one JSON object, and as rows."""

    put_text: Callable[[], None]
    document: dict[str, Any]
    records: list[dict[str, Any]]


def _answer(described: Description, name: str | None, db: Path, *, is_stored: bool) -> _Answer:
    """Return the whole list, a role or layer of it, or the entry and the column called `name`."""
    from warehouse.database.meanings import DEPRECATED, LAYERS, ROLES

    database = str(db) if is_stored else None
    asked = name.strip().lower() if name else None
    if asked is None or (asked in {*ROLES, *LAYERS} and asked not in described.things):
        things = [
            t
            for t in described.things.values()
            if asked in (None, t.role) or (t.layer == asked and t.role != DEPRECATED)
        ]
        rows = described.rows if is_stored else {}
        records = _records(things, rows)
        return _Answer(
            lambda: _put_things(things, rows), {"database": database, "things": records}, records
        )
    thing, column, uses = described.find(name or "")
    thing_record = _thing_record(described, thing, stored=is_stored) if thing else None
    column_record = _column_record(name or "", column, uses) if uses else None
    option = "" if db == settings.database() else f" --db {shlex.quote(str(db))}"

    def put_text() -> None:
        if thing:
            _put_thing(described, thing, option, stored=is_stored)
        if uses:
            if thing:
                sys.stdout.write("\n")
            _put_column(uses, column)

    records = thing_record["columns"] if thing_record else (column_record or {})["uses"]
    document = {"database": database, "thing": thing_record, "column": column_record}
    return _Answer(put_text, document, records)


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


def _put_things(things: Sequence[Thing], rows: dict[str, int]) -> None:
    from warehouse.database.meanings import ROLES

    roles = dict.fromkeys(thing.role for thing in things)
    for number, role in enumerate(roles):
        own = [thing for thing in things if thing.role == role]
        sys.stdout.write(("\n" if number else "") + f"{role}: {ROLES[role]}\n")
        has_rows = any(thing.name in rows for thing in own)
        cells = []
        for thing in own:
            stored = (f"{rows[thing.name]:,}" if thing.name in rows else "",) if has_rows else ()
            cells.append((_in_short(thing), *stored, _line(thing, is_short=True)))
        _put_list(cells, numeric={1} if has_rows else set())


def _put_thing(described: Description, thing: Thing, option: str, *, stored: bool) -> None:
    _put_text(f"{_called(thing)}: {thing.kind}, {thing.role}")
    _put_text(_line(thing), indent=2)
    if thing.notes:
        _put_text(thing.notes, indent=2)
    if thing.arguments:
        _put_heading("arguments")
        _put_list([_argument(each.name, each.default) for each in thing.arguments])
    columns = described.columns(thing.name)
    if columns:
        _put_heading("columns")
        _put_list(
            [(each.name, _short(each.type), each.unit, _sourced(*each[3:])) for each in columns]
        )
    under = described.tables_under(thing.name)
    reads = described.reads.get(thing.name, ())
    found = [
        (
            "rows stored",
            f"{described.rows[thing.name]:,}" if stored and thing.name in described.rows else "",
        ),
        ("key", ", ".join(thing.key)),
        ("made from", thing.source),
        ("reads", ", ".join(reads)),
        ("read by", ", ".join(described.readers.get(thing.name, ()))),
        ("rests on", ", ".join(under) if under != reads else ""),
        ("example", f"warehouse sql{option} {_in_quotes(thing.example)}" if thing.example else ""),
    ]
    _put_heading("")
    _put_list([each for each in found if each[1]], indent=0)


def _put_column(uses: Sequence[Use], column: Column | None) -> None:
    from warehouse.database.describe import group_of

    common = uses[0].type
    if column is None:
        _put_text("column: the data dictionary has no such name")
    else:
        common = common if common.startswith("STRUCT") else column.duckdb_type
        group = group_of(column.name)
        _put_text(f"{column.name}: column" + (f", {group}" if group else ""))
        found = [
            ("meaning", column.meaning),
            ("type", _short(common)),
            ("unit", column.unit),
            ("accepted", ", ".join(column.choices)),
            ("source", column.source),
        ]
        _put_list([each for each in found if each[1]])
    _put_heading("occurs in")
    by_role: dict[str, list[str]] = {}
    for use in uses:
        differs = use.type != common and not use.type.startswith("STRUCT")
        kind = f" ({use.type})" if differs else ""
        by_role.setdefault(use.thing.role, []).append(use.thing.name + kind)
    _put_list([(role, ", ".join(names)) for role, names in by_role.items()])


def _called(thing: Thing) -> str:
    if "macro" not in thing.kind:
        return thing.name
    return f"{thing.name}({', '.join(each.name for each in thing.arguments)})"


def _in_short(thing: Thing) -> str:
    """Return its name, for a macro with its required arguments if there is room."""
    called = _called(thing)
    if len(called) <= _SIGNATURE:
        return called
    needed = [each.name for each in thing.arguments if each.default is None]
    kept = f"{thing.name}({', '.join([*needed, '...'])})"
    return kept if len(kept) <= _SIGNATURE else f"{thing.name}(...)"


def _line(thing: Thing, *, is_short: bool = False) -> str:
    what = thing.what
    if is_short and thing.kind == "macro":
        what = what.partition(". ")[0]
    return f"{what.rstrip('.')}: {thing.grain}" if thing.grain else what


def _argument(name: str, default: str | None) -> tuple[str, str, str]:
    from warehouse.database.meanings import argument_meaning

    return name, "" if default is None else f":= {default}", argument_meaning(name)


def _sourced(meaning: str, source: str) -> str:
    return f"{meaning} ({source})" if source else meaning


def _short(kind: str) -> str:
    """Return a DuckDB type without the fields of a struct, which may be dozens."""
    return f"{kind.partition('(')[0]}(...)" if kind.startswith("STRUCT(") else kind


def _in_quotes(query: str) -> str:
    return f'"{query}"' if not set('"$`\\') & set(query) else shlex.quote(query)


def _put_heading(text: str) -> None:
    sys.stdout.write(f"\n{text}\n" if text else "\n")


def _put_text(text: str, indent: int = 0) -> None:
    _put_list([(text,)], indent=indent)


def _put_list(
    cells: Sequence[Sequence[str]],
    *,
    numeric: frozenset[int] | set[int] = frozenset(),
    indent: int = 2,
) -> None:
    """Print rows whose last cell is text; on a terminal it is wrapped, under its own beginning."""
    if not cells:
        return
    *first, _ = zip(*cells, strict=True)
    widths = [max(map(len, column)) for column in first]
    used = indent + sum(width + len(_GAP) for width in widths if width)
    whole = terminal_width()
    for *row, text in cells:
        before = " " * indent
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            if width:
                before += (cell.rjust(width) if place in numeric else cell.ljust(width)) + _GAP
        if whole is None or whole - used < _LEAST:
            lines = [text]
        else:
            lines = textwrap.wrap(text, whole - used, break_on_hyphens=False) or [""]
        for line in lines:
            sys.stdout.write((before + line).rstrip() + "\n")
            before = " " * used


# ---- for programs ----


def _records(things: Sequence[Thing], rows: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": thing.name,
            "kind": thing.kind,
            "role": thing.role,
            "layer": thing.layer,
            "what": thing.what,
            "grain": thing.grain or None,
            "key": ", ".join(thing.key) or None,
            "rows": rows.get(thing.name),
        }
        for thing in things
    ]


def _thing_record(described: Description, thing: Thing, *, stored: bool) -> dict[str, Any]:
    from warehouse.database.meanings import argument_meaning

    (record,) = _records([thing], described.rows if stored else {})
    return {
        **record,
        "notes": thing.notes or None,
        "arguments": [
            {**each._asdict(), "meaning": argument_meaning(each.name)} for each in thing.arguments
        ],
        "columns": [each._asdict() for each in described.columns(thing.name)],
        "made_from": thing.source,
        "reads": described.reads.get(thing.name, ()),
        "read_by": described.readers.get(thing.name, ()),
        "all_sources": described.tables_under(thing.name),
        "example": thing.example or None,
    }


def _column_record(name: str, column: Column | None, uses: Sequence[Use]) -> dict[str, Any]:
    meaning = {} if column is None else asdict(column)
    return {
        "name": name.strip().lower(),
        **{key: meaning.get(key) for key in ("meaning", "unit", "source", "choices")},
        "uses": [
            {
                "name": use.thing.name,
                "role": use.thing.role,
                "layer": use.thing.layer,
                "type": use.type,
            }
            for use in uses
        ],
    }
