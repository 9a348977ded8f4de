"""A run on several sites by batch: GPUs, dollars of GPUs that wait, seconds of latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import LIGHT, Theme
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType

SIDE = 250

PANELS = {
    "gpus": ("GPUs for one step a second", "Number of GPUs"),
    "wait": ("Waiting for gradients", "Dollars of idle GPUs"),
    "latency": ("Latency between two sites", "Seconds over the run"),
}
"""Kind of a row -> heading of its panel, and title of its axis."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/sites.sql."""
    panels = [
        _panel(frame.filter(pl.col("kind") == kind), title, axis, theme)
        for kind, (title, axis) in PANELS.items()
        if kind in frame["kind"]
    ]
    both: ChartType = alt.hconcat(*panels, spacing=36).resolve_scale(
        color="independent", shape="independent"
    )
    return both.properties(
        title=parts.headed(finding(frame), shown(frame), len(panels) * (SIDE + 70))
    )


def _panel(frame: pl.DataFrame, title: str, axis: str, theme: Theme) -> ChartType:
    rows = frame.with_columns(batch=pl.col("place") / 1e6).filter(pl.col("quantity") > 0)
    order = rows.sort("series_rank", "series")["series"].unique(maintain_order=True).to_list()
    batches, amounts = rows["batch"].to_list(), rows["quantity"].to_list()
    x = alt.X("batch:Q", scale=parts.log_scale(min(batches), max(batches))).axis(
        title="Batch (million tokens)", values=[0.01, 0.1, 1, 10], format="~r"
    )
    y = alt.Y("quantity:Q", scale=parts.log_scale(min(amounts), max(amounts), 1.3)).axis(
        title=axis, values=parts.log_ticks(min(amounts) / 1.3, max(amounts) * 1.3), format=",~r"
    )
    key = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=SIDE + 40)
    colour = alt.Color(
        "series:N",
        scale=parts.hues(order, theme),
        legend=key,
    )
    shape = alt.Shape("series:N", scale=alt.Scale(domain=order), legend=key)
    base = alt.Chart(rows).encode(x=x, y=y, color=colour)
    layered: ChartType = alt.layer(
        base.mark_line(), base.mark_point(opacity=1, filled=True).encode(shape=shape)
    )
    heading = alt.TitleParams(title, fontSize=14, offset=8)
    return layered.properties(width=SIDE, height=SIDE, title=heading)


def finding(frame: pl.DataFrame) -> str:
    """Return what rarer exchanges of gradients save, and the latency of a run."""
    words = []
    wait = _ends(frame.filter(pl.col("kind") == "wait"))
    if wait is not None:
        times = parts.figure(wait[0] / wait[1])
        words.append(f"Seldom exchanges of gradients cut the dollars of waiting {times} times")
    latency = _ends(frame.filter(pl.col("kind") == "latency"))
    if latency is not None:
        words.append(f"the latency of a run from {_time(latency[0])} to {_time(latency[1])}")
    if words:
        return ", ".join(words)
    counts = frame.filter(pl.col("kind") == "gpus")["quantity"]
    if counts.is_empty():
        return "One exchange of gradients"
    low, high = (f"{end(counts):,.0f}" for end in (parts.least, parts.most))
    return f"A step a second takes {low if low == high else f'{low} to {high}'} GPUs"


def _ends(frame: pl.DataFrame) -> tuple[float, float] | None:
    """Return the most of a quantity at the largest batch, exchanged most often and most seldom."""
    if frame.is_empty():
        return None
    largest = frame.filter(pl.col("place") == pl.col("place").max()).sort("series_rank")
    often = largest.filter(pl.col("series_rank") == pl.col("series_rank").min())
    seldom = largest.filter(pl.col("series_rank") == pl.col("series_rank").max())
    return max(often["quantity"].to_list()), max(seldom["quantity"].to_list())


def _time(seconds: float) -> str:
    return f"{parts.figure(seconds)} s" if seconds < 3600 else f"{parts.figure(seconds / 3600)} h"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"{first['parameters'] / 1e9:,.0f} billion parameters, "
        f"{in_words('dataset_tokens', first['dataset_tokens'])}; B are bytes of a gradient; "
        f"{parts.estimate_words(frame)}"
    )
