"""Staging views show what holds in a cell as the cell's record and problem have it.

Views take it from there without reading rows: problem_front the strategy, attention and
recomputation of a cell from its best layout, measured_cell the shape from the problem.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from estimators.registry import all_estimators
from warehouse.database import resources

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
