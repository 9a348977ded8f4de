"""How good the estimates are: errors, rates and parts of published steps, rank of their layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import BLUE, GREY, ORANGE, PURPLE, RED, SKY, YELLOW
from warehouse.show.formats import count

if TYPE_CHECKING:
    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

EDGE = 1.0
"""Errors beyond it are drawn at it."""

NEAR = 0.1
"""Errors that the band around the diagonal of rates holds."""

PARTS = {
    "gemm_seconds": ("matmuls", BLUE),
    "attention_seconds": ("attention", SKY),
    "recompute_seconds": ("recomputation", "#b3d9f2"),
    "elementwise_seconds": ("elementwise, adding up", PURPLE),
    "vocabulary_seconds": ("vocabulary", "#e8c4d8"),
    "optimizer_seconds": ("optimizer, host", "#6b4b3a"),
    "tensor_comm_seconds": ("tensor collectives", RED),
    "pipeline_comm_seconds": ("stage transfers", ORANGE),
    "data_comm_seconds": ("gradient collectives", YELLOW),
    "bubble_seconds": ("bubble", GREY),
}
"""Part of an estimated step -> its name and colour, in the order of a stack."""

TABLES = {
    "published_megatron_scaling": "Table 1 of arXiv 2104.04473",
    "published_megatron_recompute": "Table 5 of arXiv 2205.05198",
    "published_megatron_training_time": "Table 2 of arXiv 2104.04473",
    "published_megatron_h100_scaling": "Megatron-Core on H100",
    "published_training_stage": "Stages of published runs",
}
"""Reference table -> the heading of its panel."""

WIDTH = 520
MOST = 1.75
"""Shares of the measured step beyond it are cut."""


# ---- errors ----


def accuracy(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the errors of predicted steps, a line for each group of measurements."""
    groups = by_group(frame)
    order = groups["label"].to_list()
    labels = frame.join(groups.select("measured", "label"), on="measured").with_columns(
        pl.col("time_relative_error").clip(-EDGE, EDGE)
    )
    scale = alt.Scale(domain=[-0.85, EDGE], nice=False, clamp=True)
    axis = parts.change_axis(
        "Error of the predicted step time", values=[tick / 10 for tick in range(-8, 11, 2)]
    )
    x = alt.X("time_relative_error:Q", scale=scale, axis=axis)
    y = alt.Y("label:N", sort=order, title=None)
    interval = alt.Chart(groups).mark_bar(height=12, color=theme.blue, opacity=0.28)
    steps = alt.Chart(labels).mark_tick(thickness=1.3, size=15, opacity=0.55, color=theme.ink)
    median = alt.Chart(groups).mark_point(
        filled=True, size=80, color=RED, opacity=1, stroke=theme.background or "#111111"
    )
    zero = alt.Chart(pl.DataFrame({"zero": [0]})).mark_rule(strokeWidth=1.4, color=theme.ink)
    layers = alt.layer(
        interval.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y),
        zero.encode(x=alt.X("zero:Q", scale=scale)),
        steps.encode(x=x, y=y),
        median.encode(x=alt.X("median:Q", scale=scale), y=y),
    )
    shown = (
        "A tick for each published step, a dot at the median of its group, a bar for the interval "
        "of its predictions; below 0% the prediction is too fast; errors beyond an end are drawn "
        f"there; in brackets the number of steps; {parts.estimate_words(frame)}, nothing fitted"
    )
    finding, height = _accuracy_finding(frame), 22 * len(order)
    return parts.titled(layers, finding, shown, width=560, height=height, margin=190)


def by_group(frame: pl.DataFrame) -> pl.DataFrame:
    """Return for each group its rows, its median error and the middle of its intervals' ends."""
    error = pl.col("time_relative_error")
    return (
        frame.group_by("measured")
        .agg(
            num_rows=pl.len(),
            median=error.median().clip(-EDGE, EDGE),
            size=error.abs().mean(),
            # the interval of an error is that of the prediction around the truth
            low=(error.median() + (pl.col("low_relative_error") - error).median()),
            high=(error.median() + (pl.col("high_relative_error") - error).median()),
        )
        .with_columns(
            label=pl.format("{} ({})", "measured", "num_rows"),
            high=pl.col("high").clip(upper_bound=EDGE),
        )
        .sort("size", "measured")
    )


def _accuracy_finding(frame: pl.DataFrame) -> str:
    size = parts.middle(frame["time_relative_error"].abs())
    if frame.height == 1:
        return f"One measured step is predicted within {size:.1%}"
    said = f"Half of {frame.height:,} measured steps are predicted within {size:.1%}"
    inside = frame["is_inside_interval"].drop_nulls()
    if inside.is_empty():
        return said
    return f"{said}; {inside.sum() / inside.len():.0%} lie in the interval meant for 90%"


# ---- rates ----


def measured_rates(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return measured against predicted FLOP/s of published steps."""
    rates = [*frame["measured_tflops"].to_list(), *frame["predicted_tflops"].to_list()]
    measured = parts.logarithmic(rates, "Measured TFLOP/s per GPU")
    predicted = parts.logarithmic(rates, "Predicted TFLOP/s per GPU")
    x, y = alt.X("measured_tflops:Q", **measured), alt.Y("predicted_tflops:Q", **predicted)
    ends = pl.Series([min(rates) / 1.1, max(rates) * 1.1])
    line = pl.DataFrame(
        {
            "measured_tflops": ends,
            "predicted_tflops": ends,
            "least": ends * (1 - NEAR),
            "most": ends * (1 + NEAR),
        }
    )
    band = alt.Chart(line).mark_area(color=theme.faint, opacity=0.22, clip=True)
    diagonal = alt.Chart(line).mark_line(color=theme.ink, strokeWidth=1).encode(x=x, y=y)
    names = frame.group_by("accelerator").len().sort(["len", "accelerator"], descending=True)
    order = names["accelerator"].to_list()
    points = alt.Chart(frame).mark_point(filled=True, size=34, opacity=0.6)
    layers = alt.layer(
        band.encode(x=x, y=alt.Y("least:Q", scale=predicted["scale"]), y2="most:Q"),
        diagonal,
        points.encode(
            x=x,
            y=y,
            color=parts.colours("accelerator", order, theme, title="Accelerator"),
            shape=alt.Shape("accelerator:N", scale=alt.Scale(domain=order), title="Accelerator"),
        ),
    )
    errors = frame["rate_error"]
    near, fast = ((errors.abs() <= NEAR).sum(), (errors > NEAR).sum())
    finding = (
        f"{near / errors.len():.0%} of {count(frame.height, 'measured rate')} are "
        f"predicted within {NEAR:.0%}, "
        f"{fast / errors.len():.0%} are predicted more than {NEAR:.0%} too fast"
    )
    shown = (
        f"Model FLOP/s of a GPU in published steps; the band is {NEAR:.0%} around equality; "
        f"{parts.estimate_words(frame)}, nothing fitted"
    )
    return parts.titled(layers, finding, shown, width=460, height=460, margin=150)


# ---- parts ----


def published_parts(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the parts of predicted steps over the measured step, a panel for each table."""
    names, colours = zip(*PARTS.values(), strict=True)
    scale = alt.Scale(domain=list(names), range=list(colours))
    color = alt.Color("part:N", scale=scale, legend=alt.Legend(title=None, orient="right"))
    stored = [reference for reference in TABLES if reference in frame["reference"]]
    panels = []
    for reference in stored:
        title = "Share of the measured step" if reference == stored[-1] else None
        axis = alt.Axis(title=title, format="%", values=[0, 0.5, 1, 1.5])
        rows = frame.filter(pl.col("reference") == reference)
        heading = alt.TitleParams(TABLES[reference], fontSize=13, offset=4, anchor="start")
        panel = _parts_panel(rows, color, axis, theme)
        panels.append(panel.properties(width=WIDTH, height=19 * rows.height, title=heading))
    shares = {
        name: sum(parts.numbers(frame[name] / frame["step_seconds"])) / frame.height
        for name in PARTS
    }
    largest = max((name for name in shares if name != "gemm_seconds"), key=lambda n: shares[n])
    finding = (
        f"Matmuls take {shares['gemm_seconds']:.0%} of a step, "
        f"{PARTS[largest][0]} {shares[largest]:.0%}"
    )
    shown = (
        "Parts of the predicted step over the measured step, with the error; a thin line spans the "
        f"microbatches and chunks that a publication leaves open; {parts.estimate_words(frame)}"
    )
    picture = alt.vconcat(*panels, spacing=14)
    return picture.properties(title=parts.headed(finding, shown, WIDTH + 260))


def _parts_panel(frame: pl.DataFrame, color: alt.Color, axis: alt.Axis, theme: Theme) -> ChartType:
    rows = frame.unpivot(
        list(PARTS), index=["published_row", "published_step_seconds"], variable_name="name"
    ).with_columns(
        share=pl.col("value") / pl.col("published_step_seconds"),
        part=pl.col("name").replace_strict({name: word for name, (word, _) in PARTS.items()}),
        rank=pl.col("name").replace_strict({name: n for n, name in enumerate(PARTS)}),
    )
    y = alt.Y("published_row:N", sort=frame["published_row"].to_list(), title=None)
    scale = alt.Scale(domain=[0, MOST], nice=False)
    bars = alt.Chart(rows).mark_bar(clip=True)
    measured = pl.DataFrame({"measured": [1.0]})
    line = alt.Chart(measured).mark_rule(color=theme.ink, strokeWidth=1.4)
    seconds = pl.col("published_step_seconds")
    ends = frame.with_columns(
        low=pl.col("lowest_step_seconds") / seconds,
        high=pl.col("highest_step_seconds") / seconds,
        error=pl.col("step_seconds") / seconds - 1,
    ).with_columns(
        # no -0.0%
        error=pl.when(pl.col("error").abs() < 5e-4).then(0.0).otherwise(pl.col("error")),
        edge=pl.max_horizontal(pl.lit(1.0), pl.col("error") + 1, "high").clip(
            upper_bound=MOST - 0.2
        ),
    )
    reach = alt.Chart(ends.filter(pl.col("low").is_not_null())).mark_rule(color=theme.ink)
    words = alt.Chart(ends).mark_text(align="left", dx=5, fontSize=11)
    return alt.layer(
        bars.encode(x=alt.X("share:Q", scale=scale, axis=axis), y=y, color=color, order="rank:Q"),
        line.encode(x=alt.X("measured:Q", scale=scale)),
        reach.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", y=y),
        words.encode(x=alt.X("edge:Q", scale=scale), y=y, text=alt.Text("error:Q", format="+.1%")),
    )


# ---- rank of published layouts ----


def layout_rank(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return where published layouts lie among all layouts of their problem."""
    rows = frame.sort("num_gpus", "published_row").with_columns(
        label=pl.format("{}, {} GPUs", "published_row", "num_gpus"),
        rank=pl.format("rank {} of {}", "rank_by_time", "num_fitting_layouts"),
    )
    order = rows["label"].to_list()
    high = parts.most(rows["slowest_tenth"])
    scale = alt.Scale(type="log", domain=[0.97, high * 1.05], nice=False)
    ticks = [tick for tick in (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500) if tick <= high]
    title = "Step time over that of the fastest layout"
    axis = alt.Axis(title=title, values=ticks, format="~r", grid=True)
    base = alt.Chart(rows).encode(y=alt.Y("label:N", sort=order, title=None))
    wide = base.mark_bar(height=9, color=theme.blue, opacity=0.3)
    narrow = base.mark_bar(height=17, color=theme.blue, opacity=0.55)
    median = base.mark_tick(thickness=2.5, size=20, color=theme.ink)
    mark = base.mark_point(shape="diamond", size=130, filled=True, color=RED, opacity=1)
    words = base.mark_text(align="left", fontSize=12).encode(x=alt.value(WIDTH + 10), text="rank:N")
    layers = alt.layer(
        wide.encode(x=alt.X("fastest_tenth:Q", scale=scale, axis=axis), x2="slowest_tenth:Q"),
        narrow.encode(x=alt.X("fastest_quarter:Q", scale=scale), x2="slowest_quarter:Q"),
        median.encode(x=alt.X("median:Q", scale=scale)),
        mark.encode(x=alt.X("speedup_of_best:Q", scale=scale)),
        words,
    )
    share = parts.middle(frame["rank_by_time"] / frame["num_fitting_layouts"])
    gain = parts.middle(frame["speedup_of_best"]) - 1
    finding = (
        f"Half of the published layouts are in the fastest {max(share, 0.01):.0%} of their "
        f"problem; the best layouts are {gain:.0%} faster"
    )
    shown = (
        "All layouts of the same model, batch and GPUs that fit in memory: bars span the middle "
        "half and eight tenths of their step times, a tick is the median, a diamond the published "
        f"layout; the best layouts' gain is a median; {parts.estimate_words(frame)}"
    )
    height = 34 * len(order)
    return parts.titled(layers, finding, shown, width=WIDTH, height=height, margin=220)
