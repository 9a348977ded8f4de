"""From the files of sql/ to views: order, comments, the generated union, and faults by file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from warehouse.database import resources
from warehouse.database.create_views import create_views
from warehouse.database.schema import prepare
from warehouse.database.views import LAYERS, checks
from warehouse.errors import InputError

HEADER = "-- What it shows.\n-- Grain: one row per number\n-- Key: number\n"
CONFIGURATION = (
    "-- What it shows.\n-- Grain: one row per configuration\n-- Key: estimator,\n-- {roofline}\n"
)


@pytest.fixture(scope="module")
def prepared() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(resources, "sql_directory", lambda: Path("no-such-directory"))
            prepare(opened)
        yield opened


@pytest.fixture
def connection(prepared: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with tables and generated views, but without files of sql/.

    A test's changes are rolled back.
    """
    prepared.begin()
    yield prepared
    prepared.rollback()


@pytest.fixture
def sql(tmp_path: Path) -> Callable[..., Path]:
    """Write files, given as ``layer/name=text``, into a directory of views."""

    def write(**files: Any) -> Path:
        for place, text in files.items():
            path = tmp_path / f"{place.replace('__', '/')}.sql"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def refusal(connection: duckdb.DuckDBPyConnection, directory: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        create_views(connection, directory)
    return caught.value


def test_views_are_made_in_layers_and_within_a_layer_after_what_they_read(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(
        marts__a=HEADER + "select number from b inner join last using (number)",
        marts__b=HEADER + "with c as (select 1 as number) select number from zero, c",
        marts__zero=HEADER + "select 1 as one -- not from a\nfrom zero_staged",
        staging__zero_staged=HEADER + "select 'from a' as text",
        intermediate__last=HEADER + "select number from (select 2 as number) as a",
    )
    names = [view.name for view in create_views(connection, directory)][-5:]

    assert names[:2] == ["zero_staged", "last"]
    assert names.index("zero") < names.index("a")
    assert names.index("b") < names.index("a")


def test_a_view_may_read_one_of_its_layer_written_in_any_case_and_quotes(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(
        marts__a=HEADER + 'SELECT * FROM\n    "b"', marts__b=HEADER + "select 1 as number;"
    )
    assert [view.name for view in create_views(connection, directory)][-2:] == ["b", "a"]
    assert connection.execute("select number from a").fetchall() == [(1,)]


def test_macros_come_first_and_may_be_made_again(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(
        macros="-- Doubled.\ncreate or replace macro twice(x) as 2 * x;\n"
        "-- Tripled.\ncreate or replace macro thrice(x) as x + twice(x);\n",
        staging__six=HEADER + "select thrice(2) as number",
    )
    create_views(connection, directory)
    create_views(connection, directory)

    assert connection.execute("select number from six").fetchall() == [(6,)]


def test_a_view_carries_its_header_and_the_dictionary_as_comments(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(marts__a=HEADER + "select 1.0 as step_seconds, 2 as other")
    create_views(connection, directory)

    comment = "select comment from duckdb_views() where view_name = 'a'"
    assert connection.execute(comment).fetchall() == [
        ("mart: What it shows. Grain: one row per number. Key: number",)
    ]
    columns = "select column_name, comment from duckdb_columns() where table_name = 'a'"
    assert connection.execute(columns).fetchall() == [
        ("step_seconds", "Time of one training step; its parts add up to it [seconds]."),
        ("other", None),
    ]


def test_configuration_source_is_the_union_by_name_of_staging_views_of_that_grain(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(
        staging__one=CONFIGURATION + "select 1 as num_gpus, 'one' as estimator",
        staging__two=CONFIGURATION + "select 'two' as estimator, 2.0 as step_seconds",
        staging__part=HEADER + "select 'part' as estimator",
        intermediate__reads=HEADER + "select * from configuration_source",
    )
    create_views(connection, directory)

    query = "select estimator, num_gpus, step_seconds from reads order by estimator"
    assert connection.execute(query).fetchall() == [("one", 1, None), ("two", None, 2.0)]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("select 1 as number", "its first line does not say its content", "begin the file with"),
        ("", "its first line does not say its content", "begin the file with"),
        ("-- \n-- Grain: one row\nselect 1 as number", "its first line", "begin the file with"),
        ("-- What.\nselect 1 as number", "its second line does not give the grain", "-- Grain:"),
        (HEADER.replace("Key", "By"), "its third line does not give the key", "-- Key: <columns>"),
        (
            HEADER.replace("Key: number", "Key: {none}"),
            "`Key: {none}` names no relation",
            "roofline",
        ),
        (HEADER + "select nothing from model", 'column "nothing" not found', ""),
        (HEADER + "select from from", "syntax error", ""),
        (HEADER + "select 1 as number; drop table cell", "is not one SELECT", "one view"),
        (HEADER + "delete from cell", "is not one SELECT", "one view"),
        (HEADER, "is not one SELECT", "one view"),
        (HEADER + "select * from no_such_view", "no_such_view does not exist", ""),
    ],
)
def test_a_faulty_file_is_named_with_its_fault(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path], text: str, said: str, hint: str
) -> None:
    directory = sql(marts__bad=text)
    error = refusal(connection, directory)

    assert error.exit_code == 3
    assert error.message.startswith(f"{directory / 'marts' / 'bad.sql'}: ")
    assert said.lower() in error.message.lower()
    assert hint in error.hint
    assert "\n" not in error.message


def test_a_faulty_macro_file_is_named(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(macros="create or replace macro twice(x) as 2 *;")

    assert refusal(connection, directory).message.startswith(f"{directory / 'macros.sql'}: ")


def test_views_that_read_each_other_are_refused(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(
        marts__a=HEADER + "select * from b",
        marts__b=HEADER + "select * from a",
    )
    message = refusal(connection, directory).message

    assert "a.sql: " in message or "b.sql: " in message
    assert "a -> b -> a" in message or "b -> a -> b" in message


@pytest.mark.parametrize("name", ["a", "configuration_source", "current_cell"])
def test_two_views_of_one_name_are_refused(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path], name: str
) -> None:
    directory = sql(
        **{
            "staging__a": CONFIGURATION + "select 1 as number",
            f"marts__{name}": HEADER + "select 2 as number",
        }
    )

    assert f"`{name}` names two views" in refusal(connection, directory).message


def test_a_view_cannot_take_the_name_of_a_table(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(marts__roofline=HEADER + "select 1 as number")
    error = refusal(connection, directory)

    file = directory / "marts" / "roofline.sql"
    assert (error.message, error.hint) == (f"{file}: `roofline` is a table", "rename the file")


def test_a_file_name_that_is_no_view_name_is_refused(
    connection: duckdb.DuckDBPyConnection, sql: Callable[..., Path]
) -> None:
    directory = sql(**{"marts__My View": HEADER + "select 1 as number"})

    assert "is not a name of a view" in refusal(connection, directory).message


def test_checks_are_read_by_name_and_need_no_grain(sql: Callable[..., Path]) -> None:
    directory = sql(
        checks__b="-- Nothing is late.\nselect 1 as late",
        checks__a="-- Nothing is lost.\n-- Rows: the lost ones\nselect 2 as lost",
    )

    assert [(check.name, check.what) for check in checks(directory)] == [
        ("a", "Nothing is lost."),
        ("b", "Nothing is late."),
        ("stored_problem_is_found", "Rows that table stored_problem has alone, or lacks."),
    ]
    assert checks(directory)[1].sql.endswith("select 1 as late")


def test_every_packaged_file_becomes_a_view_or_a_macro(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    """DuckDB reads a view whole when it is made; tests/sql has rows of each."""
    directory = resources.sql_directory()
    made = (
        "select view_name from duckdb_views() union select table_name from duckdb_tables()"
        " union select function_name from duckdb_functions()"
    )
    names = {name for (name,) in warehouse_connection.execute(made).fetchall()}
    files = {path.stem for layer in LAYERS for path in directory.glob(f"{layer}/*.sql")}
    assert len(files) > 80
    assert files - names == set()
