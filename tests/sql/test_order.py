"""Macros that promise an order keep it: their cases list the rows in that order."""

from __future__ import annotations

import duckdb
import pytest

from tests.sql.test_sql_cases import alike, as_text, parts, prepared, read


@pytest.mark.parametrize("name", ["best", "training_run"])
def test_the_fastest_comes_first(name: str, scratch: duckdb.DuckDBPyConnection) -> None:
    found = scratch.execute(prepared(scratch, name)).fetchall()
    expected = read(parts(name)[2])[1]
    assert len(found) == len(expected) > 2
    for row, wanted in zip(found, expected, strict=True):
        assert all(alike(as_text(f), w) for f, w in zip(row, wanted, strict=True))
