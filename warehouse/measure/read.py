"""A team's own measurements: read, checked, evaluated like any batch, and stored beside the rows.

A file is taken whole or not at all. Its layout columns are those that `evaluate training_step`
takes; what a run measured stands in `step_seconds`, and in `memory_bytes` where it is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Cell, Columns, Problem, Refusal, RefusedError
from estimators.inputs import records
from warehouse.database.tables import MEASUREMENT_TABLE
from warehouse.errors import InputError
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.formats import SUFFIXES, read_configs
from warehouse.evaluate.inputs import input_names, read_columns, wrong_types
from warehouse.measurement_checks import (
    MEMORY,
    ROW,
    SECONDS,
    check_columns,
    impossible,
    missing_cells,
    read_measured,
    refusal_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from estimators.contract import Estimator

ESTIMATOR = "training_step"
"""The estimator that completes the layouts, and estimates them when they are stored."""

_TEXTS = (ROW, "source", "note")


@dataclass(frozen=True)
class Measured:
    """A file of measurements, checked and evaluated.

    Attributes
    ----------
    records
        The rows of table `measurement`, without `reference`.
    cells
        The estimates, as `evaluate --into-db` stores them.
    """

    estimator: Estimator
    file: Path
    records: list[dict[str, Any]]
    cells: Sequence[tuple[Cell, Columns]]


def read_measurements(
    path: Path, catalog: Catalog, warn: Callable[[str], None] = lambda _: None
) -> Measured:
    """Read, check and evaluate the measurements in a file.

    Parameters
    ----------
    warn
        Called with what the user should know: columns that are not read.

    Raises
    ------
    InputError
        If the file cannot be read, or anything in it is refused: every fault is named.
    """
    estimator = registry.get(ESTIMATOR)
    relation = estimator.relations[0]
    inputs = input_names(estimator, relation)
    frame = _read(path, inputs, warn)
    refusals = wrong_types(frame, inputs)
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    columns, refusals = read_columns(frame, inputs, relation)
    measured = {}
    for name in (SECONDS, MEMORY):
        measured[name], faults = read_measured(frame, name)
        refusals += faults
    refusals += missing_cells(columns)
    names, faults = _names(frame)
    refusals += faults
    mends = frozenset(estimator.mends)
    try:
        resolved, faults = estimator.resolve(relation, columns, catalog, mends)
    except RefusedError as error:
        resolved, faults = {}, list(error.refusals)
    refused = {refusal.row for refusal in refusals}
    refusals += [fault for fault in faults if fault.row is None or fault.row not in refused]
    if resolved:
        refused = {refusal.row for refusal in refusals}
        refusals += [one for one in impossible(resolved, measured) if one.row not in refused]
    if refusals:
        raise refusal_of(refusals, path)
    out: dict[str, Array] = {n: np.empty(frame.height, COLUMNS[n].dtype) for n in relation.outputs}
    shared = (*estimator.problem_columns, *estimator.choice_columns)
    values = {name: resolved[name] for name in shared}
    layouts = {name: resolved[name] for name in relation.keys}
    estimator.estimate(relation, values, layouts, mends, out)
    cells = cells_of(estimator, relation, resolved, out, mends)
    found = _records(estimator, resolved, frame, names, measured)
    return Measured(estimator, path, found, cells)


def _read(path: Path, inputs: Sequence[str], warn: Callable[[str], None]) -> pl.DataFrame:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: is of no known format", f"name a file that ends in {' or '.join(SUFFIXES)}"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a directory", "name a file")
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    frame = read_configs(path, (*inputs, SECONDS, MEMORY), keep_text=False)
    check_columns(frame.columns, inputs, (*inputs, SECONDS, MEMORY, *_TEXTS), path, warn)
    if frame.height == 0:
        raise InputError(f"{path}: has no run", "write one line for each")
    return frame


def _names(frame: pl.DataFrame) -> tuple[list[str], list[Refusal]]:
    """Return the runs' names, by default their places; a name that stands twice is refused."""
    if ROW not in frame.columns:
        return [f"row {number}" for number in range(1, frame.height + 1)], []
    texts = frame[ROW].cast(pl.String).str.strip_chars().to_list()
    refusals = []
    seen: set[str] = set()
    for row, text in enumerate(texts):
        if not text:
            refusals.append(Refusal(ROW, None, "is missing", "name every run, or none", row))
        elif text in seen:
            hint = "runs of one file have different names"
            refusals.append(Refusal(ROW, text, "stands twice", hint, row))
        seen.add(text)
    return [text or "" for text in texts], refusals


def _records(
    estimator: Estimator,
    resolved: Columns,
    frame: pl.DataFrame,
    names: Sequence[str],
    measured: Columns,
) -> list[dict[str, Any]]:
    kept = [name for name in MEASUREMENT_TABLE.columns if name in resolved]
    problems = records({name: resolved[name] for name in estimator.problem_columns})
    texts = {
        name: frame[name].cast(pl.String).to_list() if name in frame.columns else None
        for name in ("source", "note")
    }
    found = records({name: resolved[name] for name in kept})
    return [
        {
            **row,
            "measured_row": names[place],
            "problem_id": Problem(problems[place]).id,
            "measured_step_seconds": float(measured[SECONDS][place]),
            "measured_memory_bytes": _or_none(measured[MEMORY][place]),
            **{name: values[place] if values else None for name, values in texts.items()},
        }
        for place, row in enumerate(found)
    ]


def _or_none(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
