"""Profiles: the rows that take their constants, and how they are stored."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.columns import COLUMNS
from estimators.contract import RefusedError
from estimators.interval import place_of
from estimators.training_step.system_inputs import CONSTANTS
from tests.warehouse.calibration_cases import ACCELERATOR, CATALOG, FRAMEWORK, ROWS, TRAINING_STEP
from warehouse.calibrate.run import Calibration, run_calibration
from warehouse.calibrate.store import store_calibration
from warehouse.database.connection import open_for_write
from warehouse.errors import InputError
from warehouse.evaluate.file import evaluate_file
from warehouse.evaluate.profiles import Profile, read_profiles, with_profiles

# ---- profiles ----


def test_a_profile_changes_the_row_that_the_estimator_takes_a_constant_from() -> None:
    """`place_of` looks in the order of the estimator: a marked row is the one that is taken."""
    relation = TRAINING_STEP.relations[0]
    inputs = dict.fromkeys((*TRAINING_STEP.problem_columns, "activation_recompute", "attention"))
    pairs = [
        (ACCELERATOR, FRAMEWORK),
        ("H100 SXM 80GB", "fsdp"),
        ("B200 SXM 180GB", "nanotron"),
        ("MI300X", "megatron_core"),
    ]
    for accelerator, framework in pairs:
        places = {
            name: place
            for name in CONSTANTS
            if COLUMNS[name].kind == "float"
            and (place := place_of(TRAINING_STEP, CATALOG, name, (accelerator, framework)))
        }
        assert len(places) > 10
        # a value for each that no other has
        marks = {name: 0.5 + 0.001 * number for number, name in enumerate(places)}
        marked = Profile(
            "p", "training_step", {places[name]: value for name, value in marks.items()}
        ).added_to(CATALOG)
        given = {
            **inputs,
            **{key: own[0] for key, own in ROWS.items()},
            "accelerator": accelerator,
            "framework": framework,
        }
        columns = {
            key: np.array(
                [np.nan if own is None and COLUMNS[key].kind in ("int", "float") else own],
                dtype=float if COLUMNS[key].kind in ("int", "float") else object,
            )
            for key, own in given.items()
        }
        resolved, _ = TRAINING_STEP.resolve(relation, columns, marked, frozenset())
        found = {name: float(resolved[name][0]) for name in marks}
        assert found == pytest.approx(marks), (accelerator, framework)


TUNED = Profile("tuned", "training_step", {f"gemm_efficiency@{ACCELERATOR}": 0.81})


def test_a_profile_of_a_constant_that_is_gone_must_be_calibrated_again() -> None:
    old = Profile("old", "training_step", {"coffee_efficiency@H100": 0.5})
    with pytest.raises(RefusedError) as caught:
        old.added_to(CATALOG)
    [refusal] = caught.value.refusals
    assert (refusal.column, refusal.value, refusal.hint) == ("profile", "old", "calibrate it again")
    assert refusal.reason == (
        "was fitted for `coffee_efficiency@H100`, which table step_constant no longer has"
    )


def test_rows_take_the_profile_that_they_name_and_keep_their_place(tmp_path: Path) -> None:
    names = ["tuned", None, "default", "tuned", None, "tuned"]
    given = [None, 0.9, None, 0.7, None, None]
    expected = [0.81, 0.9, 0.854, 0.7, 0.854, 0.81]
    frame = pl.DataFrame({**ROWS, "profile": names, "gemm_efficiency": given})
    frame.write_csv(tmp_path / "in.csv")
    known = with_profiles(CATALOG, lambda: {"tuned": TUNED}, TRAINING_STEP)
    evaluate_file(TRAINING_STEP, tmp_path / "in.csv", tmp_path / "out.csv", frozenset(), known)
    found = pl.read_csv(tmp_path / "out.csv")["step_seconds"].to_list()
    pl.DataFrame({**ROWS, "gemm_efficiency": expected}).write_csv(tmp_path / "in.csv")
    evaluate_file(TRAINING_STEP, tmp_path / "in.csv", tmp_path / "out.csv", frozenset(), CATALOG)
    assert found == pl.read_csv(tmp_path / "out.csv")["step_seconds"].to_list()


def test_rows_of_an_unknown_profile_or_of_one_that_says_nothing_of_them_are_refused(
    tmp_path: Path,
) -> None:
    names = ["tuned", "tunde", None, "tuned", None, "tuned"]
    accelerators = [*ROWS["accelerator"][:5], "H100 SXM 80GB"]
    table = {**ROWS, "profile": names, "accelerator": accelerators}
    pl.DataFrame(table).write_csv(tmp_path / "in.csv")
    known = with_profiles(CATALOG, lambda: {"tuned": TUNED}, TRAINING_STEP)
    with pytest.raises(InputError) as caught:
        evaluate_file(TRAINING_STEP, tmp_path / "in.csv", tmp_path / "out.csv", frozenset(), known)
    error = str(caught.value)
    assert 'row 2: `profile` "tunde" is not a stored profile' in error
    assert "known: default, tuned" in error
    assert 'row 6: `profile` "tuned" has no constant for H100 SXM 80GB' in error
    assert "row 1:" not in error


# ---- storage ----


def records(connection: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    found = connection.execute(f"from {table}")
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def small() -> Calibration:
    name = "published_megatron_scaling"
    return run_calibration(name, Path(name), constants=["product_rate_factor"])


def test_the_stored_constants_are_the_fitted_ones(
    warehouse_connection: duckdb.DuckDBPyConnection, small: Calibration
) -> None:
    connection = warehouse_connection
    store_calibration(connection, "mine", small, replace=False)
    assert read_profiles(connection) == {"mine": small.fit.profile("mine", TRAINING_STEP)}
    constants = records(connection, "calibration")
    rows = records(connection, "calibration_row")
    [constant] = constants
    worth = small.fit.errors["left_out"]
    assert constant["constant"] == "product_rate_factor"
    assert constant["num_rows"] == 10
    assert constant["default_constant_value"] == 1.0
    assert constant["fitted_constant_value"] == small.fit.values[0]
    assert constant["left_out_mean_absolute_relative_error"] == worth.mean_absolute_relative_error
    assert constant["left_out_bias"] == worth.bias
    assert None not in constant.values()
    assert [row["published_row"] for row in rows] == list(small.row_names)
    assert [row["left_out_step_seconds"] for row in rows] == small.fit.estimates[
        "left_out"
    ].tolist()
    error = small.fit.estimates["untuned"] / small.fit.published - 1
    assert [row["untuned_relative_error"] for row in rows] == error.tolist()
    assert not any(None in row.values() for row in rows)


def test_a_name_is_stored_once_unless_it_is_replaced(
    warehouse_connection: duckdb.DuckDBPyConnection, small: Calibration
) -> None:
    connection = warehouse_connection
    store_calibration(connection, "mine", small, replace=False)
    store_calibration(connection, "other", small, replace=False)
    with pytest.raises(InputError, match="there is a profile of that name"):
        store_calibration(connection, "mine", small, replace=False)
    store_calibration(connection, "mine", small, replace=True)
    counted = connection.execute(
        "select profile, count(*) from calibration_row group by all order by all"
    ).fetchall()
    assert counted == [("mine", 10), ("other", 10)]


@pytest.mark.parametrize("name", ["default", "", " ", " a", "two\nlines"])
def test_a_name_that_would_mislead_is_refused(
    warehouse_connection: duckdb.DuckDBPyConnection, small: Calibration, name: str
) -> None:
    with pytest.raises(InputError, match="cannot name a profile"):
        store_calibration(warehouse_connection, name, small, replace=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from warehouse.calibrate import store
from warehouse.calibrate.run import run_calibration
from warehouse.database.connection import open_for_write

name = "published_megatron_scaling"
found = run_calibration(name, Path(name), constants=["product_rate_factor"])
with open_for_write(Path(sys.argv[1])) as connection:
    registered, seen = store.registered, []

    def dying(connection, *rest):
        seen.append(rest)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return registered(connection, *rest)

    store.registered = dying
    store.store_calibration(connection, "half", found, replace=False)
"""


@pytest.mark.long
def test_a_killed_process_leaves_no_half_of_a_profile(database: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(database)], check=False)
    assert done.returncode == -9
    with open_for_write(database) as connection:
        assert read_profiles(connection) == {}
        for table in ("calibration", "calibration_row"):
            assert connection.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_the_tables_and_their_columns_have_comments(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    bare = warehouse_connection.execute(
        "select table_name, column_name from duckdb_columns() where comment is null"
        " and table_name in ('calibration', 'calibration_row')"
    ).fetchall()
    tables = warehouse_connection.execute(
        "select comment from duckdb_tables() where table_name like 'calibration%'"
    ).fetchall()
    assert bare == []
    assert all(comment for (comment,) in tables)
    assert len(tables) == 2
