"""Speed of the best layout of each strategy, relative to 1D tensor parallelism.

Source of the picture: 1D against 2D tensor parallelism in arXiv 2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts, systems
from warehouse.plot.theme import LIGHT, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

PANEL = 300
NAMES = {"summa_2d": "2D tensor parallelism (SUMMA)", "context_2d": "Context parallelism"}
"""Strategy -> heading of its panel."""

LEAST = 0.005
"""Share below which a difference is none."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/strategies.sql: a panel for each strategy."""
    frame = compared(systems.distinct(frame))
    counts = frame["num_gpus"].to_list()
    speeds = [1.0, *frame["relative_speed"].to_list()]
    margin = 0.05 * (max(speeds) - min(speeds)) or 0.01
    order = systems.by_least(frame, "relative_speed", descending=True)
    panels: list[ChartType] = []
    for strategy in dict.fromkeys(frame["strategy"].to_list()):
        x = alt.X("num_gpus:Q", scale=parts.log_scale(min(counts), max(counts), base=2))
        x = x.axis(parts.counts_axis(counts, "Number of GPUs", every=2))
        domain = [min(speeds) - margin, max(speeds) + margin]
        scale = alt.Scale(domain=domain, zero=False, nice=True)
        title = "Speed relative to 1D" if not panels else None
        axis = alt.Axis(title=title, format=".2~f", grid=True)
        y = alt.Y("relative_speed:Q", scale=scale, axis=axis)
        lines = systems.lines(frame.filter(pl.col("strategy") == strategy), x, y, order, theme)
        heading = alt.TitleParams(NAMES.get(strategy, strategy), fontSize=15, offset=8)
        panels.append(
            alt.layer(parts.level(1, scale, axis), *lines).properties(
                title=heading, width=PANEL, height=PANEL
            )
        )
    width = len(panels) * (PANEL + 60)
    return alt.hconcat(*panels).properties(title=parts.headed(finding(frame), shown(frame), width))


def compared(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the strategies that are compared with the first."""
    return frame.filter(pl.col("strategy") != "tensor_1d")


def finding(frame: pl.DataFrame) -> str:
    """Return the largest gain and the largest loss against 1D."""
    ordered = frame.sort("relative_speed")
    best, worst = ordered.row(-1, named=True), ordered.row(0, named=True)
    gain, loss = best["relative_speed"] - 1, 1 - worst["relative_speed"]
    if gain < LEAST:
        return f"1D is the fastest; {_word(worst)} is up to {loss:.0%} slower"
    where = f" ({best['num_gpus']:,} {best['accelerator']})"
    said = f"{_name(best)} is up to {gain:.0%} faster than 1D{where}"
    if loss < LEAST:
        return said
    slow = "" if worst["strategy"] == best["strategy"] else f"{_word(worst)} "
    return f"{said}, {slow}up to {loss:.0%} slower ({worst['num_gpus']:,} {worst['accelerator']})"


def _name(row: dict[str, str]) -> str:
    return NAMES.get(row["strategy"], row["strategy"])


def _word(row: dict[str, str]) -> str:
    name = _name(row)
    return name if name[0].isdigit() else name[0].lower() + name[1:]


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"Step time of the best 1D layout over that of the best layout of the strategy; "
        f"{first['model']}, batches of {first['global_batch_size']:,} sequences; "
        f"{parts.estimate_words(frame)}"
    )
