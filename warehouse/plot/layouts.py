"""Layouts next to one another: bars of degrees with the memory, bars of the parts of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import YELLOW

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

DEGREES = {
    "num_microbatches": "microbatches",
    "tensor_parallel": "tensor × context",
    "data_parallel": "replicas",
    "pipeline_parallel": "pipeline stages",
}
"""Column -> its name in the legend."""

EXPERTS = {"expert_parallel": "ranks of experts"}
"""The further degree of mixtures of experts -> its name in the legend."""

UPPER, LOWER = 220, 260


def panels(frame: pl.DataFrame, axis: str, finding: str, shown: str, theme: Theme) -> ChartType:
    """Return both panels of some layouts.

    Parameters
    ----------
    frame
        A row for each layout, in the order of the axis: its name in column `place`, degrees, memory
        and parts of the step.
    axis
        Title of the axis below.
    """
    order = frame["place"].to_list()
    width = max(420, 76 * len(order))
    x = alt.X("place:N", sort=order)
    upper = _degrees(frame, x, theme).properties(width=width, height=UPPER)
    lower = _parts(frame, x, axis, theme).properties(width=width, height=LOWER)
    both: ChartType = alt.vconcat(upper, lower).resolve_scale(color="independent")
    return both.properties(title=parts.headed(finding, shown, width + 150))


def degrees_of(frame: pl.DataFrame) -> dict[str, str]:
    """Return the degrees to show: that of experts only where a layout splits them."""
    [name] = EXPERTS
    is_split = name in frame.columns and (frame[name].drop_nulls() > 1).any()
    return DEGREES | EXPERTS if is_split else DEGREES


def _degrees(frame: pl.DataFrame, x: alt.X, theme: Theme) -> ChartType:
    shown = degrees_of(frame)
    rows = frame.unpivot(list(shown), index=["place", "memory_bytes", "hbm_bytes"]).with_columns(
        degree=pl.col("variable").replace_strict(shown), value=pl.col("value").cast(pl.Float64)
    )
    most = max(float(value) for value in rows["value"].drop_nulls().to_list())
    names = list(shown.values())
    ticks = [2.0**power for power in range(0, 40, 2) if 2.0**power <= most]
    # bars of a logarithmic scale begin below 1, so that a degree of 1 can be seen
    scale = alt.Scale(type="log", base=2, domain=[0.7, most * 1.8], nice=False)
    bars = (
        alt.Chart(rows.with_columns(floor=pl.lit(0.7)))
        .mark_bar()
        .encode(
            x=x.axis(title=None, labels=False, ticks=False),
            xOffset=alt.XOffset("degree:N", sort=names),
            y=alt.Y("value:Q", scale=scale).axis(
                title="Degree", values=ticks, format=",d", titleColor=theme.ink
            ),
            y2="floor:Q",
            color=alt.Color(
                "degree:N",
                # no part of the step has the last colour
                scale=alt.Scale(domain=names, range=[*theme.greys, YELLOW][: len(names)]),
                title=None,
            ),
        )
    )
    memory = alt.Chart(frame.filter(pl.col("memory_bytes").is_not_null())).transform_calculate(
        gigabytes="datum.memory_bytes / 1e9",
        label="format(datum.memory_bytes / 1e9, ',.0f') + ' GB'",
    )
    words = memory.mark_text(baseline="bottom", fontWeight="bold").encode(
        x=x, y=alt.value(-6), text="label:N"
    )
    values = bars.mark_text(baseline="bottom", dy=-2, fontSize=10).encode(
        text=alt.Text("value:Q", format=",d"), color=alt.value(theme.ink), y="value:Q"
    )
    return alt.layer(bars, values, words)


def _parts(frame: pl.DataFrame, x: alt.X, axis: str, theme: Theme) -> ChartType:
    columns = [name for name in parts.STEP_PARTS if frame[name].null_count() < frame.height]
    rows = frame.unpivot(columns, index=["place", "step_seconds"]).with_columns(
        part=pl.col("variable").replace_strict(parts.STEP_PARTS),
        rank=pl.col("variable").replace_strict({name: n for n, name in enumerate(columns)}),
        share=pl.col("value") / pl.col("step_seconds"),
    )
    names = [parts.STEP_PARTS[name] for name in columns]
    bars = (
        alt.Chart(rows)
        .mark_bar(stroke=theme.background or "#222222", strokeWidth=0.6)
        .encode(
            x=x.axis(title=axis, labelAngle=0),
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1])).axis(
                title="Share of the step", format="%"
            ),
            color=alt.Color(
                "part:N",
                scale=parts.hues(names, theme),
                title=None,
            ),
            order="rank:Q",
        )
    )
    seconds = alt.Chart(frame).transform_calculate(
        label="(datum.step_seconds < 10 ? format(datum.step_seconds, '.2~f') "
        ": format(datum.step_seconds, ',.0f')) + ' s'"
    )
    words = seconds.mark_text(baseline="bottom", fontWeight="bold").encode(
        x=x, y=alt.value(-6), text="label:N"
    )
    return alt.layer(bars, words)
