"""Views and macros: generated views over the fact tables, then the files of sql/ by layer.

A file of a layer holds one SELECT below comment lines: its content, its grain and its key, the
columns that no two rows have alike. The view has the name of the file. A file of layer `functions`
creates a table macro instead, a view with arguments that marts and people read.

A line `-- Kept: <on>` below them makes a table of that name, whose rows are stored because DuckDB
would plan the SELECT for longer than it runs. All rows are made with the views. View `found_<name>`
is the SELECT. Commands that store cells make the rows of a table kept on `cell` again; it has no
such view, since that would read all layouts with all their columns.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from itertools import chain, takewhile
from typing import TYPE_CHECKING, NamedTuple

from estimators.registry import all_estimators
from warehouse.database import resources
from warehouse.database.in_force import (
    CELL_ORDER,
    CURRENT_CELL,
    FACT_COUNT,
    current_cell_sql,
    current_view_name,
    current_view_sql,
    fact_count_sql,
    order_sql,
    staging_name,
)
from warehouse.database.lineage import Token, names_in, tokens
from warehouse.database.meanings import argument_meaning, comment_of, role_of
from warehouse.database.sql_text import is_name, literal, quoted
from warehouse.database.tables import STORED_PROBLEM
from warehouse.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = ("reference", "staging", "intermediate", "functions", "marts")
"""Directories of sql/: a view reads its own layer and those before it."""

FUNCTIONS = "functions"
"""Layer whose files create table macros."""

CURRENT = "current"
"""Layer of most generated views."""

_CHECKS = "checks"
CONFIGURATION_SOURCE = "configuration_source"
_CONFIGURATION = "one row per configuration"
LEADING_ROW = "leading_row"
"""Kept table of the leading rows: the columns of `configuration_flops`, and their ranks."""
RANKS = ("rank_by_time", "rank_in_strategy", "rank_in_cell", "is_on_front")
"""Columns of `LEADING_ROW` besides those of a configuration."""
UNRANKED = f"* exclude ({', '.join(RANKS)})"
"""Columns of `LEADING_ROW` without its ranks."""
FOUND = "found_"
"""Begins the name of the view that finds the rows of a kept table."""
FOUND_PROBLEM = FOUND + STORED_PROBLEM
"""Temporary table with the correct facts of problems, which a check reads."""
_KEPT = "-- Kept:"
_KEPT_ON = ("cell", "reference")

MACROS = "macros.sql"
_EXAMPLE = "Example:"
"""Begins the part of a macro's comment that shows how it is called."""
_CREATE_MACRO = ["create", "or", "replace", "macro"]
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


class Check(NamedTuple):
    """A query that returns faulty rows; without faults it returns none."""

    name: str
    what: str
    sql: str


class View(NamedTuple):
    """A view or table macro to create; `path` is its file, None for a generated view.

    `kept_on` says when the rows of a kept table change.
    """

    name: str
    what: str
    grain: str
    key: str
    sql: str
    layer: str = CURRENT
    path: Path | None = None
    kept_on: str = ""

    @property
    def is_function(self) -> bool:
        """Whether it is a table macro."""
        return self.layer == FUNCTIONS

    @property
    def notes(self) -> str:
        """The text below the header of its file, without its example."""
        lines = self.sql.splitlines() if self.path else []
        lines = lines[: _comment_lines(lines)]
        return comment_text(lines[lines.index("--") :]) if "--" in lines else ""

    @property
    def comment(self) -> str:
        """The comment that a client shows: all that `warehouse schema` says of the view."""
        parts = [self.notes]
        for macro in macros_in(self.sql) if self.is_function else ():
            names = [argument.name for argument in macro.arguments]
            parts += [f"{name}: {argument_meaning(name)}".rstrip(".") + "." for name in names]
            parts.append(f"{_CALL}: {macro.example}")
        note = " ".join(filter(None, parts))
        text = f"{self.what} Grain: {self.grain.rstrip('.')}. Key: {self.key}"
        text = f"{text.rstrip('.')}.{NOTE}{note}" if note else text
        return comment_of(role_of(self.layer), text)


def checks(directory: Path | None = None) -> list[Check]:
    """Return the checks of `directory` (by default the packaged sql/), by name.

    Every kept table with a view is compared with it, the leading rows with what ranking them again
    gives, and the facts of problems with those that `problem_facts.find_problems` finds before.
    """
    directory = directory or resources.sql_directory()
    files = _read_layer(directory / _CHECKS)
    of_files = [Check(file.name, file.what, file.sql) for file in files]
    wrong = f"Rows that table {STORED_PROBLEM} has alone, or lacks."
    of_problems = _comparison(STORED_PROBLEM, FOUND_PROBLEM, wrong)
    return sorted([*of_files, *map(_check_of_kept, kept_tables(directory)), of_problems])


def _check_of_kept(view: View) -> Check:
    if view.kept_on == "cell":
        found = f"({leading_sql(f'select {UNRANKED} from {view.name}')})"
        what = f"Rows of table {view.name} with other ranks than these rows give."
        return _comparison(view.name, found, what)
    found = FOUND + view.name
    return _comparison(view.name, found, f"Rows that table {view.name} or view {found} has alone.")


def _comparison(stored: str, found: str, what: str) -> Check:
    halves = [
        f"(select *, {is_stored} as is_stored from {rows} except all"
        f" select *, {is_stored} from {others})"
        for is_stored, rows, others in (("true", stored, found), ("false", found, stored))
    ]
    return Check(f"{stored}_is_{FOUND.rstrip('_')}", what, " union all ".join(halves))


def leading_sql(source: str = "") -> str:
    """Return the SELECT of the leading rows, among all configurations or those of `source`.

    `source` is a SELECT with the columns of view `configuration_flops`.
    """
    path = resources.sql_directory() / "intermediate" / f"{LEADING_ROW}.sql"
    sql = path.read_text(encoding="utf-8")
    return f"with configuration_flops as ({source}) select * from ({sql})" if source else sql


def kept_tables(directory: Path | None = None) -> list[View]:
    """Return the kept tables, those of a layer by name."""
    directory = directory or resources.sql_directory()
    files = chain.from_iterable(_read_layer(directory / layer) for layer in LAYERS)
    return [file for file in files if file.kept_on]


def packaged(directory: Path | None = None) -> list[View]:
    """Return the views and table macros that `create_views` creates, in order."""
    return [*_generated(), *_from_files(directory or resources.sql_directory())]


def macros_in(text: str) -> list[Macro]:
    """Return the macros that `text`, the content of a file of sql/, creates."""
    words = tokens(text)
    macros = []
    for index, token in enumerate(words):
        is_first = index == 0 or words[index - 1].text == ";"
        start = [word.text.lower() for word in words[index : index + 4]]
        if not is_first or start != _CREATE_MACRO:
            continue
        name, *rest = words[index + 4 :]
        end = next(n for n, word in enumerate(rest) if word.text == ")" and word.depth == 0)
        above = text[: token.start].splitlines()
        comment = above[len(above) - _comment_lines(above[::-1]) :]
        arguments = _arguments(text, rest[1 : end + 1])
        example = _joined(comment).partition(_EXAMPLE)[2].strip()
        macros.append(Macro(name.text.lower(), comment_text(comment), arguments, example))
    return macros


def comment_text(lines: list[str]) -> str:
    """Return the comment lines at the top of `lines` as running text, without its example."""
    return _joined(lines).partition(_EXAMPLE)[0].strip()


def _joined(lines: list[str]) -> str:
    comments = [line.removeprefix("--").strip() for line in lines[: _comment_lines(lines)]]
    return " ".join(part for part in comments if part)


def _comment_lines(lines: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda line: line.startswith("--"), lines))


def _arguments(text: str, words: list[Token]) -> tuple[Argument, ...]:
    """Return the arguments that `words`, up to the closing parenthesis, declare."""
    arguments = []
    declared: list[Token] = []
    for word in words:
        if word is not words[-1] and (word.text != "," or word.depth != 1):
            declared.append(word)
        elif declared:
            name, *rest = declared
            default = text[rest[0].start + len(":=") : word.start].strip() if rest else None
            arguments.append(Argument(name.text, default))
            declared = []
    return tuple(arguments)


def _generated() -> list[View]:
    """Return the views that need no file of sql/."""
    estimators = all_estimators()
    per_cell = ("one row per cell", "cell_id")
    views = [
        View(
            CELL_ORDER,
            "Which cells are in force, and their order among siblings, found from all cells; table "
            "cell has it stored.",
            *per_cell,
            order_sql(estimators),
        ),
        View(
            CURRENT_CELL,
            "Cells of the newest version of their estimator.",
            *per_cell,
            current_cell_sql(),
        ),
        View(
            FACT_COUNT,
            "Rows of each cell and problem in the fact tables.",
            "one row per relation, cell and problem",
            "relation, cell_id, problem_id",
            fact_count_sql(estimators),
        ),
    ]
    for estimator in estimators:
        for relation in estimator.relations:
            what = (
                f"Rows of {relation.name} of the newest version, each layout once, with what "
                "holds in its cell."
            )
            key = ", ".join(("cell_id", *relation.keys))
            sql = current_view_sql(estimator, relation)
            views.append(View(current_view_name(relation), what, relation.grain, key, sql))
    return views


def _keys() -> dict[str, str]:
    """Return the columns that `{name}` in a key stands for.

    The name is that of a relation, or `layout` for all relations of configurations.
    """
    relations = [relation for estimator in all_estimators() for relation in estimator.relations]
    keys = {relation.name: relation.keys for relation in relations}
    layouts = [r.keys for r in relations if r.grain.partition(":")[0] == _CONFIGURATION]
    keys["layout"] = tuple(dict.fromkeys(chain.from_iterable(layouts)))
    return {name: ", ".join(columns) for name, columns in keys.items()}


def _from_files(directory: Path) -> list[View]:
    views: list[View] = []
    for layer in LAYERS:
        files = _in_order(_read_layer(directory / layer))
        for file in files:
            if file.kept_on and file.kept_on != "cell":
                source = FOUND + file.name
                finds = f"Finds the rows of table {file.name} anew."
                views.append(file._replace(name=source, what=finds, layer=CURRENT, kept_on=""))
                views.append(file._replace(sql=f"from {source}"))
            else:
                views.append(file)
        if layer == "staging":
            views += _configuration_source(files)
        if layer == "intermediate" and any(file.name == LEADING_ROW for file in files):
            views.append(_near_source(views))
            views += [
                _leading_configuration(file)
                for file in _read_layer(directory / "marts")
                if file.name == "configuration"
            ]
    return views


def _union_of_layouts(name: str, what: str, selects: list[str], layer: str) -> View:
    """Return a view of the configurations of all estimators."""
    key = f"cell_id, {_keys()['layout']}"
    return View(name, what, _CONFIGURATION, key, "\nunion all by name\n".join(selects), layer)


def _configuration_source(staging: list[View]) -> list[View]:
    """Return the union of the staging views whose grain is a configuration."""
    names = [file.name for file in staging if file.grain.rstrip(".") == _CONFIGURATION]
    selects = [f"select * from {quoted(name)}" for name in names]
    what = "Configurations of every estimator."
    return [_union_of_layouts(CONFIGURATION_SOURCE, what, selects, "staging")] if names else []


def _near_source(before: list[View]) -> View:
    """Return the union of leading rows that have all near-optimal layouts, and of other rows."""
    near, others = [], []
    for estimator in all_estimators():
        if any(relation.keeps_near for relation in estimator.relations):
            near.append(literal(estimator.name))
        else:
            others += [staging_name(relation.name) for relation in estimator.relations]
    union = next(view for view in before if view.name == CONFIGURATION_SOURCE)
    staged = names_in(union.sql).relations
    columns = f"* exclude (step_tokens, {', '.join(RANKS)})"
    selects = [f"select {columns} from {LEADING_ROW} where estimator in ({', '.join(near)})"]
    selects += [f"select * from {quoted(name)}" for name in others if name in staged]
    what = (
        "Configurations of every estimator, at least the leading rows of each cell and all that "
        "fit in memory and take up to 5 % longer than the fastest."
    )
    return _union_of_layouts(f"near_{CONFIGURATION_SOURCE}", what, selects, "intermediate")


def _leading_configuration(configuration: View) -> View:
    """Return view `configuration` over the leading rows instead of all rows."""
    return configuration._replace(
        name="leading_configuration",
        what=f"{configuration.what.rstrip('.')}: leading rows of each cell alone.",
        sql=re.sub(r"\bconfiguration_flops\b", LEADING_ROW, configuration.sql),
        layer="intermediate",
        path=None,
    )


def _read_layer(layer: Path) -> list[View]:
    return [_read(path) for path in sorted(layer.glob("*.sql"))]


def _read(path: Path) -> View:
    layer = path.parent.name
    needs_grain = layer != _CHECKS
    sql = path.read_text("utf-8")
    top = header(sql)
    what, grain = (line.strip() for line in [*top, "", ""][:2])
    hint = (
        "begin the file with `-- <content>.`, `-- Grain: one row per <thing>` and "
        "`-- Key: <columns>`"
    )
    if not is_name(path.stem):
        raise InputError(f"{path}: `{path.stem}` is not a name of a view", "use lower_case_words")
    if not what.removeprefix("--").strip() or not what.startswith("-- "):
        raise InputError(f"{path}: its first line does not say its content", hint)
    if needs_grain and not grain.startswith("-- Grain: "):
        raise InputError(f"{path}: its second line does not give the grain", hint)
    key = comment_text(top[2:]) if needs_grain else ""
    if needs_grain and not key.startswith("Key: "):
        raise InputError(f"{path}: its third line does not give the key", hint)
    try:
        key = key.removeprefix("Key: ").format_map(_keys())
    except (KeyError, IndexError, ValueError) as error:
        hint = f"relations are {', '.join(_keys())}"
        raise InputError(f"{path}: `{key}` names no relation", hint) from error
    kept = "".join(sql.splitlines()[len(top) : len(top) + 1])
    on = kept.removeprefix(_KEPT).strip() if kept.startswith(_KEPT) else ""
    if kept.startswith(_KEPT) and on not in _KEPT_ON:
        raise InputError(f"{path}: `{kept}` names no change", f"one of {', '.join(_KEPT_ON)}")
    grain = grain.removeprefix("-- Grain:").strip()
    return View(path.stem, what.removeprefix("--").strip(), grain, key, sql, layer, path, on)


def header(sql: str) -> list[str]:
    """Return the lines of content, grain and key; a key goes on after a comma at a line's end."""
    lines = sql.splitlines()
    end = next((n for n, line in enumerate(lines) if n > 1 and not line.endswith(",")), len(lines))
    return lines[: end + 1]


def _in_order(files: list[View]) -> list[View]:
    """Return the files of a layer so that each comes after those it reads."""
    by_name = {file.name: file for file in files}
    reads = {file.name: sorted(names_in(file.sql).relations & set(by_name)) for file in files}
    try:
        return [by_name[name] for name in TopologicalSorter(reads).static_order()]
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        path = by_name[error.args[1][0]].path
        raise InputError(f"{path}: reads itself: {circle}", "break the circle") from error
