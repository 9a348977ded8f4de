"""Queries about one estimator see its configurations, all of them, and read no other's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from estimators.registry import ESTIMATORS
from tests.shared import Quickstart
from warehouse.ask.cost import POWERS, PRICES
from warehouse.database.connection import open_for_read
from warehouse.database.kept import keep_reference_views, replaced
from warehouse.database.narrow import (
    leave_out_others,
    narrow_to,
    narrow_to_cells,
    narrow_to_stored,
)
from warehouse.database.summaries import summary_of


@pytest.fixture
def stored(quickstart: Quickstart) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_for_read(quickstart.database) as connection:
        yield connection


VIEWS = ("configuration_source", "leading_configuration", "configuration")
Rows = dict[str, tuple[int, int]]
"""How many rows each estimator has, and a hash of them all."""


def rows(connection: duckdb.DuckDBPyConnection, view: str) -> Rows:
    found = connection.execute(
        f"select estimator, count(*), sum(hash(row)) from (from {view}) as row group by estimator"
    ).fetchall()
    return {estimator: (count, total) for estimator, count, total in found}


@pytest.fixture(scope="module")
def whole(quickstart: Quickstart) -> dict[str, Rows]:
    """The rows of each view before it is narrowed."""
    with open_for_read(quickstart.database) as connection:
        return {view: rows(connection, view) for view in VIEWS}


@pytest.mark.long
def test_an_estimator_keeps_its_configurations(
    quickstart: Quickstart, whole: dict[str, Rows]
) -> None:
    stored = set().union(*whole.values())
    assert len(stored) >= 3
    for name in stored & {*ESTIMATORS}:
        with open_for_read(quickstart.database) as connection:
            narrow_to(connection, summary_of(name).relations)
            found = [rows(connection, view)[name] for view in VIEWS]
        assert found == [whole[view][name] for view in VIEWS]


def test_the_other_estimators_are_not_read(stored: duckdb.DuckDBPyConnection) -> None:
    assert "training_step" in explained(stored)
    narrow_to(stored, summary_of("roofline").relations)
    assert "training_step" not in explained(stored)
    assert stored.execute("select distinct estimator from configuration").fetchall() == [
        ("roofline",)
    ]


def explained(
    connection: duckdb.DuckDBPyConnection,
    query: str = "select sum(step_seconds) from configuration",
) -> str:
    """The tables that a query reads, by default one over all configurations."""
    connection.execute("pragma explain_output = 'optimized_only'")
    [(_, plan)] = connection.execute(f"explain (format json) {query}").fetchall()
    names = [word.strip(',"') for word in plan.split() if "main." in word]
    return "".join(f"{name} " for name in names)


def test_an_estimator_without_configurations_leaves_the_views_as_they_are(
    stored: duckdb.DuckDBPyConnection, whole: dict[str, Rows]
) -> None:
    narrow_to(stored, summary_of("cluster").relations)
    assert rows(stored, "configuration") == whole["configuration"]


@pytest.mark.parametrize(
    ("view", "unions"),
    [
        ("configuration_rank", ["configuration_source", "leading_configuration_source"]),
        ("near_optimal", ["near_configuration_source"]),
        ("near_optimal_layouts(6)", ["configuration_source", "near_configuration_source"]),
        ("found_front", ["leading_configuration_source"]),
        ("Configuration", ["configuration_source"]),
    ],
)
def test_a_question_sees_all_that_is_stored_and_plans_nothing_else(
    stored: duckdb.DuckDBPyConnection, view: str, unions: list[str]
) -> None:
    before = rows(stored, view)
    used = {name for (name,) in stored.execute("select relation from current_cell").fetchall()}
    [(sql,)] = stored.execute(
        "select sql from duckdb_views() where view_name = 'configuration_source'"
    ).fetchall()
    unused = {name for name in re.findall(r"stg_(\w+)", sql) if name not in used}
    assert unused
    narrow_to_stored(stored, f"select count(*) from {view}")
    assert temporary(stored) == unions
    assert rows(stored, view) == before
    found = stored.execute("select sql from duckdb_views() where temporary and not internal")
    assert not unused & set(re.findall(r"stg_(\w+)", str(found.fetchall())))


@pytest.mark.parametrize(
    "query",
    [
        "from cell",
        "show tables",
        "select 'configuration'",
        "from configuration_pareto",
        "select column_name from duckdb_columns() where table_name = 'configuration_source'",
        "from information_schema.columns where table_name = 'configuration_source'",
        "select count(*) from (show tables) where name = 'configuration_source'",
        "from (SHOW ALL TABLES) where name in ('configuration', 'configuration_rank')",
    ],
)
def test_other_questions_change_nothing(stored: duckdb.DuckDBPyConnection, query: str) -> None:
    narrow_to_stored(stored, query)
    assert temporary(stored) == []


def test_a_question_to_an_empty_database_changes_nothing(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    narrow_to_stored(warehouse_connection, "from configuration_rank")
    assert temporary(warehouse_connection) == []


def temporary(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The temporary views of a connection."""
    query = "select view_name from duckdb_views() where temporary and not internal order by all"
    return [name for (name,) in connection.execute(query).fetchall()]


def test_best_layouts_are_read_where_they_are_stored(stored: duckdb.DuckDBPyConnection) -> None:
    assert "roofline" not in explained(stored, "from best_of_cell")
    assert stored.execute("select count(*) from best_of_cell").fetchall() != [(0,)]


@pytest.mark.long
def test_cells_of_other_problems_and_variants_are_not_read(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    shown = "select sum(hash(c)), count(*), count(distinct problem_id) from configuration as c"
    [(problem, others)] = stored.execute(
        "select min(problem_id), count(distinct problem_id) from configuration "
        "where estimator = 'roofline' and variant = 'corrected'"
    ).fetchall()
    assert others > 1
    where = f"where problem_id = {problem} and variant = 'corrected'"
    expected = stored.execute(f"{shown} {where}").fetchall()
    assert expected[0][1] > 0
    narrow_to_cells(stored, [problem], "corrected")
    assert stored.execute(shown).fetchall() == expected


def test_a_view_finds_no_rows_of_other_estimators(stored: duckdb.DuckDBPyConnection) -> None:
    stored.execute("create temp table mine as from estimated_run where estimator = 'roofline'")
    leave_out_others(stored, "estimated_run", summary_of("roofline").relations)
    assert emptied(stored) == ["stg_cluster_compute"]
    assert stored.execute("select count(*) from mine").fetchall() != [(0,)]
    query = "from estimated_run where estimator = 'roofline' except all from mine"
    assert stored.execute(query).fetchall() == []


def test_a_view_keeps_the_staging_views_of_its_own_relations(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    leave_out_others(stored, "estimated_run", ["cluster_compute"])
    assert emptied(stored) == []


def emptied(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The views that others without rows take the place of."""
    query = "select view_name, sql from duckdb_views() where temporary and not internal"
    return [name for name, sql in connection.execute(query).fetchall() if "WHERE false" in sql]


def test_a_query_takes_the_place_of_a_view_in_a_block(stored: duckdb.DuckDBPyConnection) -> None:
    query = "select count(*) from measured_cell"  # reads published_step
    before = stored.execute(query).fetchall()
    names = "num_layers, hidden_size, accelerator, num_gpus, global_batch_size"
    steps = f"select 'one' as reference, {names} from problem where num_layers is not null limit 1"
    with replaced(stored, {"published_step": steps}):
        assert stored.execute("select reference from published_step").fetchall() == [("one",)]
        within = stored.execute(query).fetchall()
    with pytest.raises(ValueError, match="stop"), replaced(stored, {"published_step": steps}):
        raise ValueError("stop")
    assert stored.execute(query).fetchall() == before
    assert within != before


@pytest.mark.parametrize("view", [PRICES, POWERS, "published_run"])
def test_a_view_of_reference_tables_is_kept_as_it_is(
    stored: duckdb.DuckDBPyConnection, view: str
) -> None:
    before = described(stored, view)
    for _ in range(2):  # made, then read from the cache
        keep_reference_views(stored, view)
        query = f"select distinct database_name from duckdb_columns() where table_name = '{view}'"
        assert ("temp",) in stored.execute(query).fetchall()
        assert described(stored, view) == before


def described(connection: duckdb.DuckDBPyConnection, view: str) -> list[list[str]]:
    """Columns and rows of a view."""
    return [
        sorted(map(str, connection.execute(f"{begin} {view}").fetchall()))
        for begin in ("describe", "from")
    ]
