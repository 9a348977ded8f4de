"""The published steps that every program is given, each with its inputs and the measured time.

The inputs are those that `training_step` completes from the publication: a microbatch, a ZeRO stage
or a kind of attention that the source leaves out has the default of the measured program. So all
programs answer the same question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from estimators.contract import PUBLISHED
from estimators.training_step.estimator import RELATION, TRAINING_STEP
from warehouse.calibrate.published import MEASURED, ROW, published_steps
from warehouse.database.catalog import packaged_catalog
from warehouse.evaluate.inputs import evaluate_rows, resolve_rows

_BITS = {"fp8": "FP8", "fp4": "FP4"}


@dataclass(frozen=True)
class Row:
    """A published step.

    Attributes
    ----------
    reference, group, name
        The table, the group in it and the row.
    seconds
        The measured time of a step.
    estimate, mfu
        What `training_step` says without a fit [s], and the utilization of the measured step: model
        FLOP/s over the peak in the number format of the matmuls. None where it refuses the row.
    inputs
        Columns of `training_step` by name; None where a value does not apply.
    """

    reference: str
    group: str
    name: str
    seconds: float
    estimate: float | None
    mfu: float | None
    inputs: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Return the kind of model and the number format, as in "mixture FP8"."""
        model = "mixture" if self.inputs["num_experts"] > 1 else "dense"
        return f"{model} {_BITS.get(self.inputs['precision'], '16-bit')}"


@lru_cache(maxsize=1)
def published() -> tuple[Row, ...]:
    """Return every published step that has a time."""
    steps = timed()
    catalog = packaged_catalog()
    resolved = resolve_rows(TRAINING_STEP, RELATION, steps, catalog, PUBLISHED)
    found = evaluate_rows(resolved, ("step_seconds", "mfu"))
    estimates = zip(found["step_seconds"].tolist(), found["mfu"].tolist(), strict=True)
    vector = catalog.tables["system"]
    rows = []
    for number, is_good in zip(resolved.rows.tolist(), resolved.is_good.tolist(), strict=True):
        inputs = {name: _plain(values[number]) for name, values in resolved.columns.items()}
        inputs["vector_flops_per_second"] = vector[inputs["accelerator"]]["vector_flops_per_second"]
        reference, group, name, seconds = steps.row(number)[:4]
        estimate, mfu = next(estimates) if is_good else (None, None)
        reached = None if mfu is None or estimate is None else mfu * estimate / seconds
        rows.append(Row(reference, group, name, seconds, estimate, reached, inputs))
    return tuple(rows)


def timed() -> pl.DataFrame:
    """Return the published steps with a time: reference, group, name, seconds, then the inputs."""
    first = ("reference", "published_group", ROW, MEASURED)
    return (
        published_steps().filter(pl.col(MEASURED).is_not_null()).select(*first, pl.exclude(first))
    )


def _plain(value: Any) -> Any:
    """Return a value of an array as Python's own, None for NaN, whole numbers as such."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        if np.isnan(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
