"""Staging views show what holds in a cell as the cell's record and problem have it.

Views take it from there without reading rows: problem_front the strategy, attention and
recomputation of a cell from its best layout, measured_cell the shape from the problem.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from estimators.registry import all_estimators
from tests.sql.test_sql_cases import complete
from warehouse.database import resources
from warehouse.database.connection import open_for_write
from warehouse.database.lineage import names_in

OF_CELL = ("strategy", "attention", "activation_recompute")
OF_PROBLEM = ("num_layers", "hidden_size", "accelerator", "num_gpus", "global_batch_size")
RELATIONS = {f"stg_{r.name}": r for e in all_estimators() for r in e.relations}
ESTIMATOR = {f"stg_{r.name}": e for e in all_estimators() for r in e.relations}
STAGING = [
    name
    for name in RELATIONS
    if "\n-- Grain: one row per configuration\n"
    in (resources.sql_directory() / "staging" / f"{name}.sql").read_text("utf-8")
]


def made(sql: str, names: tuple[str, ...]) -> set[str]:
    """Return those of `names` that a query makes of something else than a constant."""
    [(text,)] = duckdb.execute("select json_serialize_sql(?)", [sql]).fetchall()
    found, nodes = set(), [json.loads(text)]
    for node in nodes:  # grows while it is walked
        children: list[Any] = list(node.values()) if isinstance(node, dict) else node
        nodes.extend(child for child in children if isinstance(child, dict | list))
        if isinstance(node, dict) and node.get("alias") in names:
            is_itself = node.get("column_names", [None])[-1] == node["alias"]
            if node["class"] != "CONSTANT" and not is_itself:
                found.add(node["alias"])
    return found


def passed_on(sql: str) -> set[str]:
    """Return the columns of a query that are a CASE of a bare column and another result."""
    [(text,)] = duckdb.execute("select json_serialize_sql(?)", [sql]).fetchall()
    found = set()
    for column in json.loads(text)["statements"][0]["node"]["select_list"]:
        if column["class"] == "CASE":
            results = [*(each["then_expr"] for each in column["case_checks"]), column["else_expr"]]
            kinds = {str(r.get("column_names", r["class"])) for r in results if not _is_null(r)}
            if len(kinds) > 1 and any(r["class"] == "COLUMN_REF" for r in results):
                found.add(column["alias"])
    return found


def _is_null(expression: dict[str, Any]) -> bool:
    return bool(expression.get("literal", {}).get("kind") == "NULL_LITERAL")


@pytest.mark.parametrize("name", STAGING)
def test_no_view_passes_on_a_column_in_some_rows(name: str) -> None:
    """DuckDB 2 passes on the dictionary of that column, in some chunks.

    A join of wide rows then fails with an internal error, in some databases.
    """
    sql = (resources.sql_directory() / "staging" / f"{name}.sql").read_text("utf-8")
    assert passed_on(sql) == set()
    assert passed_on("select case p when 1 then a when 2 then t.b else 0 end as c from t") == {"c"}
    assert passed_on("select case when p then 1 else a end as c from t") == {"c"}
    assert passed_on("select case when p then a end as c, 2 * case p when 1 then a else b end") == (
        set()
    )


def test_the_peak_is_that_of_the_precision(database: Path, empty_warehouse: Path) -> None:
    shutil.copyfile(empty_warehouse, database)
    rates = "1 as matrix_flops_per_second, 2 as fp8_flops_per_second"
    with open_for_write(database) as connection:
        connection.execute(
            f"insert into problem by name select range as problem_id, {rates}, "
            "['bf16', 'fp8', 'fp4', null][range + 1] as precision from range(4);"
            "insert into cell by name select problem_id as cell_id, problem_id, '' as mends, "
            "'training_step' as estimator, 'training_step' as relation, 6 as estimator_version, "
            "'published' as variant, '{}' as kept, 1 as num_rows from problem;"
            "insert into training_step by name select cell_id, 1 as step_seconds from cell"
        )
        complete(connection)
        peaks = connection.execute(
            "select precision, peak_flops_per_second from stg_training_step order by cell_id"
        ).fetchall()
    assert peaks == [("bf16", 1), ("fp8", 2), ("fp4", None), (None, 1)]


@pytest.mark.parametrize("name", STAGING)
def test_strategy_attention_and_recomputation_hold_in_a_whole_cell(name: str) -> None:
    sql = (resources.sql_directory() / "staging" / f"{name}.sql").read_text("utf-8")
    assert made(sql, OF_CELL) == set()
    assert not set(OF_CELL) & set(RELATIONS[name].stored)


@pytest.mark.parametrize("name", STAGING)
def test_what_a_problem_says_of_its_size_is_what_its_configurations_show(name: str) -> None:
    sql = (resources.sql_directory() / "staging" / f"{name}.sql").read_text("utf-8")
    said = set(ESTIMATOR[name].problem_columns)
    assert made(sql, OF_PROBLEM) & said == set()
    assert not set(OF_PROBLEM) & said & set(RELATIONS[name].stored)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select strategy, attention from t", set()),
        ("select t.strategy as strategy, 'flash' as attention from t", set()),
        ("select case when tp > 1 then 'a' end as strategy from t", {"strategy"}),
        ("select other as strategy, null as attention from t", {"strategy"}),
        ("with c as (select upper(attention) as attention from t) from c", {"attention"}),
    ],
)
def test_a_column_that_is_made_of_others_is_found(sql: str, expected: set[str]) -> None:
    assert made(sql, OF_CELL) == expected


def test_configurations_have_the_columns_of_staging_views_in_the_order_of_their_names(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    """A staging view that reads another one is made later, and would move its columns back."""
    query = "select sql from duckdb_views() where view_name = 'configuration_source'"
    [(sql,)] = scratch.execute(query).fetchall()
    staged = sorted(names_in(sql).relations & {*STAGING})
    columns = dict.fromkeys(name for view in staged for name in scratch.table(view).columns)
    assert len(staged) > 1
    assert scratch.table("configuration_source").columns == list(columns)
