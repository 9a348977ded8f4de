"""Days of a run over two properties of a GPU: coloured cells, with real accelerators on them.

Source of the pictures: the sweeps over HBM capacity and bandwidth, and over FLOP rates, of arXiv
2410.00273.
"""

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

    from warehouse.plot.theme import Theme

WIDTH, HEIGHT = 620, 420
FIGURE, LETTER, LINE = 28, 8, 16
"""Pixels around a figure, of a letter of a name, and between the middles of two lines."""

MOST_WRITTEN = 80
"""Most cells of a grid that shows the figure of each."""


@dataclass(frozen=True)
class Side:
    """One axis of a grid; `unit` is that of the axis in base units of the column."""

    column: str
    title: str
    unit: float


def hbm_capacity_and_bandwidth(frame: pl.DataFrame, _theme: Theme) -> ChartType:
    """Return days over the capacity and the bandwidth of memory."""
    x = Side("hbm_bytes", "Memory capacity (GB)", 1e9)
    y = Side("hbm_bytes_per_second", "Memory bandwidth (TB/s)", 1e12)
    finding = (
        f"{_times(frame, y)} times the bandwidth gains {_speedup(frame, y, x) - 1:.0%} at the "
        f"least capacity, {_times(frame, x)} times the capacity gains "
        f"{_speedup(frame, x, y) - 1:.0%} at the least bandwidth"
    )
    return _picture(frame, x, y, finding, f"a {frame['accelerator'][0]} with other memory")


def flops_and_hbm_capacity(frame: pl.DataFrame, _theme: Theme) -> ChartType:
    """Return days over the capacity of memory and the rate of arithmetic."""
    x = Side("hbm_bytes", "Memory capacity (GB); bandwidth grows with it", 1e9)
    y = Side("matrix_flops_per_second", "Matrix arithmetic (TFLOP/s)", 1e12)
    most = frame.filter(pl.col(x.column) == pl.col(x.column).max())
    finding = (
        f"{_times(frame, y)} times the FLOP/s trains {_speedup(frame, y, x):.2g} times as fast "
        f"with the least memory, {_speedup(most, y, x):.2g} times with the most"
    )
    gains = f"{frame['accelerator'][0]} with other memory and arithmetic"
    return _picture(frame, x, y, finding, gains)


def _times(frame: pl.DataFrame, side: Side) -> str:
    values = frame[side.column].to_list()
    return f"{max(values) / min(values):.2g}"


def _speedup(frame: pl.DataFrame, along: Side, other: Side) -> float:
    """Return how much faster the end of a side is than its beginning, at the least of the other."""
    line = frame.filter(pl.col(other.column) == pl.col(other.column).min()).sort(along.column)
    days = line["training_days"].to_list()
    return float(days[0] / days[-1])


def _picture(frame: pl.DataFrame, x: Side, y: Side, finding: str, gains: str) -> ChartType:
    if frame[x.column].n_unique() == 1 or frame[y.column].n_unique() == 1:
        days = parts.figure(parts.least(frame["training_days"]), 3)
        finding = f"The fastest run takes {days} days"
    first = frame.row(0, named=True)
    shown = (
        f"Days of {first['num_gpus']:,} GPUs for "
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']}; {gains}; "
        f"dots are real accelerators; {parts.estimate_words(frame)}"
    )
    grid = cells(frame, x, y)
    return parts.titled(grid, finding, shown, width=WIDTH, height=HEIGHT, margin=60)


def cells(frame: pl.DataFrame, x: Side, y: Side) -> ChartType:
    """Return the cells of `training_days` over two columns."""
    rows = _edged(_edged(frame, x, "x"), y, "y").drop("accelerators")
    x_scale, y_scale = (
        alt.Scale(
            domain=[parts.least(rows[f"{side}_low"]), parts.most(rows[f"{side}_high"])], nice=False
        )
        for side in ("x", "y")
    )
    limits = contours(rows["training_days"].to_list())
    accelerators = marks(frame, x, y)
    color = alt.Color(
        "training_days:Q",
        title="Days",
        scale=alt.Scale(type="threshold", domain=limits, range=list(RAMP)),
        legend=alt.Legend(format=".3~r", gradientLength=HEIGHT - 60),
    )
    boxes = (
        alt.Chart(rows)
        .mark_rect()
        .encode(
            x=alt.X("x_low:Q", scale=x_scale, title=x.title),
            x2="x_high:Q",
            y=alt.Y("y_low:Q", scale=y_scale, title=y.title),
            y2="y_high:Q",
            color=color,
        )
    )
    layers = [boxes]
    if rows.height <= MOST_WRITTEN:
        layers.append(_figures(rows, limits, accelerators))
    if accelerators:
        layers += _dots(pl.DataFrame(accelerators))
    return alt.layer(*layers)


def contours(values: Sequence[float]) -> list[float]:
    """Return the borders between the colours of a grid: equal ratios, three digits that count.

    There are few of them, so that a border looks like a contour.
    """
    low, high = min(values), max(values)
    ratio = (high / low) ** (1 / len(RAMP))
    return [float(f"{low * ratio**step:.3g}") for step in range(1, len(RAMP))]


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


def _figures(
    rows: pl.DataFrame, limits: Sequence[float], accelerators: Sequence[Mapping[str, Any]]
) -> alt.Chart:
    """Return the figure of each cell, except cells that an accelerator or its name covers."""
    wide, high = (
        (parts.most(rows[f"{side}_high"]) - parts.least(rows[f"{side}_low"])) / pixels
        for side, pixels in (("x", WIDTH), ("y", HEIGHT))
    )
    covered = [
        pl.col("x").is_between(
            mark["x"] - FIGURE * wide, mark["x"] + (FIGURE + LETTER * len(mark["name"])) * wide
        )
        & (pl.col("y") - mark["y"]).abs().lt(LINE * high)
        for mark in accelerators
    ]
    free = rows.filter(~pl.any_horizontal(covered)) if covered else rows
    color = alt.condition(
        f"datum.training_days > {limits[3]}", alt.value("#ffffff"), alt.value("#1a1a1a")
    )
    figure = alt.Text("training_days:Q", format=".3~r")
    texts: alt.Chart = (
        alt.Chart(free).mark_text(fontSize=12).encode(x="x:Q", y="y:Q", text=figure, color=color)
    )
    return texts


# ---- real accelerators ----


def marks(frame: pl.DataFrame, x: Side, y: Side) -> list[dict[str, Any]]:
    """Return the accelerators on a grid; accelerators at almost the same place share a mark."""
    values = {"hbm_bytes": frame[x.column].to_list(), "rate": frame[y.column].to_list()}
    found: list[dict[str, Any]] = []
    for row in frame["accelerators"][0].to_list():
        if not all(min(side) <= row[name] <= max(side) for name, side in values.items()):
            continue
        name, at = _product(row["accelerator"]), (row["hbm_bytes"] / x.unit, row["rate"] / y.unit)
        near = next((mark for mark in found if _is_near(mark, *at)), None)
        if near is None:
            found.append({"name": name, "x": at[0], "y": at[1]})
        elif name not in near["name"].split(", "):
            near["name"] += f", {name}"
    return found


def _is_near(mark: Mapping[str, float], x: float, y: float) -> bool:
    return abs(mark["x"] / x - 1) < 0.1 and abs(mark["y"] / y - 1) < 0.1


def _product(accelerator: str) -> str:
    """Return a name without its memory, such as H100 PCIe; SXM is the usual form."""
    words = accelerator.split("(", maxsplit=1)[0].split()
    return " ".join(word for word in words if word != "SXM" and not word.endswith("GB")) or words[0]


def _dots(accelerators: pl.DataFrame) -> list[alt.Chart]:
    base = alt.Chart(accelerators).encode(x="x:Q", y="y:Q")
    named = base.encode(text="name:N")
    word: dict[str, Any] = {"fontWeight": "bold", "align": "left", "dx": 9, "fontSize": 13}
    return [
        base.mark_point(
            size=110, filled=True, fill="#D55E00", stroke="#ffffff", strokeWidth=1.5, opacity=1
        ),
        named.mark_text(
            **word, stroke="#ffffff", strokeWidth=4, strokeJoin="round", color="#ffffff"
        ),
        named.mark_text(**word, color="#1a1a1a"),
    ]
