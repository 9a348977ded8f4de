"""The roofline of one step: rate of each operation over its FLOPs a byte.

Source of the picture: S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52 (2009) 65.
"""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

NEAR = 0.45
"""Decades within which operations share a label."""

MOST_NAMES = 3
"""Names of one label."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/roofline_of_step.sql."""
    first = frame.row(0, named=True)
    slope, peak = first["terabytes_per_second"], first["matrix_tflops"]
    low = min(frame["flops_per_byte"].to_list()) / 2
    high = max([*frame["flops_per_byte"].to_list(), peak / slope]) * 2.5
    floor = min([*frame["tflops"].to_list(), slope * low]) / 1.5
    scales = parts.log_scale(low, high, 1), parts.log_scale(floor, peak, 1.8)
    x = alt.X("flops_per_byte:Q", scale=scales[0]).axis(
        title="FLOPs per byte of memory traffic", values=parts.log_ticks(low, high), format=",~r"
    )
    y = alt.Y("tflops:Q", scale=scales[1]).axis(
        title="TFLOP/s of a GPU", values=parts.log_ticks(floor, peak * 1.8), format=",~r", grid=True
    )
    ridge = peak / slope
    roof = pl.DataFrame({"flops_per_byte": [low, ridge, high], "tflops": [low * slope, peak, peak]})
    line = alt.Chart(roof).mark_line(color=theme.ink, strokeWidth=2, clip=True).encode(x=x, y=y)
    words = alt.Chart(
        pl.DataFrame(
            {
                "flops_per_byte": [ridge, (low * ridge) ** 0.5],
                "tflops": [peak, (low * ridge) ** 0.5 * slope],
                "word": [f"{parts.figure(peak, 3)} TFLOP/s", f"{parts.figure(slope)} TB/s"],
            }
        )
    )
    roofs = words.mark_text(align="right", dx=-8, dy=-9, color=theme.faint).encode(
        x=x, y=y, text="word:N"
    )
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, opacity=0.75, color=theme.blue, stroke=theme.ink, strokeWidth=0.5)
        .encode(
            x=x,
            y=y,
            size=alt.Size(
                "step_fraction:Q",
                scale=alt.Scale(range=[40, 900]),
                title="Share of the step",
                legend=alt.Legend(format="%", symbolFillColor=theme.blue),
            ),
        )
    )
    words = alt.Chart(labels(frame))
    left = words.transform_filter(f"datum.flops_per_byte < {ridge / 2}")
    right = words.transform_filter(f"datum.flops_per_byte >= {ridge / 2}")
    texts = [
        left.mark_text(align="left", dx=10, dy=4, fontSize=12).encode(x=x, y=y, text="label:N"),
        right.mark_text(align="right", dx=30, dy=36, fontSize=12).encode(x=x, y=y, text="label:N"),
    ]
    return alt.layer(line, roofs, points, *texts).properties(
        title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT
    )


def labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a label for each cluster of operations at about one place: their names, joined.

    It is at the height of the longest operation, and at the rightmost of them.
    """
    clusters: list[tuple[float, float, list[str]]] = []
    ends: list[float] = []
    for row in frame.sort("step_fraction", "operation", descending=[True, False]).iter_rows(
        named=True
    ):
        at = log10(row["flops_per_byte"]), log10(row["tflops"])
        name = row["operation"].replace("_", " ")
        for place, (x, y, names) in enumerate(clusters):
            if abs(at[0] - x) < NEAR and abs(at[1] - y) < NEAR:
                names.append(name)
                ends[place] = max(ends[place], at[0])
                break
        else:
            clusters.append((*at, [name]))
            ends.append(at[0])
    return pl.DataFrame(
        {
            "flops_per_byte": [10**end for end in ends],
            "tflops": [10**y for _, y, _ in clusters],
            "label": [_shortened(names) for _, _, names in clusters],
        }
    )


def _shortened(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


def finding(frame: pl.DataFrame) -> str:
    """Return the share of the step that arithmetic limits, and that memory limits."""
    ridge = pl.col("matrix_tflops") / pl.col("terabytes_per_second")
    right = frame.filter(pl.col("flops_per_byte") >= ridge)
    left = frame.filter(pl.col("flops_per_byte") < ridge)
    return (
        f"{right.height} of {frame.height} operations do enough FLOPs a byte for the full rate: "
        f"{right['step_fraction'].sum():.0%} of the step; memory slows the others, "
        f"{left['step_fraction'].sum():.0%}"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"Operations of one step of {first['model']} on {first['num_gpus']:,} "
        f"{first['accelerator']} without communication; the line is what arithmetic and memory "
        f"admit; {parts.estimate_words(frame)}"
    )
