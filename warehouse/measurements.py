"""A team's own measurements: read, checked, evaluated like any batch, and stored beside the rows.

A file is taken whole or not at all. Its layout columns are those that `evaluate training_step`
takes; what a run measured stands in `step_seconds`, and in `memory_bytes` where it is known.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Cell, Columns, Problem, Refusal, RefusedError
from estimators.inputs import records
from warehouse.batch_cells import cells_of
from warehouse.batch_files import SUFFIXES, read_configs
from warehouse.batch_inputs import input_names, likely_misspelt, read_columns, wrong_types
from warehouse.batch_store import store_batch
from warehouse.errors import MAX_SHOWN, InputError
from warehouse.published import published_tables
from warehouse.sink import arrow_table, registered, transaction
from warehouse.tables import MEASUREMENT_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from estimators.contract import Estimator

ESTIMATOR = "training_step"
"""The estimator that completes the layouts, and estimates them when they are stored."""

ROW, SECONDS, MEMORY = "run", "step_seconds", "memory_bytes"
"""Columns of a file beside the layout: a run's name, its step, its memory."""

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
        Called with each column that is not read and whose name is near one that is.

    Raises
    ------
    InputError
        If the file cannot be read, or anything in it is refused: every fault is named.
    """
    estimator = registry.get(ESTIMATOR)
    relation = estimator.relations[0]
    inputs = input_names(estimator, relation)
    frame = _read(path, inputs)
    for name, near in likely_misspelt(frame.columns, (*inputs, SECONDS, MEMORY, *_TEXTS)).items():
        warn(f"{path}: column `{name}` is not read; did you mean `{near}`?")
    refusals = wrong_types(frame, inputs)
    if refusals:
        raise InputError.from_refusals(refusals, str(path))
    columns, refusals = read_columns(frame, inputs, relation)
    measured = {}
    for name in (SECONDS, MEMORY):
        measured[name], faults = _numbers(frame, name)
        refusals += faults
    names, faults = _names(frame)
    refusals += faults
    mends = frozenset(estimator.mends)
    try:
        resolved, faults = estimator.resolve(relation, columns, catalog, mends)
    except RefusedError as error:
        resolved, faults = {}, list(error.refusals)
    refused = {refusal.row for refusal in refusals}
    refusals += [fault for fault in faults if fault.row is None or fault.row not in refused]
    if refusals:
        raise _refused(refusals, path)
    out: dict[str, Array] = {n: np.empty(frame.height, COLUMNS[n].dtype) for n in relation.outputs}
    shared = (*estimator.problem_columns, *estimator.choice_columns)
    values = {name: resolved[name] for name in shared}
    layouts = {name: resolved[name] for name in relation.keys}
    estimator.estimate(relation, values, layouts, mends, out)
    cells = cells_of(estimator, relation, resolved, out, mends)
    found = _records(estimator, resolved, frame, names, measured)
    return Measured(estimator, path, found, cells)


def _read(path: Path, inputs: Sequence[str]) -> pl.DataFrame:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: is of no known format", f"name a file that ends in {' or '.join(SUFFIXES)}"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a directory", "name a file")
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    frame = read_configs(path, (*inputs, SECONDS, MEMORY), keep_text=False)
    if SECONDS not in frame.columns:
        raise InputError(
            f"{path}: has no column `{SECONDS}`", "give what was measured of each run, in seconds"
        )
    if frame.height == 0:
        raise InputError(f"{path}: has no run", "write one line for each")
    if not any(name in inputs for name in frame.columns):
        raise InputError(
            f"{path}: has no column of a layout", f"known: {', '.join(inputs[:12])} ..."
        )
    return frame


def _numbers(frame: pl.DataFrame, name: str) -> tuple[Array, list[Refusal]]:
    """Return a measured column, NaN where it is missing; only memory may be."""
    if name not in frame.columns:
        return np.full(frame.height, np.nan), []
    given = frame[name].cast(pl.String).str.strip_chars()
    given = given.set(given == "", None)
    numbers = given.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    is_missing = given.is_null().to_numpy()
    is_sound = np.isfinite(numbers) & (numbers > 0) & (numbers < 1e18)
    wrong = ~is_sound & ~(is_missing & (name == MEMORY))
    hint = {SECONDS: "in seconds", MEMORY: "in bytes, or leave it empty"}[name]
    return numbers.copy(), [
        Refusal(name, given[row], "must be a positive number", f"give it {hint}", row)
        for row in np.flatnonzero(wrong).tolist()
    ]


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


def _refused(refusals: Sequence[Refusal], path: Path) -> InputError:
    """Return the error of all refusals, each with its line where the file has lines."""
    ordered = sorted(refusals, key=lambda one: -1 if one.row is None else one.row)
    starts = _line_numbers(path) if path.suffix.lower() == ".csv" else []
    hints = {one.hint for one in ordered[:MAX_SHOWN]}
    shared = hints.pop() if len(hints) == 1 else ""
    lines = []
    for one in ordered[:MAX_SHOWN]:
        place = ""
        if one.row is not None:
            line = starts[one.row] if one.row < len(starts) else None
            place = f": line {line}" if line is not None else f": row {one.row + 1}"
        lines.append(f"{path}{place}: {replace(one, hint='') if shared else one}")
    if len(ordered) > MAX_SHOWN:
        lines.append(f"... and {len(ordered) - MAX_SHOWN} more")
    return InputError("\n".join(lines), shared)


def _line_numbers(path: Path) -> list[int]:
    """Return the line of a CSV at which each row begins."""
    starts, before = [], 0
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        for _ in reader:
            starts.append(before + 1)
            before = reader.line_num
    return starts[1:]


def refuse_name(connection: DuckDBPyConnection, name: str, *, replaces: bool) -> None:
    """Raise `InputError` if measurements cannot be called `name`, or are there already."""
    if name != name.strip() or not name.isprintable() or not name:
        raise InputError(f"`--name` {name!r} cannot name measurements", "use a word of your own")
    if name in published_tables():
        raise InputError(
            f"`--name` {name}: is a table of published steps", "use a word of your own"
        )
    query = "select count(*) from measurement where reference = ?"
    [(stored,)] = connection.execute(query, [name]).fetchall()
    if stored and not replaces:
        raise InputError(
            f"`--name` {name}: {stored:,} runs of that name are stored already",
            "choose another --name, or --replace them",
        )


def store_measurements(
    connection: DuckDBPyConnection, name: str, measured: Measured, *, replaces: bool
) -> int:
    """Store estimates and measurements; return how many cells of estimates were new.

    The measurements come last and in one transaction: none is ever without its estimate.
    """
    refuse_name(connection, name, replaces=replaces)
    estimator = measured.estimator
    mends = frozenset(estimator.mends)
    new = store_batch(
        connection, estimator, estimator.relations[0], measured.cells, mends, measured.file
    )
    created = datetime.now(UTC).replace(tzinfo=None)
    common = {"reference": name, "measurement_file": str(measured.file), "created_at": created}
    rows = [{**common, **record} for record in measured.records]
    with transaction(connection):
        connection.execute("delete from measurement where reference = ?", [name])
        with registered(connection, "incoming_records", arrow_table(rows)):
            connection.execute("insert into measurement by name select * from incoming_records")
    return new
