"""Reads measured runs from a file or a frame, checks them, and estimates them like other rows.

A file is accepted as a whole or refused. It has the columns that `evaluate` takes, the measured
`step_seconds` or another speed and, where known, the measured `memory_bytes` with its kind.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from estimators import registry
from estimators.columns import COLUMNS
from estimators.contract import Array, Catalog, Cell, Columns, Problem, Refusal
from estimators.inputs import records
from warehouse.database.tables import MEASUREMENT_TABLE
from warehouse.errors import InputError, UsageError
from warehouse.evaluate.cells import cells_of
from warehouse.evaluate.csv_parquet import check_source, read_configs
from warehouse.evaluate.frames import stripped, wrong_types
from warehouse.evaluate.inputs import (
    Resolved,
    evaluate_rows,
    input_names,
    likely_misspelt,
    resolve_rows,
)
from warehouse.evaluate.profiles import COLUMN as PROFILE
from warehouse.evaluate.texts import control_characters
from warehouse.measure.speeds import OR_SPEEDS, SECONDS, SPEEDS, TOO_FAST, read_speeds, steps_of
from warehouse.show.formats import count
from warehouse.show.units import column_headed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from estimators.estimator import Estimator
    from warehouse.measure.speeds import MeasuredSteps, Speeds

RUN, MEMORY, KIND = "run", "memory_bytes", "measured_memory_kind"
"""Columns of a file in addition to the inputs and the speed: a run's name, its memory and the kind
of that."""

MEMORY_KINDS = COLUMNS[KIND].choices
"""Kinds of measured memory; an `unknown` one is compared with that of the whole device."""

_TEXTS = ("source", "note")

FRAME = "frame"
"""Name of a frame of runs in errors, and of its source in the database."""

NEEDED = {
    SECONDS: f"give the measured time of a step of each run, in seconds, or {OR_SPEEDS}",
    "num_gpus": "give the GPUs of each run, of all its replicas",
    "global_batch_size": "give the sequences of a step, of all replicas",
}
"""Columns without a default -> the hint where one is missing."""

LEAST_BYTES = 1e6
"""Least plausible memory in bytes: no program takes less, so a smaller number has a wrong unit."""

BINARY_SLACK = 1024**3 / 1e9
"""A GPU sold with 80 GB has up to 80 GiB."""


@dataclass(frozen=True)
class Measured:
    """Measured runs, checked and estimated: rows of table `measurement` without `reference`.

    `derived` says what the seconds of runs follow from that give another speed.
    """

    estimator: Estimator
    file: str
    records: list[dict[str, Any]]
    cells: Sequence[tuple[Cell, Columns]]
    derived: list[str]


def find_estimator(name: str | None) -> Estimator:
    """Return the estimator that completes and estimates measured runs, by default `measure`'s."""
    estimator = registry.get(name or registry.default("measure"))
    if not _can_measure(estimator):
        able = [each.name for each in registry.all_estimators() if _can_measure(each)]
        raise UsageError(
            f"`--estimator` {estimator.name} estimates no step of a number of GPUs and a batch",
            f"use {' or '.join(able)}",
        )
    return estimator


def _can_measure(estimator: Estimator) -> bool:
    relation = estimator.relations[0]
    needed = {*NEEDED} - {SECONDS}
    return needed <= {*input_names(estimator, relation)} and SECONDS in relation.outputs


def read_measurements(
    source: Path | pl.DataFrame,
    estimator: Estimator,
    catalog: Catalog,
    warn: Callable[[str], None] = lambda _: None,
    *,
    profiled: Catalog | None = None,
    called: str = FRAME,
) -> Measured:
    """Read, check and estimate the runs in a file or a frame; an error names every fault.

    Errors call a frame `called`. Runs that name no profile are estimated with the constants of
    catalog `profiled` as well.
    """
    relation = estimator.relations[0]
    mends = frozenset(estimator.mends)
    called = called if isinstance(source, pl.DataFrame) else str(source)
    frame = _read(source, called, input_names(estimator, relation), warn)
    names, refusals = _names(frame)
    refusals += _unknown_kinds(frame)
    speeds, faults = read_speeds(frame)
    refusals += faults
    if speeds.unread:
        unread = ", ".join(f"`{name}`" for name in speeds.unread)
        warn(f"{called}: not read beside `{SECONDS}`: {unread}")
    memory, faults = _read_memory(frame)
    refusals += faults
    refusals += _missing_cells(frame)
    resolved = resolve_rows(estimator, relation, frame, catalog, mends, are_runs=True)
    steps = steps_of(speeds, resolved)
    estimates = [resolved]
    impossible = _impossible(resolved, speeds, steps, memory)
    further = [list(resolved.refusals), steps.refusals, impossible]
    plain = _without_profile(frame)
    if profiled is not None and plain:
        again = resolve_rows(*(estimator, relation, frame[plain], profiled, mends), are_runs=True)
        estimates.append(again)
        further.append(
            [
                refusal if refusal.row is None else replace(refusal, row=plain[refusal.row])
                for refusal in again.refusals
            ]
        )
    # refusals of a faulty row's values are enough, those of derived values are left out
    for faults in further:
        refused = {refusal.row for refusal in refusals} - {None}
        refusals += [r for r in faults if r.row not in refused and r not in refusals]
    places = _places(source, frame.height)
    if refusals:
        refusals.sort(key=lambda refusal: -1 if refusal.row is None else refusal.row)
        raise InputError.from_refusals(refusals, called, places)
    _warn_of_programs(resolved.excused, called, places, warn)
    cells = {
        cell.id: (cell, columns)
        for rows in estimates
        for cell, columns in cells_of(estimator, relation, rows.columns, evaluate_rows(rows), mends)
    }
    runs = _records(resolved, frame, names, steps, memory)
    for rows in estimates[1:]:
        for row, problem in zip(plain, _problem_ids(rows), strict=True):
            runs[row]["profiled_problem_id"] = problem
    return Measured(estimator, called, runs, list(cells.values()), steps.remarks(names))


def _warn_of_programs(
    excused: Sequence[Refusal], called: str, places: Sequence[str], warn: Callable[[str], None]
) -> None:
    """Say which rules of a program the runs break: it may be another release, or was changed."""
    rows: dict[str, list[str]] = {}
    for refusal in excused:
        text = f"`{refusal.column}` {refusal.value} {refusal.reason}"
        rows.setdefault(text, []).append("" if refusal.row is None else places[refusal.row])
    for text, (first, *others) in rows.items():
        place = f"{first} and {count(len(others), 'more run')}" if others else first
        warn(f"{called}: {place}: {text}; the run is stored")


def _without_profile(frame: pl.DataFrame) -> list[int]:
    if PROFILE not in frame.columns:
        return list(range(frame.height))
    return stripped(frame[PROFILE]).is_null().arg_true().to_list()


def _read(
    source: Path | pl.DataFrame, called: str, inputs: Sequence[str], warn: Callable[[str], None]
) -> pl.DataFrame:
    if isinstance(source, pl.DataFrame):
        frame = source
    else:
        check_source(source)
        frame = read_configs(source, (*inputs, *SPEEDS, MEMORY), keep_text=False)
    _check_columns(frame.columns, inputs, called, warn)
    if frame.height == 0:
        raise InputError(f"{called}: has no run", "write one line for each")
    refusals = wrong_types(frame, (*inputs, *SPEEDS, MEMORY, KIND), (RUN, *_TEXTS))
    if refusals:
        raise InputError.from_refusals(refusals, called)
    return frame


def _check_columns(
    columns: Sequence[str], inputs: Sequence[str], path: str, warn: Callable[[str], None]
) -> None:
    known = (*inputs, *SPEEDS, MEMORY, KIND, RUN, *_TEXTS)
    near = _misspelt(columns, known)
    if near:
        lines = [f"{path}: column `{name}` is not read; did you mean `{n}`?" for name, n in near]
        raise InputError("\n".join(lines), "rename it, or choose a name that resembles no column")
    if not any(name in inputs for name in columns):
        raise InputError(
            f"{path}: has no column of a layout", f"known: {', '.join(inputs[:12])} ..."
        )
    has_speed = any(name in columns for name in SPEEDS)
    missing = [
        name for name in NEEDED if name not in columns and not (name == SECONDS and has_speed)
    ]
    if missing:
        lines = [f"{path}: has no column `{name}`" for name in missing]
        raise InputError("\n".join(lines), "; ".join(NEEDED[name] for name in missing))
    others = [name for name in columns if name not in known]
    if others:
        warn(f"{path}: not read: {', '.join(f'`{name}`' for name in others)}")


def _misspelt(columns: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Return unknown columns that may mean a missing one: misspelt, or a heading (TP)."""
    near = likely_misspelt(columns, known)
    for name in columns:
        heading = None if name in known else column_headed(name)
        if heading is not None:
            near.setdefault(name, heading)
    return [(name, n) for name, n in near.items() if n in known and n not in columns]


def _names(frame: pl.DataFrame) -> tuple[list[str], list[Refusal]]:
    """Return the runs' names, by default their rows; a name given twice is refused."""
    if RUN not in frame.columns:
        return [f"row {number}" for number in range(1, frame.height + 1)], []
    texts = frame[RUN].cast(pl.String).str.strip_chars().to_list()
    refusals = []
    seen: set[str] = set()
    for row, text in enumerate(texts):
        if not text:
            refusals.append(Refusal(RUN, None, "is missing", "name every run, or none", row))
        elif text in seen:
            hint = "runs of one file have different names"
            refusals.append(Refusal(RUN, text, "is given twice", hint, row))
        seen.add(text)
    return [text or "" for text in texts], [*refusals, *control_characters(RUN, texts)]


def _read_memory(frame: pl.DataFrame) -> tuple[Array, list[Refusal]]:
    """Return the measured memory, NaN where it is missing."""
    if MEMORY not in frame.columns:
        return np.full(frame.height, np.nan), []
    given = stripped(frame[MEMORY])
    numbers = given.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
    is_positive = np.isfinite(numbers) & (numbers > 0)
    hint = "give it in bytes, or leave it empty"
    refused = np.flatnonzero(~is_positive & ~given.is_null().to_numpy()).tolist()
    reason = "must be a positive number"
    return numbers, [Refusal(MEMORY, given[row], reason, hint, row) for row in refused]


def _kinds(frame: pl.DataFrame) -> list[str | None]:
    if KIND not in frame.columns:
        return [None] * frame.height
    return stripped(frame[KIND]).to_list()


def _unknown_kinds(frame: pl.DataFrame) -> list[Refusal]:
    return [
        Refusal(KIND, kind, "is unknown", f"use {', '.join(MEMORY_KINDS)}", row)
        for row, kind in enumerate(_kinds(frame))
        if kind is not None and kind not in MEMORY_KINDS
    ]


def _missing_cells(frame: pl.DataFrame) -> list[Refusal]:
    return [
        Refusal(name, None, "is missing", hint, row)
        for name, hint in NEEDED.items()
        if name != SECONDS  # `read_speeds` refuses it
        for row in stripped(frame[name]).is_null().arg_true()
    ]


def _impossible(
    resolved: Resolved, speeds: Speeds, steps: MeasuredSteps, memories: Array
) -> list[Refusal]:
    """Return a refusal for each step faster than its GPUs' peak, and each impossible memory."""
    values, estimator = resolved.good, resolved.estimator
    if not values:
        return []
    rows = np.flatnonzero(resolved.is_good)
    seconds, memory = steps.seconds[rows], memories[rows]
    unknown = np.full(len(rows), np.nan)
    with np.errstate(all="ignore"):
        least, flops = estimator.step.least_seconds(values), estimator.step.least_flops(values)
        peak = estimator.step.peak_flops_per_second(values)
        capacity = values.get("hbm_bytes", unknown)
        is_too_fast, is_tiny = seconds < least, memory < LEAST_BYTES
        is_huge = memory > capacity * BINARY_SLACK
    refusals = [
        Refusal(
            speeds.columns[row],
            _plain(speeds.values[row]),
            f"{_means(speeds.columns[row], seconds[at])} less than the {least[at]:.3g} s that "
            f"{flops[at]:.3g} FLOPs of the step take at the peak of {values['num_gpus'][at]:,} "
            f"GPUs, {peak[at] / 1e12:,.1f} TFLOP/s each",
            TOO_FAST[speeds.columns[row]],
            row,
        )
        for at in np.flatnonzero(is_too_fast)
        for row in [int(rows[at])]
    ]
    for at in np.flatnonzero(is_tiny | is_huge):
        number, row = _plain(memory[at]), int(rows[at])
        if is_tiny[at]:
            reason = f"is less than {LEAST_BYTES / 1e6:g} MB"
            unit, power = ("GB", 9) if number < 1000 else ("MB", 6)
            hint = f"give it in bytes: {number:,} {unit} are {number}e{power}"
        else:
            reason = f"is more than the {capacity[at] / 1e9:,.0f} GB that a GPU has"
            hint = (
                "give the bytes of the fullest GPU, not of all; an accelerator of another size has "
                "another name, or give `hbm_bytes`"
            )
        refusals.append(Refusal(MEMORY, number, reason, hint, row))
    return refusals


def _means(name: str, seconds: float) -> str:
    return "is" if name == SECONDS else f"means a step of {seconds:.3g} s,"


def _plain(number: float) -> int | float:
    return int(number) if float(number).is_integer() else float(number)  # not infinity


def _places(source: Path | pl.DataFrame, height: int) -> list[str]:
    """Return the names of rows in errors: line numbers of a CSV, else row numbers."""
    starts = []
    if isinstance(source, Path) and source.suffix.lower() == ".csv":
        before = 0
        with source.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            for _ in reader:
                starts.append(f"line {before + 1}")
                before = reader.line_num
    starts = starts[1 : height + 1]  # after the header
    return starts + [f"row {row + 1}" for row in range(len(starts), height)]


def _records(
    resolved: Resolved,
    frame: pl.DataFrame,
    names: Sequence[str],
    steps: MeasuredSteps,
    memories: Array,
) -> list[dict[str, Any]]:
    columns = resolved.columns
    stored = {name: columns[name] for name in MEASUREMENT_TABLE.columns if name in columns}
    problems = _problem_ids(resolved)
    kinds = _kinds(frame)
    memory = [None if np.isnan(size) else size for size in memories.tolist()]
    texts = {
        name: frame[name].cast(pl.String).to_list() if name in frame.columns else None
        for name in _TEXTS
    }
    texts["note"] = [
        "; ".join(filter(None, both)) or None
        for both in zip(texts["note"] or [None] * len(steps.words), steps.words, strict=True)
    ]
    return [
        {
            **record,
            "measured_row": names[row],
            "problem_id": problems[row],
            "profiled_problem_id": None,
            "measured_step_seconds": float(steps.seconds[row]),
            "measured_memory_bytes": memory[row],
            KIND: kinds[row] or ("unknown" if memory[row] else None),
            **{name: values[row] if values else None for name, values in texts.items()},
        }
        for row, record in enumerate(records(stored))
    ]


def _problem_ids(resolved: Resolved) -> list[int]:
    columns, names = resolved.columns, resolved.estimator.problem_columns
    return [Problem(values).id for values in records({name: columns[name] for name in names})]
