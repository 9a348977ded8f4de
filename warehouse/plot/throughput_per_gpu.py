"""Throughput of a GPU over the number of GPUs, relative to the fewest that hold the model.

Source of the picture: the normalized throughput per GPU of arXiv 2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts, systems
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/throughput_per_gpu.sql."""
    frame = systems.distinct(frame)
    counts = frame["num_gpus"].to_list()
    x = alt.X("num_gpus:Q", scale=parts.log_scale(min(counts), max(counts), base=2))
    x = x.axis(parts.counts_axis(counts, "Number of GPUs"))
    scale = alt.Scale(zero=False)
    axis = alt.Axis(title="Throughput per GPU, relative to the fewest GPUs", format="%", grid=True)
    y = alt.Y("relative_throughput:Q", scale=scale, axis=axis)
    order = systems.by_least(frame, "relative_throughput", descending=True)
    lines = systems.lines(frame, x, y, order, theme)
    return alt.layer(parts.level(1, scale, axis), *lines).properties(
        title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT
    )


def finding(frame: pl.DataFrame) -> str:
    """Return the share of a GPU's throughput that is left on the most GPUs, and the system."""
    most = max(frame["num_gpus"].to_list())
    last = frame.filter(pl.col("num_gpus") == most).sort("relative_throughput", descending=True)
    best, worst = last.row(0, named=True), last.row(-1, named=True)
    said = (
        f"On {most:,} GPUs a GPU keeps {best['relative_throughput']:.0%} of its throughput with "
        f"{_system(best)}"
    )
    if last.height == 1:
        return said
    return f"{said}, {worst['relative_throughput']:.0%} with {_system(worst)}"


def _system(row: dict[str, object]) -> str:
    domain = f" in domains of {row['nvlink_size']}" if row["nvlink_size"] else ""
    return f"{row['accelerator']}{domain}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"Tokens per second and GPU of {first['model']}, batches of "
        f"{first['global_batch_size']:,} sequences; 100% is the fewest GPUs whose memory holds the "
        f"model, a line for each system; {parts.estimate_words(frame)}"
    )
