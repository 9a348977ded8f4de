"""The description of a database: comments on everything, layers, lineage, near misses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from estimators.columns import COLUMNS
from estimators.registry import all_estimators
from warehouse.database import resources
from warehouse.database.describe import Description, group_of, split_comment
from warehouse.database.lineage import Names, all_sources, names_in, readers_of, reads_of, without
from warehouse.database.meanings import (
    ARGUMENTS,
    LAYERS,
    OTHER_COLUMNS,
    REFERENCE_TABLES,
    ROLES,
    meaning_of,
    role_of,
)
from warehouse.database.new_file import in_memory
from warehouse.database.reference import (
    DICTIONARY,
    estimators_files,
    measured_files,
    reference_files,
)
from warehouse.database.views import Argument, macros_in
from warehouse.errors import InputError


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with everything that the package makes."""
    with in_memory() as opened:
        yield opened


@pytest.fixture(scope="module")
def described(connection: duckdb.DuckDBPyConnection) -> Description:
    return Description(connection)


# ---- comments on everything ----


def test_every_column_of_every_table_and_view_has_a_comment(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    bare = connection.execute(
        "select table_name, column_name from duckdb_columns() "
        "where not internal and coalesce(comment, '') = ''"
    ).fetchall()
    assert bare == [], "define the columns in estimators/columns"


def test_every_table_view_and_macro_has_a_comment(connection: duckdb.DuckDBPyConnection) -> None:
    bare = connection.execute(
        "select table_name from duckdb_tables() where coalesce(comment, '') = '' "
        "union all select view_name from duckdb_views() "
        "where not internal and coalesce(comment, '') = '' "
        "union all select function_name from duckdb_functions() "
        "where not internal and coalesce(comment, '') = ''"
    ).fetchall()
    assert bare == []


def test_a_name_is_of_one_kind_wherever_it_occurs(connection: duckdb.DuckDBPyConnection) -> None:
    kinds: dict[str, set[str]] = {}
    for name, kind in connection.execute(
        "select distinct column_name, data_type from duckdb_columns() where not internal"
    ).fetchall():
        is_number = re.match(r"U?(TINY|SMALL|BIG|HUGE)?INT|INTEGER|UINTEGER|DOUBLE|FLOAT", kind)
        kinds.setdefault(name, set()).add("number" if is_number else kind.partition("(")[0])
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_columns_outside_the_dictionary_are_not_in_it_and_are_used(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    names = set(OTHER_COLUMNS)
    assert names & set(COLUMNS) == set(), "the dictionary has them: take them out of meanings.csv"
    query = "select distinct column_name from duckdb_columns() where not internal"
    assert names - {name for (name,) in connection.execute(query).fetchall()} == set()


def test_every_column_of_the_dictionary_is_used(
    described: Description,
) -> None:
    used = {column.name for thing in described.things for column in described.columns(thing)}
    for estimator in all_estimators():
        used |= {*estimator.problem_columns, *estimator.choice_columns, *estimator.input_columns}
        for relation in estimator.relations:
            used |= {*relation.keys, *relation.outputs}
    for plot in (resources.sql_directory() / "plots").glob("*.sql"):
        used |= {*re.findall(r"\w+", plot.read_text("utf-8"))}
    assert [name for name in COLUMNS if name not in used] == [], "delete the line of columns.csv"


def test_the_dictionary_is_a_table(connection: duckdb.DuckDBPyConnection) -> None:
    stored = connection.execute(f"select column_name from {DICTIONARY}").fetchall()
    assert [name for (name,) in stored] == list(COLUMNS)
    row = connection.execute(f"from {DICTIONARY} where column_name = 'zero_stage'").fetchone()
    meaning = "ZeRO stage: the state that data parallelism shards"
    expected = ("zero_stage", "Layout", "INTEGER", None, meaning, None, 0, None, 3, "ZeRO")
    assert row == (*expected, "zero, stage3, zero_optimization", None)
    rows = connection.execute(
        f"select unit, choices, above, other_names, source from {DICTIONARY} "
        "where column_name in ('precision', 'launch_seconds', 'parameters') order by column_name"
    ).fetchall()
    assert rows == [
        ("seconds", None, None, None, "arXiv 2410.00273"),
        (None, None, 0, None, None),
        (
            None,
            "bf16, fp16, fp8, fp4",
            None,
            "dtype, number_format, params_dtype, torch_dtype, mixed_precision",
            None,
        ),
    ]


def test_every_reference_table_says_what_it_holds_and_its_grain() -> None:
    files = (*reference_files(), *estimators_files(), *measured_files())
    assert {DICTIONARY, *(path.stem for path in files)} == set(REFERENCE_TABLES)
    for name, comment in REFERENCE_TABLES.items():
        assert all(split_comment(comment)[1:3]), name


def test_a_comment_has_role_content_grain_key_and_notes() -> None:
    whole = "mart: What: it is. Grain: one row per GPU and day. Key: gpu, day. Note: One row per x."
    parts = ("mart", "What: it is.", "one row per GPU and day", ("gpu", "day"), "One row per x.")
    assert split_comment(whole) == parts
    assert split_comment("record: Cells. One row per cell.")[:4] == (
        *("record", "Cells.", "one row per cell", ()),
    )
    assert split_comment("Days: of people.") == ("", "Days: of people.", "", (), "")
    assert split_comment("") == ("", "", "", (), "")


def test_every_comment_of_the_package_begins_with_its_role(
    connection: duckdb.DuckDBPyConnection, described: Description
) -> None:
    comments = connection.execute(
        "select view_name, comment from duckdb_views() where not internal union all "
        "select table_name, comment from duckdb_tables() union all "
        "select function_name, comment from duckdb_functions() where not internal"
    ).fetchall()
    for name, comment in comments:
        thing = described.things[name]
        assert comment.startswith(f"{thing.role}: {thing.what}"), name
        if thing.role not in ("internal", "intermediate", "deprecated"):
            assert thing.role == role_of(thing.layer)
    assert {thing.role for thing in described.things.values()} == set(ROLES) - {"own"}


def test_the_comment_of_a_column_has_its_accepted_values() -> None:
    comment = COLUMNS["strategy"].comment
    assert comment.endswith("One of tensor_1d, summa_2d, context_2d.")


def test_the_comment_of_a_table_macro_has_all_that_a_call_needs(
    connection: duckdb.DuckDBPyConnection, described: Description
) -> None:
    thing = described.things["training_run"]
    query = "select comment from duckdb_functions() where function_name = 'training_run'"
    ((comment,),) = connection.execute(query).fetchall()
    assert thing.notes in comment
    assert "asked_tokens: Tokens to train on" in comment
    assert comment.endswith(f"After `use` of this database: {thing.example}")


# ---- tables, views and macros ----


def test_everything_of_the_package_has_a_layer_and_says_what_it_is(described: Description) -> None:
    assert {thing.layer for thing in described.things.values()} == set(LAYERS) - {"own"}
    for thing in described.things.values():
        assert thing.what, thing.name
        assert thing.grain or thing.kind == "macro", thing.name
        has_key = thing.kind in ("view", "table macro") or thing.layer in (
            *("reference", "intermediate"),
        )
        assert bool(thing.key) == has_key, thing.name


def test_things_come_by_role_marts_first_then_by_name(described: Description) -> None:
    places = [
        (list(ROLES).index(t.role), list(LAYERS).index(t.layer), t.name)
        for t in described.things.values()
    ]
    assert places == sorted(places)


def test_a_view_is_distinguished_from_a_file(described: Description) -> None:
    thing = described.things["training_cost"]
    assert (thing.kind, thing.layer) == ("view", "marts")
    assert thing.source == "sql/marts/training_cost.sql"
    assert thing.what.startswith("Dollars of")
    notes = described.things["best_of_cell"].notes
    assert notes.startswith("The fastest that is likely to fit, else the likeliest. NULL where no")


def test_columns_have_unit_meaning_and_source(described: Description) -> None:
    columns = {column.name: column for column in described.columns("configuration")}
    step = columns["step_seconds"]
    assert (step.type, step.unit) == ("DOUBLE", "seconds")
    assert step.meaning == COLUMNS["step_seconds"].meaning
    assert columns["mfu"].source == "arXiv 2204.02311"
    assert all(column.meaning for column in columns.values())


def test_the_columns_of_a_table_macro_are_those_that_it_returns(
    described: Description, connection: duckdb.DuckDBPyConnection
) -> None:
    columns = described.columns("training_run_for")
    returned = connection.execute("from training_run_for(1e12)").description or []
    assert [column.name for column in columns] == [column[0] for column in returned]
    assert described.columns("mfu") == []


def test_arguments_have_their_defaults(described: Description) -> None:
    assert described.things["training_run_for"].arguments == (
        Argument("asked_tokens", None),
        Argument("assumed_goodput", "null"),
    )


def test_every_argument_of_a_macro_has_a_meaning_and_none_is_explained_for_nothing(
    described: Description,
) -> None:
    used = {each.name for thing in described.things.values() for each in thing.arguments}
    assert {name for name in used if name not in ARGUMENTS and not meaning_of(name)} == set()
    assert set(ARGUMENTS) - used == set()


@pytest.mark.long
def test_every_macro_has_an_example_that_calls_it_and_runs(
    described: Description, connection: duckdb.DuckDBPyConnection
) -> None:
    """A table macro is bound: its cases in tests/sql run it, and running takes twice as long."""
    macros = [thing for thing in described.things.values() if "macro" in thing.kind]
    assert len(macros) > 20
    for macro in macros:
        assert f"{macro.name}(" in macro.example
        if macro.kind == "macro":
            connection.execute(macro.example).fetchall()
        else:
            assert connection.sql(macro.example).columns


@pytest.mark.long
def test_every_column_that_a_table_macro_returns_has_a_meaning(described: Description) -> None:
    for thing in described.things.values():
        if thing.kind == "table macro":
            columns = described.columns(thing.name)
            assert columns, thing.name
            assert [column.name for column in columns if not column.meaning] == [], thing.name


def test_the_example_ends_the_text_above_a_macro() -> None:
    text = "-- Twice.\n-- Example: select\n-- f(1);\ncreate or replace macro f(x) as 2 * x;"
    (macro,) = macros_in(text)
    assert (macro.comment, macro.example) == ("Twice.", "select f(1);")


def test_macros_are_read_with_the_text_above_them() -> None:
    text = (
        "-- Of the file.\n\n-- Twice.\n-- Not thrice.\ncreate or replace macro twice(x) as\n2 * x;"
    )
    (macro,) = macros_in(text)
    assert (macro.name, macro.comment) == ("twice", "Twice. Not thrice.")
    found = macros_in("create or replace macro f(\n    a,\n    b := null\n) as table\nselect 1;")
    assert found[0].arguments == (Argument("a", None), Argument("b", "null"))
    (macro,) = macros_in("create or replace macro g() as 'create or replace macro h() as 1';")
    assert (macro.name, macro.arguments) == ("g", ())
    (macro,) = macros_in("create or replace macro f(a, b := coalesce('),', 1)) as a;")
    assert macro.arguments == (Argument("a", None), Argument("b", "coalesce('),', 1)"))
    assert found[0].comment == ""


def test_all_macros_of_the_package_are_read(described: Description) -> None:
    text = (resources.sql_directory() / "macros.sql").read_text("utf-8")
    names = {macro.name for macro in macros_in(text)}
    assert names == {thing.name for thing in described.things.values() if thing.kind == "macro"}
    assert len(names) == text.count("create or replace macro")


def test_a_users_own_view_is_described_too() -> None:
    with in_memory() as connection:
        connection.execute("create view mine as select model, 1 as x from configuration_rank")
        described = Description(connection)
        assert described.things["mine"].role == described.things["mine"].layer == "own"
        assert described.reads["mine"] == ("configuration_rank",)
        assert [column.meaning for column in described.columns("mine")] == ["Name of the model", ""]
        assert "mine" in described.readers["configuration_rank"]


def test_rows_are_counted(described: Description, connection: duckdb.DuckDBPyConnection) -> None:
    row = connection.execute("select count(*) from accelerator").fetchone()
    assert described.rows["accelerator"] == (row or ())[0]
    assert described.rows["cell"] == 0
    assert "configuration" not in described.rows


# ---- lineage ----


def test_names_are_found_by_the_parser_and_subqueries_are_none() -> None:
    select = (
        "with a as (from b) select f(x), 'from c' from a inner join (select 1 from d) using (x)"
    )
    assert names_in(select) == Names(frozenset({"b", "d"}), frozenset({"f"}))
    assert names_in("not a select") == Names(frozenset(), frozenset())


def test_names_are_found_in_what_creates_a_view_or_a_table_macro() -> None:
    view = "create view v (as_is, n) as (select 1 from a) union all select 2 from b;\n"
    assert names_in(view).relations == {"a", "b"}
    macro = (
        "-- Größe as table x\n-- Grain: one row\n-- Key: x\n"
        "create or replace macro m(x, y := 'as table c', z := f(1, 2)) as table\n"
        "-- as table d\nselect * from e, g(x);\n"
    )
    assert names_in(macro).relations == {"e", "g"}
    assert names_in("create table t (x integer)") == Names(frozenset(), frozenset())


def test_a_subquery_that_has_the_name_of_what_it_reads_hides_it_only_from_then_on() -> None:
    assert names_in("with a as (from a) from a").relations == {"a"}
    assert names_in("with a as (from b), b as (from a) from b").relations == {"b"}
    assert names_in("with recursive a as (from c union all from a) from a").relations == {"c"}
    assert names_in("select (with a as (from b) select 1 from a) from a").relations == {"a", "b"}


def test_a_views_reads_are_those_of_its_file(described: Description) -> None:
    assert described.reads["configuration"] == ("configuration_flops", "mfu")
    assert described.reads["training_cost"] == ("training_cost_for",)
    assert described.reads["stg_roofline"] == ("current_roofline",)
    assert described.reads["current_roofline"] == ("current_cell", "problem", "roofline")
    assert "training_cost" in described.readers["training_cost_for"]


def test_a_view_rests_on_tables_only(described: Description) -> None:
    under = described.tables_under("stg_roofline")
    assert under == ("cell", "problem", "roofline")
    assert {described.things[name].kind for name in described.tables_under("training_cost")} == {
        "table"
    }


def test_a_recursive_or_faulty_graph_is_walked_once() -> None:
    reads = {"a": ("b", "c"), "b": ("c",), "c": ("d",)}
    assert all_sources(reads, "a") == ("b", "c", "d")
    assert all_sources(reads, "d") == ()
    assert readers_of(reads) == {"b": ("a",), "c": ("a", "b"), "d": ("c",)}
    assert without(reads, {"b", "c"}) == {"a": ("d",)}


def test_every_view_and_table_macro_reads_something(
    described: Description, connection: duckdb.DuckDBPyConnection
) -> None:
    reads = reads_of(connection)
    for thing in described.things.values():
        if thing.kind in ("view", "table macro"):
            assert reads[thing.name], thing.name


# ---- finding ----


def test_a_name_may_be_a_thing_and_a_column(described: Description) -> None:
    thing, column, uses = described.find(" Model ")
    assert thing is not None
    assert thing.name == "model"
    assert column is not None
    assert column.meaning == "Name of the model"
    assert {"configuration", "problem", "model"} <= {use.thing.name for use in uses}


def test_where_a_column_occurs_with_its_types(described: Description) -> None:
    thing, _, uses = described.find("num_gpus")
    assert thing is None
    types = {use.thing.name: use.type for use in uses}
    assert types["configuration"] == "INTEGER"
    assert types["cluster_compute_row"] == "DOUBLE"
    assert group_of("num_gpus") == "Problem"
    assert group_of("no_such_column") == ""


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("configuraton_rank", "configuration_rank"),
        ("trainingcost", "training_cost"),
        ("step_second", "step_seconds"),
        ("erratums", "erratum"),
        ("mart", "marts"),
        ("carbon", "grid_carbon"),
    ],
)
def test_near_misses_are_named(described: Description, asked: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        described.find(asked)
    assert f"`{asked}` is no table, view, macro or column" in caught.value.message
    assert near in caught.value.hint.removeprefix("did you mean ").rstrip("?").split(" or ")


def test_the_refusal_of_an_odd_name_says_how_to_list_all(described: Description) -> None:
    with pytest.raises(InputError, match="`warehouse schema` lists them"):
        described.find("xyzzyqq")
