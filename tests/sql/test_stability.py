"""The names of the database that docs/stability.md promises."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

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
