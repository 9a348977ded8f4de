"""What pictures share: titles, axes, colours, lines of systems, words for figures."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot.theme import DASHES, HEADING_SIZE, HEIGHT, LABEL_SIZE, SHAPES, WIDTH
from warehouse.show.formats import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from altair.typing import ChartType

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


# ---- titles ----


def headed(finding: str, shown: str, width: int = WIDTH) -> alt.TitleParams:
    """Return a title with a picture's finding, and a subtitle on its content and conditions.

    Long lines are broken at `width` pixels.
    """
    return alt.TitleParams(
        text=wrapped(finding, max(20, int(width / (HEADING_SIZE * _LETTER)))),
        subtitle=wrapped(shown, max(20, int(width / (LABEL_SIZE * _LETTER * 0.93)))),
    )


def titled(
    chart: ChartType,
    finding: str,
    shown: str,
    *,
    width: int = WIDTH,
    height: int = HEIGHT,
    margin: int = 0,
) -> ChartType:
    """Return a picture of one panel. Its title is `margin` pixels wider than the panel."""
    picture: ChartType = chart.properties(
        title=headed(finding, shown, width + margin), width=width, height=height
    )
    return picture


def estimate_words(frame: pl.DataFrame) -> str:
    """Return the estimator, variant and assumptions of the rows, as the end of a subtitle."""
    said = f"estimator {frame['estimator'][0]}, {frame['variant'][0]}"
    assumed = frame["assumptions"][0] if "assumptions" in frame.columns else ""
    return f"{said}; {assumed}" if assumed else said


# ---- axes ----


def logarithmic(
    values: Sequence[float],
    title: str,
    *,
    room: float = 1.1,
    base: float = 10,
    ticks: Sequence[float] | None = None,
    **axis: Any,
) -> dict[str, Any]:
    """Return scale and axis from a little below the least value to a little above the greatest.

    Parameters
    ----------
    room
        The factor between the end of the scale and the value.
    ticks
        By default round numbers.
    """
    low, high = min(values) / room, max(values) * room
    ticks = log_ticks(low, high) if ticks is None else ticks
    return {
        "scale": alt.Scale(type="log", base=base, domain=[low, high], nice=False),
        "axis": alt.Axis(title=title, values=ticks, **{"format": ",~r"} | axis),
    }


def doubling(
    counts: Sequence[int], title: str, *, ticks: Sequence[int] | None = None, every: int = 1
) -> dict[str, Any]:
    """Return scale and axis of counts that double: a tick at every count, or at every n-th."""
    ticks = sorted(set(counts if ticks is None else ticks))[::every]
    return logarithmic(counts, title, base=2, ticks=ticks, format=",d", grid=True)


def change_axis(title: str, **given: Any) -> alt.Axis:
    """Return the axis of a relative change: signed percentages, and a plain 0%."""
    label = "datum.value == 0 ? '0%' : format(datum.value, '+.1~%')"
    return alt.Axis(title=title, labelExpr=label, grid=True, **given)


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
        near = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        ticks = [tick for tick in near if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) > 2:
            break
    return ticks[:: math.ceil(len(ticks) / MOST_TICKS) or 1] or sorted({low, high})


def apart(values: Sequence[float], ratio: float = 1.4) -> list[float]:
    """Return values of a logarithmic axis whose labels do not overlap, from the least on.

    >>> apart([5, 10, 12.5, 25])
    [5, 10, 25]
    """
    ticks: list[float] = []
    for value in values:
        if not ticks or value >= ticks[-1] * ratio:
            ticks.append(value)
    return ticks


# ---- colours, shapes and lines ----


def colours(column: str, names: Sequence[str], theme: Theme, **given: Any) -> alt.Color:
    """Return a colour of the palette for each name of a category, in their order."""
    scale = alt.Scale(domain=list(names), range=list(theme.palette[: len(names)]))
    return alt.Color(f"{column}:N", scale=scale, **given)


def shapes(column: str, names: Sequence[str], **given: Any) -> alt.Shape:
    """Return a shape for each name of a category; they repeat where there are more names."""
    scale = alt.Scale(domain=list(names), range=_repeated(SHAPES, len(names)))
    return alt.Shape(f"{column}:N", scale=scale, **given)


def _repeated(values: Sequence[Any], count: int) -> list[Any]:
    return [values[n % len(values)] for n in range(count)]


def coloured_counts(
    frame: pl.DataFrame, column: str, title: str, theme: Theme, few: int = 0
) -> tuple[pl.DataFrame, alt.Color]:
    """Return the rows with a count as text, in a column named like the legend, and its colours.

    They are those of the palette for up to `few` counts, else from light to dark.
    """
    counts = sorted(set(frame[column].to_list()))
    names = [f"{count:,}" for count in counts]
    name = title.lower()
    texts = pl.col(column).replace_strict(dict(zip(counts, names, strict=True))).alias(name)
    palette = theme.palette[: len(names)] if len(names) <= few else theme.ramp(len(names))
    scale = alt.Scale(domain=names, range=list(palette))
    return frame.with_columns(texts), alt.Color(f"{name}:N", scale=scale, title=title)


def lines_of_domains(
    frame: pl.DataFrame, x: alt.X, y: alt.Y, color: alt.Color, *, has_dashes: bool = True
) -> list[alt.Chart]:
    """Return lines with points; each of several NVLink domains has its dashes and shape."""
    names = [str(size) for size in sorted(set(frame["nvlink_size"].drop_nulls().to_list()))]
    rows = frame.with_columns(domain=pl.col("nvlink_size").cast(pl.String))
    base = alt.Chart(rows).encode(x=x, y=y, color=color)
    if len(names) < 2 or not has_dashes:
        return [base.mark_line(point=True)]
    # with an explicit domain, as for shapes, Vega-Lite would hide both legends
    dashes = alt.Scale(range=_repeated([list(dash) for dash in DASHES], len(names)))
    legend = alt.Legend(title="NVLink domain")
    return [
        base.mark_line().encode(
            strokeDash=alt.StrokeDash("domain:N", sort=names, scale=dashes, legend=None)
        ),
        base.mark_point(opacity=1).encode(shape=shapes("domain", names, legend=legend)),
    ]


def level(value: float, scale: alt.Scale, axis: alt.Axis) -> alt.Chart:
    """Return a dotted line across the picture at a value of its vertical axis."""
    mark = alt.Chart(pl.DataFrame({"level": [value]})).mark_rule(strokeDash=[2, 4], strokeWidth=1.3)
    line: alt.Chart = mark.encode(y=alt.Y("level:Q", scale=scale, axis=axis))
    return line


# ---- figures ----


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


def listed(words: Iterable[object]) -> str:
    """Return words with commas, and "and" before the last.

    >>> listed(["A100", "H200", "B200"])
    'A100, H200 and B200'
    """
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def span(values: pl.Series, form: str) -> str:
    """Return the least and the greatest number of a column, or the one that they both are."""
    low, high = f"{least(values):{form}}", f"{most(values):{form}}"
    return low if low == high else f"{low} to {high}"


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
