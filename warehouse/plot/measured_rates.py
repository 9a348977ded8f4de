"""Measured against predicted rates of published steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

SIDE = 460
NEAR = 0.1
"""Errors that the band around the diagonal holds."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/measured_rates.sql."""
    rates = [*frame["measured_tflops"].to_list(), *frame["predicted_tflops"].to_list()]
    low, high = min(rates) / 1.1, max(rates) * 1.1
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    ticks = parts.log_ticks(low, high)
    x = alt.X("measured_tflops:Q", scale=scale).axis(
        title="Measured TFLOP/s per GPU", values=ticks, format=",~r"
    )
    y = alt.Y("predicted_tflops:Q", scale=scale).axis(
        title="Predicted TFLOP/s per GPU", values=ticks, format=",~r"
    )
    line = pl.DataFrame(
        {
            "measured_tflops": [low, high],
            "predicted_tflops": [low, high],
            "least": [low * (1 - NEAR), high * (1 - NEAR)],
            "most": [low * (1 + NEAR), high * (1 + NEAR)],
        }
    )
    band = alt.Chart(line).mark_area(color=theme.faint, opacity=0.22, clip=True)
    diagonal = alt.Chart(line).mark_line(color=theme.ink, strokeWidth=1).encode(x=x, y=y)
    names = frame.group_by("accelerator").len().sort(["len", "accelerator"], descending=True)
    order = names["accelerator"].to_list()
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=34, opacity=0.6)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "accelerator:N",
                scale=parts.hues(order, theme),
                title="Accelerator",
            ),
            shape=alt.Shape("accelerator:N", scale=alt.Scale(domain=order), title="Accelerator"),
        )
    )
    return alt.layer(
        band.encode(x=x, y=alt.Y("least:Q", scale=scale), y2="most:Q"), diagonal, points
    ).properties(
        title=parts.headed(finding(frame), shown(frame), SIDE + 150), width=SIDE, height=SIDE
    )


def finding(frame: pl.DataFrame) -> str:
    """Return how many rates are within a tenth, and which way the others err."""
    errors = frame["rate_error"]
    near = errors.filter(errors.abs() <= NEAR).len() / errors.len()
    fast = errors.filter(errors > NEAR).len() / errors.len()
    return (
        f"{near:.0%} of {parts.counted(frame.height, 'measured rate')} are predicted within "
        f"{NEAR:.0%}, "
        f"{fast:.0%} are predicted more than {NEAR:.0%} too fast"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    return (
        f"Model FLOP/s of a GPU in published steps; the band is {NEAR:.0%} around equality; "
        f"{parts.estimate_words(frame)}, nothing fitted"
    )
