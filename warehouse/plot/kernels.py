"""Share of the peak that measured matrix products reach: a panel for each accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import HEIGHT, LIGHT, SHAPES, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


SMALL, COLUMNS = 190, 3
"""Pixels of one of several panels, and how many are in a row."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/kernels.sql."""
    accelerators = sorted(set(frame["accelerator"].to_list()))
    formats = sorted(set(frame["number_format"].to_list()))
    is_one = len(accelerators) == 1
    sizes = sorted(set(frame["smallest_dimension"].to_list()))
    x = alt.X("smallest_dimension:Q", scale=parts.log_scale(sizes[0], sizes[-1], base=2)).axis(
        parts.counts_axis(sizes, "Smallest dimension", every=1 if is_one else 3)
    )
    scale = alt.Scale(domain=[0, 1])
    ticks = [tick / 10 for tick in range(0, 11, 1 if is_one else 2)]
    y = alt.Y("peak_share:Q", scale=scale).axis(title="Share of the peak", format="%", values=ticks)
    colour = alt.Color(
        "number_format:N",
        scale=parts.hues(formats, theme),
        legend=alt.Legend(title="Number format", symbolOpacity=1),
    )
    shape = alt.Shape(
        "number_format:N", scale=alt.Scale(domain=formats, range=list(SHAPES[: len(formats)]))
    )
    base = alt.Chart(frame).encode(x=x, color=colour)
    band = base.mark_area(opacity=0.13).encode(
        y=alt.Y("low_peak_share:Q", scale=scale), y2="high_peak_share:Q"
    )
    points = base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape)
    layers = alt.layer(band, base.mark_line().encode(y=y), points)
    if is_one:
        return layers.properties(
            title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT
        )
    panels = layers.properties(width=SMALL, height=SMALL).facet(
        facet=alt.Facet("accelerator:N", sort=accelerators, title=None), columns=COLUMNS
    )
    # the last row may be shorter: each panel has its own axis
    found: ChartType = panels.resolve_axis(x="independent").properties(
        title=parts.headed(finding(frame), shown(frame), COLUMNS * (SMALL + 40) + 80)
    )
    return found


def finding(frame: pl.DataFrame) -> str:
    """Return the shares of the peak at the smallest and at the largest dimension."""
    sizes = frame["smallest_dimension"]
    first, last = (
        frame.filter(sizes == end)["peak_share"] for end in (parts.least(sizes), parts.most(sizes))
    )
    said = (
        f"Products whose smallest dimension is {parts.least(sizes):,.0f} reach {_range(first)} of "
        "the peak"
    )
    if sizes.n_unique() == 1:
        return said
    return f"{said}, those of {parts.most(sizes):,.0f} reach {_range(last)}"


def _range(shares: pl.Series) -> str:
    low, high = f"{parts.least(shares):.0%}", f"{parts.most(shares):.0%}"
    return low if low == high else f"{low} to {high}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    named = set(frame["accelerator"].to_list())
    what = named.pop() if len(named) == 1 else "each accelerator"
    return (
        f"Measured matrix products of {what}: the median of their shapes over the peak in their "
        "number format, and a band for eight in ten; table matrix_product_rate"
    )
