"""Seconds of a step from the log of a run, or from its metrics as CSV.

The rule: of each start of the program, lines with any of its first `WARM_UP` iterations are left
out, then those whose seconds are more than `FAR` times the scaled median absolute deviation, and
more than `CLOSE` of the median, from the median. The step is the median of the rest. A log in which
more than `MOST_FAR` of the lines are that far has two speeds, and is refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from warehouse.errors import InputError
from warehouse.show.formats import count

if TYPE_CHECKING:
    from pathlib import Path

WARM_UP = 5
"""Iterations after a start that compile, allocate and find their collectives."""

FAR = 5.0
CLOSE = 0.02
MOST_FAR = 0.25
SCALE = 1.4826
"""The median absolute deviation times this is the standard deviation of a normal distribution."""

LEAST = 3
"""Lines that a step follows from, at least."""

MAX_BYTES = 500_000_000
"""Largest log."""

_LONGEST_LINE = 20_000
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)"
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MEGATRON = re.compile(
    rf"iteration\s+(\d+)\s*/\s*\d+ \|.*?elapsed time per iteration \(ms\):\s*{_NUMBER}"
)
_BATCH = re.compile(r"global[ _]batch[ _]size:\s*(\d+)")
_TITAN = re.compile(rf"(?<!validate )\bstep:\s*(\d+)\s+loss:.*?\btps:\s*{_NUMBER}")
_NEMO = re.compile(rf"train_step_timing in s[=:]\s*{_NUMBER}")
_NEMO_STEP = re.compile(rf"(?:global_step[=:]\s*{_NUMBER}|\biteration\s+(\d+)\s*/)")
_WORLD = re.compile(r"using world size: (\d+),")

_STEP_COLUMNS = ("step", "_step", "global_step", "trainer/global_step", "iteration")
_SECONDS_COLUMNS = {
    "iteration-time": 1.0,
    "time_metrics/end_to_end(s)": 1.0,
    "train_step_timing in s": 1.0,
    "elapsed time per iteration (ms)": 1e-3,
}
"""Metric -> the seconds of its unit."""

_TOKENS_COLUMN = "throughput(tps)"
_CLOCK_COLUMNS = ("wall time", "_timestamp", "_runtime")


class LoggedIteration(NamedTuple):
    """A line of a log: its number, the iteration that it ends with, seconds, and the batch."""

    line: int
    iteration: int
    seconds: float
    batch: int | None = None


@dataclass(frozen=True)
class LoggedStep:
    """The step of a log: its median, the tenth and the ninetieth of a hundred, both in words."""

    seconds: float
    low: float
    high: float
    note: str


def read_log(path: Path, columns: Mapping[str, str]) -> LoggedStep:
    """Return the seconds of a step in a log.

    Parameters
    ----------
    columns
        Those of the run, in text: GPUs, batch and tokens of a sequence. A program that logs tokens
        a second of a GPU needs them; a log of another batch or other GPUs is refused.
    """
    file = str(path)
    numbers = {name: int(text) for name, text in columns.items() if text.isdecimal()}
    batch, gpus = numbers.get("global_batch_size"), numbers.get("num_gpus")
    tokens = batch * numbers["seq_len"] if batch and "seq_len" in numbers else None
    per_gpu = tokens / gpus if tokens and gpus else None
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputError(f"{file}: is no file", "name the log of a run")
        if size > MAX_BYTES:
            raise InputError(f"{file}: has more than {MAX_BYTES / 1e6:g} MB", "cut it to one run")
        with path.open(encoding="utf-8", errors="replace", newline=None) as opened:
            if path.suffix.lower() == ".csv":
                entries = [*_of_csv(opened, file, per_gpu)]
            else:
                entries = [*_of_lines(opened, file, per_gpu, gpus)]
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file", "name the log of a run") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    return _step_of(entries, file, batch)


# ---- lines ----


def _of_lines(
    lines: Iterable[str], file: str, per_gpu: float | None, gpus: int | None
) -> Iterator[LoggedIteration]:
    for number, raw in enumerate(lines, 1):
        line = _COLOR.sub("", raw[:_LONGEST_LINE])
        if (world := _WORLD.search(line)) and gpus and int(world[1]) != gpus:
            reason = f"line {number}: ran on {world[1]} GPUs, the run has {gpus}"
            raise InputError(f"{file}: {reason}", f"give --gpus {world[1]}, or the log of this run")
        batch = _BATCH.search(line)
        found = None if batch is None else int(batch[1])
        if match := _MEGATRON.search(line):
            yield LoggedIteration(number, int(match[1]), _number(match[2]) / 1e3, found)
        elif match := _TITAN.search(line):
            yield LoggedIteration(
                number, int(match[1]), _by_tokens(_number(match[2]), per_gpu, file), found
            )
        elif (match := _NEMO.search(line)) and (step := _NEMO_STEP.search(line)):
            # both count from zero
            iteration = int(_number(step[1] or step[2])) + 1
            yield LoggedIteration(number, iteration, _number(match[1]), found)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _by_tokens(rate: float, per_gpu: float | None, file: str) -> float:
    if per_gpu is None:
        reason = "has tokens a second, and the run no batch, sequence or GPUs to divide by"
        raise InputError(f"{file}: {reason}", "give --batch, --seq-len and --gpus besides")
    return per_gpu / rate if rate > 0 else float("inf")


# ---- metrics ----


def _of_csv(lines: Iterable[str], file: str, per_gpu: float | None) -> Iterator[LoggedIteration]:
    """Yield the rows of an export of W&B or TensorBoard.

    A column of seconds counts, else one of tokens a second, else the clock between rows.
    """
    rows = csv.reader(line.replace("\0", "") for line in lines)
    try:
        header = [name.strip() for name in next(rows, [])]
        plain = [each.rpartition(" - ")[2].lower() for each in header]  # W&B: run - name
        step = next((plain.index(each) for each in _STEP_COLUMNS if each in plain), None)
        timed = (*_SECONDS_COLUMNS, _TOKENS_COLUMN, *_CLOCK_COLUMNS)
        name = next((each for each in timed if each in plain), "")
        if plain.count(name) > 1:
            reason = f"has {name} of {plain.count(name)} runs"
            raise InputError(f"{file}: {reason}", "keep the column of one run")
        if step is None or not name:
            reason = "has no column of steps with one of seconds"
            hint = f"known: {', '.join(_STEP_COLUMNS)}; {', '.join(timed)}"
            raise InputError(f"{file}: {reason}", hint)
        at = plain.index(name)
        before: tuple[float, float] | None = None
        for row in rows:
            try:
                iteration, value = float(row[step]), float(row[at])
            except (ValueError, IndexError):  # a metric that is not logged in this step
                continue
            if name == _TOKENS_COLUMN:
                yield LoggedIteration(
                    rows.line_num, int(iteration), _by_tokens(value, per_gpu, file)
                )
            elif name in _SECONDS_COLUMNS:
                yield LoggedIteration(rows.line_num, int(iteration), value * _SECONDS_COLUMNS[name])
            else:
                if before is not None and iteration > before[0]:
                    seconds = (value - before[1]) / (iteration - before[0])
                    yield LoggedIteration(rows.line_num, int(iteration), seconds)
                before = iteration, value
    except csv.Error as error:
        raise InputError(f"{file}: line {rows.line_num}: is not valid CSV: {error}") from None


# ---- the step ----


def _step_of(entries: Sequence[LoggedIteration], file: str, batch: int | None) -> LoggedStep:
    starts = _starts(entries, file)
    words = [f"{count(len(entries), 'line')} of iterations"]
    if len(starts) > 1:
        lines = ", ".join(str(each[0].line) for each in starts[1:])
        words.append(f"the run began again at line {lines}")
    kept: dict[int, LoggedIteration] = {}
    cold = 0
    for part in starts:
        interval = part[1].iteration - part[0].iteration if len(part) > 1 else 1
        previous = begin = max(part[0].iteration - max(interval, 1), 0)
        for entry in part:
            if previous < begin + WARM_UP:
                cold += 1
            else:
                kept[entry.iteration] = entry
            previous = entry.iteration
    again = len(entries) - cold - len(kept)
    words += [f"{again} printed or run again dropped"] if again else []
    words.append(f"{cold} within the first {WARM_UP} iterations dropped")
    chosen, dropped = _of_batch([*kept.values()], file, batch)
    words += [dropped] if dropped else []
    usual, far = _usual([entry.seconds for entry in chosen], file, words)
    words.append(f"{far} far from the median dropped")
    low, *_, high = quantiles(usual, n=10, method="inclusive")
    words.append(f"{median(usual):.4g} s is the median of {len(usual)}")
    words[-1] += f", {low:.4g} to {high:.4g} s the middle four fifths"
    return LoggedStep(median(usual), low, high, "; ".join(words))


def _starts(entries: Sequence[LoggedIteration], file: str) -> list[list[LoggedIteration]]:
    """Return the lines of each start of the program; a second run is refused."""
    if not entries:
        hint = "known: lines of Megatron-LM, torchtitan and NeMo, exports of W&B and TensorBoard"
        raise InputError(f"{file}: has no line of an iteration", hint)
    parts = [[entries[0]]]
    for entry in entries[1:]:
        last = parts[-1][-1]
        if entry.iteration == last.iteration:  # another rank prints the same
            continue
        if entry.iteration > last.iteration:
            parts[-1].append(entry)
        elif entry.iteration <= entries[0].iteration:
            reason = f"line {entry.line}: a second run begins, at iteration {entry.iteration}"
            raise InputError(f"{file}: {reason}", "keep the lines of one run")
        else:
            parts.append([entry])
    return parts


def _of_batch(
    entries: Sequence[LoggedIteration], file: str, batch: int | None
) -> tuple[Sequence[LoggedIteration], str]:
    """Return the lines of the run's batch, where a log has several, and what is dropped."""
    batches = {entry.batch for entry in entries if entry.batch is not None}
    listed = ", ".join(map(str, sorted(batches)))
    if not batches or batch is None:
        if len(batches) > 1:
            raise InputError(f"{file}: has several batches: {listed}", "give --batch")
        return entries, ""
    chosen = [entry for entry in entries if entry.batch in (batch, None)]
    if not chosen:
        hint = "give the --batch whose steps are measured"
        raise InputError(f"{file}: has batches of {listed}, the run has {batch}", hint)
    others = len(entries) - len(chosen)
    return chosen, f"{others} of another batch dropped" if others else ""


def _usual(seconds: Sequence[float], file: str, words: Sequence[str]) -> tuple[list[float], int]:
    """Return the seconds near their median, and how many are not."""
    finite = [each for each in seconds if 0 < each < float("inf")]
    if len(finite) >= LEAST:
        middle = median(finite)
        spread = SCALE * median(abs(each - middle) for each in finite)
        most = max(FAR * spread, CLOSE * middle)
        usual = [each for each in finite if abs(each - middle) <= most]
        if len(usual) < (1 - MOST_FAR) * len(seconds):
            far = f"{len(seconds) - len(usual)} of {len(seconds)} lines"
            reason = f"{far} are far from the median, {middle:.4g} s: the run has several speeds"
            raise InputError(f"{file}: {reason}", "keep the lines of one speed, or give --seconds")
        if len(usual) >= LEAST:
            return usual, len(seconds) - len(usual)
    reason = f"leaves fewer than {LEAST} lines: {'; '.join(words)}"
    raise InputError(f"{file}: {reason}", "log more iterations, or give --seconds")
