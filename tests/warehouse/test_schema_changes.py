"""What a database becomes when declarations, files or the program change, or it is killed then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

import duckdb
import pytest

from estimators import registry
from estimators.columns import COLUMNS, Column
from estimators.contract import Relation
from estimators.registry import ESTIMATORS
from tests.toy_estimator import CONFIGURATIONS, PART_ROWS, TOY
from tests.warehouse.schema_cases import columns_of
from warehouse.database import resources
from warehouse.database.connection import open_for_write
from warehouse.database.schema import prepare
from warehouse.database.stamp import is_stamped, reference_names
from warehouse.errors import InputError

DIE_AT = """
import os, sys
from pathlib import Path
import duckdb
from estimators import registry
from warehouse.database import resources
from warehouse.database.schema import prepare

class Dying:
    def __init__(self, connection, statements):
        self.connection, self.left = connection, statements
    def __getattr__(self, name):
        return getattr(self.connection, name)
    def execute(self, *arguments):
        if self.left == 0:
            os.kill(os.getpid(), 9)
        self.left -= 1
        return self.connection.execute(*arguments)
    def commit(self):
        os.kill(os.getpid(), 9)

path, sql, reference, *names = sys.argv[1:]
registry.ESTIMATORS = {name: registry.ESTIMATORS[name] for name in names}
resources.sql_directory = lambda: Path(sql)
resources.reference_directory = lambda: Path(reference)
for statements in sys.stdin:
    child = os.fork()  # a process each, and one start of the program for all of them
    if not child:
        with duckdb.connect(path) as connection:
            prepare(Dying(connection, int(statements)))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A program that dies as often as it reads a number, each time at that statement."""


class Directories(TypedDict):
    """Directories of views and reference tables."""

    sql: Path
    reference: Path


class Counting:
    """A connection that counts its statements."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.executed = connection, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, *arguments: Any) -> duckdb.DuckDBPyConnection:
        self.executed += 1
        return self.connection.execute(*arguments)


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directories:
    """Two reference tables and two views, in place of those of the package."""
    sql, reference = tmp_path / "small_sql", tmp_path / "small_reference"
    (sql / "marts").mkdir(parents=True)
    reference.mkdir()
    (sql / "marts" / "wide.sql").write_text(
        "-- Wide models.\n-- Grain: one row per model\n-- Key: model\n"
        "select * from model where hidden_size > 9\n"
    )
    (sql / "marts" / "count_wide.sql").write_text(
        "-- How many.\n-- Grain: one row\n-- Key: num_rows\nselect count(*) as num_rows from wide\n"
    )
    (reference / "model.csv").write_text("model,hidden_size,source\na,8,here\nb,16,there\n")
    (reference / "system.csv").write_text("accelerator,hbm_bytes,source\nA100,80e9,there\n")
    monkeypatch.setattr(resources, "sql_directory", lambda: sql)
    monkeypatch.setattr(resources, "reference_directory", lambda: reference)
    return Directories(sql=sql, reference=reference)


@pytest.fixture
def few_estimators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave two estimators: a database of theirs takes a tenth of the time."""
    few = {name: ESTIMATORS[name] for name in ("linear_layer", "run_optimizer")}
    monkeypatch.setattr("estimators.registry.ESTIMATORS", few)


@pytest.fixture
def few_with_toy(toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one estimator and the toy."""
    del toy  # registered before they are chosen
    few = {name: ESTIMATORS[name] for name in ("linear_layer", "toy")}
    monkeypatch.setattr("estimators.registry.ESTIMATORS", few)


def dump(connection: duckdb.DuckDBPyConnection) -> list[list[str]]:
    """Everything a user can see: names, DDL, comments and rows."""
    parts = [
        connection.execute(f"from duckdb_{kind}() select {columns} where not internal").fetchall()
        for kind, columns in (
            ("tables", "table_name, sql, comment"),
            ("views", "view_name, sql, comment"),
            ("columns", "table_name, column_name, data_type, comment"),
            ("functions", "function_name, macro_definition"),
        )
    ]
    tables = [name for name, *_ in parts[0]]
    rows = [connection.execute(f"from {name}").fetchall() for name in sorted(tables)]
    return [sorted(map(repr, part)) for part in (*parts, *rows)]


@pytest.mark.usefixtures("directories")
def test_preparing_twice_makes_the_same(connection: duckdb.DuckDBPyConnection) -> None:
    assert not is_stamped(connection)
    prepare(connection)
    before = dump(connection)

    assert is_stamped(connection)
    prepare(connection)
    assert dump(connection) == before


@pytest.mark.usefixtures("few_estimators")
def test_a_changed_file_changes_its_table_or_view(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    prepare(connection)
    connection.execute("insert into system values ('mine', 1, 'me')")
    connection.execute("create table mine as select 1 as one")
    (directories["reference"] / "model.csv").write_text("model,seq_len,source\nc,4,here\n")
    (directories["sql"] / "marts" / "wide.sql").write_text(
        "-- Long models.\n-- Grain: one row per model\n-- Key: model\n"
        "select * from model where seq_len > 3\n"
    )

    prepare(connection)
    assert connection.execute("select model from wide").fetchall() == [("c",)]
    assert connection.execute("select num_rows from count_wide").fetchall() == [(1,)]
    assert columns_of(connection, "model") == {
        "model": "VARCHAR",
        "seq_len": "INTEGER",
        "source": "VARCHAR",
    }
    assert len(connection.execute("from system").fetchall()) == 1  # all are read again
    assert connection.execute("from mine").fetchall() == [(1,)]


@pytest.mark.usefixtures("few_estimators")
def test_removed_files_go_and_what_the_user_made_stays(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    prepare(connection)
    connection.execute("create view mine as select 1 as one")
    (directories["sql"] / "marts" / "count_wide.sql").unlink()
    (directories["reference"] / "system.csv").unlink()

    prepare(connection)
    views = connection.execute("select view_name from duckdb_views() where not internal").fetchall()
    assert {"mine", "wide"} <= {name for (name,) in views}
    assert ("count_wide",) not in views
    assert columns_of(connection, "system") == {}


@pytest.mark.usefixtures("few_estimators")
def test_a_table_macro_whose_file_is_gone_goes_and_one_of_the_users_stays(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    functions = directories["sql"] / "functions"
    functions.mkdir()
    text = "create or replace macro wider(least) as table select least as least;"
    (functions / "wider.sql").write_text(
        f"-- Rows.\n-- Grain: one row per row\n-- Key: model\n{text}"
    )
    prepare(connection)
    connection.execute("create macro mine(x) as table select x as x")
    assert connection.execute("from wider(3)").fetchall() == [(3,)]

    (functions / "wider.sql").unlink()
    prepare(connection)
    assert connection.execute("from mine(4)").fetchall() == [(4,)]
    with pytest.raises(duckdb.CatalogException, match="wider"):
        connection.execute("from wider(3)")


@pytest.mark.usefixtures("few_estimators")
def test_a_reference_table_whose_file_is_gone_goes_alone(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    prepare(connection)
    (directories["reference"] / "system.csv").unlink()

    prepare(connection)
    assert columns_of(connection, "system") == {}
    assert reference_names(connection) == ["model"]


@pytest.mark.long
@pytest.mark.usefixtures("few_with_toy", "directories")
def test_a_column_the_dictionary_gained_is_added_to_what_is_stored(
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = replace(CONFIGURATIONS, measures=("step_seconds",))
    with monkeypatch.context() as before:
        before.setattr(TOY, "relations", (older, PART_ROWS), raising=False)
        before.setattr(TOY, "problem_columns", ("model",), raising=False)
        prepare(connection)
    connection.execute("insert into toy values (1, 2, 2, 3, 0.5, false)")
    connection.execute("insert into problem by name select 1 as problem_id, 'gpt' as model")

    prepare(connection)
    assert connection.execute("select step_seconds, weights_bytes from toy").fetchall() == [
        (0.5, None)
    ]
    assert connection.execute("select model, toy_overlap_fraction from problem").fetchall() == [
        ("gpt", None)
    ]
    connection.execute("select weights_bytes, toy_overlap_fraction from current_toy").fetchall()


@pytest.mark.usefixtures("few_with_toy", "directories")
@pytest.mark.long
def test_a_column_whose_type_changed_is_converted(
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(connection)
    connection.execute("insert into toy by name select 1 as cell_id, 7 as data_parallel")
    connection.execute("insert into problem by name select 1 as problem_id, 8 as num_gpus")
    for name in ("data_parallel", "num_gpus"):
        monkeypatch.setitem(COLUMNS, name, replace(COLUMNS[name], storage="BIGINT"))

    prepare(connection)
    assert columns_of(connection, "toy")["data_parallel"] == "BIGINT"
    assert columns_of(connection, "problem")["num_gpus"] == "BIGINT"
    assert connection.execute("select data_parallel from toy").fetchall() == [(7,)]


@pytest.mark.usefixtures("few_estimators")
def test_a_faulty_file_leaves_the_database_as_it_was(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    prepare(connection)
    before = dump(connection)
    (directories["reference"] / "model.csv").write_text("model,source\nnew,here\n")
    (directories["sql"] / "marts" / "wide.sql").write_text(
        "-- Wide.\n-- Grain: one row\n-- Key: model\nselect no_such_column from model\n"
    )

    with pytest.raises(InputError, match="no_such_column"):
        prepare(connection)
    assert dump(connection) == before


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"problem_columns": ("model", "made_up")}, "`made_up` is not in the data dictionary"),
        ({"choice_columns": ("model",)}, "estimator toy: relation `toy` has `model` twice"),
        ({"relations": (replace(CONFIGURATIONS, name="cell"),)}, "`cell` names two tables"),
        ({"relations": (replace(CONFIGURATIONS, name="model"),)}, "`model` names two tables"),
        (
            {"relations": (replace(CONFIGURATIONS, keys=("step_seconds",)),)},
            "relation `toy` has `step_seconds` twice",
        ),
    ],
)
@pytest.mark.usefixtures("toy", "directories")
def test_a_faulty_declaration_is_refused(
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    declared: dict[str, tuple[Relation | str, ...]],
    said: str,
) -> None:
    for name, value in declared.items():
        monkeypatch.setattr(TOY, name, value, raising=False)

    with pytest.raises(InputError, match=said):
        prepare(connection)
    assert connection.execute("select count(*) from duckdb_tables()").fetchone() == (0,)


@pytest.mark.usefixtures("few_estimators", "directories")
def test_a_change_of_the_dictionary_changes_comments(
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(connection)
    better = replace(COLUMNS["hbm_bytes"], meaning="Memory of one GPU, as sold")
    monkeypatch.setitem(COLUMNS, "hbm_bytes", better)

    prepare(connection)
    query = "select distinct comment from duckdb_columns() where column_name = 'hbm_bytes'"
    assert connection.execute(query).fetchall() == [("Memory of one GPU, as sold [bytes].",)]


@pytest.mark.usefixtures("few_estimators")
def test_a_name_with_a_quote_cannot_break_out(
    connection: duckdb.DuckDBPyConnection,
    directories: Directories,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COLUMNS, "note", Column("note", "str", "", "It's; drop table cell --"))
    (directories["reference"] / "model.csv").write_text(
        'model,hidden_size,source,note\nit\'s,8,"a ""b""",\'); drop table cell; --\n'
    )
    prepare(connection)

    assert connection.execute("from model").fetchall() == [
        ("it's", 8, 'a "b"', "'); drop table cell; --")
    ]
    assert columns_of(connection, "cell")


@pytest.mark.usefixtures("few_estimators")
@pytest.mark.long
def test_a_kill_at_any_statement_leaves_all_or_nothing(
    tmp_path: Path, directories: Directories
) -> None:
    path = tmp_path / "killed.duckdb"
    with duckdb.connect(str(tmp_path / "undisturbed.duckdb")) as opened:
        counting = Counting(opened)
        prepare(cast("duckdb.DuckDBPyConnection", counting))
        wanted = dump(opened)
    arguments = [path, directories["sql"], directories["reference"], *registry.ESTIMATORS]
    command = [sys.executable, "-c", DIE_AT, *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as dying:
        assert dying.stdin is not None
        assert dying.stdout is not None
        step = counting.executed // 8 or 1
        for statements in (*range(1, counting.executed, step), counting.executed):
            print(statements, file=dying.stdin, flush=True)
            assert dying.stdout.readline() == "-9\n"
            with duckdb.connect(str(path)) as opened:
                assert opened.execute("select count(*) from duckdb_tables()").fetchone() == (0,)

    with duckdb.connect(str(path)) as opened:
        prepare(opened)
        assert dump(opened) == wanted


@pytest.mark.long
def test_a_kill_while_refreshing_keeps_the_rows(
    database: Path, empty_warehouse: Path, directories: Directories
) -> None:
    shutil.copyfile(empty_warehouse, database)
    with open_for_write(database) as opened:
        opened.execute("insert into problem by name select 1 as problem_id, 'gpt' as model")
    with open_for_write(database) as opened:  # read back: DuckDB may write a view differently
        before = dump(opened)
    arguments = [database, directories["sql"], directories["reference"], *registry.ESTIMATORS]
    command = [sys.executable, "-c", DIE_AT, *map(str, arguments)]
    done = subprocess.run(command, input="999\n", capture_output=True, text=True, check=False)
    assert done.stdout == "-9\n", done.stderr

    with open_for_write(database) as opened:
        assert dump(opened) == before


def test_the_packaged_resources_are_those_of_the_source_tree() -> None:
    root = Path(__file__).parents[2]
    found = [
        resources.sql_directory(),
        resources.reference_directory(),
        resources.studies_directory(),
    ]
    assert [os.path.relpath(path, root) for path in found] == ["sql", "db/reference", "studies"]


@pytest.mark.usefixtures("few_estimators", "directories")
def test_real_valued_degrees_stay_real_when_the_dictionary_changes(
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(connection)
    connection.execute("insert into run_optimizer (cell_id, data_parallel) values (1, 1.025)")
    changed = replace(COLUMNS["tie_rule"], meaning="Another meaning")
    monkeypatch.setitem(COLUMNS, "tie_rule", changed)
    prepare(connection)
    assert columns_of(connection, "run_optimizer")["data_parallel"] == "DOUBLE"
    assert connection.execute("select data_parallel from run_optimizer").fetchall() == [(1.025,)]


@pytest.mark.usefixtures("few_estimators")
def test_a_view_that_was_removed_by_hand_comes_back_with_the_next_change(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    prepare(connection)
    connection.execute("drop view wide")
    count = directories["sql"] / "marts" / "count_wide.sql"
    count.write_text(count.read_text().replace("num_rows", "num_wide"))

    prepare(connection)
    assert connection.execute("select num_wide from count_wide").fetchall() == [(1,)]


@pytest.mark.usefixtures("few_estimators", "directories")
def test_creating_views_leaves_no_temporary_table(connection: duckdb.DuckDBPyConnection) -> None:
    prepare(connection)
    temporary = "select table_name from duckdb_tables() where temporary"
    assert connection.execute(temporary).fetchall() == []


@pytest.mark.usefixtures("few_estimators")
def test_a_view_has_the_types_of_what_it_reads(
    connection: duckdb.DuckDBPyConnection, directories: Directories
) -> None:
    (directories["sql"] / "marts" / "kinds.sql").write_text(
        "-- Types.\n-- Grain: one row\n-- Key: s\n"
        "select {'a b': 1} as s, 'x'::enum('x', 'it''s') as e, "
        "1.5::decimal(9, 2) as d, map {1: [now()]} as m\n"
    )
    (directories["sql"] / "marts" / "of_kinds.sql").write_text(
        "-- The same.\n-- Grain: one row\n-- Key: s\nselect * from kinds\n"
    )
    prepare(connection)
    kinds, same = (connection.view(name).types for name in ("kinds", "of_kinds"))
    assert kinds == same
    assert connection.execute("select s['a b'], e, d from of_kinds").fetchall()
