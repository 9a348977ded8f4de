"""Parts of predicted steps, stacked, in percent of the measured step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import BLUE, GREY, LIGHT, ORANGE, PURPLE, RED, SKY, YELLOW, Theme

if TYPE_CHECKING:
    from altair.typing import ChartType

PARTS = {
    "gemm_seconds": ("products", BLUE),
    "attention_seconds": ("attention", SKY),
    "recompute_seconds": ("recomputation", "#b3d9f2"),
    "elementwise_seconds": ("elementwise, adding up", PURPLE),
    "vocabulary_seconds": ("vocabulary", "#e8c4d8"),
    "optimizer_seconds": ("optimizer, host", "#6b4b3a"),
    "tensor_comm_seconds": ("tensor collectives", RED),
    "pipeline_comm_seconds": ("stage transfers", ORANGE),
    "data_comm_seconds": ("gradient exchange", YELLOW),
    "bubble_seconds": ("bubble", GREY),
}
"""Part -> its name and colour, in the order of a stack."""

TITLES = {
    "published_megatron_scaling": "Table 1 of arXiv 2104.04473",
    "published_megatron_recompute": "Table 5 of arXiv 2205.05198",
    "published_megatron_training_time": "Table 2 of arXiv 2104.04473",
    "published_megatron_h100_scaling": "Megatron-Core on H100",
    "published_training_stage": "Stages of published runs",
}
"""Reference table -> its heading."""

WIDTH, ROW = 520, 19
MOST = 1.75
"""Shares of the measured step beyond it are cut."""


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/published_parts.sql: a panel for each table."""
    names, colours = zip(*PARTS.values(), strict=True)
    colour = alt.Color(
        "part:N",
        scale=alt.Scale(domain=list(names), range=list(colours)),
        legend=alt.Legend(title=None, orient="right"),
    )
    stored = [reference for reference in TITLES if reference in frame["reference"]]
    panels = [
        _panel(
            frame.filter(pl.col("reference") == reference),
            TITLES[reference],
            colour,
            "Share of the measured step" if reference == stored[-1] else None,
            theme,
        )
        for reference in stored
    ]
    return alt.vconcat(*panels, spacing=14).properties(
        title=parts.headed(finding(frame), shown(frame), WIDTH + 260)
    )


def _panel(
    frame: pl.DataFrame, title: str, colour: alt.Color, axis_title: str | None, theme: Theme
) -> ChartType:
    order = frame["published_row"].to_list()
    rows = frame.unpivot(
        list(PARTS), index=["published_row", "published_step_seconds"], variable_name="name"
    ).with_columns(
        share=pl.col("value") / pl.col("published_step_seconds"),
        part=pl.col("name").replace_strict({name: word for name, (word, _) in PARTS.items()}),
        rank=pl.col("name").replace_strict({name: n for n, name in enumerate(PARTS)}),
    )
    y = alt.Y("published_row:N", sort=order, title=None)
    scale = alt.Scale(domain=[0, MOST], nice=False)
    axis = alt.Axis(title=axis_title, format="%", values=[0, 0.5, 1, 1.5])
    bars = (
        alt.Chart(rows)
        .mark_bar(clip=True)
        .encode(x=alt.X("share:Q", scale=scale, axis=axis), y=y, color=colour, order="rank:Q")
    )
    measured = pl.DataFrame({"measured": [1.0]})
    line = alt.Chart(measured).mark_rule(color=theme.ink, strokeWidth=1.4)
    ends = frame.with_columns(
        low=pl.col("lowest_step_seconds") / pl.col("published_step_seconds"),
        high=pl.col("highest_step_seconds") / pl.col("published_step_seconds"),
        error=pl.col("step_seconds") / pl.col("published_step_seconds") - 1,
    ).with_columns(
        # no -0.0%
        error=pl.when(pl.col("error").abs() < 5e-4).then(0.0).otherwise(pl.col("error")),
        edge=pl.max_horizontal(pl.lit(1.0), pl.col("error") + 1, "high").clip(
            upper_bound=MOST - 0.2
        ),
    )
    reach = alt.Chart(ends.filter(pl.col("low").is_not_null())).mark_rule(color=theme.ink)
    words = alt.Chart(ends).mark_text(align="left", dx=5, fontSize=11)
    found: ChartType = alt.layer(
        bars,
        line.encode(x=alt.X("measured:Q", scale=scale)),
        reach.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y),
        words.encode(x=alt.X("edge:Q", scale=scale), y=y, text=alt.Text("error:Q", format="+.1%")),
    )
    return found.properties(
        width=WIDTH,
        height=ROW * len(order),
        title=alt.TitleParams(title, fontSize=13, offset=4, anchor="start"),
    )


def finding(frame: pl.DataFrame) -> str:
    """Return the share of products in the predicted steps, and the largest other part."""
    shares = {
        name: sum(parts.numbers(frame[name] / frame["step_seconds"])) / frame.height
        for name in PARTS
    }
    largest = max((name for name in shares if name != "gemm_seconds"), key=lambda n: shares[n])
    return (
        f"Products of matrices take {shares['gemm_seconds']:.0%} of a step, "
        f"{PARTS[largest][0]} {shares[largest]:.0%}"
    )


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    return (
        "Parts of the predicted step over the measured step, with the error; a thin line spans the "
        f"microbatches and chunks that a publication leaves open; {parts.estimate_words(frame)}"
    )
