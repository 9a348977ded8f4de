"""A quantity over two others: coloured cells of a grid, with real accelerators marked on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import RAMP
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from altair.typing import ChartType

WIDTH, HEIGHT = 620, 420
FIGURE, LETTER, LINE = 28, 8, 16
"""Pixels around a figure, of a letter of a name, and between the middles of two lines."""

MOST_WRITTEN = 80
"""Most cells of a grid that shows the figure of each."""


@dataclass(frozen=True)
class Side:
    """One axis of a grid.

    Attributes
    ----------
    column, title
        Column of the frame, and title of the axis.
    unit
        Base units of one unit of the axis.
    """

    column: str
    title: str
    unit: float


def cells(frame: pl.DataFrame, x: Side, y: Side, title: str) -> ChartType:
    """Return the cells of `training_days` over two columns.

    Parameters
    ----------
    title
        Title of the legend.
    """
    rows = _edged(_edged(frame, x, "x"), y, "y")
    widths = [
        alt.Scale(
            domain=[parts.least(rows[f"{side}_low"]), parts.most(rows[f"{side}_high"])], nice=False
        )
        for side in ("x", "y")
    ]
    base = alt.Chart(rows.drop("accelerators", strict=False))
    limits = contours(rows["training_days"].to_list())
    marked = marks(frame, x, y)
    boxes = base.mark_rect().encode(
        x=alt.X("x_low:Q", scale=widths[0], title=x.title),
        x2="x_high:Q",
        y=alt.Y("y_low:Q", scale=widths[1], title=y.title),
        y2="y_high:Q",
        color=alt.Color(
            "training_days:Q",
            title=title,
            scale=alt.Scale(type="threshold", domain=limits, range=list(RAMP)),
            legend=alt.Legend(format=".3~r", gradientLength=HEIGHT - 60),
        ),
    )
    layers = [boxes]
    if rows.height <= MOST_WRITTEN:
        layers.append(_figures(rows, limits, marked))
    if marked:
        layers += _marked(pl.DataFrame(marked))
    found: ChartType = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return found


def contours(values: Sequence[float]) -> list[float]:
    """Return the borders between the colours of a grid: equal ratios, three digits that count.

    There are few of them, so that a border looks like a contour.
    """
    low, high = min(values), max(values)
    ratio = (high / low) ** (1 / len(RAMP))
    return [float(f"{low * ratio**step:.3g}") for step in range(1, len(RAMP))]


def _figures(
    rows: pl.DataFrame, limits: Sequence[float], marked: Sequence[Mapping[str, Any]]
) -> alt.Chart:
    """Return the figure of each cell, except cells that a mark or its name covers."""
    wide, high = (
        (parts.most(rows[f"{side}_high"]) - parts.least(rows[f"{side}_low"])) / pixels
        for side, pixels in (("x", WIDTH), ("y", HEIGHT))
    )
    covered = [
        pl.col("x").is_between(
            mark["x"] - FIGURE * wide, mark["x"] + (FIGURE + LETTER * len(mark["name"])) * wide
        )
        & (pl.col("y") - mark["y"]).abs().lt(LINE * high)
        for mark in marked
    ]
    free = rows.drop("accelerators", strict=False)
    if covered:
        free = free.filter(~pl.any_horizontal(covered))
    found: alt.Chart = (
        alt.Chart(free)
        .mark_text(fontSize=12)
        .encode(
            x="x:Q",
            y="y:Q",
            text=alt.Text("training_days:Q", format=".3~r"),
            color=alt.condition(
                f"datum.training_days > {limits[3]}", alt.value("#ffffff"), alt.value("#1a1a1a")
            ),
        )
    )
    return found


def _marked(marked: pl.DataFrame) -> list[alt.Chart]:
    points = alt.Chart(marked)
    dot = points.mark_point(
        size=110, filled=True, fill="#D55E00", stroke="#ffffff", strokeWidth=1.5, opacity=1
    )
    word: dict[str, Any] = {"fontWeight": "bold", "align": "left", "dx": 9, "fontSize": 13}
    halo = points.mark_text(
        **word, stroke="#ffffff", strokeWidth=4, strokeJoin="round", color="#ffffff"
    )
    text = points.mark_text(**word, color="#1a1a1a")
    placed = {"x": "x:Q", "y": "y:Q"}
    return [
        dot.encode(**placed),
        halo.encode(**placed, text="name:N"),
        text.encode(**placed, text="name:N"),
    ]


def _edged(frame: pl.DataFrame, side: Side, name: str) -> pl.DataFrame:
    """Return a frame with the middle and both edges of each row's cell along one axis."""
    values = sorted(set(frame[side.column].to_list()))
    middles = [(low + high) / 2 for low, high in pairwise(values)]
    if middles:
        edges = [2 * values[0] - middles[0], *middles, 2 * values[-1] - middles[-1]]
    else:
        edges = [values[0] * 0.9, values[0] * 1.1]
    edges = [edge / side.unit for edge in edges]
    low, high = (dict(zip(values, ends, strict=True)) for ends in (edges[:-1], edges[1:]))
    column = pl.col(side.column)
    return frame.with_columns(
        (column / side.unit).alias(name),
        column.replace_strict(low).alias(f"{name}_low"),
        column.replace_strict(high).alias(f"{name}_high"),
    )


def marks(frame: pl.DataFrame, x: Side, y: Side) -> list[dict[str, Any]]:
    """Return the accelerators on a grid; accelerators at almost the same place share a mark."""
    found: list[dict[str, Any]] = []
    ends = [
        (min(frame[side.column].to_list()), max(frame[side.column].to_list())) for side in (x, y)
    ]
    known: Sequence[Mapping[str, Any]] = frame["accelerators"][0].to_list()
    for each in known:
        place = (each["hbm_bytes"], each["rate"])
        if not all(low <= at <= high for at, (low, high) in zip(place, ends, strict=True)):
            continue
        name = _product(each["accelerator"])
        at = (place[0] / x.unit, place[1] / y.unit)
        near = next(
            (
                one
                for one in found
                if all(abs(one[k] / v - 1) < 0.1 for k, v in zip("xy", at, strict=True))
            ),
            None,
        )
        if near is None:
            found.append({"name": name, "x": at[0], "y": at[1]})
        elif name not in near["name"].split(", "):
            near["name"] += f", {name}"
    return found


def _product(accelerator: str) -> str:
    """Return a name without its memory, such as H100 PCIe; SXM is the usual form."""
    words = accelerator.split("(", maxsplit=1)[0].split()
    return " ".join(word for word in words if word != "SXM" and not word.endswith("GB")) or words[0]


def picture(frame: pl.DataFrame, x: Side, y: Side, finding: str, gains: str) -> ChartType:
    """Return the chart of a grid of days with its title; without a grid the title has the days."""
    if frame[x.column].n_unique() == 1 or frame[y.column].n_unique() == 1:
        days = parts.figure(parts.least(frame["training_days"]), 3)
        finding = f"The fastest run takes {days} days"
    first = frame.row(0, named=True)
    tokens = first["dataset_tokens"]
    shown = (
        f"Days of {first['num_gpus']:,} GPUs for {in_words('dataset_tokens', tokens)} of "
        f"{first['model']}; {gains}; dots are real accelerators; {parts.estimate_words(frame)}"
    )
    return cells(frame, x, y, "Days").properties(title=parts.headed(finding, shown, WIDTH + 60))
