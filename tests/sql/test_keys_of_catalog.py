"""A column `model` or `accelerator` has the names of the catalog in every view and table.

Then rows of any two of them can be joined. A name in the spelling of a source is in another column.
"""

from __future__ import annotations

import re

import pytest

from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.sql_text import IN_MAIN, literal, quoted

TABLES = {"model": ("model",), "accelerator": ("accelerator", "system", "device")}
"""Column -> the reference tables whose key it is: an estimator takes a system or a device."""

DESCRIBED = "select model from problem_model union all select 'unnamed'"
"""Models that have no name of their own, or another shape: problem_model describes these."""

SPELT_AS_PUBLISHED = {
    "model": r"(found_)?published_\w+|megatron_\w+|compared_step",
    "accelerator": r"(found_)?published_\w+|megatron_\w+|\w+_price",
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
