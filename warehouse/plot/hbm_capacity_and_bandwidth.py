"""Days of a run over the capacity and the bandwidth of a GPU's memory.

Source of the picture: the sweep over HBM capacity and bandwidth of arXiv 2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from warehouse.plot import grid
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

X = grid.Side("hbm_bytes", "Memory capacity (GB)", 1e9)
Y = grid.Side("hbm_bytes_per_second", "Memory bandwidth (TB/s)", 1e12)


def chart(frame: pl.DataFrame, _theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/hbm_capacity_and_bandwidth.sql."""
    rates = f"a {frame['accelerator'][0]} with other memory"
    return grid.picture(frame, X, Y, finding(frame), rates)


def finding(frame: pl.DataFrame) -> str:
    """Return the gain of the most bandwidth, and that of the most capacity."""
    bandwidth = _gain(frame, Y.column, X.column)
    capacity = _gain(frame, X.column, Y.column)
    ends = [
        f"{max(frame[column].to_list()) / min(frame[column].to_list()):.2g} times the {word} gains "
        f"{gain:.0%}"
        for column, word, gain in (
            (Y.column, "bandwidth", bandwidth),
            (X.column, "capacity", capacity),
        )
    ]
    return f"{ends[0]} at the least capacity, {ends[1]} at the least bandwidth"


def _gain(frame: pl.DataFrame, along: str, held: str) -> float:
    """Return how much faster the end of an axis is than its beginning, with the other at least."""
    line = frame.filter(pl.col(held) == pl.col(held).min()).sort(along)
    days = line["training_days"].to_list()
    return float(days[0] / days[-1] - 1)
