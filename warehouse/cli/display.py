"""Which columns of a table a command shows, and on which terminal."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from warehouse.show.tables import Terminal

HEADLINES = (
    *("step_constant", "constant", "fitted_constant_value", "fitted", "is_at_bound", "at_bound"),
    *("rank_by_time", "rank", "published_group", "published_row", "measured_row", "layout"),
    *("measured_step_seconds", "published_step_seconds", "step_seconds", "time_relative_error"),
    *("time_mean_absolute_relative_error", "time_bias", "time_max_absolute_relative_error"),
    *("inside_fraction", "time_median_absolute_relative_error"),
    *("lowest_cost_usd", "highest_cost_usd"),
    *("training_seconds", "published_training_seconds", "high_step_seconds", "low_step_seconds"),
    *("cost_usd", "basis", "usd_per_gpu_hour"),
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


@dataclass
class Display:
    """The user's choice of columns, by name or heading; empty: all.

    Attributes
    ----------
    is_wide
        Show every column, however long the lines are.
    ids_as_text
        Write ids and large whole numbers as texts in JSON.
    found, known
        The chosen columns that some table had, and the columns of all tables in order.
    """

    is_wide: bool = False
    columns: Sequence[str] = ()
    ids_as_text: bool = False
    found: set[str] = field(default_factory=set)
    known: dict[str, None] = field(default_factory=dict)


_HELD_BYTES = 1 << 24
"""Size of a text up to which it is held in memory."""

_DISPLAY: ContextVar[Display] = ContextVar("display")


@contextmanager
def displayed(
    *, is_wide: bool, columns: Sequence[str], ids_as_text: bool = False
) -> Iterator[None]:
    """Make the tables of the block show only the columns that the user chose.

    A column that no table of the block had is refused.
    """
    display = Display(is_wide, columns, ids_as_text)
    token = _DISPLAY.set(display)
    try:
        yield
    finally:
        _DISPLAY.reset(token)
    missing = [name for name in columns if name not in display.found]
    if missing:
        from warehouse.errors import UsageError

        raise UsageError(
            f"`--columns` {', '.join(missing)}: the result has no such column",
            f"use {', '.join(display.known)}",
        )


@contextmanager
def held_back() -> Iterator[None]:
    """Write what the block prints once it has ended, and nothing if it fails.

    Only after the last table is it known that none has a chosen column.
    """
    import shutil
    import tempfile

    class Held(tempfile.SpooledTemporaryFile[str]):
        """A file that is as wide as stdout."""

        def isatty(self) -> bool:
            return stdout.isatty()

        def fileno(self) -> int:
            return stdout.fileno()

    stdout = sys.stdout
    with Held(_HELD_BYTES, "w+", encoding="utf-8", newline="") as held:
        with redirect_stdout(held):
            yield
        held.seek(0)
        shutil.copyfileobj(held, stdout)


def has_text_ids() -> bool:
    """Return whether the user wants ids as texts in JSON."""
    return _DISPLAY.get(Display()).ids_as_text


def chosen_places(
    columns: Sequence[str], headed: Callable[[], Sequence[str]] | None = None
) -> list[int] | None:
    """Return the places of the columns that the user chose, in the user's order; None: none.

    `headed` returns the headings of the columns, where they are not the names.
    """
    display = _DISPLAY.get(Display())
    if not display.columns:
        return None
    from warehouse.show.units import column_headed

    display.known |= dict.fromkeys(columns)
    headings = columns if headed is None else headed()
    places: list[int] = []
    for name in display.columns:
        wanted = {name.casefold(), (column_headed(name) or name).casefold()}
        found = [
            place
            for place, known in enumerate(zip(columns, headings, strict=True))
            if wanted & {text.casefold() for text in known}
        ]
        if found:
            display.found.add(name)
        places += found
    return list(dict.fromkeys(places)) or None


def refuse_choice(columns: Sequence[str] = ()) -> None:
    """Raise `UsageError` if the user chose columns, now or for the tables that are displayed."""
    if columns or _DISPLAY.get(Display()).columns:
        from warehouse.errors import UsageError

        raise UsageError(
            "`--columns` chooses columns of tables, and this JSON is a document",
            "leave --columns out",
        )


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
    display = _DISPLAY.get(Display())
    return None if display.is_wide or display.columns else terminal_width()


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
) -> Terminal | None:
    """Return the terminal to which a table is fitted; None if nothing is cut.

    `headings` are those of a table for people, whose columns `HEADLINES` orders. `rows` has the
    values before they are written as people read them.
    """
    from warehouse.show.tables import Terminal

    width = terminal_width()
    if width is None or _DISPLAY.get(Display()).is_wide:
        return None
    has_styles = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = dict(zip(columns, columns if headings is None else headings, strict=False))
    first = [] if headings is None else [shown[name] for name in HEADLINES if name in shown]
    figures = [
        heading
        for at, (name, heading) in enumerate(zip(columns, headings or columns, strict=True))
        if name in _RANKS
        or name.endswith(_FIGURES)
        or any(isinstance(row[at], float) for row in rows)
    ]
    return Terminal(width, has_styles, first, figures, [shown[n] for n in _NAMES if n in shown])
