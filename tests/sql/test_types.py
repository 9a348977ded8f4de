"""A column has one type in all tables and views."""

from __future__ import annotations

from pathlib import Path

import duckdb

from estimators.registry import all_estimators
from warehouse.database.connection import open_for_read
from warehouse.database.in_force import current_view_name

CONTINUOUS = {name for one in all_estimators() for each in one.relations for name in each.real}
"""Whole numbers that some estimator, as its source, takes as real: half a GPU, 1.7 stages."""

OTHERS = {
    "best": "the best layout, or the best run: structs of other columns",
    "num_fitting_layouts": "of a cell it fits the 32 bits that are stored; of a problem it may not",
    "num_layouts": "likewise",
}
"""Column -> why it has several types all the same."""


def test_a_column_has_one_type(empty_warehouse: Path) -> None:
    query = """
        select column_name, list_sort(list(distinct data_type)) as types
        from duckdb_columns()
        where not internal
        group by column_name
        having count(distinct data_type) > 1"""
    with open_for_read(empty_warehouse) as connection:
        found = dict(connection.execute(query).fetchall())
    several = {name: types for name, types in found.items() if name not in OTHERS}
    assert several == {name: ["DOUBLE", "INTEGER"] for name in CONTINUOUS & several.keys()}


def test_the_number_of_gpus_has_one_type(scratch: duckdb.DuckDBPyConnection) -> None:
    relations = [relation for found in all_estimators() for relation in found.relations]
    # as an estimator stored them: a published formula divides GPUs
    stored = {name for each in relations for name in (each.table, current_view_name(each))}
    query = "select table_name, data_type from duckdb_columns() where column_name = 'num_gpus'"
    found = scratch.execute(query).fetchall()
    assert len(found) > 50
    assert {kind for name, kind in found if name not in stored} == {"INTEGER"}
