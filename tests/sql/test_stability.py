"""The names of the database that docs/stability.md promises."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from estimators.registry import all_estimators
from warehouse.database.in_force import current_view_name

PAGE = Path(__file__).parents[2] / "docs" / "stability.md"
COMMENTS = """\
select view_name, comment from duckdb_views() where not internal and comment like 'deprecated:%'
order by view_name"""


@pytest.mark.long
def test_a_deprecated_name_answers_and_its_comment_names_one_that_exists(
    scratch: duckdb.DuckDBPyConnection,
) -> None:
    found = scratch.execute(COMMENTS).fetchall()
    used = []
    for name, comment in found:
        [instead] = re.findall(r"^deprecated: use (\w+)", comment)
        columns = scratch.execute(f"from {name} limit 0").description
        assert columns
        assert scratch.execute(f"from {instead} limit 0").description
        used.append((name, instead))
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert used == listed
    assert not {instead for _, instead in used} & {name for name, _ in used}


def test_the_number_of_gpus_has_one_type(scratch: duckdb.DuckDBPyConnection) -> None:
    relations = [relation for found in all_estimators() for relation in found.relations]
    # as an estimator stored them: a published formula divides GPUs
    stored = {name for each in relations for name in (each.table, current_view_name(each))}
    query = "select table_name, data_type from duckdb_columns() where column_name = 'num_gpus'"
    found = scratch.execute(query).fetchall()
    assert len(found) > 50
    assert {kind for name, kind in found if name not in stored} == {"INTEGER"}
