"""Speed over the size of the NVLink domain, a line for each number of GPUs."""

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
    """Return the chart of the rows of sql/plots/nvlink_domain.sql."""
    sizes = frame["nvlink_size"].to_list()
    # sizes of racks lie between powers of two: their labels would overlap
    ticks = [size for size in sorted(set(sizes)) if size & (size - 1) == 0]
    x = alt.X("nvlink_size:Q", scale=parts.log_scale(min(sizes), max(sizes), base=2)).axis(
        parts.counts_axis(ticks, "GPUs in one NVLink domain")
    )
    shown = (
        f"Speed of the best layout of {frame['model'][0]} on {frame['accelerator'][0]}, "
        f"relative to domains of {min(sizes)}; {parts.estimate_words(frame)}"
    )
    return lines(frame, x, "nvlink_size", finding(frame), shown, theme)


def finding(frame: pl.DataFrame) -> str:
    """Return the smallest domain that is within 2 % of the largest, on the most GPUs."""
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max()).sort("nvlink_size")
    if most["nvlink_size"].n_unique() == 1:
        size, count = most["nvlink_size"][0], most["num_gpus"][0]
        return (
            f"Only NVLink domains of {size} GPUs are stored on {count:,} {most['accelerator'][0]}"
        )
    best = parts.most(most["relative_speed"])
    least = most.filter(pl.col("relative_speed") >= best * 0.98).row(0, named=True)
    return (
        f"On {least['num_gpus']:,} {least['accelerator']} NVLink domains of "
        f"{least['nvlink_size']} GPUs are within 2% of the best, {least['relative_speed']:.2g} "
        f"times as fast as domains of {most['nvlink_size'][0]}"
    )
