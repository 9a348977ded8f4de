"""Which columns of a table a command shows, and on which terminal."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from warehouse.cli.output import current_output, spellings_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import TextIO

    from warehouse.show.tables import Terminal

HEADLINES = (
    *("operation_seconds", "step_fraction"),
    *("step_constant", "constant", "fitted_constant_value", "fitted", "is_at_bound", "at_bound"),
    *("rank_by_time", "rank", "published_group", "published_row", "measured_row", "layout"),
    *("measured_step_seconds", "published_step_seconds", "step_seconds", "time_relative_error"),
    *("time_mean_absolute_relative_error", "time_bias", "time_max_absolute_relative_error"),
    *("inside_fraction", "time_median_absolute_relative_error"),
    *("lowest_cost_usd", "highest_cost_usd"),
    *("training_seconds", "published_training_seconds", "high_step_seconds", "low_step_seconds"),
    *("cost_usd", "cost", "fits", "basis", "usd_per_gpu_hour"),
    *("lowest_energy_kwh", "grid", "kg_co2e", "lowest_kg_co2e"),
    *("electricity_usd", "lowest_electricity_usd"),
    *("relative_error", "mean_absolute_relative_error", "bias", "reference"),
    *("left_out_mean_absolute_relative_error", "left_out_relative_error"),
    *("fitted_mean_absolute_relative_error", "untuned_mean_absolute_relative_error"),
    *("max_absolute_relative_error", "memory_relative_error"),
    *("memory_mean_absolute_relative_error", "memory_bias"),
    *("study", "num_rows", "num_rows_done", "degree", "degree_value"),
    *("model", "accelerator", "num_gpus", "global_batch_size", "seq_len"),
    *("data_parallel", "tensor_parallel", "context_parallel", "pipeline_parallel"),
    *("expert_parallel", "zero_stage", "microbatch_size"),
    *("estimator", "framework", "variant", "profile"),
    *("mfu", "memory_bytes", "tokens_per_second"),
)
"""Columns that a narrow terminal keeps, the most important first; the others follow from left to
right."""

_RANKS = ("rank_by_time", "rank")
_FIGURES = ("_seconds", "_bytes", "_error")
"""Ends of the names of results, which do not identify a row, as ranks do not."""

_NAMES = ("study",)
"""Columns of long names that differ only near their ends."""


def chosen_columns(columns: Sequence[str], headings: Sequence[str]) -> list[int]:
    """Return the indices of the columns that the user chose, in the user's order; none: all."""
    indices = (_indices(name, columns, headings) for name in current_output().chosen)
    return list(dict.fromkeys(index for of_name in indices for index in of_name))


def _indices(name: str, columns: Sequence[str], headings: Sequence[str]) -> list[int]:
    """Return the indices of the columns of this name or heading, in any case."""
    wanted = spellings_of(name)
    names = enumerate(zip(columns, headings, strict=True))
    return [index for index, pair in names if wanted & {text.casefold() for text in pair}]


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the width of the terminal behind a stream, or stdout; None if it is not a terminal."""
    if not (stream or sys.stdout).isatty():
        return None
    from shutil import get_terminal_size

    fallback = (80, 24)
    with suppress(OSError):  # stdout, which Python asks first, may be a file
        columns, lines = os.get_terminal_size((stream or sys.stdout).fileno())
        fallback = (columns or fallback[0], lines or fallback[1])
    return get_terminal_size(fallback).columns


def shown_width() -> int | None:
    """Return the width to which output on stdout is fitted; None if nothing is cut."""
    output = current_output()
    return None if output.wide or output.chosen else terminal_width()


def fitted(text: str, width: int | None) -> str:
    """Return lines broken between words so that they fit a terminal; None: nothing is broken.

    Further lines are indented as the words after a label. A line with a command stays whole, so
    that it can be copied.
    """
    if width is None or all(len(line) <= width for line in text.splitlines()):
        return text
    from warehouse.show.formats import wrapped

    lines = []
    for line in text.splitlines():
        label = re.match(r" +(\S+ {2,})?", line)
        indent = " " * len(label.group()) if label else ""
        is_whole = len(line) <= width or "warehouse " in line
        lines += [line] if is_whole else wrapped(line, width, further=indent)
    return "\n".join(lines)


def terminal(
    columns: Sequence[str],
    headings: Sequence[str] | None = None,
    rows: Sequence[Sequence[object]] = (),
    named: Collection[str] = (),
) -> Terminal | None:
    """Return the terminal to which a table is fitted; None if nothing is cut.

    A table for people has `headings`, and `HEADLINES` orders its columns. `rows` has the values
    in base units. Columns that a query has `named` are always shown, as are chosen ones.
    """
    from warehouse.show.tables import Terminal
    from warehouse.show.values import by_column, kinds_of

    width = terminal_width()
    if width is None or current_output().wide:
        return None
    has_styles = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = dict(zip(columns, headings or columns, strict=True))
    first = [shown[name] for name in HEADLINES if name in shown] if headings else []
    values = by_column(rows, len(columns))
    figures = [
        heading
        for name, heading, column in zip(columns, headings or columns, values, strict=True)
        if name in _RANKS or name.endswith(_FIGURES) or float in kinds_of(column)
    ]
    names = [shown[name] for name in _NAMES if name in shown]
    kept = [*shown.values()] if current_output().chosen else named
    return Terminal(width, has_styles, first, figures, names, kept, wraps=headings is not None)
