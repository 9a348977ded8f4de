"""No two rows of a view, table macro or reference table have the key that its comment names."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.describe import Description

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
