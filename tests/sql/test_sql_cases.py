"""Every view and check of sql/ gives the rows that were worked out by hand.

A case is a directory of this one, named after the view or check: a CSV for each table to fill,
`expected.csv` with the rows it must give in the columns that matter, and `notes.md` with the
arithmetic where it is not obvious; `arguments.txt` has those of a table macro. Each further call of
a macro over the same tables is a pair `arguments_<call>.txt`, `expected_<call>.csv`. A line of
`tables.txt` names tables that several cases fill: a directory of `shared`, another case, or one CSV
file of either. A CSV of the case goes before them, and an earlier line before a later one. All
other tables are as in a new warehouse. Cells are completed as by a command that stores them, unless
the case has that itself: marks of those in force, their leading rows, their best layouts. A new
case needs no Python.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess
import sys
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators.columns import COLUMNS
from estimators.registry import all_estimators
from tests.shared import Shared
from warehouse.database import resources
from warehouse.database.connection import open_for_write
from warehouse.database.derived import store_figures
from warehouse.database.in_force import CELL_ORDER, mark_repeated, mark_sql
from warehouse.database.problem_facts import find_problems
from warehouse.database.sql_text import iterate_rows, literal
from warehouse.database.tables import MARKS, STORED_PROBLEM
from warehouse.database.views import (
    FOUND,
    FOUND_PROBLEM,
    LAYERS,
    LEADING_ROW,
    checks,
    kept_tables,
    leading_sql,
    packaged,
)

CASES = Path(__file__).parent
NAMES = sorted(
    path.parent.name + path.stem.removeprefix("expected") for path in CASES.glob("*/expected*.csv")
)
"""A case each: its directory, `_<call>` behind it where that is not the only one."""

VIEWS = {path.parent.name for path in CASES.glob("*/expected.csv")}
FIRST = sorted(VIEWS.intersection(NAMES))
FURTHER = [name for name in NAMES if name not in VIEWS]
"""Cases of a view's first call, and of further calls of macros."""
CHECKS, KEPT = checks(), kept_tables()
KEYS = {view.name: view.key for view in packaged() if view.key}
"""Columns that no two rows of a view or table macro have alike; a check has none."""
SHELL = Path(sys.executable).parent / "duckdb"
WORD, COMMENT = re.compile(r"\w+"), re.compile(r"--.*")


def read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return header, rows


def filling(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> str:
    """Return the SQL that replaces the rows of `table` by those of a CSV file.

    An empty field is NULL, or empty text where NULL is refused.
    """
    header, rows = read(path)
    query = 'select name, type, not "notnull" from pragma_table_info(?)'
    found = {name: rest for name, *rest in connection.execute(query, [table]).fetchall()}

    def value(name: str, field: str) -> str:
        kind, is_nullable = found[name]
        return "null" if not field and is_nullable else f"cast({literal(field)} as {kind})"

    statements = f"delete from {table};\n"
    if rows:
        listed = [", ".join(map(value, header, row)) for row in rows]
        lines = ",\n".join(f"({values})" for values in listed)
        statements += f"insert into {table} ({', '.join(header)}) values\n{lines};\n"
    return statements


def fill(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Replace the rows of `table` by those of a CSV file."""
    connection.execute(filling(connection, table, path))


def tables_of(directory: Path) -> dict[str, Path]:
    """Return the CSV file of each table that a case fills, by name of the table."""
    named = directory / "tables.txt"
    sources = [CASES / line for line in named.read_text().split()] if named.exists() else []
    paths: dict[str, Path] = {}
    for source in reversed(sources):
        paths |= tables_of(source) if source.is_dir() else {source.stem: source}
    files = {path.stem: path for path in directory.glob("*.csv")}
    paths |= {name: path for name, path in files.items() if not name.startswith("expected")}
    return dict(sorted(paths.items()))


def parts(case: str) -> tuple[str, Path, Path]:
    """Return the view of a case, the file of its arguments and that of its expected rows."""
    view = max((view for view in VIEWS if f"{case}_".startswith(f"{view}_")), key=len)
    call = case.removeprefix(view)
    return view, CASES / view / f"arguments{call}.txt", CASES / view / f"expected{call}.csv"


def query_of(name: str, key: str = "") -> str:
    """Return the query of the rows that are expected of case `name`; columns of a key come last."""
    view, arguments, expected = parts(name)
    columns = ", ".join([*read(expected)[0], *filter(None, [key])])
    texts = {check.name: f"({check.sql})" for check in CHECKS}
    call = f"{view}({arguments.read_text().strip()})" if arguments.exists() else view
    return f"select {columns} from {texts.get(view, call)}"


def case_sql(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[str, str]:
    """Return the SQL that fills the tables of case `name`, and the query of its expected rows."""
    view = parts(name)[0]
    tables = tables_of(CASES / view)
    given = {table: read(path)[0] for table, path in tables.items()}
    filled = "".join(filling(connection, *table) for table in tables.items())
    if "cell" in given and not {*MARKS} <= {*given["cell"]}:
        filled += f"{MARKED};\n"
    if {"cell", "problem"} <= {*given}:
        filled += with_figures(tables)
    filled += "".join(map(with_problems, sorted(given.keys() & FACTS)))
    filled += "".join(
        made_again(table.name)
        for table in KEPT
        if table.name not in given
        and table.name in words_under(view)
        and given.keys() & words_under(table.name)
    )
    return filled, query_of(name)


FACTS = {relation.table for each in all_estimators() for relation in each.relations}


def with_problems(table: str) -> str:
    """Return the SQL that gives the rows of a fact table the problems of their cells."""
    return (
        f"update {table} set problem_id = cell.problem_id from cell"
        f" where {table}.cell_id = cell.cell_id and {table}.problem_id is null;\n"
    )


def with_figures(tables: dict[str, Path]) -> str:
    """Return the SQL that gives cells the figures that their rows share."""
    cells, problems = (literal(str(tables[name])) for name in ("cell", "problem"))
    query = f"from {cells} as cell inner join {problems} as problem using (problem_id)"
    formulas = {estimator.name: estimator.step.cell_figures for estimator in all_estimators()}
    absent = {
        name: None if column.kind in ("bool", "str") else math.nan
        for name, column in COLUMNS.items()
    }
    statements = ""
    for row in iterate_rows(duckdb.connect(), query):
        values = absent | {name: value for name, value in row.items() if value is not None}
        for name, formula in formulas.get(row["estimator"], {}).items():
            figure = float(formula(values))
            if not math.isnan(figure):
                cell_id = row["cell_id"]
                statements += f"update cell set {name} = {figure!r} where cell_id = {cell_id};\n"
    return statements


MARKED = mark_sql(f"(from {CELL_ORDER})")
"""SQL that marks cells. A command takes the marks from a table."""

COUNTED = """\
update cell set num_layouts = found.num_layouts, num_fitting_layouts = found.num_fitting_layouts
from (
    select
        cell_id,
        count(configuration_source.cell_id) as num_layouts,
        count(configuration_source.cell_id) filter (where fits_memory is distinct from false)
            as num_fitting_layouts
    from cell left join configuration_source using (cell_id)
    group by cell_id
) as found
where cell.cell_id = found.cell_id;
"""
"""SQL that counts the layouts of cells. A command counts them where it evaluates them."""


def made_again(table: str) -> str:
    """Return the SQL that fills a kept table; a command takes less time to find the same rows."""
    counted = COUNTED if table == LEADING_ROW else ""
    found = f"({leading_sql()})" if table == LEADING_ROW else FOUND + table
    return f"{counted}delete from {table};\ninsert into {table} by name from {found};\n"


def complete(connection: duckdb.DuckDBPyConnection, *, ranks: bool = True) -> None:
    """Mark cells that were filled in, and find what is stored of them and of their problems.

    Without `ranks`, the leading rows stay as they are: to rank a million layouts takes seconds.
    """
    connection.execute("".join(map(with_problems, sorted(FACTS))))
    connection.execute(MARKED)
    cells = "select cell_id, relation, sibling from current_cell"
    current = connection.execute(cells).fetchall()
    mark_repeated(connection, current)
    store_figures(connection, current)
    stored = [table.name for table in KEPT if ranks or table.name != LEADING_ROW]
    connection.execute("".join(map(made_again, stored)))
    store_facts(connection)


def prepared(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Fill the tables of case `name` and return the query that its expected rows answer."""
    filled, query = case_sql(connection, name)
    connection.execute(filled)
    store_facts(connection)
    return query


def store_facts(connection: duckdb.DuckDBPyConnection) -> None:
    """Find the facts of the problems that were filled in, as a command that stores them does."""
    find_problems(connection)
    connection.execute(f"delete from {STORED_PROBLEM}")
    connection.execute(f"insert into {STORED_PROBLEM} from {FOUND_PROBLEM}")


def as_text(value: Any) -> str:
    """Return a value as a CSV file writes it."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value).lower() if isinstance(value, bool) else str(value)


def alike(found: str, expected: str) -> bool:
    """Return whether two fields are the same text or the same number to 1e-9."""
    if found == expected:
        return True
    try:
        return math.isclose(float(found), float(expected), rel_tol=1e-9)
    except ValueError:
        return False


def assert_same_rows(found: list[list[str]], name: str) -> None:
    """Check that `found` is a permutation of the rows expected of case `name`."""
    missing = []
    left = list(found)
    for row in read(parts(name)[2])[1]:
        same = [r for r in left if all(alike(f, e) for f, e in zip(r, row, strict=True))]
        if same:
            left.remove(same[0])
        else:
            missing.append(row)
    assert (missing, left) == ([], []), "rows expected but not given, and given but not expected"


def assert_answered(connection: duckdb.DuckDBPyConnection, query: str, name: str) -> None:
    """Check that a query gives the rows expected of case `name`."""
    found = connection.execute(query).fetchall()
    assert_same_rows([[as_text(value) for value in row] for row in found], name)


@cache
def words_of() -> dict[str, set[str]]:
    """Return each view and check with the words of its text, among them all that it reads."""
    texts = {check.name: check.sql for check in CHECKS}
    texts |= {view.name: view.sql for view in packaged()}
    return {name: set(WORD.findall(COMMENT.sub("", text))) for name, text in texts.items()}


@cache
def words_under(name: str) -> set[str]:
    """Return the words of a view or check and of all views under it."""
    found: set[str] = set()
    waiting = {name}
    while waiting:
        found |= waiting
        waiting = {word for each in waiting for word in words_of().get(each, ())} - found
    return found


def last_views() -> list[str]:
    """Return the views and checks that no other reads.

    The shell runs all others with them, and one of the others seldom fails alone.
    """
    words = words_of()
    read = {word for name, found in words.items() for word in found - {name}}
    return [name for name in FIRST if name not in read]


LAST = last_views()


def test_every_view_and_every_check_has_a_case() -> None:
    directory = resources.sql_directory()
    files = {
        path.stem for layer in (*LAYERS, "checks") for path in directory.glob(f"{layer}/*.sql")
    }
    assert files == VIEWS


def test_every_further_call_has_both_its_files() -> None:
    arguments = CASES.glob("*/arguments_*.txt")
    given = {path.with_name(path.name.replace("arguments", "expected", 1)) for path in arguments}
    expected = {path.with_suffix(".txt") for path in CASES.glob("*/expected_*.csv")}
    assert {path.with_suffix(".txt") for path in given} == expected
    assert given


def test_no_table_stands_twice() -> None:
    copies: dict[tuple[str, bytes], list[str]] = {}
    for path in sorted(CASES.rglob("*.csv")):
        copies.setdefault((path.name, path.read_bytes()), []).append(path.parent.name)
    assert [both for both in copies.values() if len(both) > 1] == [], "name one in `tables.txt`"


def test_every_line_of_tables_names_one_that_the_case_does_not_have() -> None:
    for named in CASES.rglob("tables.txt"):
        own = {path.name for path in named.parent.glob("*.csv")}
        for line in named.read_text("utf-8").split():
            assert (CASES / line).exists(), (named, line)
            assert (CASES / line).is_dir() or Path(line).name not in own, (named, line)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in LAST else pytest.mark.long) for name in FIRST]
)
def test_it_gives_the_rows_worked_out_by_hand(
    name: str, scratch: duckdb.DuckDBPyConnection
) -> None:
    prepared(scratch, name)
    key = KEYS.get(name, "")
    found = scratch.execute(query_of(name, key)).fetchall()
    width = len(read(parts(name)[2])[0])
    assert_same_rows([[as_text(value) for value in row[:width]] for row in found], name)
    if key:
        assert len({repr(row[width:]) for row in found}) == len(found)


@pytest.mark.parametrize("view", sorted({parts(name)[0] for name in FURTHER}))
@pytest.mark.long
def test_further_calls_over_the_same_tables_give_theirs(
    view: str, scratch: duckdb.DuckDBPyConnection, subtests: pytest.Subtests
) -> None:
    calls = [name for name in FURTHER if parts(name)[0] == view]
    prepared(scratch, view)
    for name in calls:
        with subtests.test(name):
            assert_answered(scratch, query_of(name), name)


@pytest.fixture(scope="session")
def answered_by_shell(shared: Shared, empty_warehouse: Path) -> Path:
    """A directory with what one shell of DuckDB 1.5 answered: a CSV file a case, and its errors."""

    def make(place: Path) -> None:
        database = shutil.copyfile(empty_warehouse, place / "warehouse.duckdb")
        script = "set threads = 1;\n"  # the rows are few
        with open_for_write(database) as connection:
            for name in LAST:
                connection.begin()
                filled, query = case_sql(connection, name)
                connection.execute(filled)
                store_facts(connection)
                facts = place / f"{name}.parquet"
                connection.execute(f"copy {STORED_PROBLEM} to {literal(str(facts))}")
                connection.rollback()
                filled += f"insert into {STORED_PROBLEM} from {literal(str(facts))};\n"
                script += f"begin;\n{filled}.once {place / name}.csv\n{query};\nrollback;\n"
        command = [str(SHELL), "-csv", "-noheader", "-nullvalue", "", str(database)]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        (place / "errors").write_text(done.stderr, encoding="utf-8")

    return shared("shell", make)


@pytest.mark.parametrize("name", LAST)
@pytest.mark.long
def test_the_shell_of_duckdb_1_gives_the_same(name: str, answered_by_shell: Path) -> None:
    answer = answered_by_shell / f"{name}.csv"
    assert answer.exists(), (answered_by_shell / "errors").read_text("utf-8")
    with answer.open(encoding="utf-8", newline="") as file:
        assert_same_rows(list(csv.reader(file)), name)


@pytest.mark.long
def test_the_shell_of_duckdb_1_reports_no_error(answered_by_shell: Path) -> None:
    assert (answered_by_shell / "errors").read_text("utf-8") == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_new_warehouse_passes_every_check(check: Any, scratch: duckdb.DuckDBPyConnection) -> None:
    find_problems(scratch)
    assert scratch.execute(check.sql).fetchall() == []


def test_every_fact_table_is_counted(scratch: duckdb.DuckDBPyConnection) -> None:
    each = [relation for found in all_estimators() for relation in found.relations]
    for number, relation in enumerate(each):
        insert = f"insert into {relation.table} (cell_id) values ({number})"
        scratch.execute(insert)
    found = scratch.execute("select relation from fact_count").fetchall()
    assert sorted(name for (name,) in found) == sorted(relation.name for relation in each)
