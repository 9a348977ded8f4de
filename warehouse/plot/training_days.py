"""Days of a run over the number of GPUs of every system, with lines of perfect scaling.

Source of the picture: the strong scaling of arXiv 2410.00273, figure of training time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warehouse.plot import parts, systems
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType


def chart(frame: pl.DataFrame, theme: Theme = LIGHT) -> ChartType:
    """Return the chart of the rows of sql/plots/training_days.sql."""
    frame = systems.distinct(frame)
    ideal = perfect(frame)
    counts = frame["num_gpus"].to_list()
    days = [*frame["training_days"].to_list(), *ideal["training_days"].to_list()]
    low, high = min(days), max(days)
    x = alt.X("num_gpus:Q", scale=parts.log_scale(min(counts), max(counts), base=2))
    y = alt.Y("training_days:Q", scale=parts.log_scale(low, high, 1.4))
    x = x.axis(parts.counts_axis(counts, "Number of GPUs"))
    y = y.axis(title="Training time (days)", values=parts.log_ticks(low, high), format=",~r")
    order = systems.by_least(frame, "training_days", descending=True)
    lines = systems.lines(frame, x, y, order, theme)
    perfect_lines = (
        alt.Chart(ideal)
        .mark_line(strokeDash=[2, 4], strokeWidth=1.3, color=theme.faint)
        .encode(x=x, y=y, detail="accelerator:N")
    )
    lowest = ideal.sort("training_days").head(1)
    word = parts.note(lowest, x, y, "perfect scaling", theme, dx=-14, dy=10)
    title = parts.headed(finding(frame), shown(frame))
    return alt.layer(perfect_lines, *lines, word).properties(
        title=title, width=WIDTH, height=HEIGHT
    )


def perfect(frame: pl.DataFrame) -> pl.DataFrame:
    """Return for each accelerator two points of a line on which twice the GPUs take half the time.

    It begins at the fewest GPUs that hold the model, with the fastest system of the accelerator.
    """
    most = frame["num_gpus"].max()
    first = (
        frame.sort("num_gpus", "training_days")
        .group_by("accelerator", maintain_order=True)
        .first()
        .select("accelerator", "num_gpus", "training_days")
    )
    last = first.with_columns(
        num_gpus=pl.lit(most, dtype=frame.schema["num_gpus"]),
        training_days=pl.col("training_days") * pl.col("num_gpus") / most,
    )
    return pl.concat([first, last])


def finding(frame: pl.DataFrame) -> str:
    """Return the fastest run, and how far the fastest of another accelerator is behind."""
    best = frame.sort("training_days").row(0, named=True)
    name, model = best["accelerator"], best["model"]
    said = (
        f"{best['num_gpus']:,} {name} train {model} in {parts.figure(best['training_days'])} days"
    )
    others = frame.filter(
        pl.col("accelerator") != name, pl.col("num_gpus") == best["num_gpus"]
    ).sort("training_days")
    if others.is_empty():
        return said
    other = others.row(0, named=True)
    ratio = parts.figure(other["training_days"] / best["training_days"])
    return f"{said}, {ratio} times as fast as {other['accelerator']}"


def shown(frame: pl.DataFrame) -> str:
    """Return what the picture shows."""
    first = frame.row(0, named=True)
    return (
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']}, batches of "
        f"{first['global_batch_size']:,} sequences; the best layout of each system on each number "
        f"of GPUs, {systems.domain_words(frame)}; {parts.estimate_words(frame)}"
    )
