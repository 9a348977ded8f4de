"""A calibration finds known constants, keeps to bounds, and reports its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from estimators.contract import Array
from tests.warehouse.calibration_cases import ACCELERATOR, CATALOG, FRAMEWORK, ROWS, TRAINING_STEP
from warehouse.calibrate.fit import Parameter, Steps, fit
from warehouse.calibrate.run import Calibration, run_calibration
from warehouse.errors import InputError
from warehouse.evaluate.file import evaluate_file


def predicted(directory: Path, **constants: float) -> pl.DataFrame:
    """Return the rows with the estimator's own times under given constants."""
    source, out = directory / "given.csv", directory / "times.csv"
    given = {name: [value] * 6 for name, value in constants.items()}
    pl.DataFrame({**ROWS, **given}).write_csv(source)
    evaluate_file(TRAINING_STEP, source, out, frozenset(), CATALOG)
    times = pl.read_csv(out)["step_seconds"]
    return pl.DataFrame(ROWS).with_columns(times)


@pytest.fixture(autouse=True)
def _no_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the errors on published tables: test_calibration_published.py has them."""
    monkeypatch.setattr("warehouse.calibrate.run.published_tables", list)


@pytest.fixture
def calibrated(tmp_path: Path) -> Callable[..., Calibration]:
    """Make a reference of the estimator's own times, scaled row by row, and fit to it.

    A fit to all other rows predicts each row: twice the rows take four times as long.
    """

    def calibrated(
        constants: Mapping[str, float],
        asked: str,
        scaled: Array | float = 1.0,
        rows: Sequence[int] = range(6),
        **options: Any,
    ) -> Calibration:
        frame = predicted(tmp_path, **constants)
        frame = frame.with_columns(step_seconds=frame["step_seconds"].to_numpy() * scaled)[rows]
        path = tmp_path / "reference.csv"
        frame.write_csv(path)
        return run_calibration(str(path), path, constants=asked.split(","), **options)

    return calibrated


PLACES = {"tensor_overlap_fraction": FRAMEWORK}
"""Constant -> the framework whose range it takes; that of others is the accelerator's."""
NOISE = np.array([1.02, 0.97, 1.01, 1.0, 0.985, 1.03])


@pytest.mark.parametrize(
    "known",
    [
        {"gemm_efficiency": 0.83},
        {"gemm_efficiency": 0.91, "tensor_overlap_fraction": 0.4},
        {"gemm_efficiency": 0.87, "nvlink_efficiency": 0.74, "hbm_efficiency": 0.83},
    ],
)
@pytest.mark.long
def test_known_constants_are_recovered_from_the_estimators_own_times(
    calibrated: Callable[..., Calibration], known: dict[str, float]
) -> None:
    found = calibrated(known, ",".join(known), rows=range(len(known) + 1))
    assert found.fit.values == pytest.approx(list(known.values()), rel=1e-3)
    assert found.fit.errors["fitted"].max_absolute_relative_error < 1e-4
    assert not any(map(found.fit.is_at_bound, range(len(known))))
    # the bounds are those of the rows' accelerator and framework
    table = CATALOG.tables["step_constant"]
    for each in found.fit.parameters:
        [key] = each.places.values()
        assert key == f"{each.name}@{PLACES.get(each.name, ACCELERATOR)}"
        bounds = (table[key]["lowest_value"], table[key]["highest_value"])
        assert (each.lowest, each.highest) == bounds


@pytest.mark.long
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
    given = [
        pl.lit(value).alias(name) for name, value in {**known, "product_rate_factor": 0.96}.items()
    ]
    frame.with_columns(given).write_csv(tmp_path / "given.csv")
    evaluate_file(
        TRAINING_STEP, tmp_path / "given.csv", tmp_path / "times.csv", frozenset(), CATALOG
    )
    times = pl.read_csv(tmp_path / "times.csv")["step_seconds"]
    path = tmp_path / "reference.csv"
    frame.with_columns(times)[:4].write_csv(path)
    found = run_calibration(str(path), path)
    assert [each.name for each in found.fit.parameters] == [
        "product_rate_factor",
        "exposed_communication",
    ]
    assert set(found.fit.parameters[1].places) == set(known)
    assert found.fit.values == pytest.approx([0.96, 0.3], rel=1e-3)
    [note] = [note for note in found.notes if "exposed" in note]
    assert "70.0 % of the tensor and gradient and parameter" in note


@pytest.mark.long
def test_each_left_out_row_is_predicted_by_a_fit_that_has_not_seen_it(
    calibrated: Callable[..., Calibration],
) -> None:
    known = {"gemm_efficiency": 0.88, "tensor_overlap_fraction": 0.5}
    found = calibrated(known, ",".join(known), NOISE, range(4))
    for row in (0, 3):
        others = [other for other in range(4) if other != row]
        other = calibrated(known, ",".join(known), NOISE, others)
        assert found.fit.left_out_values[row] == pytest.approx(other.fit.values, rel=1e-12)


@pytest.mark.long
def test_left_out_predictions_are_those_of_a_search_through_every_value(
    calibrated: Callable[..., Calibration], tmp_path: Path
) -> None:
    found = calibrated({"gemm_efficiency": 0.88}, "gemm_efficiency", NOISE, range(4))
    tried = np.linspace(0.8, 0.924, 249)
    frame = pl.concat([pl.DataFrame(ROWS)[:4]] * len(tried))
    frame = frame.with_columns(gemm_efficiency=np.repeat(tried, 4))
    frame.write_parquet(tmp_path / "all.parquet")
    out = tmp_path / "out.parquet"
    evaluate_file(TRAINING_STEP, tmp_path / "all.parquet", out, frozenset(), CATALOG)
    times = pl.read_parquet(out)["step_seconds"].to_numpy().reshape(len(tried), 4)
    squared = np.log(times / found.fit.published) ** 2
    for row in range(4):
        best = int(np.delete(squared, row, axis=1).mean(axis=1).argmin())
        assert found.fit.left_out_values[row, 0] == pytest.approx(tried[best], abs=3e-4)
        assert found.fit.estimates["left_out"][row] == pytest.approx(times[best, row], rel=5e-4)
    assert found.fit.errors["left_out"].mean_absolute_relative_error >= (
        found.fit.errors["fitted"].mean_absolute_relative_error
    )


def test_constants_with_nearly_equal_effects_are_distinguished() -> None:
    """A valley a thousand times as long as wide, across both axes, and a crease next to it."""

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


@pytest.mark.long
def test_a_constant_stays_in_the_range_of_its_sources_unless_an_option_allows_more(
    calibrated: Callable[..., Calibration],
) -> None:
    known = {"gemm_efficiency": 0.6}
    found = calibrated(known, "gemm_efficiency", rows=range(3))
    assert found.fit.values.tolist() == [0.8]
    assert found.fit.is_at_bound(0)
    [note] = found.notes
    assert note.startswith("gemm_efficiency stopped at 0.8, the end of its published range")
    assert "--beyond-range" in note
    wide = calibrated(known, "gemm_efficiency", rows=range(3), wide=True)
    assert wide.fit.values == pytest.approx([0.6], rel=1e-3)
    assert not wide.fit.is_at_bound(0)


def test_tied_constants_share_a_value(calibrated: Callable[..., Calibration]) -> None:
    known = {"hbm_efficiency": 0.84, "gemm_efficiency": 0.84}
    found = calibrated(known, "hbm_efficiency+gemm_efficiency", rows=range(3))
    assert found.fit.values == pytest.approx([0.84], rel=1e-3)
    assert (found.fit.parameters[0].lowest, found.fit.parameters[0].highest) == (0.8, 0.9)


@pytest.mark.parametrize(
    ("asked", "options", "expected"),
    [
        ("gemm_efficiency", {"conditions": ["row=row 1"]}, "at least 2 rows are needed; given: 1"),
        (
            "gemm_efficiency,tensor_overlap_fraction",
            {"conditions": ["row=row 1,row 2"]},
            "at least 3 rows are needed; given: 2",
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
    calibrated: Callable[..., Calibration], asked: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        calibrated({"gemm_efficiency": 0.85}, asked, **options)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"step_seconds": None}, "has no column `step_seconds`"),
        ({"step_seconds": [1, 2, 3, 4, 5, 0]}, "row 6: `step_seconds` 0 must be a positive number"),
        ({"gemm_efficiency": [0.7] * 6}, "the rows give it themselves, as 0.7"),
        ({"accelerator": ["A100 SXM 80GB"] * 5 + ["H100 SXM 80GB"]}, "has several values among"),
        ({"num_heads": [64, 96, 96, 48, 32, 1]}, "row 6: `tensor_parallel` 2 does not divide"),
    ],
)
def test_a_reference_that_cannot_be_used_is_refused(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    table = {**ROWS, "step_seconds": [1.0] * 6, **change}
    path = tmp_path / "own.csv"
    pl.DataFrame({name: own for name, own in table.items() if own is not None}).write_csv(path)
    with pytest.raises(InputError) as caught:
        run_calibration(str(path), path, constants=["gemm_efficiency"])
    assert expected in str(caught.value)


@pytest.mark.long
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
    pl.DataFrame(alone).with_columns(times)[:4].write_csv(path)
    found = run_calibration(
        str(path), path, constants=["gemm_efficiency", "tensor_overlap_fraction"]
    )
    assert found.fit.values == pytest.approx([0.86, 0.25], rel=1e-3)
    assert found.fit.left_out_values[0] == pytest.approx([0.86, 1.0], rel=1e-3)
