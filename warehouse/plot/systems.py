"""Systems as GPUs are added: days of a run, throughput of a GPU, strategies.

A system is an accelerator with a size of its NVLink domain. Source of the pictures: the strong
scaling, the normalized throughput and the comparison of 1D with 2D tensor parallelism of arXiv
2410.00273.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from warehouse.plot import parts
from warehouse.plot.theme import DASHES
from warehouse.show.units import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from altair.typing import ChartType

    from warehouse.plot.theme import Theme

NEAR = 1.2
"""GPU-hours are near the least up to this multiple of them."""

_TIMES = 1.5
"""Ratio of times from which it is said as a multiple, not as a change."""

PANEL = 300
STRATEGIES = {"summa_2d": "2D tensor parallelism (SUMMA)", "context_2d": "Context parallelism"}
"""Strategy -> heading of its panel."""

LEAST = 0.005
"""Share below which a difference is none."""


def distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the NVLink domains with most rows, as many as a chart can distinguish."""
    counted = frame.group_by("nvlink_size").len().sort(["len", "nvlink_size"], descending=True)
    domains = counted["nvlink_size"].head(len(DASHES))
    return frame.filter(pl.col("nvlink_size").is_in(domains.implode(), nulls_equal=True))


def _lines(
    frame: pl.DataFrame, x: alt.X, y: alt.Y, order: Sequence[str], theme: Theme
) -> list[alt.Chart]:
    color = parts.colours("accelerator", order, theme, title="Accelerator")
    return parts.lines_of_domains(frame, x, y, color)


def _by_least(frame: pl.DataFrame, column: str) -> list[str]:
    """Return the accelerators, that with the greatest of the least values of a column first."""
    least = frame.group_by("accelerator").agg(pl.col(column).min())
    return least.sort([column, "accelerator"], descending=True)["accelerator"].to_list()


# ---- days of a run ----


def training_days(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the days of a run over the number of GPUs, with lines of perfect scaling."""
    frame = distinct(frame)
    ideal = perfect(frame)
    days = [*frame["training_days"].to_list(), *ideal["training_days"].to_list()]
    x = alt.X("num_gpus:Q", **parts.doubling(frame["num_gpus"].to_list(), "Number of GPUs"))
    ticks = parts.log_ticks(min(days), max(days))
    title = "Training time (days)"
    y = alt.Y("training_days:Q", **parts.logarithmic(days, title, room=1.4, ticks=ticks))
    perfect_lines = (
        alt.Chart(ideal)
        .mark_line(strokeDash=[2, 4], strokeWidth=1.3, color=theme.faint)
        .encode(x=x, y=y, detail="accelerator:N")
    )
    word = alt.Chart(ideal.sort("training_days").head(1)).mark_text(
        align="right", dx=-14, dy=10, color=theme.faint, text="perfect scaling"
    )
    lines = _lines(frame, x, y, _by_least(frame, "training_days"), theme)
    first, best = frame.row(0, named=True), worthwhile(fastest(frame))
    domains = sorted(set(frame["nvlink_size"].drop_nulls().to_list()))
    shown = (
        f"{in_words('dataset_tokens', first['dataset_tokens'])} of {first['model']}, batches of "
        f"{first['global_batch_size']:,} sequences; the best layout of each system on each number "
        f"of GPUs, "
        + (f"fast domains of {parts.listed(domains)} GPUs" if domains else "no fast domain")
        + f"; {best['num_gpus']:,} {best['accelerator']} are the "
        f"most whose GPU-hours are within {NEAR - 1:.0%} of the least; "
        f"{parts.estimate_words(frame)}"
    )
    layers = alt.layer(perfect_lines, *lines, word.encode(x=x, y=y))
    return parts.titled(layers, _days_finding(frame), shown)


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


def fastest(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the fastest run of each number of GPUs, of the accelerator with the fastest of all."""
    name = frame.sort("training_days")["accelerator"][0]
    runs = frame.filter(pl.col("accelerator") == name).sort("num_gpus", "training_days")
    return runs.group_by("num_gpus", maintain_order=True).first()


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


def _days_finding(frame: pl.DataFrame) -> str:
    """Return the days of the fastest accelerator on `worthwhile` GPUs and on the most GPUs.

    Where these two are the same, the second is the fewest GPUs.
    """
    counts = fastest(frame)
    best = worthwhile(counts)
    name, days = best["accelerator"], parts.figure(best["training_days"])
    said = f"{best['num_gpus']:,} {name} train {best['model']} in {days} days{_lead(frame, best)}"
    ends = counts.row(-1, named=True), counts.row(0, named=True)
    other = next((end for end in ends if end["num_gpus"] != best["num_gpus"]), None)
    if other is None:
        return said
    more = _gpu_days(other) / _gpu_days(best) - 1
    share = f"{abs(more):.0%}"
    hours = "as many" if share == "0%" else f"{share} {'more' if more > 0 else 'fewer'}"
    days = parts.figure(other["training_days"])
    return f"{said}; {other['num_gpus']:,} take {days} days and {hours} GPU-hours"


def _lead(frame: pl.DataFrame, best: dict[str, Any]) -> str:
    others = frame.filter(
        pl.col("accelerator") != best["accelerator"], pl.col("num_gpus") == best["num_gpus"]
    ).sort("training_days")
    if others.is_empty():
        return ""
    other = others.row(0, named=True)
    name, ratio = other["accelerator"], other["training_days"] / best["training_days"]
    if ratio >= _TIMES:
        return f", {parts.figure(ratio)} times as fast as {name}"
    change = f"{abs(1 / ratio - 1):.0%}"
    if change == "0%":
        return f", as fast as {name}"
    return f", {change} {'less' if ratio > 1 else 'more'} time than {name}"


# ---- throughput of a GPU ----


def throughput_per_gpu(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the throughput of a GPU, relative to the fewest GPUs that hold the model."""
    frame = distinct(frame)
    x = alt.X("num_gpus:Q", **parts.doubling(frame["num_gpus"].to_list(), "Number of GPUs"))
    scale = alt.Scale(zero=False)
    axis = alt.Axis(title="Throughput per GPU, relative to the fewest GPUs", format="%", grid=True)
    y = alt.Y("relative_throughput:Q", scale=scale, axis=axis)
    lines = _lines(frame, x, y, _by_least(frame, "relative_throughput"), theme)
    first = frame.row(0, named=True)
    shown = (
        f"Tokens per second and GPU of {first['model']}, batches of "
        f"{first['global_batch_size']:,} sequences; 100% is the fewest GPUs whose memory holds the "
        f"model, a line for each system; {parts.estimate_words(frame)}"
    )
    layers = alt.layer(parts.level(1, scale, axis), *lines)
    return parts.titled(layers, _throughput_finding(frame), shown)


def _throughput_finding(frame: pl.DataFrame) -> str:
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


# ---- strategies ----


def strategies_rows(frame: pl.DataFrame, _connection: object) -> pl.DataFrame:
    """Return the rows of the strategies that are compared with 1D tensor parallelism."""
    return distinct(frame).filter(pl.col("strategy") != "tensor_1d")


def strategies(frame: pl.DataFrame, theme: Theme) -> ChartType:
    """Return the speed of each strategy relative to 1D tensor parallelism, in a panel each."""
    counts = frame["num_gpus"].to_list()
    speeds = [1.0, *frame["relative_speed"].to_list()]
    margin = 0.05 * (max(speeds) - min(speeds)) or 0.01
    domain = [min(speeds) - margin, max(speeds) + margin]
    scale = alt.Scale(domain=domain, zero=False, nice=True)
    order = _by_least(frame, "relative_speed")
    panels: list[ChartType] = []
    for strategy in dict.fromkeys(frame["strategy"].to_list()):
        x = alt.X("num_gpus:Q", **parts.doubling(counts, "Number of GPUs", every=2))
        title = "Speed relative to 1D" if not panels else None
        axis = alt.Axis(title=title, format=".2~f", grid=True)
        y = alt.Y("relative_speed:Q", scale=scale, axis=axis)
        lines = _lines(frame.filter(pl.col("strategy") == strategy), x, y, order, theme)
        heading = alt.TitleParams(STRATEGIES.get(strategy, strategy), fontSize=15, offset=8)
        panels.append(
            alt.layer(parts.level(1, scale, axis), *lines).properties(
                title=heading, width=PANEL, height=PANEL
            )
        )
    first = frame.row(0, named=True)
    shown = (
        f"Step time of the best 1D layout over that of the best layout of the strategy; "
        f"{first['model']}, batches of {first['global_batch_size']:,} sequences; "
        f"{parts.estimate_words(frame)}"
    )
    width = len(panels) * (PANEL + 60)
    return alt.hconcat(*panels).properties(
        title=parts.headed(_strategies_finding(frame), shown, width)
    )


def _strategies_finding(frame: pl.DataFrame) -> str:
    ordered = frame.sort("relative_speed")
    best, worst = ordered.row(-1, named=True), ordered.row(0, named=True)
    gain, loss = best["relative_speed"] - 1, 1 - worst["relative_speed"]
    fast, slow = (STRATEGIES.get(row["strategy"], row["strategy"]) for row in (best, worst))
    slow = slow if slow[0].isdigit() else slow[0].lower() + slow[1:]
    if gain < LEAST:
        return f"1D is the fastest; {slow} is up to {loss:.0%} slower"
    said = f"{fast} is up to {gain:.0%} faster than 1D ({best['num_gpus']:,} {best['accelerator']})"
    if loss < LEAST:
        return said
    subject = "" if worst["strategy"] == best["strategy"] else f"{slow} "
    where = f"{worst['num_gpus']:,} {worst['accelerator']}"
    return f"{said}, {subject}up to {loss:.0%} slower ({where})"
