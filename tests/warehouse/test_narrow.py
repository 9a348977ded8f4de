"""Queries about one estimator see its configurations, all of them, and read no other's."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from estimators.registry import ESTIMATORS, get
from tests.shared import Quickstart
from warehouse.database.connection import open_for_read
from warehouse.database.narrow import narrow_to


@pytest.fixture
def stored(quickstart: Quickstart) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_for_read(quickstart.database) as connection:
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, view: str, estimator: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = connection.execute(
        f"select count(*), sum(hash(row)) from (from {view}) as row where estimator = ?",
        [estimator],
    ).fetchall()
    return found


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_keeps_its_configurations(
    stored: duckdb.DuckDBPyConnection, name: str
) -> None:
    views = ("configuration_source", "leading_configuration", "configuration")
    before = [rows(stored, view, name) for view in views]
    narrow_to(stored, get(name))
    assert [rows(stored, view, name) for view in views] == before


def test_the_other_estimators_are_not_read(stored: duckdb.DuckDBPyConnection) -> None:
    assert "pipeline" in explained(stored)
    narrow_to(stored, get("roofline"))
    assert "pipeline" not in explained(stored)
    assert stored.execute("select distinct estimator from configuration").fetchall() == [
        ("roofline",)
    ]


def explained(connection: duckdb.DuckDBPyConnection) -> str:
    """The tables that a query over all configurations reads."""
    connection.execute("pragma explain_output = 'optimized_only'")
    plan = connection.execute("explain select sum(step_seconds) from configuration").fetchall()
    return " ".join(word for _, text in plan for word in text.split() if "main." in word)


def test_an_estimator_without_configurations_leaves_the_views_as_they_are(
    stored: duckdb.DuckDBPyConnection,
) -> None:
    before = rows(stored, "configuration", "roofline")
    narrow_to(stored, get("cluster"))
    assert rows(stored, "configuration", "roofline") == before
