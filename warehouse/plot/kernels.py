"""Kernels: the operations of one step under its roofline, and measured products.

Source of the roofline: S. Williams, A. Waterman, D. Patterson, Roofline, CACM 52 (2009) 65.
"""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

NEAR = 0.45
"""Decades within which operations share a label."""

MOST_NAMES = 3
"""Names of one label."""

SMALL, COLUMNS = 190, 3
"""Pixels of one of several panels, and how many are in a row."""


# ---- the roofline of a step ----


def roofline_of_step(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the rate of each operation of a step over its FLOPs a byte."""
    first = frame.row(0, named=True)
    slope, peak = first["terabytes_per_second"], first["matrix_tflops"]
    ridge = peak / slope
    low = parts.least(frame["flops_per_byte"]) / 2
    high = max(parts.most(frame["flops_per_byte"]), ridge) * 2.5
    floor = min(parts.least(frame["tflops"]), slope * low) / 1.5
    title, ticks = "FLOPs per byte of memory traffic", parts.log_ticks(floor, peak * 1.8)
    x = alt.X("flops_per_byte:Q", **parts.logarithmic([low, high], title, room=1))
    y_axis = parts.logarithmic([floor, peak], "TFLOP/s of a GPU", room=1.8, ticks=ticks, grid=True)
    y = alt.Y("tflops:Q", **y_axis)
    roof = pl.DataFrame({"flops_per_byte": [low, ridge, high], "tflops": [low * slope, peak, peak]})
    line = alt.Chart(roof).mark_line(color=theme.ink, strokeWidth=2, clip=True).encode(x=x, y=y)
    limits = pl.DataFrame(
        {
            "flops_per_byte": [ridge, (low * ridge) ** 0.5],
            "tflops": [peak, (low * ridge) ** 0.5 * slope],
            "word": [f"{parts.figure(peak, 3)} TFLOP/s", f"{parts.figure(slope)} TB/s"],
        }
    )
    roofs = alt.Chart(limits).mark_text(align="right", dx=-8, dy=-9, color=theme.faint)
    size = alt.Size(
        "step_fraction:Q",
        scale=alt.Scale(range=[40, 900]),
        title="Share of the step",
        legend=alt.Legend(format="%", symbolFillColor=theme.blue),
    )
    points = alt.Chart(frame).mark_point(
        filled=True, opacity=0.75, color=theme.blue, stroke=theme.ink, strokeWidth=0.5
    )
    names = alt.Chart(labels(frame)).encode(x=x, y=y, text="label:N")
    left = names.transform_filter(f"datum.flops_per_byte < {ridge / 2}")
    right = names.transform_filter(f"datum.flops_per_byte >= {ridge / 2}")
    layers = alt.layer(
        line,
        roofs.encode(x=x, y=y, text="word:N"),
        points.encode(x=x, y=y, size=size),
        left.mark_text(align="left", dx=10, dy=4, fontSize=12),
        right.mark_text(align="right", dx=30, dy=36, fontSize=12),
    )
    is_fast = frame["flops_per_byte"] >= ridge
    fast, slow = frame.filter(is_fast), frame.filter(~is_fast)
    finding = (
        f"{fast.height} of {frame.height} operations do enough FLOPs a byte for the full rate: "
        f"{fast['step_fraction'].sum():.0%} of the step; memory slows the others, "
        f"{slow['step_fraction'].sum():.0%}"
    )
    shown = (
        f"Operations of one step of {first['model']} on {first['num_gpus']:,} "
        f"{first['accelerator']} without communication; the line is what arithmetic and memory "
        f"admit; {parts.estimate_words(frame)}"
    )
    return parts.titled(layers, finding, shown)


def labels(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a label for each cluster of operations at about one place: their names, joined.

    It is at the height of the longest operation, and at the rightmost of them.
    """
    clusters: list[tuple[float, float, list[str]]] = []
    ends: list[float] = []
    for row in frame.sort("step_fraction", "operation", descending=[True, False]).iter_rows(
        named=True
    ):
        x, y = log10(row["flops_per_byte"]), log10(row["tflops"])
        name = row["operation"].replace("_", " ")
        for index, (cluster_x, cluster_y, names) in enumerate(clusters):
            if abs(x - cluster_x) < NEAR and abs(y - cluster_y) < NEAR:
                names.append(name)
                ends[index] = max(ends[index], x)
                break
        else:
            clusters.append((x, y, [name]))
            ends.append(x)
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


# ---- measured products ----


def kernels(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the share of the peak that measured products reach, a panel for each accelerator."""
    accelerators = sorted(set(frame["accelerator"].to_list()))
    formats = sorted(set(frame["number_format"].to_list()))
    is_one = len(accelerators) == 1
    sizes, every = frame["smallest_dimension"].to_list(), 1 if is_one else 3
    x = alt.X("smallest_dimension:Q", **parts.doubling(sizes, "Smallest dimension", every=every))
    scale = alt.Scale(domain=[0, 1])
    ticks = [tick / 10 for tick in range(0, 11, 1 if is_one else 2)]
    y = alt.Y("peak_share:Q", scale=scale).axis(title="Share of the peak", format="%", values=ticks)
    legend = alt.Legend(title="Number format", symbolOpacity=1)
    color = parts.colours("number_format", formats, theme, legend=legend)
    base = alt.Chart(frame).encode(x=x, y=y, color=color)
    band = base.mark_area(opacity=0.13).encode(
        y=alt.Y("low_peak_share:Q", scale=scale), y2="high_peak_share:Q"
    )
    points = base.mark_point(filled=True, opacity=1).encode(
        shape=parts.shapes("number_format", formats)
    )
    layers = alt.layer(band, base.mark_line(), points)
    finding = _kernels_finding(frame)
    shown = (
        f"Measured matmuls of {accelerators[0] if is_one else 'each accelerator'}: the "
        "median of their shapes over the peak in their number format, and a band for eight in "
        "ten; table matrix_product_rate"
    )
    if is_one:
        return parts.titled(layers, finding, shown)
    facet = alt.Facet("accelerator:N", sort=accelerators, title=None)
    panels = layers.properties(width=SMALL, height=SMALL).facet(facet=facet, columns=COLUMNS)
    # the last row may be shorter: each panel has its own axis
    picture: ChartType = panels.resolve_axis(x="independent").properties(
        title=parts.headed(finding, shown, COLUMNS * (SMALL + 40) + 80)
    )
    return picture


def _kernels_finding(frame: pl.DataFrame) -> str:
    sizes = frame["smallest_dimension"]
    least, most = parts.least(sizes), parts.most(sizes)
    first, last = (parts.span(frame["peak_share"].filter(sizes == n), ".0%") for n in (least, most))
    said = f"Matmuls whose smallest dimension is {least:,.0f} reach {first} of the peak"
    return said if least == most else f"{said}, those of {most:,.0f} reach {last}"
