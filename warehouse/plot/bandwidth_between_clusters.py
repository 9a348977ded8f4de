"""Time lost to the network between clusters over its bandwidth, a line for each number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

ENOUGH = 1.01
"""Slowdown up to which a bandwidth suffices."""

MOST = 8
"""Numbers of clusters that are drawn; of more, some are left out evenly."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/bandwidth_between_clusters.sql."""
    counts = sorted(set(frame["num_clusters"].to_list()))
    kept = (
        counts
        if len(counts) <= MOST
        else [counts[n * (len(counts) - 1) // (MOST - 1)] for n in range(MOST)]
    )
    names = [f"{count:,}" for count in kept]
    rows = frame.filter(pl.col("num_clusters").is_in(kept)).with_columns(
        clusters=pl.col("num_clusters").replace_strict(
            dict(zip(kept, names, strict=True)), default=None
        )
    )
    rates = frame["gigabytes_per_second"].to_list()
    slow = max(frame["slowdown"].to_list())
    x = alt.X("gigabytes_per_second:Q", scale=parts.log_scale(min(rates), max(rates), 1.05)).axis(
        title="Bandwidth of a cluster, both ways (GB/s)",
        values=parts.apart(sorted(set(rates))),
        format=",~r",
    )
    ticks = [tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if tick <= slow * 1.1]
    y = alt.Y("slowdown:Q", scale=parts.log_scale(1, slow, 1.06)).axis(
        title="Training time over that without a network", values=ticks, format="~r"
    )
    colour = alt.Color(
        "clusters:N", scale=alt.Scale(domain=names, range=theme.ramp(len(names))), title="Clusters"
    )
    lines = alt.Chart(rows).mark_line(point=True).encode(x=x, y=y, color=colour)
    found: ChartType = lines.properties(
        title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT
    )
    return found


def completed(frame: pl.DataFrame, _connection: object) -> pl.DataFrame:
    """Return the rows of one kind of layer: that of most rows, or the first."""
    kind = ["use_glu", "multi_query_attention", "sequential_attention_ffn", "num_layers"]
    kind += ["hidden_size", "num_experts", "seq_len"]
    first = frame.select(kind).row(0)
    return frame.filter(
        pl.all_horizontal(
            pl.col(name).eq_missing(value) for name, value in zip(kind, first, strict=True)
        )
    )


def finding(frame: pl.DataFrame) -> str:
    """Return the bandwidth that suffices for all numbers of clusters, and the loss at the least."""
    worst = (
        frame.group_by("gigabytes_per_second")
        .agg(pl.col("slowdown").max())
        .sort("gigabytes_per_second")
    )
    enough = worst.filter(pl.col("slowdown") <= ENOUGH)
    least = worst.row(0, named=True)
    lost = (
        f"with {parts.figure(least['gigabytes_per_second'])} GB/s a run takes up to "
        f"{parts.figure(least['slowdown'])} times as long"
    )
    if enough.is_empty():
        return f"No bandwidth here suffices: {lost}"
    rate = parts.figure(enough["gigabytes_per_second"][0])
    return f"{rate} GB/s between clusters suffice; {lost}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"The best layout at each bandwidth; {first['num_layers']} layers of "
        f"{first['hidden_size']:,}, {first['num_experts']} experts, batches of "
        f"{first['global_batch_size']:,} sequences of {first['seq_len']:,}; transfers overlap "
        f"with arithmetic; {parts.estimate_words(frame)}"
    )
