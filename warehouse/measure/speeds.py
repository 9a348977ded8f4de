"""A measured step as its seconds, or as a speed that they follow from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from estimators.contract import Array, Columns, Refusal
from warehouse.evaluate.frames import stripped
from warehouse.show.formats import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.estimator import Estimator
    from warehouse.evaluate.inputs import Resolved

SECONDS, TOKENS, GPU_TOKENS = "step_seconds", "tokens_per_second", "tokens_per_second_per_gpu"
FLOPS, MFU = "model_flops_per_second_per_gpu", "mfu"
SPEEDS = (SECONDS, TOKENS, GPU_TOKENS, FLOPS, MFU)
"""Columns of which each run gives one."""

LONGEST_SECONDS = 1e9
"""Longest step: thirty years."""

LEAST_FLOPS = 1e9
"""Least plausible FLOP/s of a GPU: a smaller number is in TFLOP/s."""

HINTS = {
    SECONDS: "give it in seconds",
    TOKENS: "give the tokens of all GPUs in a second",
    GPU_TOKENS: "give the tokens of one GPU in a second",
    FLOPS: "give it in FLOP/s: 400 TFLOP/s are 400e12",
    MFU: "give it as a share of the peak rate: 40 % are 0.4",
}

TOO_FAST = {**HINTS, SECONDS: "give the seconds of one whole step, of all its microbatches"}
"""Column -> the hint where it means a step faster than the peak of its GPUs."""

OR_SPEEDS = "one of " + ", ".join(f"`{name}`" for name in SPEEDS[1:])


@dataclass(frozen=True)
class Speeds:
    """Measured speeds: the column that each run gives, and its value; a refused one is NaN.

    Columns in `unread` stand beside the seconds of some runs.
    """

    columns: list[str]
    values: Array
    unread: tuple[str, ...]


@dataclass(frozen=True)
class MeasuredSteps:
    """The seconds of each run's step, NaN where refused, and for each derived one how, in words."""

    seconds: Array
    words: list[str | None]
    refusals: list[Refusal]

    def remarks(self, names: Sequence[str]) -> list[str]:
        """Return what the seconds follow from, for the first run of each kind of speed."""
        kinds: dict[str, list[str]] = {}
        for name, words in zip(names, self.words, strict=True):
            if words is not None:
                kinds.setdefault(words.split()[0], []).append(f"{name}: {words}")
        return [
            first + (f"; {count(len(others), 'more run')} likewise" if others else "")
            for first, *others in kinds.values()
        ]


def read_speeds(frame: pl.DataFrame) -> tuple[Speeds, list[Refusal]]:
    """Return the speed of each run: its seconds, or else the one speed that it gives.

    A log often has more beside the seconds, which follows from them and is not read.
    """
    given = {name: stripped(frame[name]) for name in SPEEDS if name in frame.columns}
    numbers = {
        name: texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        for name, texts in given.items()
    }
    first = next(iter(given))
    columns, values = [first] * frame.height, np.full(frame.height, np.nan)
    refusals, unread = [], set()
    for row in range(frame.height):
        named = [name for name, texts in given.items() if texts[row] is not None]
        if not named:
            refusals.append(Refusal(first, None, _reason(first, np.nan), HINTS[first], row))
            continue
        columns[row], number = named[0], float(numbers[named[0]][row])
        if columns[row] == SECONDS:
            unread.update(named[1:])
        if len(named) > 1 and SECONDS not in named:
            reason = f"is given beside `{named[0]}`: the step follows from each of them"
            hint = "give one of them in each row"
            refusals.append(Refusal(named[1], given[named[1]][row], reason, hint, row))
        elif reason := _reason(named[0], number):
            value = given[named[0]][row]
            refusals.append(Refusal(named[0], value, reason, HINTS[named[0]], row))
        else:
            values[row] = number
    return Speeds(columns, values, tuple(name for name in SPEEDS if name in unread)), refusals


def _reason(name: str, number: float) -> str:
    """Return why a number is no such speed; empty if it is one."""
    if not (np.isfinite(number) and number > 0):
        return "must be a positive number"
    if name == SECONDS and number > LONGEST_SECONDS:
        return f"must be at most {LONGEST_SECONDS:,.0f} seconds"
    if name == MFU and number > 1:
        return "must be at most 1"
    if name == FLOPS and number < LEAST_FLOPS:
        return f"must be at least {LEAST_FLOPS:g} FLOP/s"
    return ""


def steps_of(speeds: Speeds, resolved: Resolved) -> MeasuredSteps:
    """Return the seconds of each step; rows that were refused already stay NaN."""
    seconds = np.full(len(speeds.values), np.nan)
    words: list[str | None] = [None] * len(speeds.values)
    refusals: list[Refusal] = []
    rows = np.flatnonzero(resolved.is_good)
    if not len(rows):
        return MeasuredSteps(seconds, words, refusals)
    good, estimator = resolved.good, resolved.estimator
    work = work_of_a_step(estimator, good)
    flops, least = _model_flops(estimator, good), estimator.step.least_flops(good)
    peak = estimator.step.peak_flops_per_second(good)
    for at, row in enumerate(rows.tolist()):
        name, value = speeds.columns[row], float(speeds.values[row])
        step = value if name == SECONDS else float(work[name][at]) / value
        if np.isnan(step) and not np.isnan(value):
            reason = f"needs the model FLOPs of a step, which {estimator.name} does not count"
            hint = f"give `{SECONDS}`, `{TOKENS}` or `{GPU_TOKENS}`"
            refusals.append(Refusal(name, value, reason, hint, row))
        elif name == FLOPS and value > peak[at]:
            reason = f"is above the peak of a GPU, {peak[at]:.4g} FLOP/s"
            refusals.append(Refusal(name, value, reason, HINTS[name], row))
        elif step > LONGEST_SECONDS:
            reason = f"means a step of {step:.3g} s, over {LONGEST_SECONDS:,.0f}"
            refusals.append(Refusal(name, value, reason, HINTS[name], row))
        else:
            seconds[row] = step
            if name != SECONDS and not np.isnan(value):
                figures = float(flops[at]), float(least[at]), float(peak[at])
                words[row] = _in_words(name, value, step, float(work[TOKENS][at]), figures)
    return MeasuredSteps(seconds, words, refusals)


def work_of_a_step(estimator: Estimator, columns: Columns) -> dict[str, Array]:
    """Return speed -> the work of a step of each row in its unit: a step takes work / speed.

    FLOPs are the model FLOPs that `mfu` of estimates counts: forward and backward, nothing again,
    with the whole square of attention scores. They are NaN where an estimator counts none.
    """
    gpus = np.asarray(columns["num_gpus"], dtype=np.float64)
    sequences = np.asarray(columns["global_batch_size"], dtype=np.float64)
    tokens = sequences * columns.get("seq_len", np.full(len(gpus), np.nan))
    flops = _model_flops(estimator, columns) / gpus
    return {
        TOKENS: tokens,
        GPU_TOKENS: tokens / gpus,
        FLOPS: flops,
        MFU: flops / estimator.step.peak_flops_per_second(columns),
    }


def _model_flops(estimator: Estimator, columns: Columns) -> Array:
    counted = estimator.step.cell_figures.get("model_flops")
    unknown = np.full(len(columns["num_gpus"]), np.nan)
    return unknown if counted is None else np.asarray(counted(columns)) + np.zeros(len(unknown))


def _in_words(
    name: str, value: float, seconds: float, tokens: float, figures: tuple[float, float, float]
) -> str:
    """Return what seconds follow from: tokens of a step, or the model FLOPs that were assumed."""
    flops, least, peak = figures
    given = {
        TOKENS: f"{TOKENS} {value:,.6g}",
        GPU_TOKENS: f"{GPU_TOKENS} {value:,.6g}",
        FLOPS: f"TFLOP/s/GPU {value / 1e12:,.4g}",
        MFU: f"MFU {100 * value:.4g} % of {peak / 1e12:,.4g} TFLOP/s",
    }[name]
    if name in (TOKENS, GPU_TOKENS):
        return f"{given}: {seconds:.4g} s, by {tokens:,.0f} tokens a step"
    words = f"{given}: {seconds:.4g} s, by {flops:.3g} model FLOPs a step"
    words += " with the whole attention square"
    if not np.isnan(least):
        words += f"; {seconds * least / flops:.4g} s if the program counts half of it"
    return words
