"""The estimates of every published measurement, kept in a file.

``python -m benchmarks.predictions`` writes the file anew and names every estimate that changed. It
refuses to where the estimator has the version of the file: databases would keep the old estimates.
``--unreleased`` says that no release has this version. `tests/estimators/test_predicted_steps.py`
compares the file with the estimator.
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl

from estimators.contract import PUBLISHED
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from warehouse.calibrate.published import published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

FILE = Path(__file__).parents[1] / "tests" / "estimators" / "predicted_steps.csv"
KEY = ("reference", "published_group", "published_row")
MEASURES = ("step_seconds", "memory_bytes")
HEADER = (*KEY, "estimator_version", *MEASURES)

TOLERANCE = 1e-9
"""Relative difference that is rounding: another order of sums makes some 1e-15."""

Row = tuple[str, ...]


class Prediction(NamedTuple):
    """The estimate of one row; both measures are NaN where the configuration is refused."""

    step_seconds: float
    memory_bytes: float

    def is_near(self, other: Prediction) -> bool:
        """Return whether both are the same but for rounding, or both are refused."""
        return all(
            (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=TOLERANCE)
            for a, b in zip(self, other, strict=True)
        )

    def __str__(self) -> str:
        """Return the estimate in words."""
        if math.isnan(self.step_seconds):
            return "refused"
        return f"{self.step_seconds:.6g} s, {self.memory_bytes / 1e9:.6g} GB"


def predicted(steps: pl.DataFrame | None = None) -> dict[Row, Prediction]:
    """Return the estimate of every published step by its key.

    Parameters
    ----------
    steps
        Rows of view `published_step`; by default all of them. A choice that was not published has
        the estimator's default.
    """
    steps = published_steps() if steps is None else steps
    resolved = resolve_rows(TRAINING_STEP, RELATION, steps, packaged_catalog(), PUBLISHED)
    found = evaluate_rows(resolved, MEASURES)
    estimates = iter(zip(*(found[name].tolist() for name in MEASURES), strict=True))
    refused = (math.nan, math.nan)
    return {
        key: Prediction(*(next(estimates) if is_good else refused))
        for key, is_good in zip(steps.select(KEY).rows(), resolved.is_good.tolist(), strict=True)
    }


def read(path: Path = FILE) -> tuple[set[int], dict[Row, Prediction]]:
    """Return the versions that the file is of, one unless it is faulty, and its estimates."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    estimates = {
        tuple(row[name] for name in KEY): Prediction(
            *(float(row[name] or math.nan) for name in MEASURES)
        )
        for row in rows
    }
    return {int(row["estimator_version"]) for row in rows}, estimates


def write(path: Path = FILE) -> None:
    """Write the estimates of every published step."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(HEADER)
        for key, estimate in predicted().items():
            texts = ["" if math.isnan(value) else repr(value) for value in estimate]
            lines.writerow([*key, TRAINING_STEP.version, *texts])


def changes(before: dict[Row, Prediction], now: dict[Row, Prediction]) -> list[str]:
    """Return a line for each row whose estimate is another, is new or is gone."""
    lines = []
    for key in dict.fromkeys((*before, *now)):
        name = " / ".join(key)
        if key not in now:
            lines.append(f"{name}: is no published step any more")
        elif key not in before:
            lines.append(f"{name}: is new, {now[key]}")
        elif not before[key].is_near(now[key]):
            lines.append(f"{name}: {before[key]} -> {now[key]}")
    return lines


def main(arguments: list[str]) -> None:
    """Write the file anew, unless estimates changed and the version did not."""
    versions, before = read()
    found = changes(before, predicted())
    print("\n".join(found) or "no estimate changed")
    if found and versions == {TRAINING_STEP.version} and "--unreleased" not in arguments:
        raise SystemExit(
            f"error: version {TRAINING_STEP.version} has other estimates in {FILE}\n"
            "hint: raise `version` of the estimator, or say --unreleased"
        )
    write()


if __name__ == "__main__":
    main(sys.argv[1:])
