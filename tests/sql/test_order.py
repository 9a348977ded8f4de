"""Macros that promise an order keep it, and sums do not depend on the order of their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

from tests.sql.test_sql_cases import alike, as_text, parts, prepared, read
from warehouse.database import resources

INEXACT = re.compile(r"\b(?:f?avg|fsum|corr|covar_\w+|regr_\w+|stddev\w*|var_\w+|product)\(")
"""Aggregates of reals: with several threads their last digits follow from the order of the rows."""

EXACT = {
    "avg(cast(is_inside_interval as double))",  # a sum of ones
    "avg(published_training_runs.watts_per_gpu)",  # one thread reads them
}


@pytest.mark.parametrize("name", ["best", "training_run"])
def test_the_fastest_comes_first(name: str, scratch: duckdb.DuckDBPyConnection) -> None:
    found = scratch.execute(prepared(scratch, name)).fetchall()
    expected = read(parts(name)[2])[1]
    assert len(found) == len(expected) > 2
    for row, wanted in zip(found, expected, strict=True):
        assert all(alike(as_text(f), w) for f, w in zip(row, wanted, strict=True))


def calls(text: str) -> Iterator[str]:
    """Yield the calls of inexact aggregates in the text of a query."""
    text = re.sub("--.*", "", text)
    for found in INEXACT.finditer(text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield " ".join(text[found.start() : end].split())


def test_means_are_of_sorted_values() -> None:
    """Otherwise two runs of a query on two threads differ in the last digits."""
    found = {
        call
        for path in resources.sql_directory().rglob("*.sql")
        for call in calls(path.read_text("utf-8"))
    }
    assert len(found) > 10
    assert {call for call in found if " order by " not in call} == EXACT
