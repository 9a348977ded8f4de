"""Views and macros: generated views over the fact tables, then the files of sql/ by layer.

A file of a layer holds one SELECT below two comment lines: its content and its grain. The view has
the name of the file. A file of layer `functions` creates a table macro instead, a view with
arguments that marts and people read.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from estimators.registry import all_estimators
from warehouse.database import resources
from warehouse.database.current import (
    CURRENT_CELL,
    FACT_COUNT,
    LEADING,
    current_cell_sql,
    current_view_name,
    current_view_sql,
    fact_count_sql,
    leading_staging_name,
    leading_view_name,
    leading_view_sql,
    staging_name,
)
from warehouse.database.in_force import CELL_ORDER, order_sql
from warehouse.database.lineage import Token, names_in, tokens
from warehouse.database.meanings import OTHER_COLUMNS, argument_meaning, comment_of, role_of
from warehouse.database.sql_text import is_name, quoted
from warehouse.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from estimators.contract import Estimator, Relation

LAYERS = ("staging", "intermediate", "functions", "marts")
"""Directories of sql/: a view reads its own layer and those before it."""

FUNCTIONS = "functions"
"""Layer whose files create table macros."""

CURRENT = "current"
CONFIGURATION_SOURCE = "configuration_source"
_CONFIGURATION = "one row per configuration"
NEAR_SOURCE = f"near_{CONFIGURATION_SOURCE}"
"""View of few configurations that includes all near-optimal ones."""
_FILES_OF_LEADING = ("configuration_flops", "configuration")
"""Files whose views are also made over the leading rows, in order."""

MACROS = "macros.sql"
_EXAMPLE = "Example:"
"""Begins the part of a macro's comment that shows how it is called."""
_CREATE_MACRO = ["create", "or", "replace", "macro"]
_COMMENTS = "comments on views, macros and columns, with roles and notes"
"""Version of the comments: change it when comments are added, so that existing databases get
them."""
NOTE = " Note: "
"""Begins the part of a comment that follows the grain."""
_CALL = "After `use` of this database"
"""Begins the example of a table macro: DuckDB looks up its tables where the reader stands."""


class Argument(NamedTuple):
    """An argument of a macro; `default` is SQL, None where the argument must be given."""

    name: str
    default: str | None


class Macro(NamedTuple):
    """A macro as its file declares it.

    `comment` is the text above it, its lines joined; `example` is the SELECT that ends this text.
    """

    name: str
    comment: str
    arguments: tuple[Argument, ...]
    example: str = ""


class SqlFile(NamedTuple):
    """A file of sql/: the name of its view, its header and its text."""

    name: str
    what: str
    grain: str
    sql: str
    path: Path


class Check(NamedTuple):
    """A query that returns faulty rows; without faults it returns none."""

    name: str
    what: str
    sql: str


class View(NamedTuple):
    """A view or table macro to create; `path` is its file, None for a generated view."""

    name: str
    comment: str
    sql: str
    path: Path | None = None
    is_function: bool = False


def checks(directory: Path | None = None) -> list[Check]:
    """Return the checks of `directory` (by default the packaged sql/), by name."""
    files = _read_layer((directory or resources.sql_directory()) / "checks", needs_grain=False)
    return [Check(file.name, file.what, file.sql) for file in files]


def definition(directory: Path | None = None) -> list[tuple[str, ...]]:
    """Return everything that decides which views and macros are created."""
    directory = directory or resources.sql_directory()
    parts = [(view.name, view.comment, view.sql) for view in _generated()]
    parts += [(_COMMENTS, column.name, column.comment) for column in OTHER_COLUMNS]
    files = [directory / MACROS, *(p for layer in LAYERS for p in _files(directory / layer))]
    return [*parts, *((p.parent.name, p.name, p.read_text("utf-8")) for p in files if p.exists())]


def packaged(directory: Path | None = None) -> list[View]:
    """Return the views and table macros that `create_views` creates, in order."""
    views = [*_generated(), *_from_files(directory or resources.sql_directory())]
    return [view._replace(comment=_whole_comment(view)) for view in views]


def macros_in(text: str) -> list[Macro]:
    """Return the macros that `text`, the content of a file of sql/, creates."""
    words = tokens(text)
    found = []
    for place, token in enumerate(words):
        is_first = place == 0 or words[place - 1].text == ";"
        if (
            not is_first
            or [word.text.lower() for word in words[place : place + 4]] != _CREATE_MACRO
        ):
            continue
        name, *rest = words[place + 4 :]
        end = next(n for n, word in enumerate(rest) if word.text == ")" and word.depth == 0)
        above = text[: token.start].splitlines()
        comment = above[len(above) - _comment_lines(above[::-1]) :]
        arguments = _arguments(text, rest[1 : end + 1])
        example = _joined(comment).partition(_EXAMPLE)[2].strip()
        found.append(Macro(name.text.lower(), comment_text(comment), arguments, example))
    return found


def comment_text(lines: list[str]) -> str:
    """Return the comment lines at the top of `lines` as running text, without its example."""
    return _joined(lines).partition(_EXAMPLE)[0].strip()


def layer_of(view: View) -> str:
    """Return the layer of a packaged view; most generated views are in layer `current`."""
    if view.path is not None:
        return view.path.parent.name
    return "staging" if view.name == CONFIGURATION_SOURCE else CURRENT


def notes_of(view: View) -> str:
    """Return the text below the header of a view's file, without its example."""
    if view.path is None:
        return ""
    lines = view.sql.splitlines()
    header = lines[: _comment_lines(lines)]
    return comment_text(header[header.index("--") :]) if "--" in header else ""


def _whole_comment(view: View) -> str:
    """Return the comment that a client shows: all that `warehouse schema` says of the view."""
    parts = [notes_of(view)]
    for macro in macros_in(view.sql) if view.is_function else ():
        meanings = [f"{each.name}: {argument_meaning(each.name)}" for each in macro.arguments]
        parts += [*(f"{each.rstrip('.')}." for each in meanings), f"{_CALL}: {macro.example}"]
    note = " ".join(filter(None, parts))
    text = f"{view.comment.rstrip('.')}.{NOTE}{note}" if note else view.comment
    return comment_of(role_of(layer_of(view)), text)


def _joined(lines: list[str]) -> str:
    comments = [line.removeprefix("--").strip() for line in lines[: _comment_lines(lines)]]
    return " ".join(part for part in comments if part)


def _comment_lines(lines: list[str]) -> int:
    """Return how many comment lines `lines` begins with."""
    others = (number for number, line in enumerate(lines) if not line.startswith("--"))
    return next(others, len(lines))


def _arguments(text: str, words: list[Token]) -> tuple[Argument, ...]:
    """Return the arguments that `words`, up to the closing parenthesis, declare."""
    found = []
    start = 0
    for place, word in enumerate(words):
        if (word.text == "," and word.depth == 1) or place == len(words) - 1:
            if place > start:
                name, *rest = words[start:place]
                default = text[rest[0].start + len(":=") : word.start].strip() if rest else None
                found.append(Argument(name.text, default))
            start = place + 1
    return tuple(found)


def _generated() -> list[View]:
    estimators = all_estimators()
    cells = "Cells of the newest version of their estimator. Grain: one row per cell"
    order = (
        "Which cells are in force, and their order among siblings, found from all cells; table "
        "cell has it stored. Grain: one row per cell"
    )
    counts = "Rows of each cell in the fact tables. Grain: one row per relation and cell"
    found = [
        View(CELL_ORDER, order, order_sql(estimators)),
        View(CURRENT_CELL, cells, current_cell_sql()),
        View(FACT_COUNT, counts, fact_count_sql(estimators)),
    ]
    for estimator in estimators:
        for relation in estimator.relations:
            comment = (
                f"Rows of {relation.name} of the newest version, each layout once, with what "
                f"holds in its cell. Grain: {relation.grain}"
            )
            name = current_view_name(relation)
            found.append(View(name, comment, current_view_sql(estimator, relation)))
            if relation.keeps_leading:
                found.append(_leading(estimator, relation))
    return found


def _leading(estimator: Estimator, relation: Relation) -> View:
    near = ", those that take up to 5 % longer" if relation.keeps_near else ""
    comment = (
        f"Leading rows of {current_view_name(relation)}: of each cell the fastest that fit in "
        f"memory{near}, and those that no other beats in time and memory. Grain: {relation.grain}"
    )
    return View(leading_view_name(relation), comment, leading_view_sql(estimator, relation))


def _from_files(directory: Path) -> list[View]:
    found: list[View] = []
    for layer in LAYERS:
        files = _in_order(_read_layer(directory / layer, needs_grain=True))
        found += [
            View(f.name, f"{f.what} Grain: {f.grain}", f.sql, f.path, layer == FUNCTIONS)
            for f in files
        ]
        if layer == "staging":
            union = _configuration_source(files)
            found += [*union, *_leading_staging(files, union)]
        if layer == "intermediate":
            marts = _read_layer(directory / "marts", needs_grain=True)
            found += _leading_configuration([*files, *marts])
    return found


def _leading_staging(staging: list[SqlFile], union: list[View]) -> list[View]:
    """Return the staging views of leading rows, and their union: the same SQL over fewer rows."""
    names = {
        current_view_name(relation): leading_view_name(relation)
        for estimator in all_estimators()
        for relation in estimator.relations
        if relation.keeps_leading
    }
    copies = [
        _leading_copy(View(file.name, f"{file.what} Grain: {file.grain}", file.sql), names)
        for file in staging
        if file.grain.rstrip(".") == _CONFIGURATION and names_in(file.sql).relations & set(names)
    ]
    names = {copy.name.removeprefix(LEADING): copy.name for copy in copies}
    near = {
        staging_name(relation): leading_staging_name(relation)
        for estimator in all_estimators()
        for relation in estimator.relations
        if relation.keeps_near
    }
    leading = [_leading_copy(view, names) for view in union]
    return [*copies, *leading, *(_near_source(view, near) for view in union)]


def _near_source(union: View, names: dict[str, str]) -> View:
    """Return the union with leading rows where they have all near-optimal layouts."""
    comment = (
        "Configurations of every estimator, at least the leading rows of each cell and all that "
        f"fit in memory and take up to 5 % longer than the fastest. Grain: {_CONFIGURATION}"
    )
    return View(NEAR_SOURCE, comment, _renamed(union.sql, names))


def _leading_configuration(files: list[SqlFile]) -> list[View]:
    """Return the views between the union and `configuration`, over leading rows."""
    found: list[View] = []
    by_name = {file.name: file for file in files}
    names = {CONFIGURATION_SOURCE: LEADING + CONFIGURATION_SOURCE}
    for name in _FILES_OF_LEADING:
        file = by_name.get(name)
        if file is not None:
            view = View(name, f"{file.what} Grain: {file.grain}", file.sql)
            found.append(_leading_copy(view, names))
            names = {name: LEADING + name}
    return found


def _leading_copy(view: View, names: dict[str, str]) -> View:
    """Return `view` over leading rows instead of all rows; `names` maps its sources."""
    what, _, grain = view.comment.partition(" Grain: ")
    comment = f"{what.rstrip('.')}: leading rows of each cell alone. Grain: {grain}"
    return View(LEADING + view.name, comment, _renamed(view.sql, names))


def _renamed(sql: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        sql = re.sub(rf"\b{name}\b", other, sql)
    return sql


def _configuration_source(staging: list[SqlFile]) -> list[View]:
    """Return the union of the staging views whose grain is a configuration."""
    names = [file.name for file in staging if file.grain.rstrip(".") == _CONFIGURATION]
    if not names:
        return []
    sql = "\nunion all by name\n".join(f"select * from {quoted(name)}" for name in names)
    comment = f"Configurations of every estimator. Grain: {_CONFIGURATION}"
    return [View(CONFIGURATION_SOURCE, comment, sql)]


def _files(layer: Path) -> list[Path]:
    return sorted(layer.glob("*.sql"))


def _read_layer(layer: Path, *, needs_grain: bool) -> list[SqlFile]:
    return [_read(path, needs_grain) for path in _files(layer)]


def _read(path: Path, needs_grain: bool) -> SqlFile:
    sql = path.read_text("utf-8")
    what, grain = (line.strip() for line in [*sql.splitlines()[:2], "", ""][:2])
    hint = "begin the file with `-- <content>.`, then `-- Grain: one row per <thing>`"
    if not is_name(path.stem):
        raise InputError(f"{path}: `{path.stem}` is not a name of a view", "use lower_case_words")
    if not what.removeprefix("--").strip() or not what.startswith("-- "):
        raise InputError(f"{path}: its first line does not say its content", hint)
    if needs_grain and not grain.startswith("-- Grain: "):
        raise InputError(f"{path}: its second line does not give the grain", hint)
    grain = grain.removeprefix("-- Grain:").strip()
    return SqlFile(path.stem, what.removeprefix("--").strip(), grain, sql, path)


def _in_order(files: list[SqlFile]) -> list[SqlFile]:
    """Return the files of a layer so that each comes after those it reads."""
    by_name = {file.name: file for file in files}
    reads = {file.name: sorted(names_in(file.sql).relations & set(by_name)) for file in files}
    try:
        return [by_name[name] for name in TopologicalSorter(reads).static_order()]
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        path = by_name[error.args[1][0]].path
        raise InputError(f"{path}: reads itself: {circle}", "break the circle") from error
