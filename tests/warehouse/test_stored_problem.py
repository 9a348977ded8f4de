"""Table `stored_problem` follows each change of problems, profiles and reference tables."""

from __future__ import annotations

import duckdb
import pytest

from warehouse.calibrate.store import drop_profile
from warehouse.database.problem_facts import find_problems, refresh_problems
from warehouse.database.views import checks

[CHECK] = [check.sql for check in checks() if check.name == "stored_problem_is_found"]


@pytest.fixture
def connection(warehouse_connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A warehouse with two problems: of a program under profile `ours`, and of none."""
    warehouse_connection.execute(
        "insert into problem by name select 1 as problem_id, 'tiny' as model, 2 as num_layers,"
        " 'megatron_core' as framework, 'ours' as profile, 'bf16' as precision,"
        " 0.123 as gemm_efficiency;"
        "insert into problem by name select 2 as problem_id, 'wide' as model, 2 as num_layers"
    )
    refresh_problems(warehouse_connection)
    return warehouse_connection


def wrong(connection: duckdb.DuckDBPyConnection) -> set[int]:
    """Return the problems whose facts the check finds wrong, missing or left over."""
    find_problems(connection)
    return {row[0] for row in connection.execute(CHECK).fetchall()}


def assumptions(connection: duckdb.DuckDBPyConnection) -> dict[int, str | None]:
    """Return what the problems assume, and check that `validate` agrees."""
    assert wrong(connection) == set()
    return dict(connection.execute("select problem_id, assumptions from problem_group").fetchall())


def test_a_profile_that_is_stored_or_dropped_changes_what_its_problems_assume(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    given = "profile ours, gemm_efficiency 0.123"
    assert assumptions(connection) == {1: given, 2: None}

    connection.execute(
        "insert into calibration by name select 'ours' as profile, 'runs' as reference,"
        " 'training_step' as estimator, 'gemm_efficiency' as step_constant,"
        " 0.123 as fitted_constant_value"
    )
    assert wrong(connection) == {1}
    refresh_problems(connection, ["ours"])
    assert assumptions(connection) == {1: "profile ours", 2: None}

    drop_profile(connection, "ours")
    assert assumptions(connection) == {1: given, 2: None}


def test_rows_go_with_their_problems_and_come_with_new_ones(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute("delete from problem where problem_id = 1")
    connection.execute("insert into problem by name select 3 as problem_id, 'new' as model")
    refresh_problems(connection)
    assert assumptions(connection) == {2: None, 3: None}
    names = connection.execute("select model from stored_problem order by problem_id").fetchall()
    assert names == [("wide",), ("new",)]
