"""Keys of views, table macros and reference tables.

No two rows have the key that a comment names. A column `model` or `accelerator` has the names of
the catalog, so that rows of any two tables can be joined; a name in the spelling of a source is in
another column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description
from warehouse.database.sql_text import IN_MAIN, literal, quoted

CALLS = {
    "best": "'gpt3_1T', null",
    "compare": "'A100', 'B200'",
    "layout_run_for": "1e12",
    "name_asked": "'asked', 'gpt3 1t', ['model']",
    "near_optimal_layouts": "20",
    "ranked_layouts": "30",
    "system_comparison_for": "1e12",
    "training_cost_for": "1e12",
    "training_energy_for": "1e12",
    "training_run": "'gpt3_1T', 1e12, null",
    "training_run_for": "1e12",
    "training_run_group_for": "1e12",
}
"""Arguments with which a table macro has many rows."""


@pytest.fixture(scope="module")
def opened(quickstart: Quickstart) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_for_read(quickstart.database) as connection:
        yield connection


@pytest.mark.long
def test_no_two_rows_have_one_key(
    opened: duckdb.DuckDBPyConnection, subtests: pytest.Subtests
) -> None:
    things = [thing for thing in Description(opened).things.values() if thing.key]
    assert {thing.name for thing in things if thing.kind == "table macro"} == CALLS.keys()
    for thing in things:
        with subtests.test(thing.name):
            source = f"{thing.name}({CALLS[thing.name]})" if thing.arguments else thing.name
            key = ", ".join(thing.key)
            twice = f"select {key} from {source} group by {key} having count(*) > 1 limit 5"
            assert opened.execute(twice).fetchall() == []


TABLES = {
    "model": ("model",),
    "accelerator": ("accelerator", "system", "named_cluster", "device"),
}
"""Column -> the reference tables whose key it is: an estimator takes a system or a device."""

DESCRIBED = "select model from problem_model union all select 'unnamed'"
"""Models that have no name of their own, or another shape: problem_model describes these."""

SPELT_AS_PUBLISHED = {
    "model": r"(found_)?published_\w+|megatron_\w+|compared_step",
    "accelerator": r"(found_)?published_\w+|printed_step|megatron_\w+|\w+_price",
}
"""Tables of sources, the comparisons with their rows, and the prices by spelling."""


@pytest.mark.long
@pytest.mark.parametrize("column", TABLES)
def test_a_column_has_keys_of_the_catalog(quickstart: Quickstart, column: str) -> None:
    known = " union all ".join(f"select {column} from {table}" for table in TABLES[column])
    described = f" union all {DESCRIBED}" if column == "model" else ""
    with open_for_read(quickstart.database) as connection:
        # one table: else every view would look for them again
        connection.execute(f"create temp table known_name as {known}{described}")
        names = connection.execute(
            "select distinct table_name from duckdb_columns() "
            f"where {IN_MAIN} and column_name = {literal(column)}"
        ).fetchall()
        assert len(names) > 20
        query = "select distinct {0} from main.{1} where {0} not in (from known_name)"
        odd = {
            name: found
            for (name,) in sorted(names)
            if not re.fullmatch(SPELT_AS_PUBLISHED[column], name)
            and (found := connection.execute(query.format(column, quoted(name))).fetchall())
        }
    assert odd == {}
