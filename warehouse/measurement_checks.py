"""What a file of measurements must have, and rows that no machine can have measured."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.contract import Array, Columns, Refusal
from estimators.decoder import least_flops
from estimators.training_step.estimator import with_derived
from warehouse.errors import MAX_SHOWN, InputError
from warehouse.evaluate.inputs import likely_misspelt
from warehouse.show.units import column_headed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ROW, SECONDS, MEMORY = "run", "step_seconds", "memory_bytes"
"""Columns of a file beside the layout: a run's name, its step, its memory."""

NEEDED = {
    SECONDS: "give what was measured of each run, in seconds",
    "num_gpus": "give the GPUs of each run, of all its replicas",
    "global_batch_size": "give the sequences of a step, of all replicas",
}
"""Columns that are measured or known, and never guessed."""

LONGEST_SECONDS = 1e9
"""Thirty years: more is no step."""

LEAST_BYTES = 1e6
"""Less than this is no program's memory: it was given in another unit."""

BINARY_SLACK = 1024**3 / 1e9
"""A GPU sold with 80 GB has up to 80 GiB."""


def check_columns(
    columns: Sequence[str],
    inputs: Sequence[str],
    known: Sequence[str],
    path: Path,
    warn: Callable[[str], None],
) -> None:
    """Raise `InputError` of columns that are missing, or whose names are near one that is read.

    Parameters
    ----------
    inputs, known
        What the estimator reads, and that with the columns of a run beside it.
    warn
        Called with the other columns that are not read.
    """
    near = _misspelt(columns, known)
    if near:
        lines = [f"{path}: column `{name}` is not read; did you mean `{n}`?" for name, n in near]
        raise InputError("\n".join(lines), "rename it, or call it something quite different")
    if not any(name in inputs for name in columns):
        raise InputError(
            f"{path}: has no column of a layout", f"known: {', '.join(inputs[:12])} ..."
        )
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        lines = [f"{path}: has no column `{name}`" for name in missing]
        raise InputError("\n".join(lines), "; ".join(NEEDED[name] for name in missing))
    others = [name for name in columns if name not in known]
    if others:
        warn(f"{path}: not read: {', '.join(f'`{name}`' for name in others)}")


def _misspelt(columns: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Return columns that are another, missing one misspelt, or its heading in tables: TP."""
    near = likely_misspelt(columns, known)
    for name in columns:
        heading = None if name in known else column_headed(name)
        if heading is not None:
            near.setdefault(name, heading)
    return [(name, n) for name, n in near.items() if n in known and n not in columns]


def read_measured(frame: pl.DataFrame, name: str) -> tuple[Array, list[Refusal]]:
    """Return a measured column, NaN where it is missing; only memory may be."""
    if name not in frame.columns:
        return np.full(frame.height, np.nan), []
    given = frame[name].cast(pl.String).str.strip_chars()
    given = given.set(given == "", None)
    numbers = given.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
    is_missing = given.is_null().to_numpy() & (name == MEMORY)
    is_positive = np.isfinite(numbers) & (numbers > 0)
    is_long = is_positive & (numbers > LONGEST_SECONDS) & (name == SECONDS)
    hint = {SECONDS: "give it in seconds", MEMORY: "give it in bytes, or leave it empty"}[name]
    limit = f"must be at most {LONGEST_SECONDS:,.0f} seconds"
    refusals = [
        Refusal(name, given[row], reason, hint, row)
        for rows, reason in (
            (~is_positive & ~is_missing, "must be a positive number"),
            (is_long, limit),
        )
        for row in np.flatnonzero(rows).tolist()
    ]
    return numbers, refusals


def missing_cells(columns: Columns) -> list[Refusal]:
    """Return a refusal for each run that does not say what must not be guessed."""
    return [
        Refusal(name, None, "is missing", hint, row)
        for name, hint in NEEDED.items()
        if name in columns
        for row in np.flatnonzero(np.isnan(columns[name])).tolist()
    ]


def impossible(resolved: Columns, measured: Columns) -> list[Refusal]:
    """Return a refusal for each step that no GPU can be as fast as, and each impossible memory.

    A step takes at least its least FLOPs (`counts.least_flops`) at the peak of all its GPUs.
    """
    with np.errstate(all="ignore"):
        values = with_derived(resolved)
        flops = least_flops(values)
        peak = np.where(values["is_fp8"], values["fp8_peak"], values["matrix_flops_per_second"])
        least = flops / (peak * values["num_gpus"])
        seconds, memory = measured[SECONDS], measured[MEMORY]
        most = values["hbm_bytes"] * BINARY_SLACK
        is_too_fast, is_tiny, is_huge = seconds < least, memory < LEAST_BYTES, memory > most
    found = [
        Refusal(
            SECONDS,
            _plain(seconds[row]),
            f"is less than the {least[row]:.3g} s that {flops[row]:.3g} FLOPs of the step take at "
            f"the peak of {resolved['num_gpus'][row]:,} GPUs, {peak[row] / 1e12:,.1f} TFLOP/s each",
            "give the seconds of one whole step, of all its microbatches",
            row,
        )
        for row in np.flatnonzero(is_too_fast).tolist()
    ]
    found += [
        Refusal(
            MEMORY,
            _plain(memory[row]),
            f"is less than {LEAST_BYTES / 1e6:g} MB",
            _in_bytes(_plain(memory[row])),
            row,
        )
        for row in np.flatnonzero(is_tiny).tolist()
    ]
    found += [
        Refusal(
            MEMORY,
            _plain(memory[row]),
            f"is more than the {values['hbm_bytes'][row] / 1e9:,.0f} GB that a GPU has",
            "give the bytes of the fullest GPU, not of all; an accelerator of another size has "
            "another name, or give `hbm_bytes`",
            row,
        )
        for row in np.flatnonzero(is_huge).tolist()
    ]
    return found


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else float(number)


def _in_bytes(number: float) -> str:
    unit, power = ("GB", 9) if number < 1000 else ("MB", 6)
    return f"give it in bytes: {number:,} {unit} are {number}e{power}"


def refusal_of(refusals: Sequence[Refusal], path: Path) -> InputError:
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
