"""Errors of predicted steps by group of measurements, with the intervals of the predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, RED, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

WIDTH, ROW = 560, 22
EDGE = 1.0
"""Errors beyond it are drawn at it."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/accuracy.sql: a line for each group."""
    groups = by_group(frame)
    order = groups["label"].to_list()
    labels = frame.join(groups.select("measured", "label"), on="measured").with_columns(
        pl.col("time_relative_error").clip(-EDGE, EDGE)
    )
    scale = alt.Scale(domain=[-0.85, EDGE], nice=False, clamp=True)
    axis = parts.change_axis(
        "Error of the predicted step time", values=[tick / 10 for tick in range(-8, 11, 2)]
    )
    x = alt.X("time_relative_error:Q", scale=scale, axis=axis)
    y = alt.Y("label:N", sort=order, title=None)
    interval = (
        alt.Chart(groups)
        .mark_bar(height=12, color=theme.blue, opacity=0.28)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y)
    )
    steps = alt.Chart(labels).mark_tick(thickness=1.3, size=15, opacity=0.55, color=theme.ink)
    middle = alt.Chart(groups).mark_point(
        filled=True, size=80, color=RED, opacity=1, stroke=theme.background or "#111111"
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(strokeWidth=1.4, color=theme.ink)
    return alt.layer(
        interval,
        zero.encode(x=alt.X("zero:Q", scale=scale)),
        steps.encode(x=x, y=y),
        middle.encode(x=alt.X("median:Q", scale=scale), y=y),
    ).properties(
        title=parts.headed(finding(frame), shown(frame), WIDTH + 190),
        width=WIDTH,
        height=ROW * len(order),
    )


def by_group(frame: pl.DataFrame) -> pl.DataFrame:
    """Return for each group its rows, its median error and the middle of its intervals' ends."""
    error = pl.col("time_relative_error")
    return (
        frame.group_by("measured")
        .agg(
            num_rows=pl.len(),
            median=error.median().clip(-EDGE, EDGE),
            size=error.abs().mean(),
            # the interval of an error is that of the prediction around the truth
            low=(error.median() + (pl.col("low_relative_error") - error).median()),
            high=(error.median() + (pl.col("high_relative_error") - error).median()),
        )
        .with_columns(
            label=pl.format("{} ({})", "measured", "num_rows"),
            high=pl.col("high").clip(upper_bound=EDGE),
        )
        .sort("size", "measured")
    )


def finding(frame: pl.DataFrame) -> str:
    """Return the median error, and how many measured times lie in their intervals."""
    size = parts.middle(frame["time_relative_error"].abs())
    if frame.height == 1:
        return f"One measured step is predicted within {size:.1%}"
    said = f"Half of {frame.height:,} measured steps are predicted within {size:.1%}"
    inside = frame["is_inside_interval"].drop_nulls()
    if inside.is_empty():
        return said
    return f"{said}; {inside.sum() / inside.len():.0%} lie in the interval meant for 90%"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    return (
        "A tick for each published step, a dot at the median of its group, a bar for the interval "
        "of its predictions; below 0% the prediction is too fast; errors beyond an end are drawn "
        f"there; in brackets the number of steps; "
        f"{parts.estimate_words(frame)}, nothing fitted"
    )
