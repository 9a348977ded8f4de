"""Rows of an older version go where a newer one has the same question with other defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from warehouse.database import derived
from warehouse.database.new_file import in_memory


@pytest.fixture(scope="module")
def _opened() -> Iterator[duckdb.DuckDBPyConnection]:
    with in_memory() as opened:
        for problem, model, gpus in ((1, "tiny", 8), (2, "tiny", 16), (3, None, 8)):
            store(opened, problem, problem, version=2, model=model, num_gpus=gpus, hbm_bytes=80e9)
        derived.refresh(opened)
        yield opened


@pytest.fixture
def connection(_opened: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Version 2 of three problems: on 8 and on 16 GPUs, and one of an unnamed model.

    A test's changes are rolled back.
    """
    _opened.begin()
    yield _opened
    _opened.rollback()


def store(
    connection: duckdb.DuckDBPyConnection,
    cell: int,
    problem: int,
    version: int,
    kept: str = "{}",
    recompute: str = "none",
    **values: Any,
) -> None:
    given = {"accelerator": "A100 SXM 80GB", "seq_len": 2048, "framework": "nanotron", **values}
    names = ", ".join(f"? as {name}" for name in given)
    connection.execute(
        f"insert or ignore into problem by name select ? as problem_id, {names}",
        [problem, *given.values()],
    )
    connection.execute(
        "insert into cell by name select ? as cell_id, ? as problem_id, "
        "'training_step' as estimator, ? as estimator_version, 'training_step' as relation, "
        "'' as mends, 'published' as variant, ? as kept, 0 as num_rows, "
        "? as activation_recompute, '1f1b' as schedule",
        [cell, problem, version, kept, recompute],
    )


def in_force(connection: duckdb.DuckDBPyConnection) -> list[int]:
    derived.refresh(connection)
    found = connection.execute("select cell_id from current_cell order by cell_id").fetchall()
    return [cell for (cell,) in found]


NEW: dict[str, Any] = {"model": "tiny", "num_gpus": 8, "hbm_bytes": 85.5e9}


def test_a_newer_version_with_another_default_replaces_the_problem(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    assert in_force(connection) == [1, 2, 3]
    store(connection, 11, 101, version=3, **NEW)
    assert in_force(connection) == [2, 3, 11]


@pytest.mark.long
@pytest.mark.parametrize(
    "other",
    [
        {"version": 2},  # a point of a hardware sweep
        {"version": 3, "seq_len": 4096},
        {"version": 3, "framework": "megatron_core"},
        {"version": 3, "kept": '{"rows": "5e"}'},  # a layout that was evaluated alone
        {"version": 3, "kept": '{"tensor_parallel": 8}'},
        {"version": 3, "recompute": "full"},
        {"version": 3, "model": None},
    ],
    ids=str,
)
def test_another_question_replaces_nothing(
    connection: duckdb.DuckDBPyConnection, other: dict[str, Any]
) -> None:
    store(connection, 11, 101, **{**NEW, **other})
    assert in_force(connection) == [1, 2, 3, 11]


def test_a_problem_returns_when_the_newer_one_is_dropped(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    store(connection, 11, 101, version=3, **NEW)
    assert in_force(connection) == [2, 3, 11]
    connection.execute("delete from cell where cell_id = 11")
    assert in_force(connection) == [1, 2, 3]
