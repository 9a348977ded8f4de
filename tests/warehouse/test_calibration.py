"""A calibration finds constants that are known, keeps to bounds, and tells what it is worth."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from estimators.columns import COLUMNS
from estimators.contract import Array
from estimators.registry import get
from estimators.training_step.inputs import CONSTANTS
from warehouse.batch import evaluate_file
from warehouse.calibration import Parameter, Steps, errors_of, fit
from warehouse.calibration_run import Calibration, run_calibration
from warehouse.calibration_store import store_calibration
from warehouse.catalog import packaged_catalog
from warehouse.connection import open_for_write
from warehouse.errors import InputError
from warehouse.profiles import Profile, place_of, profiled, read_profiles
from warehouse.published import filtered, published_reference, published_steps, published_tables

TRAINING_STEP = get("training_step")
CATALOG = packaged_catalog()
ACCELERATOR, FRAMEWORK = "A100 SXM 80GB", "megatron_lm_2022"

ROWS: dict[str, list[Any]] = {
    "num_layers": [48, 96, 96, 40, 36, 30],
    "hidden_size": [6144, 12288, 12288, 6144, 4096, 3072],
    "num_heads": [64, 96, 96, 48, 32, 32],
    "seq_len": [2048] * 6,
    "vocab_size": [51200] * 6,
    "accelerator": [ACCELERATOR] * 6,
    "framework": [FRAMEWORK] * 6,
    "tensor_parallel": [8, 8, 8, 8, 4, 2],
    "pipeline_parallel": [1, 8, 4, 1, 1, 1],
    "microbatch_size": [4, 1, 2, 8, 16, 16],
    "num_gpus": [8, 64, 64, 8, 4, 2],
    "global_batch_size": [4, 64, 64, 8, 16, 32],
    "activation_recompute": ["full", "full", "selective", "full", "selective", "full"],
    "uses_sequence_parallel": [False, False, True, False, True, False],
}
"""Six layouts: two values of any constants that all of them take can be told from their times."""


def predicted(directory: Path, **constants: float) -> pl.DataFrame:
    """Return the rows with the estimator's own times under given constants."""
    source, out = directory / "given.csv", directory / "times.csv"
    given = {name: [value] * 6 for name, value in constants.items()}
    pl.DataFrame({**ROWS, **given}).write_csv(source)
    evaluate_file(TRAINING_STEP, source, out, frozenset(), CATALOG)
    times = pl.read_csv(out)["step_seconds"]
    return pl.DataFrame(ROWS).with_columns(times)


@pytest.fixture
def calibrated(tmp_path: Path) -> Callable[..., Calibration]:
    """Make a reference of the estimator's own times, scaled row by row, and fit to it."""

    def calibrated(
        constants: Mapping[str, float],
        asked: str,
        scaled: Array | float = 1.0,
        without: int | None = None,
        **options: Any,
    ) -> Calibration:
        frame = predicted(tmp_path, **constants)
        frame = frame.with_columns(step_seconds=frame["step_seconds"].to_numpy() * scaled)
        if without is not None:
            frame = frame.filter(pl.Series([row != without for row in range(6)]))
        path = tmp_path / "reference.csv"
        frame.write_csv(path)
        return run_calibration(str(path), path, asked=asked.split(","), **options)

    return calibrated


NOISE = np.array([1.02, 0.97, 1.01, 1.0, 0.985, 1.03])


@pytest.mark.parametrize(
    "known",
    [
        {"gemm_efficiency": 0.83},
        {"gemm_efficiency": 0.91, "tensor_overlap_fraction": 0.4},
        {"gemm_efficiency": 0.87, "nvlink_efficiency": 0.74, "hbm_efficiency": 0.83},
    ],
)
def test_known_constants_are_recovered_from_the_estimators_own_times(
    calibrated: Callable[..., Calibration], known: dict[str, float]
) -> None:
    found = calibrated(known, ",".join(known))
    assert found.fit.values == pytest.approx(list(known.values()), rel=1e-3)
    assert errors_of(found.fit.fitted, found.fit.published).worst < 1e-4
    assert not any(map(found.fit.is_at_bound, range(len(known))))


def test_the_default_fit_takes_one_share_for_all_collectives_that_may_overlap(
    tmp_path: Path,
) -> None:
    known = dict.fromkeys(
        ("tensor_overlap_fraction", "gradient_overlap_fraction", "parameter_overlap_fraction"), 0.3
    )
    core = {"framework": ["megatron_core"] * 6, "num_gpus": [n * 4 for n in ROWS["num_gpus"]]}
    core |= {"global_batch_size": [n * 4 for n in ROWS["global_batch_size"]]}
    core |= {"zero_stage": [1] * 6, "attention": ["flash"] * 6}
    frame = pl.DataFrame({**ROWS, **core})
    given = [pl.lit(value).alias(name) for name, value in {**known, "gemm_efficiency": 0.9}.items()]
    frame.with_columns(given).write_csv(tmp_path / "given.csv")
    evaluate_file(
        TRAINING_STEP, tmp_path / "given.csv", tmp_path / "times.csv", frozenset(), CATALOG
    )
    times = pl.read_csv(tmp_path / "times.csv")["step_seconds"]
    path = tmp_path / "reference.csv"
    frame.with_columns(times).write_csv(path)
    found = run_calibration(str(path), path)
    assert [each.name for each in found.fit.parameters] == [
        "gemm_efficiency",
        "exposed_communication",
    ]
    assert set(found.fit.parameters[1].places) == set(known)
    assert found.fit.values == pytest.approx([0.9, 0.3], rel=1e-3)
    [note] = [note for note in found.notes if "exposed" in note]
    assert "70.0% of the tensor and gradient and parameter" in note


def test_each_left_out_row_is_predicted_by_a_fit_that_has_not_seen_it(
    calibrated: Callable[..., Calibration],
) -> None:
    known = {"gemm_efficiency": 0.88, "tensor_overlap_fraction": 0.5}
    found = calibrated(known, ",".join(known), NOISE)
    for row in range(6):
        other = calibrated(known, ",".join(known), NOISE, without=row)
        assert found.fit.left_out_values[row] == pytest.approx(other.fit.values, rel=1e-12)


def test_left_out_predictions_are_those_of_a_search_through_every_value(
    calibrated: Callable[..., Calibration], tmp_path: Path
) -> None:
    found = calibrated({"gemm_efficiency": 0.88}, "gemm_efficiency", NOISE)
    tried = np.linspace(0.8, 0.924, 1241)
    frame = pl.concat([pl.DataFrame(ROWS)] * len(tried))
    frame = frame.with_columns(gemm_efficiency=np.repeat(tried, 6))
    frame.write_parquet(tmp_path / "all.parquet")
    out = tmp_path / "out.parquet"
    evaluate_file(TRAINING_STEP, tmp_path / "all.parquet", out, frozenset(), CATALOG)
    times = pl.read_parquet(out)["step_seconds"].to_numpy().reshape(len(tried), 6)
    squared = np.log(times / found.fit.published) ** 2
    for row in range(6):
        best = int(np.delete(squared, row, axis=1).mean(axis=1).argmin())
        assert found.fit.left_out_values[row, 0] == pytest.approx(tried[best], abs=1e-4)
        assert found.fit.left_out[row] == pytest.approx(times[best, row], rel=1e-4)
    assert errors_of(found.fit.left_out, found.fit.published).mean >= (
        errors_of(found.fit.fitted, found.fit.published).mean
    )


def test_constants_that_nearly_stand_in_for_each_other_are_told_apart() -> None:
    """A valley a thousand times as long as wide, across both axes, and a crease beside it."""

    class Valley(Steps):
        def __init__(self) -> None:
            known = {"x": np.array([0.37]), "y": np.array([0.61])}
            self.published = np.ones(3)
            self.published = self.predict(known)[0]

        def predict(self, settings: Mapping[str, Array]) -> Array:
            x, y = settings["x"], settings["y"]
            overtaken = np.maximum(x + 0.69 * y, 0.3 + 0.8 * y)
            return np.stack([1 + x + 0.7 * y, 1 + x + 0.702 * y, 2 + overtaken], axis=1)

    found = fit(Valley(), [Parameter(name, {name: name}, {name: 0.5}, 0.0, 1.0) for name in "xy"])
    assert found == pytest.approx([0.37, 0.61], rel=1e-3)


def test_a_constant_keeps_to_the_range_of_its_sources_and_may_leave_it_when_told(
    calibrated: Callable[..., Calibration],
) -> None:
    known = {"gemm_efficiency": 0.6}
    found = calibrated(known, "gemm_efficiency")
    assert found.fit.values.tolist() == [0.8]
    assert found.fit.is_at_bound(0)
    assert found.notes == ("gemm_efficiency ended at its bound 0.8",)
    wide = calibrated(known, "gemm_efficiency", wide=True)
    assert wide.fit.values == pytest.approx([0.6], rel=1e-3)
    assert not wide.fit.is_at_bound(0)


def test_the_bounds_are_those_of_the_rows_accelerator_and_framework(
    calibrated: Callable[..., Calibration],
) -> None:
    found = calibrated({"gemm_efficiency": 0.9}, "gemm_efficiency,tensor_overlap_fraction")
    table = CATALOG.tables["step_constant"]
    for each, key in zip(
        found.fit.parameters,
        (f"gemm_efficiency@{ACCELERATOR}", f"tensor_overlap_fraction@{FRAMEWORK}"),
        strict=True,
    ):
        assert list(each.places.values()) == [key]
        assert (each.lowest, each.highest) == (
            table[key]["lowest_value"],
            table[key]["highest_value"],
        )


def test_tied_constants_share_a_value(calibrated: Callable[..., Calibration]) -> None:
    known = {"hbm_efficiency": 0.84, "gemm_efficiency": 0.84}
    found = calibrated(known, "hbm_efficiency+gemm_efficiency")
    assert found.fit.values == pytest.approx([0.84], rel=1e-3)
    assert (found.fit.parameters[0].lowest, found.fit.parameters[0].highest) == (0.8, 0.9)


@pytest.mark.parametrize(
    ("asked", "options", "told"),
    [
        ("gemm_efficiency", {"conditions": ["row=row 1"]}, "needs more than 1 rows"),
        (
            "gemm_efficiency,tensor_overlap_fraction",
            {"conditions": ["row=row 1,row 2"]},
            "needs more than 2 rows",
        ),
        ("gemm_efficency", {}, "`--fit` gemm_efficency is no constant"),
        ("uses_dropout", {}, "`--fit` uses_dropout is no constant"),
        ("a,b,c,d", {}, "must name 1 to 3"),
        ("flash_forward_efficiency", {}, "has no effect on any of the rows"),
        ("pipeline_overlap_fraction", {}, "admits 0 only"),
        ("gemm_efficiency,gemm_efficiency", {}, "names `gemm_efficiency` twice"),
        ("gemm_efficiency", {"conditions": ["num_gpus=7"]}, "no row meets num_gpus=7"),
        ("gemm_efficiency", {"conditions": ["nonsense=7"]}, "there is no column `nonsense`"),
        ("gemm_efficiency", {"conditions": ["num_gpus"]}, "is not of the form key=value"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    calibrated: Callable[..., Calibration], asked: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        calibrated({"gemm_efficiency": 0.85}, asked, **options)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"step_seconds": None}, "has no column `step_seconds`"),
        ({"step_seconds": [1, 2, 3, 4, 5, 0]}, "row 6: `step_seconds` 0 must be a positive number"),
        ({"gemm_efficiency": [0.7] * 6}, "the rows give it themselves, as 0.7"),
        ({"accelerator": ["A100 SXM 80GB"] * 5 + ["H100 SXM 80GB"]}, "has several values among"),
        ({"num_heads": [64, 96, 96, 48, 32, 31]}, "row 6: `tensor_parallel` 2 does not divide"),
    ],
)
def test_a_reference_that_cannot_be_used_is_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    table = {**ROWS, "step_seconds": [1.0] * 6, **change}
    path = tmp_path / "own.csv"
    pl.DataFrame({name: own for name, own in table.items() if own is not None}).write_csv(path)
    with pytest.raises(InputError) as caught:
        run_calibration(str(path), path, asked=["gemm_efficiency"])
    assert told in str(caught.value)


def test_a_constant_without_effect_once_a_row_is_left_out_stays_at_its_default(
    tmp_path: Path,
) -> None:
    """Tensor collectives of one row only: without it nothing says how far they overlap."""
    alone = {**ROWS, "tensor_parallel": [8] + [1] * 5, "pipeline_parallel": [1] * 6}
    alone |= {"num_gpus": [8] + [1] * 5, "uses_sequence_parallel": [False] * 6}
    given = {**alone, "gemm_efficiency": [0.86] * 6, "tensor_overlap_fraction": [0.25] * 6}
    pl.DataFrame(given).write_csv(tmp_path / "given.csv")
    evaluate_file(
        TRAINING_STEP, tmp_path / "given.csv", tmp_path / "times.csv", frozenset(), CATALOG
    )
    times = pl.read_csv(tmp_path / "times.csv")["step_seconds"]
    path = tmp_path / "reference.csv"
    pl.DataFrame(alone).with_columns(times).write_csv(path)
    found = run_calibration(str(path), path, asked=["gemm_efficiency", "tensor_overlap_fraction"])
    assert found.fit.values == pytest.approx([0.86, 0.25], rel=1e-3)
    assert found.fit.left_out_values[0] == pytest.approx([0.86, 1.0], rel=1e-3)


# ---- published tables ----


def test_published_rows_are_those_of_the_view_in_a_database(
    warehouse_connection: duckdb.DuckDBPyConnection,
) -> None:
    rows = warehouse_connection.execute(
        "select reference, published_row, published_step_seconds, num_gpus from published_step"
    ).fetchall()
    names = ("reference", "published_row", "published_step_seconds", "num_gpus")
    assert sorted(published_steps().select(names).rows()) == sorted(rows)
    assert {"published_megatron_scaling", "published_megatron_recompute"} <= set(published_tables())


def test_the_output_layer_of_published_models_is_that_of_table_model() -> None:
    h100 = published_reference("published_megatron_h100_scaling").frame
    assert h100["ties_embedding"].to_list() == [False] * 9
    assert published_reference("published_megatron_scaling").frame["ties_embedding"].all()


def test_rows_of_a_program_that_no_framework_describes_are_left_out_unless_named() -> None:
    name = "published_megatron_training_time"
    found = run_calibration(name, Path(name), asked=["gemm_efficiency"])
    assert all(row.startswith("PTD-P") for row in found.row_names)
    assert "6 rows of a program" in found.notes[0]
    rest = {(o.reference, o.is_own_framework, o.num_rows) for o in found.others}
    assert (name, False, 6) in rest
    assert (name, True) not in {one[:2] for one in rest}
    named = run_calibration(
        name, Path(name), asked=["gemm_efficiency"], conditions=["group=ZeRO-3"]
    )
    assert all(row.startswith("ZeRO-3") for row in named.row_names)


def test_other_tables_are_predicted_with_the_constants_that_they_share() -> None:
    name = "published_megatron_scaling"
    found = run_calibration(name, Path(name), asked=["gemm_efficiency"])
    others = {(each.reference, each.is_own_framework): each for each in found.others}
    assert name not in {reference for reference, _ in others}
    h100 = others["published_megatron_h100_scaling", True]
    assert not h100.is_reached
    assert h100.fitted == h100.untuned
    recompute = others["published_megatron_recompute", True]
    assert recompute.is_reached
    frame = published_reference("published_megatron_recompute").frame
    again = run_calibration("published_megatron_recompute", Path(), asked=["gemm_efficiency"])
    assert recompute.untuned == errors_of(again.fit.untuned, again.fit.published)
    assert recompute.fitted != recompute.untuned
    assert recompute.num_rows == frame.height


def test_rows_that_a_filter_leaves_out_are_predicted_as_others() -> None:
    name = "published_megatron_scaling"
    found = run_calibration(
        name, Path(name), asked=["gemm_efficiency"], conditions=["row!=76B,1T", "num_gpus!=32"]
    )
    assert len(found.row_names) == 7
    [rest] = [each for each in found.others if each.reference == name]
    assert rest.num_rows == 3


def test_a_filter_compares_numbers_flags_and_texts_as_they_are_written() -> None:
    frame = pl.DataFrame({"n": [8, 16], "f": [True, False], "t": ["PTD-P", "ZeRO-3"]})
    assert filtered(frame, ["n=8.0"]).to_list() == [True, False]
    assert filtered(frame, ["f=False"]).to_list() == [False, True]
    assert filtered(frame, ["t=ptd-p,x"]).to_list() == [True, False]
    assert filtered(frame, ["n=8", "f=false"]).to_list() == [False, False]


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
        for name in CONSTANTS:
            place = place_of(CATALOG, name, accelerator, framework)
            if place is None or COLUMNS[name].kind != "float":
                continue
            value = float(str(CATALOG.tables["step_constant"][place]["constant_value"])) * 0.5 + 0.1
            marked = Profile("p", "training_step", {place: value}).added_to(CATALOG)
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
            assert resolved[name][0] == pytest.approx(value), (name, accelerator, framework)


TUNED = Profile("tuned", "training_step", {f"gemm_efficiency@{ACCELERATOR}": 0.81})


def test_rows_take_the_profile_that_they_name_and_keep_their_place(tmp_path: Path) -> None:
    names = ["tuned", None, "default", "tuned", None, "tuned"]
    given = [None, 0.9, None, 0.7, None, None]
    expected = [0.81, 0.9, 0.854, 0.7, 0.854, 0.81]
    frame = pl.DataFrame({**ROWS, "profile": names, "gemm_efficiency": given})
    frame.write_csv(tmp_path / "in.csv")
    model = profiled(TRAINING_STEP, lambda: {"tuned": TUNED})
    evaluate_file(model, tmp_path / "in.csv", tmp_path / "out.csv", frozenset(), CATALOG)
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
    model = profiled(TRAINING_STEP, lambda: {"tuned": TUNED})
    with pytest.raises(InputError) as caught:
        evaluate_file(model, tmp_path / "in.csv", tmp_path / "out.csv", frozenset(), CATALOG)
    told = str(caught.value)
    assert 'row 2: `profile` "tunde" is not a stored profile' in told
    assert "known: default, tuned" in told
    assert 'row 6: `profile` "tuned" has no constant for H100 SXM 80GB' in told
    assert "row 1:" not in told


# ---- storage ----


def records(connection: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    found = connection.execute(f"from {table}")
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def small() -> Calibration:
    name = "published_megatron_scaling"
    return run_calibration(name, Path(name), asked=["gemm_efficiency"])


def test_what_is_stored_is_what_was_found(
    warehouse_connection: duckdb.DuckDBPyConnection, small: Calibration
) -> None:
    connection = warehouse_connection
    store_calibration(connection, "mine", small, replace=False)
    assert read_profiles(connection) == {"mine": small.fit.profile("mine", TRAINING_STEP)}
    constants = records(connection, "calibration")
    rows = records(connection, "calibration_row")
    [constant] = constants
    worth = errors_of(small.fit.left_out, small.fit.published)
    assert constant["constant"] == "gemm_efficiency"
    assert constant["num_rows"] == 10
    assert constant["default_constant_value"] == 0.854
    assert constant["fitted_constant_value"] == small.fit.values[0]
    assert constant["left_out_mean_absolute_relative_error"] == worth.mean
    assert constant["left_out_bias"] == worth.bias
    assert None not in constant.values()
    assert [row["published_row"] for row in rows] == list(small.row_names)
    assert [row["left_out_step_seconds"] for row in rows] == small.fit.left_out.tolist()
    error = small.fit.untuned / small.fit.published - 1
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
from warehouse import calibration_store as store
from warehouse.calibration_run import run_calibration
from warehouse.connection import open_for_write

name = "published_megatron_scaling"
found = run_calibration(name, Path(name), asked=["gemm_efficiency"])
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
