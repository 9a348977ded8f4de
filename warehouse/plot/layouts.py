"""Layouts: the best on each number of GPUs, configurations A, B, C ..., fronts of time and memory.

Source of the first two pictures: the panels of optimal configurations, and the configurations A to
H, of arXiv 2410.00273. The latter trade pipeline stages for replicas at one tensor-parallel degree.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import WIDTH, YELLOW
from warehouse.show.formats import count
from warehouse.show.units import STEP_PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

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

SPARE = 0.05
"""Share of the time that the title of a front gives for memory."""

LEAST = 0.005
"""Share of memory that counts as saved."""


def best_layouts(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return degrees, memory and parts of the step of the best layout on each number of GPUs."""
    frame = frame.sort("num_gpus")
    places = pl.Series("place", [f"{count:,}" for count in frame["num_gpus"]])
    first, last = frame.row(0, named=True), frame.row(-1, named=True)
    shares = {
        name: (last[name] or 0.0) / last["step_seconds"] for name in STEP_PARTS if name in last
    }
    arithmetic = shares.pop("compute_seconds")
    largest = max(shares, key=lambda name: shares[name])
    finding = (
        f"On {last['num_gpus']:,} {last['accelerator']}, arithmetic is {arithmetic:.0%} of the "
        f"step, {STEP_PARTS[largest]} {shares[largest]:.0%}"
    )
    shown = (
        f"The best layout of {first['model']} on each number of {_system(first)}, "
        f"batches of {first['global_batch_size']:,} sequences; in bold the memory of a GPU and the "
        f"seconds of a step; {parts.estimate_words(frame)}"
    )
    return _panels(frame.with_columns(places), "Number of GPUs", finding, shown, theme)


def _system(row: Mapping[str, Any]) -> str:
    domain = f" in fast domains of {row['nvlink_size']}" if row["nvlink_size"] else ""
    return f"{row['accelerator']}{domain}"


# ---- configurations ----


def configurations(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the layouts that differ in pipeline stages and replicas alone."""
    frame = lettered(frame)
    first = frame.row(0, named=True)
    shown = (
        f"{first['model']} on {first['num_gpus']:,} {_system(first)}, "
        f"tensor-parallel degree {first['tensor_parallel']}, the fastest microbatch and placement "
        f"of each; in bold the memory of a GPU and the seconds of a step; a star exceeds "
        f"{first['hbm_bytes'] / 1e9:,.0f} GB; {parts.estimate_words(frame)}"
    )
    return _panels(frame, "Configuration", _configurations_finding(frame), shown, theme)


def lettered(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by pipeline stages with a letter each; a star exceeds the memory."""
    # rates that differ in their last digits make problems of their own
    rows = frame.sort("step_seconds").unique("pipeline_parallel", keep="first")
    rows = rows.sort("pipeline_parallel").head(len(ascii_uppercase))
    letters = pl.Series("place", list(ascii_uppercase[: rows.height]))
    star = pl.when(pl.col("fits_memory") == pl.lit(False)).then(pl.lit(" *")).otherwise(pl.lit(""))
    return rows.with_columns(letters).with_columns(place=pl.col("place") + star)


def _configurations_finding(frame: pl.DataFrame) -> str:
    fitting = frame.filter(pl.col("fits_memory") != pl.lit(False)).sort("step_seconds")
    if fitting.is_empty():
        return "No configuration fits in memory"
    best, worst = fitting.row(0, named=True), fitting.row(-1, named=True)
    stages = count(best["pipeline_parallel"], "pipeline stage")
    said = (
        f"{best['place']}, with {stages}, is the fastest that fits: "
        f"{parts.figure(best['step_seconds'], 3)} s"
    )
    if fitting.height == 1:
        return said
    ratio = worst["step_seconds"] / best["step_seconds"]
    longer = f"{parts.figure(ratio)} times as long" if ratio >= 2 else f"{ratio - 1:.0%} longer"
    return f"{said}, {worst['place']} takes {longer}"


# ---- the two panels of layouts ----


def _panels(frame: pl.DataFrame, axis: str, finding: str, shown: str, theme: Theme) -> ChartType:
    """Return degrees and memory of layouts above the parts of their steps.

    Each row is a layout, in the order of the axis; column `place` is its name.
    """
    order = frame["place"].to_list()
    width = max(420, 76 * len(order))
    x = alt.X("place:N", sort=order)
    upper = _degrees(frame, x, theme).properties(width=width, height=UPPER)
    lower = _parts(frame, x, axis, theme).properties(width=width, height=LOWER)
    both: ChartType = alt.vconcat(upper, lower).resolve_scale(color="independent")
    return both.properties(title=parts.headed(finding, shown, width + 150))


def _degrees(frame: pl.DataFrame, x: alt.X, theme: Theme) -> ChartType:
    [experts] = EXPERTS
    splits_experts = experts in frame.columns and (frame[experts].drop_nulls() > 1).any()
    degrees = DEGREES | EXPERTS if splits_experts else DEGREES
    rows = frame.unpivot(list(degrees), index=["place", "memory_bytes", "hbm_bytes"]).with_columns(
        degree=pl.col("variable").replace_strict(degrees),
        value=pl.col("value").cast(pl.Float64),
        floor=pl.lit(0.7),
    )
    most = parts.most(rows["value"])
    names = list(degrees.values())
    ticks = [2.0**power for power in range(0, 40, 2) if 2.0**power <= most]
    # bars of a logarithmic scale begin below 1, so that a degree of 1 can be seen
    scale = alt.Scale(type="log", base=2, domain=[0.7, most * 1.8], nice=False)
    axis = alt.Axis(title="Degree", values=ticks, format=",d", titleColor=theme.ink)
    # no part of the step has the last colour
    colours = alt.Scale(domain=names, range=[*theme.greys, YELLOW][: len(names)])
    bars = (
        alt.Chart(rows)
        .mark_bar()
        .encode(
            x=x.axis(title=None, labels=False, ticks=False),
            xOffset=alt.XOffset("degree:N", sort=names),
            y=alt.Y("value:Q", scale=scale, axis=axis),
            y2="floor:Q",
            color=alt.Color("degree:N", scale=colours, title=None),
        )
    )
    memory = alt.Chart(frame.filter(pl.col("memory_bytes").is_not_null())).transform_calculate(
        gigabytes="datum.memory_bytes / 1e9",
        label="format(datum.memory_bytes / 1e9, ',.0f') + ' GB'",
    )
    values = bars.mark_text(baseline="bottom", dy=-2, fontSize=10).encode(
        text=alt.Text("value:Q", format=",d"), color=alt.value(theme.ink), y="value:Q"
    )
    return alt.layer(bars, values, _labels_above(memory, x))


def _parts(frame: pl.DataFrame, x: alt.X, title: str, theme: Theme) -> ChartType:
    # the bubble is on top of the stack
    stack = sorted(STEP_PARTS, key=lambda name: name == "bubble_seconds")
    columns = [name for name in stack if frame[name].null_count() < frame.height]
    rows = frame.unpivot(columns, index=["place", "step_seconds"]).with_columns(
        part=pl.col("variable").replace_strict(STEP_PARTS),
        rank=pl.col("variable").replace_strict({name: n for n, name in enumerate(columns)}),
        share=pl.col("value") / pl.col("step_seconds"),
    )
    names = [STEP_PARTS[name] for name in columns]
    axis = alt.Axis(title="Share of the step", format="%")
    bars = (
        alt.Chart(rows)
        .mark_bar(stroke=theme.background or "#222222", strokeWidth=0.6)
        .encode(
            x=x.axis(title=title, labelAngle=0),
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=axis),
            color=parts.colours("part", names, theme, title=None),
            order="rank:Q",
        )
    )
    seconds = alt.Chart(frame).transform_calculate(
        label="(datum.step_seconds < 10 ? format(datum.step_seconds, '.2~f') "
        ": format(datum.step_seconds, ',.0f')) + ' s'"
    )
    return alt.layer(bars, _labels_above(seconds, x))


def _labels_above(chart: alt.Chart, x: alt.X) -> alt.Chart:
    texts = chart.mark_text(baseline="bottom", fontWeight="bold")
    labels: alt.Chart = texts.encode(x=x, y=alt.value(-6), text="label:N")
    return labels


# ---- fronts ----


def pareto(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the least memory for each step time, a line with steps for each number of GPUs."""
    # far from the fastest layouts a front has hundreds of layouts that nobody uses
    near = front(frame).filter(
        pl.col("step_seconds") <= 2 * pl.col("step_seconds").min().over("num_gpus")
    )
    rows, color = parts.coloured_counts(near, "num_gpus", "GPUs", theme)
    seconds = near["step_seconds"].to_list()
    x = alt.X("step_seconds:Q", **parts.logarithmic(seconds, "Step time (s)"))
    axis = alt.Axis(title="Memory of a GPU (GB)", grid=True)
    y = alt.Y("memory_gb:Q", scale=alt.Scale(zero=True), axis=axis)
    base = alt.Chart(rows).encode(x=x, y=y, color=color)
    lines, points = base.mark_line(interpolate="step-after"), base.mark_point(size=22, opacity=1)
    limit = alt.Chart(frame.select("hbm_gb").head(1))
    rule = limit.mark_rule(strokeDash=[5, 4], color=theme.ink).encode(y="hbm_gb:Q")
    word = limit.mark_text(align="right", baseline="bottom", dy=-4, color=theme.faint).encode(
        y="hbm_gb:Q", x=alt.value(WIDTH - 4), text=alt.value("capacity of a GPU")
    )
    first = frame.row(0, named=True)
    shown = (
        f"Layouts of {first['model']} on {_system(first)} that no other beats in "
        f"both step time and memory, batches of {first['global_batch_size']:,} sequences; "
        f"{parts.estimate_words(frame)}"
    )
    return parts.titled(alt.layer(rule, word, lines, points), _pareto_finding(frame), shown)


def front(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that no other row with the same number of GPUs beats, over all problems."""
    ordered = frame.sort("num_gpus", "step_seconds", "memory_gb")
    least_before = pl.col("memory_gb").cum_min().shift(1).over("num_gpus")
    return ordered.filter((pl.col("memory_gb") < least_before).fill_null(value=True))


def _pareto_finding(frame: pl.DataFrame) -> str:
    """Return the memory that a little time saves on the most GPUs of the fronts.

    One layout, such as a published step, says nothing about others: it is only named.
    """
    most = frame.filter(pl.col("num_gpus") == pl.col("num_gpus").max()).sort("step_seconds")
    fastest = most.row(0, named=True)
    gpus = f"{fastest['num_gpus']:,} {fastest['accelerator']}"
    if most.height == 1:
        return (
            f"One layout on {gpus}: {parts.figure(fastest['step_seconds'])} s a step, "
            f"{parts.figure(fastest['memory_gb'])} GB of a GPU"
        )
    within = most.filter(pl.col("step_seconds") <= fastest["step_seconds"] * (1 + SPARE))
    saved = 1 - parts.least(within["memory_gb"]) / fastest["memory_gb"]
    if saved < LEAST:
        return f"On {gpus}, {SPARE:.0%} more time saves no memory"
    return f"On {gpus}, {saved:.0%} less memory costs at most {SPARE:.0%} more time"
