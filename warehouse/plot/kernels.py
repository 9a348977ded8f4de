"""Share of the peak that measured matrix products reach, over their smallest dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/kernels.sql."""
    sizes = frame["smallest_dimension"].to_list()
    names = _order(frame)
    x = alt.X("smallest_dimension:Q", scale=parts.log_scale(min(sizes), max(sizes), base=2)).axis(
        parts.counts_axis(sizes, "Smallest dimension of the product")
    )
    scale = alt.Scale(domain=[0, 1])
    y = alt.Y("peak_share:Q", scale=scale).axis(title="Share of the peak", format="%", grid=True)
    colour = alt.Color(
        "accelerator:N",
        scale=alt.Scale(domain=names, range=list(theme.palette[: len(names)])),
        legend=alt.Legend(title="Accelerator", symbolOpacity=1),
    )
    base = alt.Chart(frame).encode(x=x, color=colour)
    band = base.mark_area(opacity=0.13).encode(
        y=alt.Y("low_peak_share:Q", scale=scale), y2="high_peak_share:Q"
    )
    shape = alt.Shape("accelerator:N", scale=alt.Scale(domain=names), legend=None)
    return alt.layer(
        band,
        base.mark_line().encode(y=y),
        base.mark_point(filled=True, opacity=1).encode(y=y, shape=shape),
    ).properties(title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT)


def _order(frame: pl.DataFrame) -> list[str]:
    """Return the accelerators by their share at the largest dimension, best first."""
    last = frame.sort("smallest_dimension").group_by("accelerator").last()
    return last.sort(["peak_share", "accelerator"], descending=[True, False])[
        "accelerator"
    ].to_list()


def finding(frame: pl.DataFrame) -> str:
    """Return the share of the peak at the smallest and at the largest dimension."""
    shares = (
        frame.group_by("smallest_dimension")
        .agg(pl.col("peak_share").median())
        .sort("smallest_dimension")
    )
    first, last = shares.row(0, named=True), shares.row(-1, named=True)
    return (
        f"Products whose smallest dimension is {first['smallest_dimension']:,} reach "
        f"{first['peak_share']:.0%} of the peak, with {last['smallest_dimension']:,} "
        f"{last['peak_share']:.0%}"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return what the picture shows."""
    return (
        f"Measured matrix products in {frame['number_format'][0]}: the median of their shapes, and "
        "a band for eight in ten; table matrix_product_rate"
    )
