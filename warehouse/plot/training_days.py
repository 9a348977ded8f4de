"""Days of a run over the number of GPUs of every system, with lines of perfect scaling.

Source of the picture: the strong scaling of arXiv 2410.00273, figure of training time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot import parts, systems
from warehouse.plot.theme import HEIGHT, LIGHT, WIDTH, Theme
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from altair.typing import ChartType


NEAR = 1.2
"""GPU-hours are near the least up to this multiple of them."""


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
    """Return the days of the fastest accelerator on `worthwhile` GPUs and on the most GPUs.

    Where these two are the same, the second is the fewest GPUs.
    """
    counts = fastest(frame)
    own = worthwhile(counts)
    name, days = own["accelerator"], parts.figure(own["training_days"])
    said = f"{own['num_gpus']:,} {name} train {own['model']} in {days} days{_lead(frame, own)}"
    ends = counts.row(-1, named=True), counts.row(0, named=True)
    other = next((end for end in ends if end["num_gpus"] != own["num_gpus"]), None)
    if other is None:
        return said
    more = _gpu_days(other) / _gpu_days(own) - 1
    share = f"{abs(more):.0%}"
    hours = "as many" if share == "0%" else f"{share} {'more' if more > 0 else 'fewer'}"
    days = parts.figure(other["training_days"])
    return f"{said}; {other['num_gpus']:,} take {days} days and {hours} GPU-hours"


def fastest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the fastest run of each number of GPUs, of the accelerator with the fastest of all."""
    name = frame.sort("training_days")["accelerator"][0]
    own = frame.filter(pl.col("accelerator") == name).sort("num_gpus", "training_days")
    return own.group_by("num_gpus", maintain_order=True).first()


def worthwhile(counts: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the most GPUs whose GPU-hours are near the least: returns fall from there.

    Parameters
    ----------
    counts
        A row for each number of GPUs, in order.
    """
    rows = counts.to_dicts()
    least = min(map(_gpu_days, rows))
    return [row for row in rows if _gpu_days(row) <= NEAR * least][-1]


def _gpu_days(row: dict[str, Any]) -> float:
    return float(row["num_gpus"] * row["training_days"])


def _lead(frame: pl.DataFrame, own: dict[str, Any]) -> str:
    """Return how far another accelerator is behind on as many GPUs; nothing without one."""
    others = frame.filter(
        pl.col("accelerator") != own["accelerator"], pl.col("num_gpus") == own["num_gpus"]
    ).sort("training_days")
    if others.is_empty():
        return ""
    other = others.row(0, named=True)
    ratio = parts.figure(other["training_days"] / own["training_days"])
    return f", {'' if ratio == '1' else f'{ratio} times '}as fast as {other['accelerator']}"


def shown(frame: pl.DataFrame) -> str:
    """Return the subtitle: the content and the conditions of the picture."""
    first, own = frame.row(0, named=True), worthwhile(fastest(frame))
    return (
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']}, batches of "
        f"{first['global_batch_size']:,} sequences; the best layout of each system on each number "
        f"of GPUs, {systems.domain_words(frame)}; {own['num_gpus']:,} {own['accelerator']} are the "
        f"most whose GPU-hours are within {NEAR - 1:.0%} of the least; "
        f"{parts.estimate_words(frame)}"
    )
