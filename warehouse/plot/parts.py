"""What pictures share: titles, axes of counts, words for figures."""

from __future__ import annotations

import math
import re
import textwrap
from statistics import median
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot.theme import HEADING_SIZE, LABEL_SIZE, WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from warehouse.plot.theme import Theme

_LETTER = 0.54
"""Width of a letter on average, in sizes of its font; of the bold title, a little more."""

_STEPS = (
    *((1.0,), (1.0, 2.0, 5.0), tuple(map(float, range(1, 10)))),
    *(tuple(n / 10 for n in range(10, 100, 5)), tuple(n / 100 for n in range(100, 1000))),
)
"""Ticks in a power of ten, coarse to fine."""

MOST_TICKS = 12
"""Ticks of a logarithmic axis at most."""

STEP_PARTS = {
    "compute_seconds": "arithmetic",
    "memory_seconds": "memory",
    "tensor_comm_seconds": "tensor exchange",
    "pipeline_comm_seconds": "stage transfers",
    "data_comm_seconds": "gradient exchange",
    "bubble_seconds": "bubble",
}
"""Part of a step -> what people call it, in the order of a stack."""


_UNIT = re.compile(r"(\d) (s|h|GB|GB/s|MWh|days|times|million)\b")


def headed(finding: str, shown: str, width: int = WIDTH) -> alt.TitleParams:
    """Return a title with the picture's finding, and a subtitle on how it was made.

    Parameters
    ----------
    finding, shown
        Title and subtitle; long ones are broken into lines.
    width
        Pixels of the picture.
    """
    return alt.TitleParams(
        text=_lines(finding, width / (HEADING_SIZE * _LETTER)),
        subtitle=_lines(shown, width / (LABEL_SIZE * _LETTER * 0.93)),
    )


def _lines(text: str, letters: float) -> list[str]:
    bound = _UNIT.sub("\\1\u00a0\\2", text)  # keep a number and its unit on one line
    found = textwrap.wrap(
        bound, max(20, int(letters)), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\u00a0", " ") for line in found]


def figure(value: float, digits: int = 2) -> str:
    """Return a number to `digits` significant digits, with commas between thousands.

    >>> figure(3.14159), figure(1732.4), figure(0.0421)
    ('3.1', '1,732', '0.042')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def longer(ratio: float) -> str:
    """Return how much longer something takes, as a multiple or, below two, in percent.

    >>> longer(1.034), longer(2.51)
    ('3% longer', '2.5 times as long')
    """
    return f"{figure(ratio)} times as long" if ratio >= 2 else f"{ratio - 1:.0%} longer"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s for more than one.

    >>> counted(1, "measured step"), counted(1200, "step")
    ('1 measured step', '1,200 steps')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def one(frame: pl.DataFrame, column: str) -> str:
    """Return the one value of a column as text."""
    return str(frame[column][0])


def listed(words: Iterable[object]) -> str:
    """Return words with commas, and "and" before the last.

    >>> listed(["A100", "H200", "B200"])
    'A100, H200 and B200'
    """
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def system_of(row: Mapping[str, Any]) -> str:
    """Return the accelerator of a row with the size of its NVLink domain, if it has one."""
    domain = f" in NVLink domains of {row['nvlink_size']}" if row["nvlink_size"] else ""
    return f"{row['accelerator']}{domain}"


def hues(names: Sequence[str], theme: Theme) -> alt.Scale:
    """Return the scale of a category: a colour of the palette for each name, in their order."""
    return alt.Scale(domain=list(names), range=list(theme.palette[: len(names)]))


def counts_axis(values: Sequence[int], title: str, every: int = 1) -> alt.Axis:
    """Return the axis of counts that double: a plain tick at each of them."""
    return alt.Axis(title=title, values=sorted(set(values))[::every], format=",d", grid=True)


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: round numbers between two values, some three or more.

    Where no round number lies between them, the values are the ticks.

    >>> log_ticks(0.5, 30)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    >>> log_ticks(210, 520)
    [300.0, 400.0, 500.0]
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: list[float] = []
    for steps in _STEPS[0 if last - first > 3 else 1 :]:
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        ticks = [tick for tick in found if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) > 2:
            break
    return ticks[:: math.ceil(len(ticks) / MOST_TICKS) or 1] or sorted({low, high})


def change_axis(title: str, **given: Any) -> alt.Axis:
    """Return the axis of a relative change: signed percentages, and a plain 0%."""
    label = "datum.value == 0 ? '0%' : format(datum.value, '+.1~%')"
    return alt.Axis(title=title, labelExpr=label, grid=True, **given)


def apart(values: Sequence[float], ratio: float = 1.4) -> list[float]:
    """Return values of a logarithmic axis whose labels do not overlap, from the least on.

    >>> apart([5, 10, 12.5, 25])
    [5, 10, 25]
    """
    kept: list[float] = []
    for value in values:
        if not kept or value >= kept[-1] * ratio:
            kept.append(value)
    return kept


def log_scale(low: float, high: float, room: float = 1.1, base: float = 10) -> alt.Scale:
    """Return a logarithmic scale from a little below the least to a little above the most."""
    return alt.Scale(type="log", base=base, domain=[low / room, high * room], nice=False)


def estimate_words(frame: pl.DataFrame) -> str:
    """Return the estimator, variant and assumptions of the rows, as the end of a subtitle."""
    said = f"estimator {frame['estimator'][0]}, {frame['variant'][0]}"
    assumed = frame["assumptions"][0] if "assumptions" in frame.columns else ""
    return f"{said}; {assumed}" if assumed else said


def note(
    row: pl.DataFrame, x: alt.X, y: alt.Y, text: str, theme: Theme, dx: int = 0, dy: int = 0
) -> alt.Chart:
    """Return faint words that end `dx`, `dy` pixels from the one point of a frame."""
    mark = alt.Chart(row).mark_text(align="right", dx=dx, dy=dy, color=theme.faint, text=text)
    found: alt.Chart = mark.encode(x=x, y=y)
    return found


def level(at: float, scale: alt.Scale, axis: alt.Axis) -> alt.Chart:
    """Return a dotted line across the picture at a value of its vertical axis."""
    mark = alt.Chart(pl.DataFrame({"level": [at]})).mark_rule(strokeDash=[2, 4], strokeWidth=1.3)
    found: alt.Chart = mark.encode(y=alt.Y("level:Q", scale=scale, axis=axis))
    return found


def numbers(values: pl.Series) -> list[float]:
    """Return the numbers of a column, without those that are missing."""
    return [float(value) for value in values.drop_nulls().to_list()]


def least(values: pl.Series) -> float:
    """Return the least number of a column."""
    return min(numbers(values))


def most(values: pl.Series) -> float:
    """Return the greatest number of a column."""
    return max(numbers(values))


def middle(values: pl.Series) -> float:
    """Return the median of a column."""
    return median(numbers(values))
