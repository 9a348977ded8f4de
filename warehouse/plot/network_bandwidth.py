"""Speed over the bandwidth of the network between NVLink domains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.speedup import lines
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/network_bandwidth.sql."""
    frame = frame.with_columns(gigabytes=pl.col("network_bytes_per_second") / 1e9)
    rates = frame["gigabytes"].to_list()
    axis = alt.Axis(
        title="Network of a GPU (GB/s)", values=sorted(set(rates)), format=",~r", grid=True
    )
    x = alt.X("gigabytes:Q", scale=parts.log_scale(min(rates), max(rates), base=2), axis=axis)
    shown = (
        f"Speed of the best layout of {frame['model'][0]} on {frame['accelerator'][0]}, relative "
        f"to {parts.figure(min(rates), 3)} GB/s; {parts.estimate_words(frame)}"
    )
    return lines(frame, x, "gigabytes", finding(frame), shown, theme)


def finding(frame: pl.DataFrame) -> str:
    """Return the gain from the fastest network on the most GPUs, by size of the NVLink domain."""
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max())
    rates = most["network_bytes_per_second"].to_list()
    if len(set(rates)) == 1:
        return f"Only a network of {parts.figure(rates[0] / 1e9, 3)} GB/s is stored"
    gains = most.group_by("nvlink_size").agg(pl.col("relative_speed").max()).sort("nvlink_size")
    words = [
        f"{row['relative_speed'] - 1:.0%} with NVLink domains of {row['nvlink_size']}"
        for row in gains.iter_rows(named=True)
    ]
    times = parts.figure(max(rates) / min(rates))
    return f"On {most['num_gpus'][0]:,} GPUs {times} times the network gains {parts.listed(words)}"
