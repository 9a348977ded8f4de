"""Pareto fronts: the least memory for each step time, a step line for each number of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

SPARE = 0.05
"""Share of the time that the title gives for memory."""

LEAST = 0.005
"""Share of memory that counts as saved."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/pareto.sql."""
    # far from the fastest layouts a front has hundreds of layouts that nobody uses
    near = front(frame).filter(
        pl.col("step_seconds") <= 2 * pl.col("step_seconds").min().over("num_gpus")
    )
    counts = sorted(set(near["num_gpus"].to_list()))
    names = [f"{count:,}" for count in counts]
    rows = near.with_columns(
        gpus=pl.col("num_gpus").replace_strict(dict(zip(counts, names, strict=True)))
    )
    low, high = min(near["step_seconds"].to_list()), max(near["step_seconds"].to_list())
    x = alt.X("step_seconds:Q", scale=parts.log_scale(low, high)).axis(
        title="Step time (s)", values=parts.log_ticks(low / 1.1, high * 1.1), format=",~r"
    )
    y = alt.Y("memory_gb:Q", scale=alt.Scale(zero=True)).axis(
        title="Memory of a GPU (GB)", grid=True
    )
    colour = alt.Color(
        "gpus:N", scale=alt.Scale(domain=names, range=theme.ramp(len(names))), title="GPUs"
    )
    base = alt.Chart(rows).encode(x=x, y=y, color=colour)
    limit = alt.Chart(frame.select("hbm_gb").head(1))
    rule = limit.mark_rule(strokeDash=[5, 4], color=theme.ink).encode(y="hbm_gb:Q")
    word = limit.mark_text(align="right", baseline="bottom", dy=-4, color=theme.faint).encode(
        y="hbm_gb:Q", x=alt.value(WIDTH - 4), text=alt.value("capacity of a GPU")
    )
    return alt.layer(
        rule, word, base.mark_line(interpolate="step-after"), base.mark_point(size=22, opacity=1)
    ).properties(title=parts.headed(finding(frame), shown(frame)), width=WIDTH, height=HEIGHT)


def front(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that no other row with the same number of GPUs beats, over all problems."""
    kept: list[int] = []
    least: dict[int, float] = {}
    ordered = frame.sort("num_gpus", "step_seconds", "memory_gb")
    for place, row in enumerate(ordered.select("num_gpus", "memory_gb").iter_rows()):
        if row[1] < least.get(row[0], float("inf")):
            least[row[0]] = row[1]
            kept.append(place)
    return ordered[kept]


def finding(frame: pl.DataFrame) -> str:
    """Return the memory that a little time saves on the most GPUs of the fronts.

    One layout, such as a published step, says nothing about others: it is only named.
    """
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max()).sort("step_seconds")
    fastest = most.row(0, named=True)
    if most.height == 1:
        return (
            f"One layout on {fastest['num_gpus']:,} {fastest['accelerator']}: "
            f"{parts.figure(fastest['step_seconds'])} s a step, "
            f"{parts.figure(fastest['memory_gb'])} GB of a GPU"
        )
    within = most.filter(pl.col("step_seconds") <= fastest["step_seconds"] * (1 + SPARE))
    saved = 1 - parts.least(within["memory_gb"]) / fastest["memory_gb"]
    count = f"{fastest['num_gpus']:,} {fastest['accelerator']}"
    if saved < LEAST:
        return f"On {count}, {SPARE:.0%} more time saves no memory"
    return f"On {count}, {saved:.0%} less memory costs at most {SPARE:.0%} more time"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first = frame.row(0, named=True)
    return (
        f"Layouts of {first['model']} on {parts.system_of(first)} that no other beats in "
        f"both step time and memory, batches of {first['global_batch_size']:,} sequences; "
        f"{parts.estimate_words(frame)}"
    )
